"""The steward's dashboard: data sets, budgets, policy in words, jobs that wait, what left, health. It may decide."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from dpspca.client.enrolment import certificates
from dpspca.client.health import health_message
from dpspca.client.steward import ApprovalOffice, balance, explanation, login_name
from dpspca.common.approval_record import APPROVE, REJECT
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import files
from dpspca.common.trust import IDENTITY_FILE
from dpspca.provider.approval import PROBLEMS, lines
from dpspca.provider.ledger import ledger_paths, read_ledger, release_facts
from dpspca.provider.policy import read_readable_part
from dpspca.provider.reload import problem_file

from .chart import Point, spending
from .pages import NoPageError, Page, Section, commands

MOST_RELEASES: Final = 200
"""Answers on the page of the outbox. The command lists all."""
HEALTH_SECONDS: Final = 15.0
"""Seconds between two checks of the provider's health, which ask the coordinator."""
_ABOVE: Final = ("Job ", "  State: ", "  PROBLEM: ")
"""Lines about a job whose facts the page shows above the others."""


class StewardPages:
    """A provider's dashboard."""

    role = "Provider"
    sections: tuple[Section, ...] = (
        Section("", "Overview"),
        Section("approval", "Jobs that wait"),
        Section("policy", "Policy"),
        Section("outbox", "Outbox"),
    )

    def __init__(self, config: Path) -> None:
        self._config = config
        self._check: asyncio.Task[tuple[bool, str]] | None = None
        self._checked_at = 0.0
        self._health: tuple[bool, str] | None = None

    async def page(self, section: str, item: str) -> Page:
        """Return a page. Files are read again for each."""
        make = {"": self._overview, "approval": self._queue, "policy": self._policy, "outbox": self._outbox}.get(
            section
        )
        if section == "approval" and item:
            return await asyncio.to_thread(self._job, item)
        if make is None or item:
            raise NoPageError
        return await asyncio.to_thread(make)

    async def report(self, item: str) -> str:
        """Return nothing: a provider has no results."""
        raise NoPageError

    async def decide(self, form: Mapping[str, str]) -> str:
        """Approve or reject a job, as the command does."""
        verdict = form.get("verdict", "")
        if verdict not in {APPROVE, REJECT}:
            raise NoPageError
        office = ApprovalOffice.of(self._config)

        def decide() -> str:
            request = office.find(form.get("job", ""))
            office.decide(request, verdict, form.get("person") or None, form.get("reason", "").strip())
            return request.job

        return f"approval/{await asyncio.to_thread(decide)}"

    async def mark(self) -> str:
        """Return the stamps of all files that the pages are made from, and the provider's health."""
        return repr((await asyncio.to_thread(self._stamps), await self._latest_health()))

    def _stamps(self) -> list[files.Stamp | None]:
        office = ApprovalOffice.of(self._config)
        settings = office.settings
        ledger, head = ledger_paths(settings, self._config)
        watched = [self._config, settings.policy, settings.revocations, settings.identity / IDENTITY_FILE]
        watched += [head, problem_file(settings, self._config)]
        for path in (ledger, office.queue.path):
            watched += [path, path.with_name(f"{path.name}-wal")]
        return [files.stamp(path, linked=True) for path in watched]

    async def _latest_health(self) -> tuple[bool, str]:
        """Return the provider's health as the last check found it, and begin a check if that was long ago.

        A check takes seconds if the coordinator does not answer. So only the first one is waited for.
        """
        if self._check and self._check.done():
            self._health = self._check.result()
        if self._check is None or (self._check.done() and time.monotonic() - self._checked_at >= HEALTH_SECONDS):
            self._checked_at = time.monotonic()
            self._check = asyncio.create_task(asyncio.to_thread(health_message, self._config))
        if self._health is None:
            self._health = await asyncio.shield(self._check)
        return self._health

    def _overview(self) -> Page:
        office = ApprovalOffice.of(self._config)
        passed, details = health_message(self._config)
        facts: dict[str, Any] = {
            "passed": passed,
            "details": details,
            "certificates": certificates.facts(self._config),
            "waiting": len(office.requests()),
            "data_sets": [],
            "problem": None,
        }
        policy, problems = read_readable_part(office.settings.policy)
        facts["policy_problems"] = [str(each) for each in problems]
        tables = {each.data_set for each in policy.data_sets} | (policy.unreadable or frozenset())
        try:
            view = read_ledger(self._config)
            for name in sorted(view.settings.names | tables | view.state.data_sets.keys()):
                found = balance(view, name, policy)
                points = [Point(each["at"], each["share"]) for each in found.get("history", ())]
                facts["data_sets"].append(found | {"chart": spending(name, points)})
            facts["quarantine"] = view.quarantine_reason
        except DpspcaError as problem:
            facts["problem"] = str(problem)
        return Page("steward_overview.html", "Overview", commands(self._config, "budget", "health"), facts)

    def _queue(self) -> Page:
        requests = ApprovalOffice.of(self._config).requests(every=True)
        return Page(
            "steward_queue.html",
            "Jobs that wait",
            commands(self._config, "approval list --all"),
            {"requests": requests},
        )

    def _job(self, name: str) -> Page:
        office = ApprovalOffice.of(self._config)
        request = office.find(name)
        facts = office.facts(request)
        rest = lines(facts | {"decisions": ()})  # the page shows decisions by itself
        words = [each.strip() for each in rest if not each.startswith(_ABOVE)]
        approvers = facts.get("approvers", [])
        own = login_name()
        more: dict[str, Any] = {"words": words, "can_decide": bool(approvers)}
        more |= {"problems": [facts[each] for each in PROBLEMS if facts.get(each)]}
        more |= {"chosen": own if own in approvers else ""}
        return Page(
            "steward_job.html",
            f"Job {request.job[:12]}",
            commands(self._config, f"approval show {request.job[:12]}"),
            facts | more,
        )

    def _policy(self) -> Page:
        office = ApprovalOffice.of(self._config)
        policy, problems = read_readable_part(office.settings.policy)
        words = [[each.strip() for each in explanation(rules)] for rules in policy.data_sets]
        facts = {"data_sets": words, "problems": [str(each) for each in problems]}
        return Page(
            "steward_policy.html", "Policy", (f"dpspca policy check {quote(str(office.settings.policy))}",), facts
        )

    def _outbox(self) -> Page:
        try:
            view = read_ledger(self._config)
        except DpspcaError as problem:
            return Page(
                "steward_outbox.html",
                "Outbox",
                commands(self._config, "outbox"),
                {"releases": [], "problem": str(problem)},
            )
        every = sorted(view.state.outbox(), key=lambda each: (each.at, each.job, each.position), reverse=True)
        facts = {
            "releases": [release_facts(each) for each in every[:MOST_RELEASES]],
            "of": len(every),
            "gaps": view.gaps,
            "problem": None,
        }
        return Page("steward_outbox.html", "Outbox", commands(self._config, "outbox"), facts)
