"""The jobs that a provider serves, and the check that each may still be answered."""

from .open_job import OpenJob
from .registry import JobRegistry, ProviderSetup
from .start_checks import require_one_name
from .statements import Statements

__all__ = [
    "JobRegistry",
    "OpenJob",
    "ProviderSetup",
    "Statements",
    "require_one_name",
]
