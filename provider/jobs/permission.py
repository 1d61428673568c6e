"""Whether a job may still be answered. This is checked before every query, and before each piece of an answer leaves.

A signature is valid only as long as its certificate, and the steward may change the policy while a job runs. If the
current policy does not allow a job, nothing more of it is answered: no further query, no further piece of an answer,
and no answer that was stored before. What was asked stays spent. The rest of its reservation is free at once,
because the job is closed in the ledger. It stays closed even if the policy changes back.

If the policy asks for a person's approval, this holds for approvals too: a job that lacks one, or that a person
rejected after it was approved, is answered no further.

An unreadable policy allows nothing either. But then nobody has decided about the job, so it is not closed: it continues
once the policy is repaired, if the coordinator still asks.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import PartyName
from dpspca.common.privacy import Filter, PrivacyUnit
from dpspca.common.trust import JobEnvelope, RevocationList, SignedJob, require_still_valid
from dpspca.provider.approval import RejectedError, require_approved
from dpspca.provider.ledger import Decided, Ledger, Limits, Promise, Quotas
from dpspca.provider.policy import ApprovalRule, JobRequest, UnreadablePolicyError

WITHDRAWN: Final = "withdrawn"
"""The state of a job that ended because the policy no longer allowed it."""

_log = logging.getLogger(__name__)


class WithdrawnError(RefusedError):
    """The policy stopped allowing a job while it ran, so the job has ended at this provider."""

    code = "withdrawn"


class DataSetRules(Protocol):
    """The rules of one data set. Two that compare equal allow the same."""

    @property
    def unit(self) -> PrivacyUnit | None:
        """The unit that every job must protect, if there is only one."""
        ...

    @property
    def least_bound(self) -> float | None:
        """The least norm bound that a job may have, if there is one."""
        ...

    @property
    def promise(self) -> Promise | None:
        """The neighbours that all jobs together protect, if the policy states them."""
        ...

    @property
    def quotas(self) -> Quotas | None:
        """The quotas of one analyst's jobs, if there are any."""
        ...

    @property
    def answer_interval(self) -> float | None:
        """Seconds between two moments at which an answer may leave. None: the interval follows from the plan."""
        ...

    @property
    def approval_rule(self) -> ApprovalRule | None:
        """Who has to approve a job before it is admitted, or None if no approval is needed."""
        ...

    def check(self, job: JobRequest) -> None:
        """Refuse a job that breaks a rule."""
        ...

    def limits(self, analyst: PartyName) -> tuple[Filter, Filter | None]:
        """Return the budgets of the data set and of this analyst, before anything is spent."""
        ...


class PolicyLike(Protocol):
    """A policy."""

    def rules(self, data_set: str) -> DataSetRules:
        """Return the rules of a data set, or refuse."""
        ...


@dataclass(frozen=True, slots=True)
class PermissionSources:
    """The facts on which a permission depends, each read as it is now."""

    authority_pem: bytes
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    policy: Callable[[], PolicyLike]
    ledger: Ledger


class Permission:
    """The permission of one verified job."""

    def __init__(
        self, sources: PermissionSources, signed: SignedJob, envelope: JobEnvelope, request: JobRequest
    ) -> None:
        self._sources = sources
        self._signed = signed
        self._envelope = envelope
        self._request = request
        self._kept: tuple[DataSetRules, tuple[Decided, ...]] | None = None
        self._withdrawn: WithdrawnError | None = None

    def rules(self) -> DataSetRules:
        """Return the current rules if the job keeps them. Otherwise refuse the job, and close it if it is open."""
        with self._withdrawing():
            rules = self._sources.policy().rules(self._envelope.data_set)
            rules.check(self._request)
        return rules

    @property
    def answer_interval(self) -> float | None:
        """The steward's choice of an interval in the rules that the job was last checked against, if it is one."""
        return None if self._kept is None else self._kept[0].answer_interval

    def require_approval(self, rules: DataSetRules) -> tuple[Decided, ...]:
        """Refuse a job that persons rejected or did not approve, and close it if it is open. Return their decisions."""
        decisions = self._sources.ledger.decisions(self._signed.job_id)
        with self._withdrawing():
            require_approved(decisions, rules.approval_rule)
        return decisions

    def require_room(self, rules: DataSetRules) -> None:
        """Refuse a job that is not approved, or if the budgets are now smaller than what is spent and reserved.

        The ledger checks this only when it admits a job, and a budget may have been lowered since.
        """
        decisions = self.require_approval(rules)
        limits = Limits(*rules.limits(self._request.analyst))
        with self._withdrawing():
            self._sources.ledger.require_within(self._envelope.data_set, self._request.analyst.uri, limits)
        self._kept = rules, decisions

    def require(self) -> None:
        """Refuse a job that is no longer valid, or that the current policy does not allow."""
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
                why = "" if isinstance(problem, RejectedError) else "The policy changed while this job ran. "
                self._withdrawn = WithdrawnError(f"{why}{problem.what}", _OVER)
                raise self._withdrawn from None

    def _has_changed(self) -> bool:
        """Tell quickly whether the rules or the decisions differ from those that the job was checked against."""
        decisions = self._sources.ledger.decisions(self._signed.job_id)
        try:
            return (self._sources.policy().rules(self._envelope.data_set), decisions) != self._kept
        except RefusedError:
            return True

    @contextmanager
    def _withdrawing(self) -> Iterator[None]:
        """Close the job if the policy refuses it, but not if the policy cannot be read."""
        try:
            yield
        except UnreadablePolicyError:
            raise
        except RefusedError:
            try:
                self._sources.ledger.close(self._signed.job_id, WITHDRAWN)
            except DpspcaError as problem:  # a quarantine or a disk error: the job ends when it expires
                what = "Job %.12s was not closed: %s"
                _log.warning(what, self._signed.job_id, problem, extra=about(THE_COORDINATOR))
            raise


_OVER: Final = (
    "The job has ended here. What it did not use of its budget is free again, and what was asked stays spent. Sign "
    "a new job that keeps the policy, or ask the steward."
)
