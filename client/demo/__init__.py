"""A whole federation on this machine, on public or made-up rows."""

from .loopback import (
    ANALYST,
    COORDINATOR,
    DATA_SET,
    LISTEN,
    LOOK,
    PARENT,
    POLICY,
    REVOCATIONS,
    Loopback,
    Parties,
    Party,
    PartyLostError,
    federation,
    founded,
    telling_why,
    write_rows,
)
from .made_up import MadeUp, check_sparsity
from .panel import Panel

__all__ = [
    "ANALYST",
    "COORDINATOR",
    "DATA_SET",
    "LISTEN",
    "LOOK",
    "PARENT",
    "POLICY",
    "REVOCATIONS",
    "Loopback",
    "MadeUp",
    "Panel",
    "Parties",
    "Party",
    "PartyLostError",
    "check_sparsity",
    "federation",
    "founded",
    "telling_why",
    "write_rows",
]
