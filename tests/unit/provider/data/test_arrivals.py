"""Rows that arrive while the daemon runs have their positions for good, and are waited for without holding anything."""

import asyncio
import logging
import os
import re
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from timeouts import TIMEOUT

from dpspca.common.errors import (
    BusyError,
    DataSetUnusableError,
    InvalidDataError,
    InvalidQueryError,
    MissingExtraError,
    RefusedError,
    RowsNotReadyError,
)
from dpspca.common.linalg import thin_qr
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CompressedCovariance, Count, CovarianceProduct
from dpspca.provider.data import threads
from dpspca.provider.data.arrivals import LOOKS_PER_CHECK, Arrivals, WaitingQueries
from dpspca.provider.data.checked.preparation import CheckedRows, check_rows
from dpspca.provider.data.offered_rows import read_arriving
from dpspca.provider.evaluate.shard import Shard

ROWS = np.random.default_rng(0).standard_normal((40, 5))
CUTS = [3, 4, 17, 30]
"""Where the rows are divided into files: some shorter than a block of eight, some longer."""
SLOW = 3600.0
"""Seconds between looks that no test waits for."""


def add(folder: Path, name: str, rows: Any) -> Path:
    """Add a file whole, as a steward is told to."""
    hidden = folder / f".{name}"
    if scipy.sparse.issparse(rows):
        with hidden.open("wb") as file:
            scipy.sparse.save_npz(file, rows)
    else:
        with hidden.open("wb") as file:
            np.save(file, rows)
    return hidden.rename(folder / name)


def fill(folder: Path, rows: Any = ROWS) -> list[Path]:
    ending = "npz" if scipy.sparse.issparse(rows) else "npy"
    edges = [0, *CUTS, rows.shape[0]]
    parts = [rows[start:stop] for start, stop in pairwise(edges)]
    return [add(folder, f"{number}.{ending}", part) for number, part in enumerate(parts)]


