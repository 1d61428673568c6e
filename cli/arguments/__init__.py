"""The arguments of commands: flags, job files, and checks that come before any work."""

from . import empty_values, job_files, job_flags
from .data_flags import Chosen, DataSet, Providers
from .fingerprints import fingerprint, read_fingerprint
from .flags import (
    CHECK_CODES,
    DAEMON_CODES,
    EXIT_CODES,
    AnalystSettingsFile,
    AnySettings,
    AsJson,
    DaemonSettingsFile,
    Force,
    ModelFile,
    Plots,
    RetrySeconds,
    with_job_flags,
    with_public_facts,
)
from .method_options import OPTIONS_WITH_FLAGS
from .public_facts import PublicFacts

__all__ = [
    "CHECK_CODES",
    "DAEMON_CODES",
    "EXIT_CODES",
    "OPTIONS_WITH_FLAGS",
    "AnalystSettingsFile",
    "AnySettings",
    "AsJson",
    "Chosen",
    "DaemonSettingsFile",
    "DataSet",
    "Force",
    "ModelFile",
    "Plots",
    "Providers",
    "PublicFacts",
    "RetrySeconds",
    "empty_values",
    "fingerprint",
    "job_files",
    "job_flags",
    "read_fingerprint",
    "with_job_flags",
    "with_public_facts",
]
