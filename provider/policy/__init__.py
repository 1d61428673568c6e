"""The steward's policy: its rules, its file, and suggestions for one."""

from .approval import AUTOMATIC, HUMAN, ApprovalRule
from .caps import Cap, Range, filter_of
from .file import CurrentPolicy, read_policy, read_readable_part
from .job_request import JobRequest
from .rules import Policy, Rules, UnreadablePolicyError, faults
from .suggestion import budget_for_a_few, suggest
from .terms import conditions_of

__all__ = [
    "AUTOMATIC",
    "HUMAN",
    "ApprovalRule",
    "Cap",
    "CurrentPolicy",
    "JobRequest",
    "Policy",
    "Range",
    "Rules",
    "UnreadablePolicyError",
    "budget_for_a_few",
    "conditions_of",
    "faults",
    "filter_of",
    "read_policy",
    "read_readable_part",
    "suggest",
]
