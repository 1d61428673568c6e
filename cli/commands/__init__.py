"""The commands, one group a file. Each reads its arguments, calls the packages that do the work, and prints."""

from . import (
    approval,
    audit,
    budget,
    daemons,
    demo,
    doctor,
    identity,
    jobs,
    ledger,
    methods,
    models,
    outbox,
    plan,
    policy,
    study,
)

__all__ = [
    "approval",
    "audit",
    "budget",
    "daemons",
    "demo",
    "doctor",
    "identity",
    "jobs",
    "ledger",
    "methods",
    "models",
    "outbox",
    "plan",
    "policy",
    "study",
]
