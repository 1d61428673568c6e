"""The provider's ledger after a power cut, a disk error or a stopped process at every step of every write.

After each: I1 what was paid for is paid, once; I2 a sent answer is sent again unchanged, never made again; I3 the job
goes on or is refused with a reason; I5 no entry that was told of is gone, and no honest crash looks like a rollback.
"""

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
from disks import Connection, Disk, RecordedHeadFile, Shim, Step, keep_all, keep_none, keep_some
from ledgers import BUDGET, EXPIRY, LIMITS, PRICE, answer, digest, opening, quick_folder, reserve, respond

from dpspca.common.errors import DpspcaError, JobEndedError, RefusedError
from dpspca.provider.ledger.entries import Head
from dpspca.provider.ledger.ledger import Ledger
from dpspca.provider.ledger.rules import LedgerState
from dpspca.provider.ledger.sqlite import SqliteLedger, verify

JOBS = ("first", "aborted", "second")
SETTINGS = [
    ["wal_autocheckpoint = 1000"],
    ["wal_autocheckpoint = 3"],
    ["page_size = 1024", "wal_autocheckpoint = 7"],
    ["page_size = 512", "wal_autocheckpoint = 1"],
    ["cache_size = 4", "wal_autocheckpoint = 20"],
]
"""Occasional checkpoints, several page sizes, and a cache so small that pages are written before the commit."""
SIZES = [8000, 3000, 600, 100, 4000]
"""Numbers in an answer, so many that each setting has more than 400 steps."""
POINTS = 400
SEEDS = range(len(SETTINGS))

_names = map("shim {}".format, count())


@contextmanager
def running(folder: Path, disk: Disk, seed: int) -> Iterator[SqliteLedger]:
    """A provider's process on a recorded disk."""
    shim = Shim(next(_names), disk)
    with ExitStack() as ending:
        ledger = SqliteLedger(
            folder / "ledger.sqlite",
            folder / "head",
            clock=lambda: 5.0,
            connect=lambda path: Connection(path, shim, SETTINGS[seed]),
            open_head_store=lambda path: RecordedHeadFile(path, disk),
        )
        ending.callback(ledger.shut)
        disk.note(("head", ledger.head()))
        yield ledger


def tell(disk: Disk, ledger: Ledger, *what: Any) -> None:
    disk.note(what)
    disk.note(("head", ledger.head()))


def ask(ledger: Ledger, disk: Disk, job: str, position: int, size: int) -> None:
    """Reserve, evaluate, store and send, until a step fails."""
    if not reserve(ledger, job, position):
        return
    tell(disk, ledger, "paid", job, position)
    made = answer(job, position, size)
    ledger.store(job, position, made)
    disk.note(("sent", job, position, made.tobytes()))


def session_one(ledger: Ledger, disk: Disk, seed: int) -> Iterator[Callable[[], None]]:
    """Three answers, and a job that ends with a query that was charged and not answered."""
    yield lambda: tell(disk, ledger, "opened", ledger.open(opening("first"), LIMITS))
    yield lambda: tell(disk, ledger, "opened", ledger.open(opening("aborted"), LIMITS))
    for position in range(3):
        yield lambda position=position: ask(ledger, disk, "first", position, SIZES[seed])
    yield lambda: tell(disk, ledger, "reserved", reserve(ledger, "aborted", 0))
    yield lambda: tell(disk, ledger, "closed", ledger.close("aborted", "aborted"))


def session_two(ledger: Ledger, disk: Disk, seed: int) -> Iterator[Callable[[], None]]:
    """After a restart: one job expires, another is answered and finished."""
    yield lambda: tell(disk, ledger, "opened", ledger.open(opening("second", expires_at=EXPIRY + 1), LIMITS))
    yield lambda: ask(ledger, disk, "second", 0, SIZES[seed])
    yield lambda: tell(disk, ledger, "expired", ledger.expire(EXPIRY))
    yield lambda: ask(ledger, disk, "second", 1, SIZES[seed])
    yield lambda: tell(disk, ledger, "closed", ledger.close("second", "done"))


def record(seed: int) -> Disk:
    """Run two sessions on a disk without faults."""
    disk = Disk()
    with quick_folder() as folder:
        for session in (session_one, session_two):
            with running(folder, disk, seed) as ledger:
                for act in session(ledger, disk, seed):
                    act()
    assert sum(note[0] == "sent" for note in disk.notes(len(disk.steps))) == 5
    return disk


def check(ledger: SqliteLedger, notes: list[Any]) -> None:
    assert ledger.quarantine is None
    state = LedgerState.replay(
        ledger._database.entries()
    )  # of jobs that are over, a ledger remembers no more than entries
    for note in notes:
        match note:
            case ("head", Head(entries=entries, hash=chained)):
                assert state.head.entries >= entries
                assert ledger._database.hash_at(entries) == chained
            case ("paid", job, position):
                asked = state.query(job, position)
                assert asked is not None
                assert asked.digest == digest(job, position)
            case ("sent", job, position, content):
                again = ledger.stored(job, position)
                assert state.is_over(job) if again is None else again.tobytes() == content
                with pytest.raises(RefusedError):
                    ledger.store(job, position, answer(job, position))
    for job in state.jobs.values():
        assert job.account.spent.units == PRICE * len(job.queries)
    taken = state.data_sets.values()
    assert sum(each.spent.units + each.reserved.units for each in taken) <= BUDGET.whole.units


