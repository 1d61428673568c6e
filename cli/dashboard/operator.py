"""The operator's dashboard: parties, connections, jobs and certificates of a coordinator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpspca.client import coordinator_report
from dpspca.common.errors import DpspcaError

from .pages import NoPageError, Page, Section, commands


class OperatorPages:
    """A coordinator's dashboard."""

    role = "Coordinator"
    sections: tuple[Section, ...] = (Section("", "Overview"), Section("jobs", "Jobs"))

    def __init__(self, config: Path) -> None:
        self._config = config

    async def page(self, section: str, item: str) -> Page:
        """Return the parties and certificates, or the jobs."""
        template = {"": "operator_overview.html", "jobs": "operator_jobs.html"}.get(section)
        if template is None or item:
            raise NoPageError
        title = dict(self.sections)[section]
        return Page(template, title, commands(self._config, "coordinator show"), await self._facts())

    async def report(self, item: str) -> str:
        """Return nothing: an operator has no results."""
        raise NoPageError

    async def decide(self, form: Mapping[str, str]) -> str:
        """Do nothing: this dashboard only shows."""
        raise NoPageError

    async def mark(self) -> str:
        """Return all facts as text."""
        return json.dumps(await self._facts(), sort_keys=True)

    async def _facts(self) -> dict[str, Any]:
        try:
            return await coordinator_report.facts(self._config) | {"unreadable": None}
        except DpspcaError as problem:
            return {"unreadable": str(problem), "certificates": [], "parties": [], "jobs": []}
