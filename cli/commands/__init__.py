"""The commands, one group a file. Each reads its arguments, calls the packages that do the work, and prints."""

from . import (
    approval,
    audit,
    authority,
    budget,
    daemons,
    demo,
    doctor,
    jobs,
    ledger,
    methods,
    models,
    outbox,
    plan,
    policy,
)

__all__ = [
    "approval",
    "audit",
    "authority",
    "budget",
    "daemons",
    "demo",
    "doctor",
    "jobs",
    "ledger",
    "methods",
    "models",
    "outbox",
    "plan",
    "policy",
]
