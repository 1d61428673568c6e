"""The analyst's dashboard: jobs, their progress and price, and results as reports."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dpspca.cli.render import progress
from dpspca.client import html_report
from dpspca.client.enrolment import certificates
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.errors import DpspcaError

from .pages import NoPageError, Page, Section, commands

MOST_KEPT: Final = 8
"""Jobs whose plans and reports are kept in memory."""


class AnalystPages:
    """An analyst's dashboard. What the coordinator reports is shown as untrusted text."""

    role = "Analyst"
    sections: tuple[Section, ...] = (Section("", "Jobs"), Section("certificates", "Certificates"))

    def __init__(self, config: Path, federation: AsyncFederation) -> None:
        self._config = config
        self._federation = federation
        self._jobs: OrderedDict[str, AsyncJob] = OrderedDict()
        self._reports: OrderedDict[str, str] = OrderedDict()

    async def page(self, section: str, item: str) -> Page:
        """Return the list of jobs, one job, or the certificates."""
        match section, item:
            case "", "":
                return await self._list()
            case "job", _ if item:
                return await self._job(item)
            case "certificates", "":
                facts = {"certificates": await asyncio.to_thread(certificates.facts, self._config)}
                return Page("certificates.html", "Certificates", commands(self._config, "health"), facts)
        raise NoPageError

    async def report(self, item: str) -> str:
        """Return the report of a job that is done. It holds its own style sheet."""
        if item not in self._reports:
            job = await self._taken(item)
            if (await job.status()).state != "done":
                raise NoPageError
            model = await job.model()
            _keep(self._reports, item, await asyncio.to_thread(html_report.page, model))
        return self._reports[item]

    async def decide(self, form: Mapping[str, str]) -> str:
        """Do nothing: this dashboard only shows."""
        raise NoPageError

    async def mark(self) -> str:
        """Return the states of all jobs, or that the coordinator cannot be reached."""
        try:
            return json.dumps([each.to_dict() for each in await self._federation.jobs()], sort_keys=True)
        except DpspcaError as problem:
            return str(problem)

    async def _list(self) -> Page:
        try:
            jobs = [each.to_dict() for each in reversed(await self._federation.jobs())]
            facts: dict[str, Any] = {"jobs": jobs, "problem": None}
        except DpspcaError as problem:
            facts = {"jobs": [], "problem": str(problem)}
        return Page("analyst_jobs.html", "Jobs", commands(self._config, "jobs list"), facts)

    async def _job(self, name: str) -> Page:
        job = await self._taken(name)
        status = await job.status()
        return Page(
            "analyst_job.html",
            f"Job {status.job[:12]}",
            commands(self._config, f"jobs show {status.job[:12]}"),
            progress.job_facts(job.plan, status),
        )

    async def _taken(self, name: str) -> AsyncJob:
        if name not in self._jobs:
            _keep(self._jobs, name, await self._federation.job(name))
        return self._jobs[name]


def _keep(kept: "OrderedDict[str, Any]", name: str, value: object) -> None:
    """Keep a value, and drop the oldest ones."""
    kept[name] = value
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
