"""The steward's part of approvals, on the provider's own machine: which jobs wait, what each asks, and decisions.

Anybody who can read the provider's key can decide, under any name that the policy lists. The commands work whether the
daemon runs or not: the daemon handles decisions within a second, or when it starts.
"""

import getpass
import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dpspca.client.clock import now
from dpspca.common.checks import check
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.storage import ProviderSettings, read_settings, require_own
from dpspca.common.trust import Identity
from dpspca.provider.approval import (
    ApprovalQueue,
    ApprovalRequest,
    RequestState,
    SignedContent,
    StoredDecision,
    balance_facts,
    decision_facts,
    make_decision,
    request_facts,
    requested_job_facts,
    require_own_account,
)
from dpspca.provider.ledger import Decided, LedgerReader, ledger_paths, read_ledger
from dpspca.provider.policy import ApprovalRule, Rules, UnreadablePolicyError, read_readable_part
from dpspca.provider.startup import approval_queue

TAKEN_SECONDS: Final = 5.0
"""How long to wait for the daemon to take a decision up."""
_PAUSE: Final = 0.1
_UNDECIDED: Final = frozenset({RequestState.WAITING, RequestState.APPROVED})
"""The states in which a job can be decided about. One that was approved can be rejected."""
_SHOWN: Final = 5
_LIST: Final = "List the jobs with `dpspca approval list`."


