"""Evidence of a job: one file that others can check years later, without a federation and without a network."""

from .collect import collect
from .document import Evidence, Outcome, Reported
from .findings import Finding, Findings
from .verify import verify

__all__ = [
    "Evidence",
    "Finding",
    "Findings",
    "Outcome",
    "Reported",
    "collect",
    "verify",
]
