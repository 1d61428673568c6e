"""The jobs that a provider serves, and the check that each may still be answered."""

from .offer import OfferedData
from .open_job import OpenJob, RetiredError
from .permission import PolicyLike
from .registry import JobRegistry, ProviderSetup
from .start_checks import require_one_name
from .statements import Statements

__all__ = [
    "JobRegistry",
    "OfferedData",
    "OpenJob",
    "PolicyLike",
    "ProviderSetup",
    "RetiredError",
    "Statements",
    "require_one_name",
]