def go_on(ledger: SqliteLedger) -> None:
    """Continue every job to its end, or until it is refused."""
    for name in JOBS:
        changes = {"expires_at": EXPIRY + 1} if name == "second" else {}
        try:
            standing = ledger.open(opening(name, **changes), LIMITS)
        except JobEndedError:
            continue
        for position in range(standing.reached if standing else 0, 3):
            respond(ledger, name, position)
        ledger.close(name, "done")


def survives(files: dict[str, bytes], notes: list[Any]) -> None:
    """Restart a provider with what is left, with unmodified SQLite."""
    with quick_folder() as folder:
        lay(folder, files)
        with SqliteLedger(folder / "ledger.sqlite", folder / "head", clock=lambda: 6.0) as ledger:
            check(ledger, notes)
            go_on(ledger)
            check(ledger, notes)
        assert verify(folder / "ledger.sqlite", folder / "head") == []


def lay(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(content)


def power_cuts(seed: int, each: int = 1) -> int:
    """Cut the power at every point, three times each. Return the number of points."""
    disk = record(seed)
    points = list(disk.points())[seed % each :: each]
    for point in points:
        notes = disk.notes(point)
        survives(disk.left(point, keep_all), notes)
        survives(disk.left(point, keep_none), notes)
        survives(disk.left(point, keep_some((seed, point))), notes)
    return len(points)


@pytest.mark.parametrize("seed", SEEDS)
def test_t14_a_power_cut_at_any_step_loses_and_double_charges_nothing(seed: int) -> None:
    """Every twelfth step, with a different first step for each setting. The slow tests cover all steps."""
    assert power_cuts(seed, each=12) >= POINTS // 12


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_t14_a_power_cut_at_every_step_loses_and_double_charges_nothing(seed: int) -> None:
    assert power_cuts(seed) >= POINTS


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_power_cut_during_the_restart_loses_nothing(seed: int) -> None:
    disk, draw = record(seed), random.Random(seed)
    for point in draw.sample(list(disk.points()), 25):
        notes = disk.notes(point)
        files = disk.left(point, keep_some((seed, point)))
        again = Disk().holding(files)
        with quick_folder() as folder:
            lay(folder, files)
            with running(folder, again, seed) as ledger:
                go_on(ledger)
        for second in draw.sample(list(again.points())[2 * len(files) :], 4):
            survives(again.left(second, keep_some((seed, point, second))), notes + again.notes(second))


# --- A disk that refuses while the process lives ----------------------------------------------------------------------


def refusing(number: int, *, problem: int, lasting: bool) -> Callable[[int, Step], None]:
    """Return a hook that fails one step, or all steps from one on, like a full or a broken disk."""

    def refuse(tried: int, step: Step) -> None:
        if tried < number or (tried > number and not lasting):
            return
        if step.name == "head":
            raise OSError(problem, "refused")
        if problem == errno.ENOSPC and step.kind == "write":
            raise apsw.FullError("refused")
        if problem == errno.EIO:
            raise apsw.IOError("refused")

    return refuse


def attempts(folder: Path, disk: Disk, seed: int) -> None:
    """Run both sessions and continue after every refusal. Only errors of this package may be raised."""
    for session in (session_one, session_two):
        with suppress(DpspcaError), running(folder, disk, seed) as ledger:
            for act in session(ledger, disk, seed):
                with suppress(DpspcaError):
                    act()


def refused_steps(seed: int, each: int) -> int:
    total = len([step for step in record(seed).steps if step.kind != "note"])
    numbers = range(1 + seed % each, total + 1, each)
    for number in numbers:
        for problem in (errno.EIO, errno.ENOSPC):
            for lasting in (False, True):
                refused_step(seed, refusing(number, problem=problem, lasting=lasting))
    return 4 * len(numbers)


def refused_step(seed: int, refuse: Callable[[int, Step], None]) -> None:
    disk = Disk(refuse=refuse)
    with quick_folder() as folder:
        attempts(folder, disk, seed)
        with SqliteLedger(folder / "ledger.sqlite", folder / "head", clock=lambda: 6.0) as ledger:
            check(ledger, disk.notes(len(disk.steps)))
            go_on(ledger)
        assert verify(folder / "ledger.sqlite", folder / "head") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_or_broken_disk_at_any_step_loses_no_sent_answer(seed: int) -> None:
    assert refused_steps(seed, each=20) >= 20


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_or_broken_disk_at_every_third_step_loses_no_sent_answer(seed: int) -> None:
    assert refused_steps(seed, each=3) >= 250
