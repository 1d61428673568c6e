"""From a signed spec to the exact list of queries that may be asked, the noise of each and its price.

The provider's gate and the coordinator compute the same list with the same code. Nothing in it depends on data.
"""

from .plan import Plan, events, prices
from .pricing import price, queries, theorem_4_1
from .steps import Intent, Intents, Noise, Published, Series, Step

__all__ = [
    "Intent",
    "Intents",
    "Noise",
    "Plan",
    "Published",
    "Series",
    "Step",
    "events",
    "price",
    "prices",
    "queries",
    "theorem_4_1",
]
