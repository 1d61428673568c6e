"""The steward's dashboard: data sets, budgets, policy in words, jobs that wait, what left, health. It may decide."""

import asyncio
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
from dpspca.provider.approval import lines
from dpspca.provider.ledger import ledger_paths, read_ledger, release_facts
from dpspca.provider.policy import read_policy

from .chart import Point, spending
from .pages import NoPageError, Page, Section, commands

MOST_RELEASES: Final = 200
"""Answers on the page of the outbox. The command lists all."""


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
        """Return the stamps of all files that the pages are made from."""
        return await asyncio.to_thread(self._stamps)

    def _stamps(self) -> str:
        office = ApprovalOffice.of(self._config)
        ledger, head = ledger_paths(office.settings, self._config)
        watched = [self._config, office.settings.policy, head]
        for path in (ledger, office.queue.path):
            watched += [path, path.with_name(f"{path.name}-wal")]
        return repr([files.stamp(path) for path in watched])

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
        try:
            view = read_ledger(self._config)
            rules = {each.data_set: each for each in read_policy(view.settings.policy).data_sets}
            for name in sorted(view.settings.names | rules.keys() | view.state.data_sets.keys()):
                found = balance(view, name, rules.get(name))
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
        shown = lines(facts) if "asks" in facts else ()
        words = [each.strip() for each in shown if not each.startswith(("Job ", "  State: "))]
        approvers = facts.get("approvers", [])
        own = login_name()
        more = {"words": words, "can_decide": facts["state"] in {"waiting", "approved"} and bool(approvers)}
        more |= {"chosen": own if own in approvers else ""}
        return Page(
            "steward_job.html",
            f"Job {request.job[:12]}",
            commands(self._config, f"approval show {request.job[:12]}"),
            facts | more,
        )

    def _policy(self) -> Page:
        office = ApprovalOffice.of(self._config)
        try:
            shown = read_policy(office.settings.policy).data_sets
            words = [[each.strip() for each in explanation(rules)] for rules in shown]
            facts: dict[str, Any] = {"data_sets": words, "problem": None}
        except DpspcaError as problem:
            facts = {"data_sets": [], "problem": str(problem)}
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
