"""The jobs that a provider serves, and the check that each may still be answered."""

from .open_job import OpenJob
from .registry import JobRegistry, ProviderSetup
from .start_checks import require_one_name

__all__ = [
    "JobRegistry",
    "OpenJob",
    "ProviderSetup",
    "require_one_name",
]
