"""The daemon's part of approvals: it makes jobs wait, records decisions, and says when a job need not wait any more.

A decision counts once it is verified and recorded in the ledger, durably and before anything follows from it. If the
daemon crashes before the queue notes that, it handles the decision again, which records nothing twice.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.storage import ApprovalSettings, Emit, ignore
from dpspca.common.trust import Identity, JobEnvelope, SignedJob
from dpspca.provider.ledger import Decided, Ledger, Quotas
from dpspca.provider.policy import ApprovalRule, UnreadablePolicyError

from .decisions import ApprovalStatus, approval_status, rejection, require_signed
from .notify import Notifier
from .queue import ApprovalQueue, QueueError
from .requests import ApprovalRequest, RequestEvent, RequestState
from .words import request_facts, summary

HOUR: Final = 3600

_log = logging.getLogger(__name__)


class AwaitingApprovalError(RefusedError):
    """A person at the provider has to approve the job first. Nothing is reserved, and nothing is spent."""

    code = "awaiting-approval"

    def __init__(self, request: ApprovalRequest) -> None:
        super().__init__("A person at this provider has to approve the job first.", "Wait for the decision.")
        self.request = request


class RequestExpiredError(RefusedError):
    """Nobody decided about the job in time."""

    code = "approval-expired"


class HasApprovalRule(Protocol):
    """The rules of a data set, as far as approvals go."""

    @property
    def approval_rule(self) -> ApprovalRule | None: ...


class HasRules(Protocol):
    """A policy."""

    def rules(self, data_set: str) -> HasApprovalRule:
        """Return the rules of a data set, or refuse."""
        ...


@dataclass(slots=True)
class Approvals:
    """The approvals of one daemon."""

    queue: ApprovalQueue
    ledger: Ledger
    identity: Callable[[], Identity]
    policy: Callable[[], HasRules]
    clock: Callable[[], datetime]
    settings: ApprovalSettings = field(default_factory=ApprovalSettings)
    summarize: Callable[[ApprovalRequest, bytes], dict[str, Any]] = summary
    """Describes a job for the steward's command."""
    events: Emit = ignore
    notifier: Notifier = field(init=False)
    _logged: str = ""

    def __post_init__(self) -> None:
        self.configure(self.settings)

    def configure(self, settings: ApprovalSettings) -> None:
        """Use other settings for jobs that wait from now on, and notify by their command."""
        self.settings = settings
        self.notifier = Notifier(settings.notify, settings.notify_seconds)

    # --- For jobs -----------------------------------------------------------------------------------------------------

    def require(
        self, signed: SignedJob, envelope: JobEnvelope, analyst: str, rule: ApprovalRule | None, quotas: Quotas
    ) -> None:
        """Return if a job may be admitted. Otherwise raise: it was rejected, it waits, or it waited too long."""
        job = signed.job_id
        decisions = self.ledger.decisions(job)
        match approval_status(decisions, rule):
            case ApprovalStatus.REJECTED:
                raise rejection(decisions)
            case ApprovalStatus.APPROVED:
                return
            case ApprovalStatus.WAITING:
                raise self._reason_to_wait(signed, envelope, analyst, quotas)

    def _reason_to_wait(self, signed: SignedJob, envelope: JobEnvelope, analyst: str, quotas: Quotas) -> RefusedError:
        """Put a job into the queue, if it is not there, and return the error that says how it stands."""
        now = int(self.clock().timestamp())
        lapses_at = min(now + self.settings.expires_hours * HOUR, envelope.expires_at)
        request = ApprovalRequest(
            signed.job_id, analyst, envelope.data_set, now, lapses_at, envelope.expires_at, RequestState.WAITING
        )
        try:
            known = self.queue.ask(request, signed.to_bytes(), quotas.jobs_a_day)
        except QueueError as problem:
            _log.error("Job %.12s cannot wait for approval: %s", signed.job_id, problem, extra=about(THE_COORDINATOR))
            return RefusedError("This provider cannot ask for approval at the moment.", "Try again later.")
        if known.state is RequestState.WAITING and known.lapses_at > now:
            facts = (known.job, analyst, known.data_set)
            _log.info("Job %.12s of %s over '%s' waits for approval.", *facts, extra=about(THE_COORDINATOR))
            return AwaitingApprovalError(known)
        if known.state in {RequestState.WAITING, RequestState.EXPIRED}:
            return RequestExpiredError("Nobody here approved the job in time.", "Ask the data steward; sign a new job.")
        return RefusedError(f"This job is {known.state} at this provider.", "Sign a new job.")

    def close(self, job: str) -> None:
        """End a job's request, if it has one that has not ended."""
        try:
            self.queue.change(job, RequestEvent.END)
        except QueueError as problem:
            what = "Job %.12s stays in the queue of approvals until it expires: %s"
            _log.error(what, job, problem, extra=about(THE_COORDINATOR))
        except RefusedError:
            pass  # it was rejected, or has expired

    def waiting(self) -> frozenset[str] | None:
        """Name the jobs that wait, or return None if this cannot be read now."""
        try:
            return frozenset(each.job for each in self.queue.requests(RequestState.WAITING))
        except QueueError as problem:
            self._log_once("The queue of approvals cannot be read", problem)
            return None

    # --- For decisions ------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Take decisions up, let requests expire, and notify the steward. Called regularly."""
        try:
            now = self.clock().timestamp()
            for stored in self.queue.untaken():
                self._take(stored.number, stored.read)
            for each in self.queue.requests(RequestState.WAITING):
                if each.lapses_at <= now:
                    self._expire(each)
                elif self._needs_nobody(each):
                    self.queue.change(each.job, RequestEvent.APPROVE)
            self.queue.forget(now)
            self._announce()
            self._logged = ""
        except DpspcaError as problem:
            self._log_once("Decisions about jobs cannot be taken up now", problem)

    def _expire(self, request: ApprovalRequest) -> None:
        """Say that nobody decided about a job, and note it. After a crash between the two, it is said again."""
        self.events("approval-expired", **_subject(request))
        self.queue.change(request.job, RequestEvent.EXPIRE)
        _log.warning("Nobody approved job %.12s in time.", request.job)

    def _log_once(self, what: str, problem: DpspcaError) -> None:
        """Log a problem that would otherwise be logged every second until it is solved."""
        if str(problem) != self._logged:
            _log.error("%s: %s", what, problem)
            self._logged = str(problem)

    def _take(self, number: int, read: Callable[[], Decided]) -> None:
        """Verify a decision and record it in the ledger. One that does not count is marked with the reason.

        If the ledger cannot record it now, it stays and is tried again.
        """
        try:
            decided = read()
            self._require_valid(decided)
            self.ledger.decide(decided)
            standing = approval_status(self.ledger.decisions(decided.job), self._rule(decided.data_set))
            if standing is not ApprovalStatus.WAITING:
                event = RequestEvent.APPROVE if standing is ApprovalStatus.APPROVED else RequestEvent.REJECT
                with suppress(RefusedError):  # a crash came after this and before the decision was marked
                    self.queue.change(decided.job, event)
        except UnreadablePolicyError:
            raise
        except RefusedError as problem:
            _log.warning("A decision about a job does not count: %s", problem)
            self.queue.mark_taken(number, str(problem))
        else:
            verdict = f"{decided.verdict} by {decided.person}"
            _log.info("Job %.12s: %s. It is %s.", decided.job, verdict, standing)
            self.queue.mark_taken(number)

    def _require_valid(self, decided: Decided) -> None:
        """Refuse a decision that this provider's key did not sign, by a stranger, or about no job that waits."""
        me = self.identity()
        require_signed(decided, me.name, me.authority_pem)
        rule = self._rule(decided.data_set)
        if rule is None or decided.person not in rule.approvers:
            raise RefusedError(f"The policy does not name {decided.person} as an approver.", "Name them in approvers.")
        request = self.queue.find(decided.job)
        about = (decided.data_set, decided.expires_at)
        if request is None or (request.data_set, request.expires_at) != about:
            raise RefusedError("The queue has no job for this decision.", "List the jobs with `dpspca approval list`.")
        recorded = decided in self.ledger.decisions(decided.job)
        if not recorded and request.state not in {RequestState.WAITING, RequestState.APPROVED}:
            raise RefusedError(f"The job is {request.state}.", "Ask the analyst to sign a new job.")

    def _rule(self, data_set: str) -> ApprovalRule | None:
        return self.policy().rules(data_set).approval_rule

    def _needs_nobody(self, request: ApprovalRequest) -> bool:
        """Whether the policy has changed so that a waiting job needs no further approval."""
        with suppress(RefusedError):
            standing = approval_status(self.ledger.decisions(request.job), self._rule(request.data_set))
            return standing is ApprovalStatus.APPROVED
        return False

    def _announce(self) -> None:
        """Tell the steward's command and the event stream about jobs that began to wait.

        After a crash between telling and noting it, a job is told again. A job that this version cannot read is told
        with how it stands and the problem.
        """
        for each in self.queue.unannounced():
            signed = self.queue.signed(each.job)
            try:
                facts = self.summarize(each, signed)
            except DpspcaError as problem:
                _log.error("The signed job %.12s in the queue cannot be read: %s", each.job, problem)
                facts = request_facts(each) | {"problem": str(problem)}
            if self.notifier.notify(facts):
                self.events("awaiting-approval", **_subject(each), until=each.lapses_at)
                self.queue.mark_announced(each.job)


def _subject(request: ApprovalRequest) -> dict[str, str]:
    return {"job": request.job, "data_set": request.data_set, "analyst": request.analyst}
