"""The daemon's part of approvals: it makes jobs wait, records decisions, and says when a job need not wait any more.

A decision counts once it is verified and recorded in the ledger, durably and before anything follows from it. If the
daemon crashes before the queue notes that, it handles the decision again, which records nothing twice.

Each decision, request and notification is handled apart, so that one with a problem delays no other.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.storage import ApprovalSettings, Emit, ignore
from dpspca.common.trust import Identity, JobEnvelope, SignedJob
from dpspca.provider.ledger import Decided, Ledger, Quotas
from dpspca.provider.policy import ApprovalRule, UnreadablePolicyError

from .decisions import ApprovalStatus, approval_status, rejection, require_own_account, require_signed
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
    _logged: set[str] = field(default_factory=set)
    """Problems that were logged and may not be solved yet."""
    _met: set[str] = field(default_factory=set)
    """Problems since the last round of work began."""
    _being_notified: set[str] = field(default_factory=set)
    """Jobs that the steward's command was given, and has not ended for."""

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
            return RequestExpiredError("Nobody here approved the job in time.", "Ask the steward; sign a new job.")
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
        now = self.clock().timestamp()
        with self._apart("Decisions about jobs cannot be taken up now"):
            for stored in self.queue.untaken():
                with self._apart("A decision about a job cannot be taken up now"):
                    self._take(stored.number, stored.read)
        with self._apart("Jobs that wait for approval cannot be looked at now"):
            for each in self.queue.requests(RequestState.WAITING):
                with self._apart(f"Job {each.job:.12} that waits for approval cannot be looked at now"):
                    self._look_at(each, now)
            self.queue.forget(now)
        with self._apart("Jobs that wait for approval cannot be announced now"):
            for each in self.queue.unannounced():
                if each.lapses_at <= now:
                    continue  # nobody can decide about it any more
                with self._apart(f"Job {each.job:.12} that waits for approval cannot be announced now"):
                    self._announce(each)
        self._logged, self._met = self._met, set()

    @contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """Log a problem with one thing, once, and go on with the next. The thing is tried again in the next round."""
        try:
            yield
        except DpspcaError as problem:
            self._log_once(what, problem)

    def _look_at(self, request: ApprovalRequest, now: float) -> None:
        """Let a request expire, or end its wait if the policy has changed so that it needs nobody."""
        if request.lapses_at <= now:
            self._expire(request)
        elif self._needs_nobody(request):
            self.queue.change(request.job, RequestEvent.APPROVE)

    def _expire(self, request: ApprovalRequest) -> None:
        """Say that nobody decided about a job, and note it. After a crash between the two, it is said again."""
        self.events("approval-expired", **_subject(request))
        self.queue.change(request.job, RequestEvent.EXPIRE)
        _log.warning("Nobody approved job %.12s in time.", request.job)

    def _log_once(self, what: str, problem: DpspcaError) -> None:
        """Log a problem that would otherwise be logged every second until it is solved."""
        text = str(problem)
        if text not in self._logged | self._met:
            _log.error("%s: %s", what, text)
        self._met.add(text)

    def _take(self, number: int, read: Callable[[], Decided]) -> None:
        """Verify a decision and record it in the ledger. One that does not count is marked with the reason.

        If the ledger cannot record it now, or the policy cannot be read, it stays and is tried again.
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
        require_own_account(decided, self.ledger.decisions(decided.job), rule)

    def _rule(self, data_set: str) -> ApprovalRule | None:
        return self.policy().rules(data_set).approval_rule

    def _needs_nobody(self, request: ApprovalRequest) -> bool:
        """Whether the policy has changed so that a waiting job needs no further approval."""
        with suppress(RefusedError):
            standing = approval_status(self.ledger.decisions(request.job), self._rule(request.data_set))
            return standing is ApprovalStatus.APPROVED
        return False

    def _announce(self, request: ApprovalRequest) -> None:
        """Tell the steward's command and the event stream about a job that began to wait.

        The queue notes it once the command has ended. So after a crash before that, the job is told again. A job that
        this version cannot read is told with how it stands and the problem.
        """
        notifier = self.notifier
        if request.job in self._being_notified or notifier.is_full:
            return
        signed = self.queue.signed(request.job)
        try:
            facts = self.summarize(request, signed)
        except DpspcaError as problem:
            _log.error("The signed job %.12s in the queue cannot be read: %s", request.job, problem)
            facts = request_facts(request) | {"problem": str(problem)}
        self.events("awaiting-approval", **_subject(request), until=request.lapses_at)
        self._being_notified.add(request.job)
        notifier.notify(facts, lambda: self._note_announced(request.job))

    def _note_announced(self, job: str) -> None:
        """Note that the steward's command has ended for a job. If that fails, the job is told again."""
        try:
            with self._apart(f"It cannot be noted that job {job:.12} was announced"):
                self.queue.mark_announced(job)
        finally:
            self._being_notified.discard(job)


def _subject(request: ApprovalRequest) -> dict[str, str]:
    return {"job": request.job, "data_set": request.data_set, "analyst": request.analyst}
