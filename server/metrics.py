"""A coordinator's metrics for its operator: connections, jobs, times, bytes and refusals.

None of it is about rows: the coordinator has none. No label names a party, so that the numbers do not show who asked
what.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from dpspca.common import errors
from dpspca.common.errors import DpspcaError
from dpspca.common.metrics import CERTIFICATE, OTHER, REVOCATIONS, Family, MetricKind, Metrics

CONNECTIONS: Final = Family("dpspca_connections", MetricKind.GAUGE, "Open connections, by the party's role.", ("role",))
PROVIDERS: Final = Family("dpspca_providers_connected", MetricKind.GAUGE, "Providers that can be asked.")
SERVING: Final = Family("dpspca_serving", MetricKind.GAUGE, "1 if this coordinator serves, 0 if it is a standby.")
RELOAD_FAILED: Final = Family(
    "dpspca_coordinator_reload_failed", MetricKind.GAUGE, "1 if the settings could not be reloaded, else 0."
)
RUNNING: Final = Family("dpspca_jobs", MetricKind.GAUGE, "Jobs that have not ended, by state.", ("state",))
ENDED: Final = Family(
    "dpspca_jobs_ended_total", MetricKind.COUNTER, "Jobs that ended since the start, by state.", ("state",)
)
CALLS: Final = Family(
    "dpspca_call_seconds", MetricKind.HISTOGRAM, "How long analysts' calls took that are answered at once.", ("method",)
)
ANSWERS: Final = Family("dpspca_answer_seconds", MetricKind.HISTOGRAM, "From a query to a provider's whole answer.")
BYTES: Final = Family("dpspca_bytes_total", MetricKind.COUNTER, "Bytes on the wire, inside TLS or not.", ("direction",))
REFUSED: Final = Family(
    "dpspca_refusals_total", MetricKind.COUNTER, "Refusals, by who refused and the code.", ("by", "code")
)

FAMILIES: Final = (
    CONNECTIONS,
    PROVIDERS,
    SERVING,
    RELOAD_FAILED,
    RUNNING,
    ENDED,
    CALLS,
    ANSWERS,
    BYTES,
    REFUSED,
    CERTIFICATE,
    REVOCATIONS,
)

TIMED: Final = frozenset({"Submit", "List", "Get", "Cancel", "DataSets", "Statements", "Parties"})
"""Calls whose time shows how fast the coordinator is. Other calls wait for jobs or for their reader."""

_CODES: Final = {
    each.code for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DpspcaError)
} | {
    *("withdrawn", "policy-unreadable", "quota-exceeded", "no-engine", "part-changed", "no-scratch"),
    *("awaiting-approval", "approval-expired", "approval-queue-full", "not-approved", "rejected", "shared-account"),
    *("ledger", "quarantined", "ledger-damaged", "ledger-in-use", "ledger-disk", "not-quarantined"),
    *("journal", "journal-damaged", "journal-lost", "stopping", "result-gone", "replay", "plan-exceeded"),
    *("too-few-providers", "provider-lost", "provider-refused", "provider-not-ready", "parties-changed"),
    *("not-incoherent", "mailbox-away", "slot-full", "unsupported-system"),
}


class CoordinatorMetrics:
    """The numbers of one coordinator. ``collect`` reads those that it does not count itself."""

    def __init__(self) -> None:
        self._metrics = Metrics(FAMILIES)
        self._collect: Callable[[], Mapping[Family, Mapping[tuple[str, ...], float]]] = dict

    def collect_from(self, collect: Callable[[], Mapping[Family, Mapping[tuple[str, ...], float]]]) -> None:
        """Set the function that reads numbers when they are asked for."""
        self._collect = collect

    def call_ended(self, method: str, seconds: float) -> None:
        """Count a call."""
        if method in TIMED:
            self._metrics.observe(CALLS.name, seconds, method)

    def answered(self, seconds: float) -> None:
        """Count a provider's answer."""
        self._metrics.observe(ANSWERS.name, seconds)

    def refused(self, by: str, code: str) -> None:
        """Count a refusal. A code that is not ours, such as a provider's invention, counts as other."""
        self._metrics.count(REFUSED.name, by, code if code in _CODES else OTHER)

    def text(self) -> str:
        """Return everything as Prometheus reads it."""
        for family, numbers in self._collect().items():
            self._metrics.replace(family.name, numbers)
        return self._metrics.text()


def by_label(counts: Counter[str]) -> dict[tuple[str, ...], float]:
    """Return counts by one label as a gauge takes them."""
    return {(name,): float(count) for name, count in counts.items() if count}
