"""Parts of every dashboard: sections to choose from, pages made of facts, and a mark that changes with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, Protocol

from dpspca.common.errors import RefusedError


class Section(NamedTuple):
    """A part of a dashboard: its path, and its name in the navigation."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template, its title, the facts on it, and the commands that print them as JSON."""

    template: str
    title: str
    commands: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


def commands(config: Path, *names: str) -> tuple[str, ...]:
    """Return these commands as somebody types them for the program with these settings."""
    return tuple(f"dpspca {name} --config {quote(str(config))}" for name in names)


class NoPageError(RefusedError):
    """There is no such page."""

    code = "no-page"

    def __init__(self) -> None:
        super().__init__("There is no such page.", "Choose one from the navigation.")


class DashboardPages(Protocol):
    """The dashboard of one role."""

    role: str
    sections: tuple[Section, ...]

    async def page(self, section: str, item: str) -> Page:
        """Return a page, or raise ``NoPageError``."""
        ...

    async def report(self, item: str) -> str:
        """Return a result as an HTML document of its own, or raise ``NoPageError``."""
        ...

    async def decide(self, form: Mapping[str, str]) -> str:
        """Do what a form asks for, and return the path of the page that shows the outcome."""
        ...

    async def mark(self) -> str:
        """Return a text that changes when the pages do."""
        ...
