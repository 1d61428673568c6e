"""The jobs that a provider serves, and whether each may still be answered."""

from .open_job import OpenJob
from .registry import Docket, ProviderSetup
from .start_checks import require_own_names

__all__ = [
    "Docket",
    "OpenJob",
    "ProviderSetup",
    "require_own_names",
]
