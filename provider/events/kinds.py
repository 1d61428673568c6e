"""The kinds of event and what each says. Pure.

Nothing here comes from a row: no digest or fingerprint of rows, no hash of an answer, no number of rows. What an event
says follows from signed jobs, the policy, the settings and what persons did.
"""

from types import MappingProxyType
from typing import Final

from dpspca.common.storage import Emit, Kinds
from dpspca.provider.ledger import (
    Closed,
    Decided,
    Fact,
    Lapsed,
    Opening,
    Quarantined,
    QuarantineEnded,
    Reserved,
    Stored,
    Vouched,
    price_facts,
)

EVENTS: Final[Kinds] = MappingProxyType({
    "started": ("data_sets",),
    "stopped": (),
    "admitted": (
        "job", "data_set", "analyst", "unit", "epsilon", "delta", "mu", "units", "slack_units", "queries", "expires_at",
    ),
    "refused": ("job", "query", "code", "reason"),
    "reserved": ("job", "query", "name", "mu", "units", "slack_units"),
    "released": ("job", "query", "bytes"),
    "ended": ("job", "state", "returned_mu", "returned_units", "returned_slack_units"),
    "awaiting-approval": ("job", "data_set", "analyst", "until"),
    "approval-expired": ("job", "data_set", "analyst"),
    "decided": ("job", "data_set", "verdict", "person", "login", "reason"),
    "lapsed": ("job", "state"),
    "policy": ("file", "data_sets", "closed", "problems"),
    "settings": ("taken", "data_sets", "problem"),
    "certificate": ("serial", "until"),
    "revocation-list": ("list_number", "until", "revoked"),
    "quarantined": ("reason",),
    "quarantine-ended": ("reason",),
    "vouched": ("data_set", "reason"),
    "lost": ("events",),
})  # fmt: skip


def emit_fact(emit: Emit, fact: Fact) -> None:
    """Tell of what the ledger records, if it is an event."""
    match fact:
        case Opening():
            asked = {"job": fact.job, "data_set": fact.data_set, "analyst": fact.analyst, "unit": str(fact.unit)}
            budget = {"epsilon": fact.spec_epsilon, "delta": fact.spec_delta, **price_facts(fact.price)}
            emit("admitted", **asked, **budget, queries=fact.queries, expires_at=fact.expires_at)
        case Reserved():
            emit("reserved", job=fact.job, query=fact.position + 1, name=fact.query, **price_facts(fact.price))
        case Stored():
            emit("released", job=fact.job, query=fact.position + 1, bytes=fact.bytes)
        case Closed():
            returned = {f"returned_{key}": value for key, value in price_facts(fact.returned).items()}
            emit("ended", job=fact.job, state=fact.state, **returned)
        case Decided():
            about = {"job": fact.job, "data_set": fact.data_set, "verdict": fact.verdict}
            emit("decided", **about, person=fact.person, login=fact.login, reason=fact.reason)
        case Lapsed():
            emit("lapsed", job=fact.job, state=fact.state)
        case Quarantined():
            emit("quarantined", reason=fact.reason)
        case QuarantineEnded():
            emit("quarantine-ended", reason=fact.reason)
        case Vouched():
            emit("vouched", data_set=fact.data_set, reason=fact.reason)
        case _:  # who wrote the ledger when, and which rows it knows
            pass
