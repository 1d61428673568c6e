"""Jobs for tests of ledgers, with simple prices, positions and answers.

Every job here plans three queries, each for a tenth of the budget.
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

from dpspca.common.arrays import Integers
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import Price
from dpspca.provider.ledger.accounts import JobPosition
from dpspca.provider.ledger.database import MIGRATIONS, migrate
from dpspca.provider.ledger.entries import GENESIS, Head, link
from dpspca.provider.ledger.files import HeadFile
from dpspca.provider.ledger.ledger import Ledger, Limits, Opening
from dpspca.provider.ledger.sqlite import SqliteLedger

BUDGET = Filter.for_budget(1.0, 1e-6)
PRICE = BUDGET.whole.units // 10
SLACK = BUDGET.whole.slack_units // 10
QUERIES = 3
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
        "units": QUERIES * PRICE,
        "slack_units": QUERIES * SLACK,
        "issued_at": SIGNED,
        "expires_at": EXPIRY,
        "signature_hash": "5" * 64,
    }
    return Opening(**good | changes)


def standing_at(reached: int) -> JobPosition:
    """Return a job's position after ``reached`` queries."""
    return JobPosition(reached, Price(reached * PRICE, reached * SLACK))


def stands(reached: int) -> JobPosition | None:
    """Return the position as a ledger reports it: None before the first query."""
    return standing_at(reached) if reached else None


def reserve(ledger: Ledger, job: str, position: int) -> bool:
    name, content = f"query {position}", digest(job, position)
    return ledger.reserve(job, name, content, stands(position), standing_at(position + 1))


def digest(job: str, position: int) -> str:
    return f"content of {job} {position}"


def answer(job: str, position: int, entries: int = 12) -> Integers:
    """Return an answer that differs for every job and position."""
    seed = [*job.encode(), position]
    return np.random.default_rng(seed).integers(-(2**62), 2**62, entries).reshape(-1, 2)


def respond(ledger: Ledger, job: str, position: int, entries: int = 12) -> Integers:
    """Reserve and store an answer. Return it once it may be sent."""
    assert reserve(ledger, job, position)
    made = answer(job, position, entries)
    ledger.store(job, position, made)
    return made


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Yield a private folder, in memory if possible, for tests that simulate a disk themselves."""
    memory = Path("/dev/shm")  # noqa: S108  # a private folder is made in it
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Place:
    """The paths of a provider's ledger and head file."""

    path: Path
    head: Path

    def start(self, **edges: Any) -> SqliteLedger:
        """Open the ledger, as a provider does when it starts."""
        return SqliteLedger(self.path, self.head, clock=lambda: float(SIGNED), **edges)

    def snapshot(self) -> dict[Path, bytes]:
        """Return a snapshot of the ledger's files, all from one moment."""
        return {path: path.read_bytes() for path in self.path.parent.iterdir() if not path.name.endswith("-shm")}

    def restore(self, files: dict[Path, bytes]) -> None:
        """Replace the ledger's files with a snapshot."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir(mode=0o700)
        for path, content in files.items():
            path.touch(0o600)
            path.write_bytes(content)

    def rewrite(self, lines: list[str], version: int) -> None:
        """Replace the entries with those of another version of the software, and delete the head file."""
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
        """Return the names of the tables."""
        return [name for (name,) in self.tamper("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]

    def tamper(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run SQL statements on the file, as another program would."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return [connection.execute(statement).fetchall() for statement in statements][-1]
