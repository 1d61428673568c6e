"""The coordinator's journal after a power cut or a kill at every step of every write.

What is left is the journal after the last call that returned, or after the one that was being made: nothing in between,
and nothing that was told of is gone. From there it goes on to the same end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from disks import Connection, Disk, Shim, keep_all, keep_none, keep_some
from ledgers import quick_folder

from dpspca.server.job_states import Event, JobParticipant, JobRecord
from dpspca.server.journal.contract import Journal, Sum, write_job
from dpspca.server.journal.sqlite import SqliteJournal

SETTINGS: list[list[str]] = [
    ["page_size = 4096"],
    ["page_size = 4096", "wal_autocheckpoint = 3"],
    ["page_size = 1024", "wal_autocheckpoint = 7"],
    ["page_size = 512", "wal_autocheckpoint = 1"],
    ["page_size = 4096", "cache_size = 4", "wal_autocheckpoint = 20"],
]
"""As for the ledger: occasional checkpoints, small pages, and pages that are written before the commit."""
SIZES = [6000, 1000, 300, 60, 4000]
"""Numbers in a sum, so many that each setting has more than 400 steps."""
POINTS = 400
SEEDS = range(len(SETTINGS))
QUERIES = 5

Act: TypeAlias = Callable[[Journal], None]

_names = map("journal shim {}".format, count())


def sum_of(job: JobRecord, position: int, size: int) -> Sum:
    seed = [*job.name[:3].encode(), position]
    return Sum(np.random.default_rng(seed).integers(-(2**56), 2**56, (size // 2, 2)), 2)


def acts(name: str, seed: int, event: Event) -> Iterator[Act]:
    """Accept a job, record its queries, sums and receipts, and end it."""
    waiting = JobRecord(name * 64, "dpspca://town/analyst/ada", "cohort", QUERIES, participants={"a": JobParticipant()})
    signed, running = name.encode() * 500, waiting.after(Event.BEGIN)
    yield lambda journal: journal.accept(waiting, signed)
    for position in range(QUERIES):
        now = replace(running, participants={"a": JobParticipant(position, position)})
        before = sum_of(waiting, position - 1, SIZES[seed]) if position else None
        receipts = {"a": b"receipt %d" % position}
        yield lambda journal, now=now, position=position, before=before, receipts=receipts: journal.ask(  # type: ignore[misc]
            now, position, f"{position:064x}", before, receipts
        )
    model = bytes(range(256)) * 40 if event is Event.FINISH else None
    yield lambda journal: journal.end(running.after(event, "why", now=9.0), model)


def sessions(seed: int) -> list[list[Act]]:
    """Run two jobs one after the other, and delete the first. The coordinator restarts in between."""
    first, second = list(acts("a", seed, Event.FINISH)), list(acts("b", seed, Event.FAIL))
    return [first[:4], [*first[4:], *second[:3]], [*second[3:], lambda journal: journal.forget(["a" * 64])]]


def state(journal: Journal, seed: int) -> Any:
    """Return everything that can be read from a journal."""
    told = []
    for each in journal.jobs():
        name = each.job.name
        asked = [journal.query(name, position) for position in range(each.queries)]
        shape = (SIZES[seed] // 2, 2)
        sums = [
            journal.total(name, position, shape).tobytes() if query and query.parties else b""
            for position, query in enumerate(asked)
        ]
        told.append((write_job(each.job), each.signed, asked, sums, each.model_bytes, journal.model(name, 0)))
    return told, journal.receipts()


@contextmanager
def held(journal: SqliteJournal) -> Iterator[SqliteJournal]:
    try:
        assert journal.hold()
        yield journal
    finally:
        journal.close()


def record(seed: int) -> tuple[Disk, list[Any]]:
    """Run everything on a disk without faults. Return the journal's state before each step and at the end."""
    disk, states = Disk(), []
    with quick_folder() as folder:
        for session in sessions(seed):
            shim = Shim(next(_names), disk)
            watched = SqliteJournal(
                folder / "journal.db", lambda path, shim=shim: Connection(path, shim, SETTINGS[seed])
            )  # type: ignore[misc]
            with held(watched) as journal:
                for act in session:
                    states.append(state(journal, seed))
                    act(journal)
                    disk.note("done")
                last = state(journal, seed)
    return disk, [*states, last]


def survives(folder: Path, files: dict[str, bytes], done: int, states: Sequence[Any], seed: int) -> None:
    """Restart with what is left, with unmodified SQLite, and continue to the end."""
    for name, content in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(content)
    with held(SqliteJournal(folder / "journal.db")) as journal:
        found = state(journal, seed)
        reached = next(number for number in (done, done + 1) if found == states[number])
        for act in [act for session in sessions(seed) for act in session][reached:]:
            act(journal)
        assert state(journal, seed) == states[-1]


def power_cuts(seed: int, each: int = 1) -> int:
    """Cut the power at every point, three times each. Return the number of points."""
    disk, states = record(seed)
    points = list(disk.points())[seed % each :: each]
    for point in points:
        for keep in (keep_all, keep_none, keep_some((seed, point))):
            with quick_folder() as folder:
                survives(folder, disk.left(point, keep), len(disk.notes(point)), states, seed)
    return len(points)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_any_step_leaves_a_state_between_calls(seed: int) -> None:
    """Every sixteenth step, with a different first step for each setting. The slow tests cover all steps."""
    assert power_cuts(seed, each=16) >= POINTS // 16


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_every_step_leaves_a_state_between_calls(seed: int) -> None:
    assert power_cuts(seed) >= POINTS


def test_all_states_between_calls_differ() -> None:
    """No two states are equal, so the tests notice a wrong one."""
    _, states = record(0)
    told = [repr(each) for each in states]
    assert len(set(told)) == len(told)
