"""The same rows have one name, however they are stored and in whatever order; other rows have another."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpspca.client.matrices import dilation
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.arrivals import Arrivals
from dpspca.provider.data.checked import fingerprints
from dpspca.provider.data.checked.fingerprints import duplicates, in_order, of_table
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import read_rows

pytestmark = pytest.mark.usefixtures("compiled_or_not")

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((40, 6)).astype(np.float32).astype(float) * (RNG.random((40, 6)) < 0.7)
HALVES = ROWS[:20], ROWS[20:]


def csv(path: Path, rows: np.ndarray, names: str = "abcdef") -> Path:
    lines = [",".join(names), *(",".join(map(repr, map(float, row))) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def npy(path: Path, rows: np.ndarray) -> Path:
    np.save(path, rows)
    return path


def npz(path: Path, rows: np.ndarray, **how: bool) -> Path:
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(rows), **how)
    return path


def written_twice(path: Path, rows: np.ndarray) -> Path:
    """Every entry in two halves, of which CSR has the sum; and zeros that are written out, with either sign."""
    row, column = np.indices(rows.shape).reshape(2, -1)
    half = np.concatenate([rows.ravel() / 2] * 2)
    places = np.tile(row, 2), np.tile(column, 2)
    scipy.sparse.save_npz(path, scipy.sparse.coo_array((half, places), shape=rows.shape))
    return path


def parts(path: Path, rows: np.ndarray) -> Path:
    path.mkdir()
    for number, half in enumerate(np.array_split(rows, 3)):
        npy(path / f"{number}.npy", half)
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "numbers without names": lambda folder: npy(folder / "rows.npy", ROWS),
    "text with names": lambda folder: csv(folder / "rows.csv", ROWS),
    "text with other names": lambda folder: csv(folder / "rows.csv", ROWS, "uvwxyz"),
    "half as many bits": lambda folder: npy(folder / "rows.npy", ROWS.astype(np.float32)),
    "by columns": lambda folder: npy(folder / "rows.npy", np.asfortranarray(ROWS)),
    "compressed": lambda folder: npz(folder / "rows.npz", ROWS, compressed=True),
    "sparse": lambda folder: npz(folder / "rows.npz", ROWS, compressed=False),
    "entries in two halves": lambda folder: written_twice(folder / "rows.npz", ROWS),
    "zeros below zero": lambda folder: npy(folder / "rows.npy", np.where(ROWS == 0, -0.0, ROWS)),
    "rows in another order": lambda folder: npy(folder / "rows.npy", ROWS[::-1]),
    "columns in another order": lambda folder: npy(folder / "rows.npy", ROWS[:, [3, 1, 0, 5, 4, 2]]),
    "a row of zeros more": lambda folder: npy(folder / "rows.npy", np.vstack([np.zeros(6), ROWS])),
    "a column of zeros more": lambda folder: npy(folder / "rows.npy", np.insert(ROWS, 2, 0.0, axis=1)),
    "a folder of files": lambda folder: parts(folder / "rows", ROWS),
    "half of a matrix": lambda folder: npz(folder / "rows.npz", dilation(ROWS, 10, 90)),
    "half of a dense matrix": lambda folder: npy(folder / "rows.npy", dilation(ROWS, 0, 40).toarray()),
}


@pytest.mark.parametrize("row_entries", [None, 2])
def test_a_list_of_persons_with_blank_lines_gives_rows_no_second_name(tmp_path: Path, row_entries: int | None) -> None:
    """Rows of nobody count as zeros, and what is left would be another table."""
    path, persons = npy(tmp_path / "rows.npy", ROWS), tmp_path / "persons.txt"
    persons.write_text("\n" + "\n".join(map(str, range(1, len(ROWS)))) + "\n")
    with_blank = read_offered(path, persons=persons, row_entries=row_entries)
    assert with_blank.fingerprints() & read_offered(path).fingerprints()


OTHERS: dict[str, np.ndarray] = {
    "a changed digit": ROWS + 1e-4 * (np.arange(40) == 7)[:, None],
    "a row less": ROWS[1:],
    "a row twice": np.vstack([ROWS, ROWS[:1]]),
    "another unit": ROWS * 1000,
    "two values exchanged": np.where(np.arange(40)[:, None] < 2, ROWS[[1, 0, *range(2, 40)]] * [1, 0, 0, 0, 0, 0], 0)
    + np.where(np.arange(40)[:, None] < 2, ROWS * [0, 1, 1, 1, 1, 1], ROWS),
    "the other sign": -ROWS,
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_in_another_form_have_a_name_in_common(tmp_path: Path, form: str) -> None:
    assert read_rows(FORMS[form](tmp_path)).fingerprints() & check_rows(ROWS).fingerprints()


@pytest.mark.parametrize("other", OTHERS)
def test_other_rows_have_no_name_in_common(other: str) -> None:
    assert not check_rows(OTHERS[other]).fingerprints() & check_rows(ROWS).fingerprints()


def test_names_are_those_that_earlier_ledgers_hold() -> None:
    """Taken with the first software that had canonical form 1. If these change, every ledger has forgotten its rows."""
    assert of_table(np.arange(12.0).reshape(4, 3)) == {
        "803caecdb6fc464181348bdfee249473b95e8ee762c0d5e02a5ab8fdc21da076",
        "0c11209a69ea29719bb0db5646d0423115b19f1a9cd8edb2567374704174af47",
    }


def test_integers_have_the_name_of_the_numbers_that_they_are(tmp_path: Path) -> None:
    whole = RNG.integers(-9, 9, (30, 5))
    forms = [npy(tmp_path / f"{kind}.npy", whole.astype(kind)) for kind in ("int8", "int64", "float32", "float64")]
    forms += [csv(tmp_path / "rows.csv", whole, "abcde"), npz(tmp_path / "rows.npz", whole)]
    names = [read_rows(each).fingerprints() for each in forms]
    assert frozenset.intersection(*names)


def test_persons_have_no_part_in_the_name_of_rows(tmp_path: Path) -> None:
    (tmp_path / "whose.txt").write_text("somebody\n" * len(ROWS))
    rows = read_offered(npy(tmp_path / "rows.npy", ROWS), persons=tmp_path / "whose.txt")
    assert rows.fingerprints() == check_rows(ROWS).fingerprints()


def test_arriving_rows_have_the_name_of_one_file_with_all_of_them(tmp_path: Path) -> None:
    arriving = Arrivals("stream", parts(tmp_path / "rows", HALVES[0]))
    assert arriving.fingerprints() & check_rows(HALVES[0]).fingerprints()
    assert not arriving.fingerprints() & check_rows(ROWS).fingerprints()
    npy(tmp_path / "rows" / "9.npy", HALVES[1])
    arriving.count_next(len(ROWS))
    assert arriving.fingerprints() & check_rows(ROWS).fingerprints()
    assert not arriving.fingerprints() & check_rows(HALVES[0]).fingerprints()


OTHER_SETTINGS: dict[str, tuple[Reading, int | None]] = {
    "other numbers in place of missing ones": (Reading(missing=-1.0), None),
    "a code that stands for a missing number": (Reading(missing=7.0, missing_codes=(1.0,)), None),
    "fewer entries": (Reading(missing=7.0), 2),
    "fewer entries and other numbers": (Reading(missing=-1.0), 3),
}


@pytest.mark.parametrize("other", OTHER_SETTINGS)
@pytest.mark.parametrize("in_scratch", [False, True])
def test_arriving_rows_are_recognised_under_other_settings(tmp_path: Path, other: str, in_scratch: bool) -> None:
    """They are as one file with all rows is."""
    rows = np.where(RNG.random((40, 6)) < 0.1, np.nan, np.rint(4 * RNG.random((40, 6))))
    (tmp_path / "rows").mkdir()
    for number, half in enumerate(np.array_split(rows, 3)):
        csv(tmp_path / "rows" / f"{number}.csv", half)
    scratch = Scratch(tmp_path / "scratch") if in_scratch else None
    reading, entries = OTHER_SETTINGS[other]

    def arriving(reading: Reading, entries: int | None) -> frozenset[str]:
        read = partial(read_arriving, reading=reading, row_entries=entries, scratch=scratch)
        return Arrivals("stream", tmp_path / "rows", read=read).fingerprints()

    before = arriving(Reading(missing=7.0), None)
    changed = arriving(reading, entries)
    assert changed & before
    whole = csv(tmp_path / "whole.csv", rows)
    assert changed & read_offered(whole, reading, row_entries=entries).fingerprints()
    assert changed & read_offered(whole, Reading(missing=3.0)).fingerprints()
    assert not changed & read_offered(csv(tmp_path / "other.csv", rows + 1), reading).fingerprints()


INCOMPLETE = np.where(np.arange(40)[:, None] % 6 == np.arange(6), np.nan, np.rint(8 * RNG.random((40, 6))))
"""Every row lacks a number, as most rows of patients do."""
INCOMPLETE_FORMS: dict[str, Callable[[Path], Path]] = {
    "text": lambda folder: csv(folder / "rows.csv", INCOMPLETE),
    "numbers": lambda folder: npy(folder / "rows.npy", INCOMPLETE),
    "sparse": lambda folder: npz(folder / "rows.npz", INCOMPLETE),
    "text with codes": lambda folder: csv(folder / "rows.csv", np.nan_to_num(INCOMPLETE, nan=-9.0)),
    "sparse with codes": lambda folder: npz(folder / "rows.npz", np.nan_to_num(INCOMPLETE, nan=-9.0)),
}


@pytest.mark.parametrize("form", INCOMPLETE_FORMS)
@pytest.mark.parametrize("in_scratch", [False, True])
def test_rows_that_all_lack_a_number_are_recognised_with_other_fills(
    tmp_path: Path, form: str, in_scratch: bool
) -> None:
    scratch = Scratch(tmp_path / "scratch") if in_scratch else None
    codes = (-9.0,) if "codes" in form else ()
    reading = Reading(missing=3.0, missing_codes=codes)
    first = read_offered(csv(tmp_path / "first.csv", INCOMPLETE), Reading(missing=7.0), scratch=scratch)
    path = INCOMPLETE_FORMS[form](tmp_path)
    assert read_offered(path, reading, scratch=scratch).fingerprints() & first.fingerprints()
    arrived = read_arriving(path, reading, scratch=scratch)[0].fingerprints_in_order()
    assert frozenset().union(*(each.names for each in arrived)) & first.fingerprints()
    assert not read_offered(csv(tmp_path / "other.csv", INCOMPLETE + 1), reading).fingerprints() & first.fingerprints()


def test_tables_that_hold_nothing_yet_have_no_name_and_so_not_the_same(tmp_path: Path) -> None:
    assert check_rows(np.zeros((4, 3))).fingerprints() == frozenset()
    (tmp_path / "empty").mkdir()
    npy(tmp_path / "empty" / "0.npy", np.zeros((0, 3)))
    assert Arrivals("stream", tmp_path / "empty").fingerprints() == frozenset()


def test_tables_whose_rows_and_columns_have_the_same_values_differ() -> None:
    """Two rings of three and one ring of six: every row and every column holds two ones."""
    ring = np.roll(np.eye(6), 1, axis=1)
    two = np.kron(np.eye(2), np.roll(np.eye(3), 1, axis=1))
    assert not of_table(ring + ring.T) & of_table(two + two.T)
    agreeing = np.repeat([[1.0, 0, 1, 0], [0, 1, 0, 1]], 5, axis=0)
    independent = np.repeat([[1.0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]], [3, 2, 2, 3], axis=0)
    assert not of_table(agreeing) & of_table(independent)


def test_columns_of_yes_and_no_are_told_apart_by_those_beside_them() -> None:
    """Many columns have the same number of ones. False alarm: none seen in 100 seeds; this seed is fixed."""
    table = (np.random.default_rng(0).random((100, 60)) < 0.5).astype(float)
    assert of_table(table) & of_table(table[::-1, ::-1].copy())


@settings(deadline=None)
@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(-2, 2).map(float)),
    st.randoms(use_true_random=False),
)
def test_form_order_and_blocks_of_rows_never_change_a_name(table: np.ndarray, chance: st.randoms) -> None:  # type: ignore[valid-type]
    rows = list(range(len(table)))
    chance.shuffle(rows)  # type: ignore[attr-defined]
    whole = of_table(table)
    assert of_table(scipy.sparse.csr_array(table)) == whole
    assert of_table(table[rows]) & whole or not whole
    split = in_order(table[rows][:3])
    assert (split.plus(in_order(table[rows][3:])) if len(rows) > 3 else split).names == in_order(table).names


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_size_of_blocks_has_no_part_in_a_name(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sparse = scipy.sparse.csr_array(ROWS)
    whole = of_table(ROWS)
    monkeypatch.setattr(fingerprints, "BLOCK_ENTRIES", size)
    assert of_table(ROWS) == of_table(sparse) == whole


def test_data_sets_with_the_same_rows_are_listed_with_the_first_of_them() -> None:
    named = {"a": {"1", "2"}, "b": {"3"}, "c": {"2", "4"}, "d": {"4"}, "e": {"5"}}
    assert list(duplicates({name: frozenset(each) for name, each in named.items()})) == [("a", "c"), ("c", "d")]
