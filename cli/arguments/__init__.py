"""The arguments of commands: flags, job files, and checks that come before any work."""

from . import empty_values, job_flags
from .flags import (
    CHECK_CODES,
    DAEMON_CODES,
    EXIT_CODES,
    AnalystSettings,
    AnySettings,
    AsJson,
    Force,
    ModelFile,
    OwnSettings,
    Patience,
    Plots,
    spread,
)
from .method_options import SHORT, USUAL

__all__ = [
    "CHECK_CODES",
    "DAEMON_CODES",
    "EXIT_CODES",
    "SHORT",
    "USUAL",
    "AnalystSettings",
    "AnySettings",
    "AsJson",
    "Force",
    "ModelFile",
    "OwnSettings",
    "Patience",
    "Plots",
    "empty_values",
    "job_flags",
    "spread",
]
