"""Rows that a provider keeps in scratch are the same rows as in memory, and scratch leaves nothing behind."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError
from dpspca.common.privacy.lattice import MAX_ROWS
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.checked import preparation
from dpspca.provider.data.checked.fingerprints import of_table
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.files.folders import TemporarilyUnreadableError
from dpspca.provider.data.memory import scratch
from dpspca.provider.data.memory.scratch import Scratch, ScratchError
from dpspca.provider.data.memory.stored_rows import RowWriter, StoredRows, stored_type
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.tables import raw_table

pytestmark = pytest.mark.usefixtures("compiled_or_not")

NAMES = ["age", "bmi", "sbp"]
TEXT = "age,bmi,sbp\n1,2,3\n4,,6\nx,8,9\n10,-9,12\n1,2\n13,14,15\n1e300,2,3\n"
CODED = Reading(missing_codes=(-9.0,), missing=7.0)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_table, "_MOST_ROWS_AT_A_TIME", 2)


def write_all(folder: Path) -> None:
    """Write tables of every type that a source may have, with rows that cannot be used where the type allows it."""
    rng = np.random.default_rng(0)
    whole = rng.integers(-100, 100, (7, 3))
    for kind in ("i1", "u2", "<i4", ">i4", "i8", "?", "f2", "f4", ">f4", "f8", "g"):
        numbers = whole.astype(kind)
        if numbers.dtype.kind == "f":
            numbers[2, 1], numbers[4, 0] = np.nan, np.inf
        np.save(folder / f"{numbers.dtype.kind}{numbers.dtype.itemsize}{kind[0] == '>'}.npy", numbers)
        np.save(
            folder / f"{numbers.dtype.kind}{numbers.dtype.itemsize}{kind[0] == '>'}-columns.npy",
            np.asfortranarray(numbers),
        )
    np.savez(folder / "packed.npz", x=whole.astype("f4"))
    (folder / "rows.csv").write_text(TEXT)
    columns = {
        "age": pa.array([1, 2, None, 4, 5, 6, 7], pa.int8()),
        "bmi": pa.array([1.5, np.nan, 3, 4, 5, np.inf, 7], pa.float32()),
        "sbp": pa.array([True, False, True, None, True, True, False]),
    }
    pyarrow.parquet.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=3)
    pyarrow.feather.write_feather(pa.table(columns), folder / "rows.feather", chunksize=3)
    part = folder / "part.folder"
    part.mkdir()
    np.save(part / "1.npy", whole.astype("i1"))
    np.save(part / "2.npy", whole.astype("f4") + np.float32(0.1))
    np.save(part / "3.npy", whole * 1e-3)


def assert_same(stored: CheckedRows, held: CheckedRows) -> None:
    assert isinstance(stored.matrix, StoredRows)
    numbers = stored.matrix.toarray()
    assert numbers.tobytes() == np.asarray(held.matrix).tobytes()
    assert (stored.names, stored.count, stored.dimension) == (held.names, held.count, held.dimension)
    assert stored.digest() == held.digest()
    assert stored.fingerprints() == held.fingerprints()
    assert (stored.uncut is None) == (held.uncut is None)
    bad = [0 if rows.unusable is None else rows.unusable.count for rows in (stored, held)]
    assert bad[0] == bad[1]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("reading", [Reading(), CODED])
def test_every_source_gives_the_same_rows_in_scratch(tmp_path: Path, reading: Reading) -> None:
    write_all(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        declared = (
            Reading(missing=7.0)
            if reading is CODED and path.suffix not in {".csv", ".parquet", ".feather"}
            else reading
        )
        stored = read_offered(path, declared, scratch=Scratch(tmp_path / "scratch"))
        assert_same(stored, read_offered(path, declared))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("row_entries", [None, 1, 2])
@pytest.mark.parametrize("persons", [None, b"a\nb\na\n\nc\nb\na\n", b"a\nb\na\nc\nc\nb\n"])
def test_persons_and_entries_are_bounded_alike(tmp_path: Path, row_entries: int | None, persons: bytes | None) -> None:
    (tmp_path / "rows.csv").write_text(TEXT)
    whose = tmp_path / "whose.txt" if persons is not None else None
    if whose is not None:
        whose.write_bytes(persons or b"")
    both = []
    for place in (None, Scratch(tmp_path / "scratch")):
        try:
            both.append(read_offered(tmp_path / "rows.csv", persons=whose, row_entries=row_entries, scratch=place))
        except DpspcaError as problem:
            both.append(str(problem))  # type: ignore[arg-type]
    held, stored = both
    if isinstance(held, str):
        assert stored == held
        return
    assert_same(stored, held)
    for most in (1, 2):
        assert_same(stored.bounded(most), held.bounded(most))


def test_parts_columns_and_symmetric_matrices_are_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((5, 4))
    whole = np.block([[np.zeros((5, 5)), table], [table.T, np.zeros((4, 4))]])
    whole[0, 6] = whole[6, 0] = np.nan
    np.save(tmp_path / "share.npy", whole)
    stored = read_offered(tmp_path / "share.npy", scratch=Scratch(tmp_path / "scratch"))
    held = read_offered(tmp_path / "share.npy")
    assert_same(stored, held)
    assert (stored.as_matrix().matrix == held.as_matrix().matrix).all()
    named = CheckedRows(stored.matrix, tuple("abcdefghi")), CheckedRows(held.matrix, tuple("abcdefghi"))
    assert_same(*(each.first(7) for each in named))
    assert_same(*(each.with_columns(["c", "a", "h"]) for each in named))
    chosen, expected = (each.first(7).with_columns(["c", "a", "h"]).with_columns(["h", "c"]) for each in named)
    assert_same(chosen, expected)
    assert (chosen.part(slice(2, 4)).toarray() == expected.part(slice(2, 4))).all()  # type: ignore[union-attr]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_a_table_is_recognised_in_its_symmetric_form(rows: int, columns: int, change: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(-2, 3, (rows, columns)).astype(float)
    size = rows + columns
    whole = np.zeros((size, size))
    whole[:rows, rows:], whole[rows:, :rows] = table, table.T
    if change:
        whole[rng.integers(size), rng.integers(size)] += change - 1
    with tempfile.TemporaryDirectory() as folder:
        writer = RowWriter(Scratch(Path(folder) / "scratch"), size, np.dtype("f4"))
        writer.add(whole, np.zeros(size, dtype=np.bool_))
        assert of_table(writer.rows()) == of_table(whole)


@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ("i1", "i1"),
        ("?", "?"),
        ("u2", "u2"),
        (">i4", "i4"),
        ("i8", "f8"),
        ("u8", "f8"),
        ("f2", "f2"),
        (">f4", "f4"),
        ("g", "f8"),
    ],
)
def test_numbers_take_no_more_room_than_in_their_source(source: str, stored: str) -> None:
    assert stored_type(np.dtype(source)) == np.dtype(stored)


def test_a_table_of_small_integers_stays_small(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((1000, 50), dtype=np.int8))
    stored = read_offered(tmp_path / "rows.npy", scratch=Scratch(tmp_path / "scratch")).matrix
    assert isinstance(stored, StoredRows)
    assert stored.nbytes <= 1.3 * (tmp_path / "rows.npy").stat().st_size


def test_scratch_files_are_private_and_have_no_name(tmp_path: Path) -> None:
    place = Scratch(tmp_path / "scratch")
    file = place.file()
    file.append(np.arange(5.0))
    found = np.empty(2)
    file.read(8, found)
    assert found.tolist() == [1.0, 2.0]
    assert list((tmp_path / "scratch").iterdir()) == []
    assert stat.S_IMODE(os.fstat(file._descriptor).st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "scratch").stat().st_mode) == 0o700


def test_without_nameless_files_the_name_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    file = Scratch(tmp_path / "scratch").file()
    file.append(np.arange(5.0))
    assert list((tmp_path / "scratch").iterdir()) == []
    assert stat.S_IMODE(os.fstat(file._descriptor).st_mode) == 0o600


def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir(mode=0o755)
    (tmp_path / "scratch").chmod(0o755)
    with pytest.raises(DpspcaError) as caught:
        Scratch(tmp_path / "scratch").file()
    assert caught.value.code == "unsafe-file"


LEFT_BEHIND = """
import sys, time
from pathlib import Path
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.memory.scratch import Scratch
rows = read_offered(Path(sys.argv[1]), scratch=Scratch(Path(sys.argv[2])))
print(rows.count, flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_nothing_behind(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((1000, 5)))
    command = [sys.executable, "-c", LEFT_BEHIND, str(tmp_path / "rows.npy"), str(tmp_path / "scratch")]
    with subprocess.Popen(  # noqa: S603  # this package
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "1000"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list((tmp_path / "scratch").iterdir()) == []


FULL = """
import resource, sys
from pathlib import Path
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.memory.scratch import Scratch, ScratchError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    read_offered(Path(sys.argv[1]), scratch=Scratch(Path(sys.argv[2])))
except ScratchError as problem:
    print(problem.code)
"""


def test_a_full_scratch_folder_prevents_a_start_and_is_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((1000, 5)))
    command = [sys.executable, "-c", FULL, str(tmp_path / "rows.npy"), str(tmp_path / "scratch")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # this package
    assert ended.stdout.strip() == "no-scratch"
    assert "cannot be used" in ended.stderr  # for the operator, with the folder and the reason
    assert str(tmp_path / "scratch") in ended.stderr


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((100, 5)))
    added = RowWriter.add

    def change(*given: object) -> None:
        path.write_bytes(path.read_bytes() + b"more")
        added(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(RowWriter, "add", change)
    with pytest.raises(TemporarilyUnreadableError):
        read_offered(path, scratch=Scratch(tmp_path / "scratch"))


def test_what_happens_to_a_source_later_changes_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((100, 5)))
    rows = read_offered(path, scratch=Scratch(tmp_path / "scratch"))
    before = rows.digest()
    np.save(path, np.zeros((3, 2)))
    path.unlink()
    assert rows.digest() == before


def test_more_rows_than_sums_can_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "rows.npy", np.ones((101, 1)))
    monkeypatch.setattr(preparation, "MAX_ROWS", 100)
    with pytest.raises(DpspcaError) as caught:
        read_offered(tmp_path / "rows.npy", scratch=Scratch(tmp_path / "scratch"))
    assert "101" in str(caught.value)
    assert MAX_ROWS > 101


def test_files_that_arrive_go_into_scratch(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    rows, is_odd = read_arriving(tmp_path / "rows.npy", scratch=Scratch(tmp_path / "scratch"))
    assert is_odd
    assert_same(rows, read_arriving(tmp_path / "rows.npy")[0])


def test_memory_bounds_how_much_is_read_at_a_time(tmp_path: Path) -> None:
    assert Scratch(tmp_path, 2**20).cells == scratch._FEWEST_CELLS
    assert Scratch(tmp_path, 2**40).cells == scratch.MOST_CELLS
    assert Scratch(tmp_path, 2**28).cells * 8 * 8 <= 2**28
    assert isinstance(ScratchError("a", "b"), DpspcaError)
