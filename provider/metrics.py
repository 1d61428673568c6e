"""A provider's metrics for its operator, if its settings ask for them: budgets, the ledger, the certificate.

Nothing here comes from a row. What is left of a budget follows from signed jobs, as in ``dpspca budget``.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dpspca.common.errors import DpspcaError
from dpspca.common.metrics import CERTIFICATE, REVOCATIONS, Family, MetricKind, Metrics
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import UNIT, root_down
from dpspca.common.transport import days_until

from .approval import RequestState
from .jobs import ProviderSetup
from .ledger import Limits, QuarantinedError
from .policy import Policy, Rules, filter_of

CONNECTED: Final = Family("dpspca_provider_connected", MetricKind.GAUGE, "1 if the coordinator proved itself, else 0.")
QUARANTINE: Final = Family("dpspca_ledger_quarantined", MetricKind.GAUGE, "1 if the ledger is in quarantine, else 0.")
POLICY: Final = Family(
    "dpspca_policy_unreadable", MetricKind.GAUGE, "1 if the policy, or a table in it, cannot be read, else 0."
)
RELOAD_FAILED: Final = Family(
    "dpspca_provider_reload_failed", MetricKind.GAUGE, "1 if the settings could not be reloaded, else 0."
)
OPEN_JOBS: Final = Family("dpspca_provider_jobs_open", MetricKind.GAUGE, "Jobs that are open here.")
LEFT: Final = Family(
    "dpspca_budget_left_mu", MetricKind.GAUGE, "What is left of a data set's lifetime, in mu.", ("data_set",)
)
WHOLE: Final = Family("dpspca_budget_mu", MetricKind.GAUGE, "A data set's lifetime, in mu.", ("data_set",))
WAITING: Final = Family(
    "dpspca_approval_waiting_jobs", MetricKind.GAUGE, "Jobs that wait for a person's approval here."
)
WAITING_HOURS: Final = Family(
    "dpspca_approval_waiting_hours", MetricKind.GAUGE, "Since how many hours the oldest of them waits; 0 if none does."
)

FAMILIES: Final = (
    CONNECTED,
    CERTIFICATE,
    REVOCATIONS,
    QUARANTINE,
    POLICY,
    RELOAD_FAILED,
    OPEN_JOBS,
    WAITING,
    WAITING_HOURS,
    LEFT,
    WHOLE,
)


class ProviderMetrics:
    """Reads the numbers of one provider when somebody looks."""

    def __init__(
        self, setup: ProviderSetup, connected: Callable[[], bool], reload_failed: Callable[[], bool] = bool
    ) -> None:
        self._setup = setup
        self._connected = connected
        self._reload_failed = reload_failed
        self._metrics = Metrics(FAMILIES)

    def text(self) -> str:
        """Return everything as Prometheus reads it."""
        put, setup = self._metrics.replace, self._setup
        left, whole, undecided = self._budgets()
        put(CONNECTED.name, {(): float(self._connected())})
        put(CERTIFICATE.name, {(): days_until(setup.identity().not_after, setup.clock())})
        with suppress(DpspcaError):
            put(REVOCATIONS.name, {(): days_until(setup.revocations().next_update, setup.clock())})
        put(QUARANTINE.name, {(): float(undecided or setup.ledger.quarantine is not None)})
        put(POLICY.name, {(): float(self._is_policy_unreadable())})
        put(RELOAD_FAILED.name, {(): float(self._reload_failed())})
        put(OPEN_JOBS.name, {(): float(len(setup.ledger.open_jobs()))})
        since = self._waiting_since()
        put(WAITING.name, {(): float(len(since))})
        put(WAITING_HOURS.name, {(): max(0.0, setup.clock().timestamp() - min(since)) / 3600 if since else 0.0})
        put(LEFT.name, left)
        put(WHOLE.name, whole)
        return self._metrics.text()

    def _is_policy_unreadable(self) -> bool:
        """Tell whether something closes data sets that the steward may have wanted open."""
        policy = self._setup.policy()
        return isinstance(policy, Policy) and policy.unreadable != frozenset()

    def _waiting_since(self) -> list[int]:
        """Return since when each job waits for approval, in seconds since 1970."""
        with suppress(DpspcaError):  # the daemon's log says what is wrong with the queue
            if approvals := self._setup.approvals:
                return [each.asked_at for each in approvals.queue.requests(RequestState.WAITING)]
        return []

    def _budgets(self) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float], bool]:
        """Return the rest of each data set's lifetime, the whole lifetime, and whether a quarantine closes one of them.

        After a quarantine, a data set stays closed until an operator has decided what counts as spent of it.
        """
        left, whole, undecided = dict[tuple[str, ...], float](), dict[tuple[str, ...], float](), False
        for name in sorted(self._setup.data_sets):
            with suppress(DpspcaError):  # no rules: nothing is allowed
                rules = self._setup.policy().rules(name)
                if not isinstance(rules, Rules):
                    continue
                budget = filter_of(rules.lifetime)
                whole[name,], left[name,] = budget.budget, 0.0
                try:
                    room = self._setup.ledger.room(name, _NOBODY, Limits(budget))
                    left[name,] = root_down(room.units * UNIT)
                except QuarantinedError:
                    undecided = True
        return left, whole, undecided


_NOBODY: Final = PartyName("none", Role.ANALYST, "none").uri
