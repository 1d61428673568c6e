"""Jobs for ledgers: prices, standings and answers that can be followed by hand.

Every job here plans three questions, each for a tenth of the budget.
"""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpspca.common.plan import Price
from dpspca.common.privacy.accountant import Filter
from dpspca.provider.entries import GENESIS, Head, link
from dpspca.provider.gate import Standing
from dpspca.provider.ledger import Ledger, Limits, Opening
from dpspca.provider.ledger_database import MIGRATIONS, migrate
from dpspca.provider.ledger_files import HeadFile
from dpspca.provider.moments import Integers
from dpspca.provider.sqlite_ledger import SqliteLedger

BUDGET = Filter.for_budget(1.0, 1e-6)
PRICE = BUDGET.budget_units // 10
SLACK = BUDGET.slack_budget_units // 10
QUESTIONS = 3
LIMITS = Limits(BUDGET)
SIGNED, EXPIRY = 1_000_000, 2_000_000
YEAR = 365 * 86_400


def opening(job: str = "job", **changes: Any) -> Opening:
    good: dict[str, Any] = {
        "job": job,
        "data_set": "cohort",
        "data_digest": "d" * 64,
        "analyst": "dpspca://town/analyst/first",
        "unit": "row-add-remove",
        "spec_epsilon": BUDGET.epsilon,
        "spec_delta": BUDGET.delta,
        "units": QUESTIONS * PRICE,
        "slack_units": QUESTIONS * SLACK,
        "issued_at": SIGNED,
        "expires_at": EXPIRY,
        "signature_hash": "5" * 64,
    }
    return Opening(**good | changes)


def standing_at(reached: int) -> Standing:
    """Where a job is after so many questions."""
    return Standing(reached, Price(reached * PRICE, reached * SLACK))


def stands(reached: int) -> Standing | None:
    """The same as a ledger says it: None before the first."""
    return standing_at(reached) if reached else None


def reserve(ledger: Ledger, job: str, position: int) -> bool:
    name, content = f"question {position}", digest(job, position)
    return ledger.reserve(job, name, content, stands(position), standing_at(position + 1))


def digest(job: str, position: int) -> str:
    return f"content of {job} {position}"


def answer(job: str, position: int, entries: int = 12) -> Integers:
    """An answer unlike any other."""
    seed = [*job.encode(), position]
    return np.random.default_rng(seed).integers(-(2**62), 2**62, entries).reshape(-1, 2)


def respond(ledger: Ledger, job: str, position: int, entries: int = 12) -> Integers:
    """Reserve and store; what comes back may be sent."""
    assert reserve(ledger, job, position)
    made = answer(job, position, entries)
    ledger.store(job, position, made)
    return made


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A private folder in memory where there is one: for tests that bring their own idea of what a disk keeps."""
    memory = Path("/dev/shm")  # noqa: S108  # a private folder is made in it
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Place:
    """Where a provider keeps its ledger, and the second path."""

    path: Path
    head: Path

    def start(self, **edges: Any) -> SqliteLedger:
        """A provider's process takes the ledger over."""
        return SqliteLedger(self.path, self.head, clock=lambda: float(SIGNED), **edges)

    def snapshot(self) -> dict[Path, bytes]:
        """A backup of the ledger as a file system makes it: everything of one moment."""
        return {path: path.read_bytes() for path in self.path.parent.iterdir() if not path.name.endswith("-shm")}

    def restore(self, files: dict[Path, bytes]) -> None:
        """Put a backup in the place of what is there."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir(mode=0o700)
        for path, content in files.items():
            path.touch(0o600)
            path.write_bytes(content)

    def rewrite(self, lines: list[str], version: int) -> None:
        """Put other entries into the ledger, as a version of the software wrote them, and forget the second path."""
        self.path.unlink()
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            migrate(connection, MIGRATIONS[:version])
            previous = GENESIS
            for number, line in enumerate(lines, start=1):
                previous = link(previous, line)
                connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, line, previous))
        self.path.chmod(0o600)
        self.head.unlink()
        head = HeadFile(self.head)
        head.write(Head(json.loads(lines[0])["ledger"], len(lines), previous))
        head.end()

    def tables(self) -> list[str]:
        """The names of the tables."""
        return [name for (name,) in self.tamper("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]

    def tamper(self, *statements: str) -> list[tuple[Any, ...]]:
        """Look at the file, or change it, with another program."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return [connection.execute(statement).fetchall() for statement in statements][-1]
