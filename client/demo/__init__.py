"""A complete federation on this machine, with public or made-up rows."""

from .loopback import (
    ANALYST,
    COORDINATOR,
    DATA_SET,
    LISTEN,
    PARENT_VARIABLE,
    POLICY,
    POLL_SECONDS,
    REVOCATIONS,
    Loopback,
    Parties,
    Party,
    PartyLostError,
    federation,
    log_on_failure,
    new_federation,
    write_rows,
)
from .made_up import MadeUp, check_sparsity
from .panel import Panel

__all__ = [
    "ANALYST",
    "COORDINATOR",
    "DATA_SET",
    "LISTEN",
    "PARENT_VARIABLE",
    "POLICY",
    "POLL_SECONDS",
    "REVOCATIONS",
    "Loopback",
    "MadeUp",
    "Panel",
    "Parties",
    "Party",
    "PartyLostError",
    "check_sparsity",
    "federation",
    "log_on_failure",
    "new_federation",
    "write_rows",
]