@dataclass(frozen=True)
class ApprovalOffice:
    """The queue of one provider, and what is needed to understand it and to decide."""

    config: Path
    settings: ProviderSettings
    queue: ApprovalQueue

    @classmethod
    def of(cls, config: Path) -> "ApprovalOffice":
        """Open the queue of the provider that has these settings."""
        require_own(ProviderSettings, config)
        settings = read_settings(ProviderSettings, config)
        return cls(config, settings, approval_queue(settings, config))

    @cached_property
    def _ledger(self) -> tuple[LedgerReader | None, str]:
        """The ledger and why it cannot be read. Before the daemon has made it, there is neither."""
        if not ledger_paths(self.settings, self.config)[0].exists():
            return None, ""
        try:
            return read_ledger(self.config), ""
        except DpspcaError as problem:
            return None, str(problem)

    def requests(self, *, every: bool = False) -> list[dict[str, Any]]:
        """List the waiting jobs, or all that have not expired, oldest first."""
        states = () if every else (RequestState.WAITING,)
        return [self._standing(each) for each in self.queue.requests(*states)]

    def find(self, name: str) -> ApprovalRequest:
        """Find a job by the first characters of its name."""
        check(bool(name.strip()), f"The name of the job is {name!r}.", _LIST)
        found = [each for each in self.queue.requests() if each.job.startswith(name)]
        check(bool(found), f"No job in the queue begins with {name!r:.80}.", _LIST)
        shown = ", ".join(each.job[:12] for each in found[:_SHOWN])
        check(
            len(found) == 1, f"{len(found)} jobs begin with {name!r:.80}: {shown}.", "Use more characters of the name."
        )
        return found[0]

    def facts(self, request: ApprovalRequest) -> dict[str, Any]:
        """Return everything that a person needs to decide, as plain values.

        Of a job that has ended, return what was decided, and what it asked if that is still known.
        """
        facts = self._standing(request)
        view, ledger_problem = self._ledger
        if ledger_problem:
            facts["ledger_problem"] = ledger_problem
        content, job_problem = self._content(request)
        if content:
            facts |= requested_job_facts(content)
        elif job_problem:
            facts["job_problem"] = job_problem
        if request.state not in _UNDECIDED:
            return facts
        try:
            rules = self._rules(request.data_set)
        except DpspcaError as problem:
            return facts | {"policy_problem": str(problem)}
        if view and content:
            facts["balances"] = balance_facts(view.state, rules, request.analyst, content.plan)
        rule = rules.approval_rule
        return facts | ({"approvers": list(rule.approvers), "approvals_needed": rule.needed} if rule else {})

    def _content(self, request: ApprovalRequest) -> tuple[SignedContent | None, str]:
        """Return what the analyst signed, and why it cannot be read. If it is not kept any more, there is neither."""
        signed = self.queue.signed(request.job)
        try:
            return (SignedContent.read(request, signed) if signed else None), ""
        except DpspcaError as problem:
            return None, str(problem)

    def decide(self, request: ApprovalRequest, verdict: str, person: str | None, reason: str) -> dict[str, Any]:
        """Sign a decision, and wait a moment for the daemon to take it up.

        ``taken`` says whether it did, and ``problem`` why the decision does not count, if it does not.
        """
        person = self.decider(request, verdict, person)
        rule = self._rule(request)
        decided = make_decision(
            Identity.load(self.settings.identity),
            job=request.job,
            data_set=request.data_set,
            verdict=verdict,
            person=person,
            login=login_name(),
            reason=reason,
            decided_at=int(now().timestamp()),
            expires_at=request.expires_at,
        )
        require_own_account(decided, self._counted(request), rule)
        number = self.queue.decide(decided)
        taken, problem = self._wait_until_taken(request.job, number)
        state = self.queue.find(request.job)
        return decision_facts(decided) | {
            "job": request.job,
            "taken": taken,
            "problem": problem,
            "state": str(state.state) if state else None,
            "approvals_needed": rule.needed,
        }

    def decider(self, request: ApprovalRequest, verdict: str, person: str | None) -> str:
        """Return who decides. Refuse a person or a verdict that cannot count, before anybody reads the job."""
        rule = self._rule(request)
        person = self.person(rule, person)
        check(
            request.state in _UNDECIDED,
            f"Job {request.job:.12} is {request.state}.",
            "Only jobs that wait can be decided about. The analyst can sign a new job.",
        )
        earlier = [each for each in self._decisions(request) if each["person"] == person and not each["problem"]]
        check(
            all(each["verdict"] != verdict for each in earlier),
            f"{person} already made this decision about job {request.job:.12}.",
            f"{rule.needed} different persons have to approve it." if rule.needed > 1 else "There is nothing to do.",
        )
        return person

    def person(self, rule: ApprovalRule, given: str | None) -> str:
        """Return who decides: the person who was named, or else the account's own name. The policy must list them."""
        person = given or login_name()
        check(
            person in rule.approvers,
            f"The policy does not name {person!r:.80} as an approver.",
            f"Name one of these with --person: {', '.join(rule.approvers)}.",
        )
        return person

    def _rules(self, data_set: str) -> Rules:
        """Return the rules of a data set, whatever is wrong with the tables of others. The daemon does the same."""
        path = self.settings.policy
        try:
            return read_readable_part(path)[0].rules(data_set)
        except UnreadablePolicyError:
            raise UnreadablePolicyError(
                f"The policy for the data set {data_set!r:.80} cannot be read, so nobody can decide about its jobs.",
                f"`dpspca policy check {path}` lists what is wrong. Correct it.",
            ) from None

    def _rule(self, request: ApprovalRequest) -> ApprovalRule:
        rules = self._rules(request.data_set)
        if rules.approval_rule is None:
            raise RefusedError(
                f"The policy for {request.data_set!r:.80} asks for no approval.", 'Write approval = "human" into it.'
            )
        return rules.approval_rule

    def _standing(self, request: ApprovalRequest) -> dict[str, Any]:
        """Return how a job stands, and what was decided. A decision that cannot be read hides no other."""
        facts = request_facts(request) | {"decisions": self._decisions(request)}
        unreadable = sum(_read(each) is None for each in self.queue.decisions(request.job))
        problem = f"Decisions in the queue that cannot be read, and do not count: {unreadable}. Decide again."
        return facts | ({"queue_problem": problem} if unreadable else {})

    def _decisions(self, request: ApprovalRequest) -> list[dict[str, Any]]:
        """Return the decisions about a job, and of each whether the ledger has it and why it does not count.

        The queue has them all, unless it was lost. Then the ledger has those that were recorded.
        """
        recorded, read, found = self._recorded(request), [], []
        for each in self.queue.decisions(request.job):
            if (decided := _read(each)) is None:
                continue
            read.append(decided)
            about = {"recorded": decided in recorded or (each.taken and not each.problem), "problem": each.problem}
            found.append(decision_facts(decided) | about)
        only_recorded = [each for each in recorded if each not in read]
        return [decision_facts(each) | {"recorded": True, "problem": ""} for each in only_recorded] + found

    def _recorded(self, request: ApprovalRequest) -> list[Decided]:
        """Return the decisions about a job that the ledger has."""
        view, _ = self._ledger
        facts = [each.fact for each in view.decisions] if view else []
        return [each for each in facts if isinstance(each, Decided) and each.job == request.job]

    def _counted(self, request: ApprovalRequest) -> list[Decided]:
        """Return the decisions about a job that count, or that the daemon has not taken up yet."""
        queued = [_read(each) for each in self.queue.decisions(request.job) if not each.problem]
        return [*self._recorded(request), *(each for each in queued if each)]

    def _wait_until_taken(self, job: str, number: int) -> tuple[bool, str]:
        deadline = time.monotonic() + TAKEN_SECONDS
        while True:
            for each in self.queue.decisions(job):
                if each.number == number and each.taken:
                    return True, each.problem
            if time.monotonic() >= deadline:
                return False, ""
            time.sleep(_PAUSE)


def _read(stored: StoredDecision) -> Decided | None:
    """Read a decision in the queue, or return None. The daemon marks it, once it is read there."""
    try:
        return stored.read()
    except RefusedError:
        return None


def login_name() -> str:
    """Return the account from which somebody works: under sudo, their own."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
