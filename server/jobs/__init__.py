"""Runs jobs: sends each query to the providers and adds their answers."""

from .job_runner import JobRunner
from .name_events import NameEvents
from .outgoing_query import OutgoingQuery
from .presence import PresenceLog
from .roster import Link, ProviderLostError, Roster
from .sums import LARGEST_ANSWER, JobSums, combine

__all__ = [
    "LARGEST_ANSWER",
    "JobRunner",
    "JobSums",
    "Link",
    "NameEvents",
    "OutgoingQuery",
    "PresenceLog",
    "ProviderLostError",
    "Roster",
    "combine",
]
