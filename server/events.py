"""The events of a coordinator, for its event stream. Pure.

None of it is about rows, which the coordinator does not have. Reasons of other parties are quoted as the log quotes
them: escaped and shortened.
"""

from types import MappingProxyType
from typing import Any, Final

from dpspca.common.job import JobSpec
from dpspca.common.storage import Kinds
from dpspca.common.trust import JobEnvelope

EVENTS: Final[Kinds] = MappingProxyType({
    "started": ("address",),
    "serving": (),
    "stopped": (),
    "connected": ("party", "data_sets"),
    "disconnected": ("party", "reason"),
    "refused": ("party", "call", "code", "repeated"),
    "certificate": ("serial", "until"),
    "revocation-list": ("list_number", "until", "revoked"),
    "submitted": ("job", "analyst", "data_set", "unit", "epsilon", "delta", "providers", "queries", "expires_at"),
    "continued": ("job", "query"),
    "left-out": ("job", "party", "reason"),
    "ended": ("job", "state", "reason"),
    "settings": ("taken", "problem"),
    "lost": ("events",),
})  # fmt: skip


def asked_facts(envelope: JobEnvelope, spec: JobSpec) -> dict[str, Any]:
    """Return the request of a submitted job, and the providers that it names."""
    budget = {"unit": str(spec.unit), "epsilon": spec.budget.epsilon, "delta": spec.budget.delta}
    asked = {"data_set": envelope.data_set, "providers": list(envelope.audience)}
    return asked | budget | {"expires_at": envelope.expires_at}
