"""Whether a job may still be answered: asked before every query, and before every piece of an answer leaves.

A signature counts for as long as its certificate does, and the steward may change the policy while a job runs. A job
that the policy of this moment does not allow is answered no further: not its next query, not the rest of an answer,
and not an answer that was stored before. What was answered by then stays spent. The rest of what was promised is free
again at once, because the job is closed in the ledger, and it stays closed if the policy changes back.

A policy that cannot be read allows nothing, either. But then nobody has decided about the job, so it is not closed: it
goes on, if the coordinator still asks, when the policy is mended.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.names import PartyName
from dpspca.common.privacy import Filter, PrivacyUnit
from dpspca.common.spec import JobSpec
from dpspca.common.trust import JobEnvelope, RevocationList, SignedJob, require_still_valid
from dpspca.provider.ledger import Ledger, Limits, Promise, Quotas
from dpspca.provider.policy import UnreadablePolicyError

WITHDRAWN: Final = "withdrawn"
"""How a job ended that the policy stopped allowing."""

_log = logging.getLogger(__name__)


class WithdrawnError(RefusedError):
    """The policy stopped allowing a job while it ran: it is over here."""

    code = "withdrawn"


class Ruling(Protocol):
    """What is allowed on one data set. Two that compare equal allow the same."""

    @property
    def unit(self) -> PrivacyUnit | None:
        """The unit that every job protects, if there is only one."""
        ...

    @property
    def least_bound(self) -> float | None:
        """The least norm bound that a job may have, if there is one."""
        ...

    @property
    def promise(self) -> Promise | None:
        """Which neighbours all jobs together protect, if that is stated."""
        ...

    @property
    def quotas(self) -> Quotas | None:
        """How much the jobs of one analyst may take, if that is bounded."""
        ...

    @property
    def answer_interval(self) -> float | None:
        """Seconds between two moments at which an answer may leave; None for what follows from the plan."""
        ...

    def check(self, spec: JobSpec, analyst: PartyName, audience: tuple[str, ...]) -> None:
        """Refuse a job that breaks a rule."""
        ...

    def limits(self, analyst: PartyName) -> tuple[Filter, Filter | None]:
        """Give the budgets of the data set and of this analyst, with nothing spent in them."""
        ...


class Allowing(Protocol):
    """A policy."""

    def rules(self, data_set: str) -> Ruling:
        """Give the rules of a data set, or refuse."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """What permission follows from, each as it is now."""

    authority_pem: bytes
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    policy: Callable[[], Allowing]
    ledger: Ledger


class Permission:
    """That of one verified job."""

    def __init__(
        self, sources: Sources, signed: SignedJob, envelope: JobEnvelope, spec: JobSpec, analyst: PartyName
    ) -> None:
        self._sources = sources
        self._signed = signed
        self._envelope = envelope
        self._spec = spec
        self._analyst = analyst
        self._kept: Ruling | None = None
        self._withdrawn: WithdrawnError | None = None

    def rules(self) -> Ruling:
        """Give the rules of this moment, if the job keeps them; else it is refused, and closed if it is open."""
        with self._withdrawing():
            rules = self._sources.policy().rules(self._envelope.data_set)
            rules.check(self._spec, self._analyst, self._envelope.audience)
        return rules

    def require_room(self, rules: Ruling) -> None:
        """Refuse a job in the ledger if the budgets are smaller than all that is spent and promised of them.

        The ledger asks this of a job when it admits it, and never again; a budget may have been lowered since.
        """
        limits = Limits(*rules.limits(self._analyst))
        with self._withdrawing():
            self._sources.ledger.require_within(self._envelope.data_set, self._analyst.uri, limits)
        self._kept = rules

    def require(self) -> None:
        """Refuse a job that is to be believed no longer, or that the policy of this moment does not allow."""
        sources = self._sources
        now, revoked = sources.clock(), sources.revocations()
        require_still_valid(self._signed, self._envelope, sources.authority_pem, now=now, revoked=revoked)
        if self._withdrawn:
            raise self._withdrawn.with_traceback(None)
        if self._has_changed():
            try:
                self.require_room(self.rules())
            except UnreadablePolicyError:
                raise
            except RefusedError as problem:
                self._withdrawn = WithdrawnError(f"The policy changed while this job ran. {problem.what}", _OVER)
                raise self._withdrawn from None

    def _has_changed(self) -> bool:
        """Tell whether the rules are others than those that the job was held against: a quick look."""
        try:
            return self._sources.policy().rules(self._envelope.data_set) != self._kept
        except RefusedError:
            return True

    @contextmanager
    def _withdrawing(self) -> Iterator[None]:
        """Close the job if the policy refuses it; not if the policy cannot be read."""
        try:
            yield
        except UnreadablePolicyError:
            raise
        except RefusedError:
            try:
                self._sources.ledger.close(self._signed.job_id, WITHDRAWN)
            except DpspcaError as problem:  # a quarantine, or a disk: it ends when it expires
                _log.warning("Job %.12s was not closed: %s", self._signed.job_id, problem)
            raise


_OVER: Final = (
    "Nothing more of it is answered, and the budget that it did not use is free again. What was answered stays spent. "
    "Sign a new job within the policy, or ask the steward of the data."
)
