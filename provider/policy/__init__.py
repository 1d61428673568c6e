"""What the steward allows: rules, their file, their words, and suggestions."""

from .caps import Cap, filter_of
from .file import CurrentPolicy, read_policy, read_readable_part
from .rules import Policy, Rules, UnreadablePolicyError, faults
from .suggestion import a_few, suggest

__all__ = [
    "Cap",
    "CurrentPolicy",
    "Policy",
    "Rules",
    "UnreadablePolicyError",
    "a_few",
    "faults",
    "filter_of",
    "read_policy",
    "read_readable_part",
    "suggest",
]
