"""The results of a check of evidence, in words: what holds, what does not, and what cannot be known."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dpspca.common.errors import DpspcaError

_COMPARED: Final = frozenset({"model", "bill-of-materials"})
"""Findings about files that the reader gave. If one is another file, the evidence may still hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, and its short name for programs."""

    code: str
    what: str


@dataclass(slots=True)
class Findings:
    """What was checked, what failed, and what cannot be known from the file."""

    checked: list[Finding] = field(default_factory=list)
    failed: list[Finding] = field(default_factory=list)
    unknown: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    """What is unknown because a provider did not state it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The content of the file as plain values, as far as it could be read."""

    @property
    def holds(self) -> bool:
        """Whether everything that was checked is true."""
        return not self.failed

    @property
    def faults(self) -> list[Finding]:
        """What is wrong with the evidence itself."""
        return [each for each in self.failed if each.code not in _COMPARED]

    @property
    def other_files(self) -> list[Finding]:
        """Which files that the reader gave are not those of the evidence."""
        return [each for each in self.failed if each.code in _COMPARED]

    def check(self, code: str, what: str, *, holds: bool, otherwise: str) -> None:
        """Note that something holds, or what is wrong instead."""
        if holds:
            self.checked.append(Finding(code, what))
        else:
            self.failed.append(Finding(code, otherwise))

    def cannot_know(self, code: str, what: str) -> None:
        """Note what the file cannot show."""
        self.unknown.append(Finding(code, what))

    def lacks(self, code: str, what: str) -> None:
        """Note what a provider did not state. It cannot be known, either."""
        self.missing.append(Finding(code, what))
        self.cannot_know(code, what)

    @contextmanager
    def checking(self, code: str, what: str) -> Iterator[None]:
        """Note that something holds if no error is raised, and else the error."""
        try:
            yield
        except DpspcaError as problem:
            self.failed.append(Finding(code, problem.what))
        else:
            self.checked.append(Finding(code, what))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        parts = {"checked": self.checked, "failed": self.failed, "unknown": self.unknown}
        listed = {name: [{"code": each.code, "what": each.what} for each in some] for name, some in parts.items()}
        return {"holds": self.holds, **listed, **self.facts}
