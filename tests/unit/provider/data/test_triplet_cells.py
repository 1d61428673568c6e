"""Rows that are built from triplets part by part are those that a plain loop over all triplets finds."""

from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest

from dpspca.common.dictionary import NO_CELL
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.tables import TripletBatch, TripletRows, triplet_ranges

Line = tuple[int, int, float]
COLUMNS = 6
CODE = -9.0
"""Stands for a missing number in the first column."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_SORTED_TOGETHER", 16), ("_LEAST", 8), ("_BLOCK", 32)):
        monkeypatch.setattr(triplet_ranges, name, size)


def drawn(rows: int, triplets: int) -> list[Line]:
    """Draw triplets of numbers whose sums depend on their order. Some rows and columns are not declared."""
    generator = np.random.default_rng([rows, triplets])
    places = generator.integers(0, [rows + 2, COLUMNS + 1], (triplets, 2))
    numbers = generator.choice([0.1, 0.2, 0.3, 1e16, nan, CODE], triplets)
    return [(int(row), int(column), float(each)) for (row, column), each in zip(places, numbers, strict=True)]


def built(folder: Path, rows: int, lines: list[Line], batch: int, duplicates: str = "add") -> TripletRows:
    """Give all triplets to ``TripletRows``, some at a time."""
    (folder / "rows.txt").write_text("".join(f"{row}\n" for row in range(rows)), encoding="utf-8")
    declared = Triplets(row="r", column="c", value="v", rows=folder / "rows.txt", duplicates=duplicates)
    names = tuple(f"c{column}" for column in range(COLUMNS))
    found = TripletRows(Reading(triplets=declared, columns=names, missing_codes={"c0": (CODE,)}))
    for start in range(0, len(lines), batch):
        row, column, numbers = zip(*lines[start : start + batch], strict=True)
        found.add(TripletBatch([*map(str, row)], [f"c{each}" for each in column], np.array(numbers)))
    return found


def expected(rows: int, lines: list[Line], duplicates: str) -> tuple[dict[tuple[int, int], float], set[int], int]:
    """Return the number of each cell, the columns of cells with several numbers, and how many cells these are."""
    cells: dict[tuple[int, int], list[float]] = {}
    for row, column, number in lines:
        if row < rows and column < COLUMNS:
            cells.setdefault((row, column), []).append(known(column, number))
    numbers, several = dict[tuple[int, int], float](), list[int]()
    for cell, all_of_it in cells.items():
        there = sorted(each for each in all_of_it if not isnan(each)) or [nan]
        total = float(np.add.reduceat(there, [0])[0])
        numbers[cell] = total if duplicates == "add" or len(there) == 1 else NO_CELL
        several += [cell[1]] * (len(there) > 1)
    return numbers, set(several), len(several)


def known(column: int, number: float) -> float:
    """Return the number, or NaN for the code of a missing one."""
    return nan if (column, number) == (0, CODE) else number


@pytest.mark.parametrize("duplicates", ["add", "unusable"])
@pytest.mark.parametrize(("rows", "triplets"), [(1, 40), (7, 100), (300, 3000), (1000, 200), (5, 0)])
def test_rows_are_those_of_a_plain_loop(rows: int, triplets: int, duplicates: str, tmp_path: Path) -> None:
    lines = drawn(rows, triplets)
    numbers, columns, several = expected(rows, lines, duplicates)
    for batch in (1, 7, 10_000):
        np.random.default_rng(batch).shuffle(lines)
        found = built(tmp_path, rows, lines, batch, duplicates)
        made = found.matrix()
        assert made.shape == (rows, COLUMNS)
        assert made.has_canonical_format
        cells = made.tocoo()
        places = zip(*(each.tolist() for each in cells.coords), strict=True)
        there = {cell: known(cell[1], number) for cell, number in zip(places, cells.data.tolist(), strict=True)}
        assert {cell: repr(number) for cell, number in there.items()} == {c: repr(each) for c, each in numbers.items()}
        assert (found.facts.several, set(found.facts.columns_with_several)) == (several, {f"c{c}" for c in columns})
        assert found.facts.triplets == triplets


def test_no_memory_is_kept_for_numbers_that_were_added_up(tmp_path: Path) -> None:
    made = built(tmp_path, 3, [(0, 0, 1.0)] * 500, 100).matrix()
    assert made.data.tolist() == [500.0]
    assert made.data.base is None or made.data.base.size < 50
