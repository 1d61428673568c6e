"""The plan of a job: from the signed spec, the list of all queries that may be asked, with their noise and prices.

The provider's gate and the coordinator compute the same plan with the same code. Nothing in it depends on data.
"""

from .plan import NUMBER_BYTES, Plan, events, prices
from .pricing import count_queries, price, theorem_4_1
from .steps import EXPLAINING, Noise, PlannedQueries, PlannedQuery, PublishedNoise, QuerySeries, Step

__all__ = [
    "EXPLAINING",
    "NUMBER_BYTES",
    "Noise",
    "Plan",
    "PlannedQueries",
    "PlannedQuery",
    "PublishedNoise",
    "QuerySeries",
    "Step",
    "count_queries",
    "events",
    "price",
    "prices",
    "theorem_4_1",
]
