"""How the coordinator drives jobs: queries out, sums back."""

from .conductor import Conductor
from .news import News
from .outgoing import OutgoingQuery
from .roster import Link, ProviderLostError, Roster
from .rounds import LARGEST_ANSWER, combine

__all__ = [
    "LARGEST_ANSWER",
    "Conductor",
    "Link",
    "News",
    "OutgoingQuery",
    "ProviderLostError",
    "Roster",
    "combine",
]
