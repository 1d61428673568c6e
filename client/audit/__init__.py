"""Audits of what leaves a provider, on made-up data."""

from . import answers
from .answers import Audit
from .daemons import daemons

__all__ = [
    "Audit",
    "answers",
    "daemons",
]