class Recorder:
    """Reads files as they are read, and remembers which."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, file: Path) -> tuple[CheckedRows, bool]:
        self.read.append(file.name)
        return read_arriving(file)


class Slow(Recorder):
    """Reads the files named as slow when it is let, and no sooner; it is let after a minute in any case."""

    def __init__(self, *slow: str) -> None:
        super().__init__()
        self.slow, self.let = slow, threading.Event()

    def __call__(self, file: Path) -> tuple[CheckedRows, bool]:
        read = super().__call__(file)
        if file.name in self.slow:
            self.let.wait(60)
        return read


def nothing() -> None:
    pass


def look(arrivals: Arrivals) -> None:
    """Count all that is there."""
    before = -1
    while arrivals.files > before:
        before = arrivals.files
        arrivals.count_next(10**6)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not holds():  # noqa: ASYNC110  # nobody tells of these changes
            await asyncio.sleep(0.01)


def refused(arrivals: Arrivals) -> str:
    """Check that the data set answers nothing, and that every refusal has the same constant text."""
    said = []
    for attempt in (lambda: look(arrivals), arrivals.check, lambda: arrivals.part(0, 1)):
        with pytest.raises(RefusedError) as caught:
            attempt()
        said.append(str(caught.value))
    assert set(said) == {
        "The files of this data set are out of order. Ask the provider's operator to read the provider's log."
    }
    return said[0]


# --- What arrives -----------------------------------------------------------------------------------------------------


def test_rows_follow_one_another_as_their_files_do_whenever_they_come(tmp_path: Path) -> None:
    add(tmp_path, "2026-01.npy", ROWS[:9])
    arrivals = Arrivals("cohort", tmp_path)
    assert arrivals.count == 9
    add(tmp_path, "2026-02.npy", ROWS[9:10])
    add(tmp_path, "2026-03.npy", ROWS[10:])
    look(arrivals)
    assert arrivals.count == 40
    for start, stop in ((0, 40), (8, 11), (9, 10), (39, 40)):
        assert (arrivals.part(start, stop) == ROWS[start:stop]).all()


def test_a_file_whose_name_begins_with_a_dot_is_skipped(tmp_path: Path) -> None:
    add(tmp_path, "a.npy", ROWS[:9])
    arrivals = Arrivals("cohort", tmp_path)
    (tmp_path / ".b.npy").write_bytes(b"half of")
    look(arrivals)
    assert arrivals.count == 9
    add(tmp_path, "b.npy", ROWS[9:])
    look(arrivals)
    assert arrivals.count == 40


def test_without_a_file_the_columns_are_unknown_and_there_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=facts(tmp_path, "0 files")):
        Arrivals("cohort", tmp_path)


def test_faults_at_the_start_are_reported_as_those_of_any_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    with pytest.raises(InvalidDataError, match=facts(tmp_path / "b.csv", "a.csv")):
        Arrivals("cohort", tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "b.rds")
    with pytest.raises(MissingExtraError, match=facts("'.rds'", "readRDS")):
        Arrivals("cohort", tmp_path)


def late(folder: Path) -> None:
    add(folder, "25.npy", ROWS[:2])


def changed(folder: Path) -> None:
    np.save(folder / "3.npy", ROWS[:5])


def gone(folder: Path) -> None:
    (folder / "3.npy").unlink()


def all_gone(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def renamed(folder: Path) -> None:
    (folder / "3.npy").rename(folder / "5.npy")


def other_columns(folder: Path) -> None:
    add(folder, "5.npy", ROWS[:2, :4])


def named_columns(folder: Path) -> None:
    (folder / "5.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")


def sparse_beside_dense(folder: Path) -> None:
    add(folder, "5.npz", scipy.sparse.csr_array(ROWS[:2]))


def text(folder: Path) -> None:
    (folder / "5.csv").write_text("1,2,3,4,5\nnan,2,3,4,five\n")


def a_symbolic_link(folder: Path) -> None:
    (folder / "5.npy").symlink_to(folder / "3.npy")


def a_hard_link(folder: Path) -> None:
    (folder / "5.npy").hardlink_to(folder / "3.npy")


def links_to_another(folder: Path) -> None:
    elsewhere = add(folder, ".elsewhere", ROWS[:2])
    for name in ("5.npy", "6.npy"):
        (folder / name).symlink_to(elsewhere)


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "5.npy")


def no_table(folder: Path) -> None:
    (folder / "5.npy").write_bytes(b"\x93NUMPY, half of it")


def a_folder(folder: Path) -> None:
    (folder / "5").mkdir()


FAULTS: dict[Callable[[Path], None], str] = {
    late: "25.npy came late: it sorts before 3.npy",
    changed: "3.npy changed",
    gone: "3.npy is gone",
    all_gone: "0 files",
    renamed: "3.npy is gone",
    other_columns: "5.npy has 4 columns, but 0.npy has 5",
    named_columns: "column names of",
    sparse_beside_dense: "is sparse, and the other is not",
    text: "5.csv: The first line holds numbers, not the names of the columns",
    a_symbolic_link: "5.npy is the same file as 3.npy",
    a_hard_link: "5.npy is the same file as 3.npy",
    links_to_another: "6.npy is the same file as 5.npy",
    a_pipe: "5.npy is not a regular file",
    no_table: "5.npy cannot be read as .npy",
    a_folder: "5 is a folder",
}


@pytest.mark.parametrize("harm", FAULTS, ids=lambda harm: harm.__name__)
def test_a_folder_that_changed_is_refused_and_only_the_log_says_why(
    harm: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = fill(tmp_path)
    arrivals = Arrivals("cohort", tmp_path)
    before = {file: file.read_bytes() for file in files}
    harm(tmp_path)
    refused(arrivals)
    assert FAULTS[harm] in caplog.text
    assert "'cohort' answers nothing" in caplog.text
    for file in set(tmp_path.iterdir()) - set(files):  # what was mended may have been something else meanwhile
        file.rmdir() if file.is_dir() else file.unlink()
    for file, content in before.items():
        file.write_bytes(content)
    refused(arrivals)


def test_a_changed_file_with_equal_size_and_time_is_found_by_its_digest(tmp_path: Path) -> None:
    files = fill(tmp_path)
    arrivals = Arrivals("cohort", tmp_path)
    shard = Shard(arrivals.first(40), 3.0)
    was = files[2].stat()
    other = ROWS[4:17].copy()
    other[5, 1] += 1e-9
    np.save(files[2], other)
    os.utime(files[2], ns=(was.st_atime_ns, was.st_mtime_ns))
    look(arrivals)
    shard.evaluate(CovarianceProduct(np.eye(5)[:, :2], None, 5, 5))  # of other files
    with pytest.raises(DataSetUnusableError):
        shard.evaluate(CovarianceProduct(np.eye(5)[:, :2], None, 1, 5))
    refused(arrivals)


def test_of_two_files_that_are_alike_each_is_counted(tmp_path: Path) -> None:
    """Were one refused, it would show that two rows are the same."""
    add(tmp_path, "a.npy", ROWS[:9])
    arrivals = Arrivals("cohort", tmp_path)
    add(tmp_path, "b.npy", ROWS[:9])
    look(arrivals)
    assert (arrivals.part(9, 18) == ROWS[:9]).all()


@pytest.mark.parametrize("form", ["csv", "npz"])
def test_a_day_without_rows_is_none(form: str, tmp_path: Path) -> None:
    for day, rows in enumerate(([[1, 2]], [], [[0, 0], [5, 6]], [], [[0, 0]])):
        if form == "npz":
            add(tmp_path, f"{day}.npz", scipy.sparse.csr_array(np.reshape(rows, (-1, 2)).astype(float)))
        else:
            (tmp_path / f"{day}.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
    arrivals = Arrivals("cohort", tmp_path)
    assert arrivals.files == 5
    assert arrivals.spans(3) == [slice(0, 1), slice(1, 3)]
    found: Any = arrivals.part(0, 4)
    assert ((found.toarray() if form == "npz" else found) == [[1, 2], [0, 0], [5, 6], [0, 0]]).all()


def npy(folder: Path, name: str, rows: np.ndarray) -> None:
    add(folder, f"{name}.npy", rows)


def npz(folder: Path, name: str, rows: np.ndarray) -> None:
    add(folder, f"{name}.npz", scipy.sparse.csr_array(rows))


def csv(folder: Path, name: str, rows: np.ndarray) -> None:
    np.savetxt(folder / f"{name}.csv", rows, "%.17g", delimiter=",", header="a,b,c,d,e", comments="")


@pytest.mark.parametrize("write", [npy, npz, csv])
@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf, 2.0**101, -1e300])
def test_an_unusable_row_counts_as_zeros_and_only_the_log_names_its_file(
    what: float, write: Callable[[Path, str, np.ndarray], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One row would otherwise say by itself whether others are answered about, which nobody paid for."""
    write(tmp_path, "a", ROWS[:9])
    arrivals = Arrivals("cohort", tmp_path)
    rows = ROWS[9:].copy()
    rows[[0, 7], [1, 4]] = what, -what
    write(tmp_path, "b", rows)
    assert not caplog.text
    look(arrivals)
    expected = ROWS.copy()
    expected[[9, 16]] = 0
    found: Any = arrivals.part(0, 40)
    assert np.array_equal(found.toarray() if arrivals.form.is_sparse else found, expected)
    (warned,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert re.search(r"/b\.(np[yz]|csv)\b", warned)


def test_a_passing_read_error_fails_one_answer_and_not_the_data_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a disk that is away for a while: the folder is moved aside, and back."""
    folder, aside = tmp_path / "rows", tmp_path / "aside"
    folder.mkdir()
    fill(folder)
    arrivals = Arrivals("cohort", folder)
    folder.rename(aside)
    for attempt in (lambda: arrivals.part(0, 1), arrivals.check, arrivals.check):
        with pytest.raises(RowsNotReadyError):
            attempt()
    assert caplog.text.count(f"{folder} cannot be read") == 1

    async def scenario() -> None:
        waiting = asyncio.create_task(arrivals.wait_for(40, nothing))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        aside.rename(folder)
        await asyncio.wait_for(waiting, TIMEOUT)

    asyncio.run(scenario())
    assert (arrivals.part(0, 40) == ROWS).all()


def test_any_fault_is_recorded_and_its_foreign_text_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def read(file: Path) -> tuple[CheckedRows, bool]:
        if file.name == "b.npy":
            raise KeyError("a secret")
        return read_arriving(file)

    add(tmp_path, "a.npy", ROWS[:9])
    arrivals = Arrivals("cohort", tmp_path, read=read)
    add(tmp_path, "b.npy", ROWS[9:])
    refused(arrivals)
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


def test_each_start_has_a_new_digest(tmp_path: Path) -> None:
    fill(tmp_path)
    first, again = Arrivals("cohort", tmp_path), Arrivals("cohort", tmp_path)
    assert first.digest() == first.digest()
    assert first.digest() != again.digest()


# --- Answers ----------------------------------------------------------------------------------------------------------


def queries(center: Any = None) -> list[RowQuery]:
    basis, _ = thin_qr(np.random.default_rng(1).standard_normal((5, 2)))
    blocks = [CovarianceProduct(basis, center, block, 4) for block in (1, 2, 3, 4)]
    return [Count(), *blocks, CompressedCovariance(basis, center)]


@pytest.mark.parametrize("limit", [4, 8, 32, 40])
@pytest.mark.parametrize("form", [np.array, scipy.sparse.csr_array])
def test_answers_are_those_of_the_same_rows_in_memory_bit_by_bit(
    limit: int, form: Callable[[Any], Any], tmp_path: Path
) -> None:
    fill(tmp_path, form(ROWS))
    arriving = Shard(Arrivals("cohort", tmp_path).first(limit), 3.0)
    held = Shard(check_rows(form(ROWS)).first(limit), 3.0)
    alone = Shard(check_rows(form(ROWS[:limit])), 3.0)
    for query in queries() + ([] if form is scipy.sparse.csr_array else queries(np.full(5, 0.3))):
        answers = [shard.evaluate(query).tobytes() for shard in (arriving, held, alone)]
        assert len(set(answers)) == 1


def test_a_product_over_all_arriving_rows_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(InvalidQueryError):
        Shard(Arrivals("cohort", tmp_path).first(40), 3.0).evaluate(CovarianceProduct(np.eye(5)[:, :2]))


def test_a_block_opens_the_files_that_hold_its_rows_and_no_others(tmp_path: Path) -> None:
    fill(tmp_path)
    reader = Recorder()
    shard = Shard(Arrivals("cohort", tmp_path, read=reader).first(40), 3.0)
    opened = []
    for block in range(1, 6):
        reader.read.clear()
        shard.evaluate(CovarianceProduct(np.eye(5)[:, :2], None, block, 5))
        opened.append("".join(name[0] for name in reader.read))
    # Eight rows each; the files end after 3, 4, 17, 30 and 40. The last that was read is in memory.
    assert opened == ["012", "", "3", "4", ""]
    reader.read.clear()
    shard.evaluate(Count())
    assert reader.read == []


def test_a_file_is_read_once_for_consecutive_blocks(tmp_path: Path) -> None:
    fill(tmp_path)
    reader = Recorder()
    arrivals = Arrivals("cohort", tmp_path, read=reader)
    reader.read.clear()
    rows = arrivals.first(40)
    for row in range(40):
        rows.part(slice(row, row + 1))
    assert reader.read == [f"{number}.npy" for number in range(5)]


def test_t22_no_job_uses_a_file_that_another_job_s_query_read(tmp_path: Path) -> None:
    """Otherwise the time of its answer would show which of two earlier queries was done last."""
    fill(tmp_path)
    reader = Recorder()
    arrivals = Arrivals("cohort", tmp_path, read=reader)
    one, other = arrivals.first(40), arrivals.first(40)
    for rows, place, read in (
        (one, 0, "0"),
        (other, 20, "3"),
        (one, 20, "3"),
        (other, 0, "0"),
        (one, 21, ""),
        (other, 39, "4"),
    ):
        reader.read.clear()
        assert (rows.part(slice(place, place + 1)) == ROWS[place]).all()
        assert "".join(name[0] for name in reader.read) == read
    reader.read.clear()
    Shard(one, 3.0).forget()
    one.part(slice(21, 22))
    assert reader.read == ["3.npy"]


def test_what_was_counted_is_not_read_again_when_more_arrives(tmp_path: Path) -> None:
    add(tmp_path, "a.npy", ROWS[:30])
    reader = Recorder()
    arrivals = Arrivals("cohort", tmp_path, read=reader)
    reader.read.clear()
    add(tmp_path, "b.npy", ROWS[30:])
    for _ in range(3):
        look(arrivals)
    assert reader.read == ["b.npy"]


def test_all_rows_are_read_file_by_file_up_to_the_job_s_last(tmp_path: Path) -> None:
    fill(tmp_path)
    arrivals = Arrivals("cohort", tmp_path)
    assert arrivals.first(32).pieces == [slice(0, 3), slice(3, 4), slice(4, 17), slice(17, 30), slice(30, 32)]
    assert arrivals.first(4).pieces == [slice(0, 3), slice(3, 4)]


@pytest.mark.slow
def test_memory_grows_with_the_largest_file_and_not_with_all_files(tmp_path: Path) -> None:
    """Ninety files of half a megabyte each: what is held at the most is a few of them."""
    one = np.random.default_rng(2).standard_normal((13_000, 5))
    size = one.nbytes
    for number in range(90):
        add(tmp_path, f"{number:02}.npy", one)
    shard = Shard(Arrivals("cohort", tmp_path).first(90 * len(one)), 3.0, threads=1)
    basis = np.eye(5)[:, :2]
    tracemalloc.start()
    try:
        for query in (CovarianceProduct(basis, None, 45, 90), CompressedCovariance(basis)):
            shard.evaluate(query)
        assert tracemalloc.get_traced_memory()[1] < 20 * size
    finally:
        tracemalloc.stop()


def test_rows_that_are_not_there_are_never_made_up(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(RowsNotReadyError):
        Shard(Arrivals("cohort", tmp_path).first(50), 3.0).evaluate(CovarianceProduct(np.eye(5)[:, :2], None, 5, 5))


# --- Waiting ----------------------------------------------------------------------------------------------------------


def test_a_waiting_query_goes_on_when_its_rows_arrive(tmp_path: Path) -> None:
    async def scenario() -> None:
        arrivals = Arrivals("cohort", tmp_path, pause=0.01)
        waiting = asyncio.create_task(arrivals.wait_for(30, nothing))
        add(tmp_path, "b.npy", ROWS[9:20])
        await asyncio.wait_for(arrivals.wait_for(20, nothing), TIMEOUT)
        assert not waiting.done()
        add(tmp_path, "c.npy", ROWS[20:])
        await asyncio.wait_for(waiting, TIMEOUT)
        assert arrivals.count == 40

    add(tmp_path, "a.npy", ROWS[:9])
    asyncio.run(scenario())


def test_files_are_read_while_somebody_needs_their_rows_and_no_further(tmp_path: Path) -> None:
    reader = Recorder()
    add(tmp_path, "a.npy", ROWS[:9])
    arrivals = Arrivals("cohort", tmp_path, read=reader, pause=SLOW)
    add(tmp_path, "b.npy", ROWS[9:20])
    add(tmp_path, "c.npy", ROWS[20:30])
    add(tmp_path, "d.npy", ROWS[30:])
    reader.read.clear()
    asyncio.run(arrivals.wait_for(9, nothing))
    assert reader.read == []
    asyncio.run(arrivals.wait_for(21, nothing))  # at once: what is there is not waited for
    arrivals.count_next(30)
    assert reader.read == ["b.npy", "c.npy"]


def test_a_query_about_counted_rows_does_not_wait_for_reading(tmp_path: Path) -> None:
    async def scenario() -> None:
        others = asyncio.create_task(arrivals.wait_for(40, nothing))
        await until(lambda: "c.npy" in reader.read)
        await asyncio.wait_for(arrivals.wait_for(20, nothing), TIMEOUT)
        assert not others.done()
        assert arrivals.part(0, 20).shape == (20, 5)
        reader.let.set()
        await asyncio.wait_for(others, TIMEOUT)

    add(tmp_path, "a.npy", ROWS[:9])
    reader = Slow("c.npy")
    arrivals = Arrivals("cohort", tmp_path, read=reader, pause=SLOW)
    add(tmp_path, "b.npy", ROWS[9:20])
    add(tmp_path, "c.npy", ROWS[20:])
    asyncio.run(scenario())


def test_queries_cancelled_while_a_file_is_read_leave_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve come and go while one file takes its time: it is read once, in one thread, and others have theirs."""
    monkeypatch.setattr(threads, "_FILE_READINGS", ThreadPoolExecutor(3))

    async def scenario() -> None:
        for _ in range(12):
            waiting = asyncio.create_task(arrivals.wait_for(40, nothing))
            await until(lambda: arrivals._wanted and "b.npy" in reader.read)
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert await asyncio.wait_for(threads.run_in_reading_thread(lambda: "done"), TIMEOUT) == "done"
        assert reader.read.count("b.npy") == 1
        reader.let.set()
        await asyncio.wait_for(arrivals.wait_for(40, nothing), TIMEOUT)
        assert reader.read.count("b.npy") == 1

    add(tmp_path, "a.npy", ROWS[:9])
    reader = Slow("b.npy")
    arrivals = Arrivals("cohort", tmp_path, read=reader, pause=0.01)
    add(tmp_path, "b.npy", ROWS[9:])
    try:
        asyncio.run(scenario())
    finally:
        reader.let.set()


def test_a_job_is_judged_last_of_all_and_seldom_meanwhile(tmp_path: Path) -> None:
    judged: list[int] = []
    looks: list[int] = []

    class Watched(Arrivals):
        def count_next(self, rows: int) -> None:
            looks.append(len(judged))
            super().count_next(rows)

    async def scenario() -> None:
        waiting = asyncio.create_task(arrivals.wait_for(30, lambda: judged.append(arrivals.count)))
        await until(lambda: len(judged) == 2)  # at first, and some looks later
        add(tmp_path, "b.npy", ROWS[9:])
        await asyncio.wait_for(waiting, TIMEOUT)

    add(tmp_path, "a.npy", ROWS[:9])
    arrivals = Watched("cohort", tmp_path, pause=0.01)
    asyncio.run(scenario())
    assert judged[-1] == 40
    assert looks.count(1) == LOOKS_PER_CHECK


def test_a_job_that_is_over_gets_no_rows_that_are_there(tmp_path: Path) -> None:
    def over() -> None:
        raise RefusedError("It is over.", "Sign a new job.")

    add(tmp_path, "a.npy", ROWS)
    with pytest.raises(RefusedError, match=facts("over")):
        asyncio.run(Arrivals("cohort", tmp_path).wait_for(40, over))


def test_waiting_queries_are_bounded_in_number_and_size() -> None:
    room = WaitingQueries(3, 100)
    with room.place("ada", 1000), pytest.raises(BusyError), room.place("ben", 1):
        pass  # who waits alone may hold more
    with room.place("ada", 40), room.place("ben", 60):
        with pytest.raises(BusyError), room.place("eve", 1):
            pass
        with room.place("eve", 0), pytest.raises(BusyError), room.place("dan", 0):
            pass
    with room.place("ada", 40), room.place("ben", 50), room.place("eve", 10):
        pass


def test_t35_one_analyst_has_half_of_the_places_and_bytes() -> None:
    room = WaitingQueries(4, 100)
    with room.place("eve", 20), room.place("eve", 30):
        with pytest.raises(BusyError, match=facts("analyst")), room.place("eve", 0):
            pass
        with room.place("ada", 10):
            pass
    with room.place("eve", 40), pytest.raises(BusyError, match=facts("analyst")), room.place("eve", 20):
        pass


def test_waiting_queries_hold_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_FILE_READINGS", ThreadPoolExecutor(1))

    async def scenario() -> None:
        arrivals = Arrivals("cohort", tmp_path, pause=SLOW)
        waits = [asyncio.create_task(arrivals.wait_for(30, nothing)) for _ in range(20)]
        assert await asyncio.wait_for(threads.run_in_reading_thread(lambda: "done"), TIMEOUT) == "done"
        for wait in waits:
            wait.cancel()
        assert all(
            isinstance(ended, asyncio.CancelledError) for ended in await asyncio.gather(*waits, return_exceptions=True)
        )

    add(tmp_path, "a.npy", ROWS[:9])
    asyncio.run(scenario())


def test_a_job_that_is_over_and_a_folder_out_of_order_end_the_wait(tmp_path: Path) -> None:
    def over() -> None:
        raise RefusedError("It is over.", "Sign a new job.")

    async def scenario() -> None:
        arrivals = Arrivals("cohort", tmp_path, pause=0.01)
        with pytest.raises(RefusedError, match=facts("over")):
            await asyncio.wait_for(arrivals.wait_for(30, over), TIMEOUT)
        waiting = asyncio.create_task(arrivals.wait_for(30, nothing))
        add(tmp_path, "0.npy", ROWS[:1])
        with pytest.raises(DataSetUnusableError):
            await asyncio.wait_for(waiting, TIMEOUT)
        with pytest.raises(DataSetUnusableError):  # be the rows there or not
            await arrivals.wait_for(1, nothing)

    add(tmp_path, "a.npy", ROWS[:9])
    asyncio.run(scenario())
