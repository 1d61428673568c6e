"""What happens at a coordinator, as its stream of events tells it. Pure.

None of it is about rows, which the coordinator does not have. Reasons of other parties are quoted as the log quotes
them: escaped and shortened.
"""

from types import MappingProxyType
from typing import Final

from dpspca.common.storage import Kinds

EVENTS: Final[Kinds] = MappingProxyType({
    "started": ("address",),
    "serving": (),
    "stopped": (),
    "connected": ("party", "data_sets"),
    "disconnected": ("party", "reason"),
    "submitted": ("job", "analyst", "data_set", "unit", "epsilon", "delta", "providers", "queries", "expires_at"),
    "continued": ("job", "query"),
    "left-out": ("job", "party", "reason"),
    "ended": ("job", "state", "reason"),
    "settings": ("taken", "problem"),
    "lost": ("events",),
})  # fmt: skip
