"""Reads the triplets of a file, or of all files of a folder, and builds sparse rows from them."""

import logging
from collections.abc import Iterator
from functools import partial
from math import isinf, isnan
from pathlib import Path
from typing import Final

import numpy as np

from dpspca.common.storage import Reading

from .checked import CheckedRows
from .file_errors import file_errors, files_at
from .formats import format_of
from .tables import RowSource, TripletBatch, TripletFacts, TripletRows, code_numbers
from .threads import OneBehind

_ENOUGH: Final = 2

_log = logging.getLogger(__name__)


def rows_of_triplets(path: Path, reading: Reading, room: int | None = None) -> tuple[CheckedRows, TripletFacts]:
    """Build rows from all triplets. Refuse more than fit into ``room`` bytes."""
    with file_errors(path):
        rows = TripletRows(reading, room)
    for file in files_at(path):
        with file_errors(file), OneBehind[TripletBatch](partial(rows.add, file=file)) as finding:
            for batch in _batches(file, reading):
                finding.put(batch)
    return CheckedRows(rows.matrix(), rows.columns.names), rows.facts


def warn_of_unused(path: Path, facts: TripletFacts) -> None:
    """Tell the log that lines are not used, without numbers and names: only the steward may know these."""
    if facts.unknown_columns or facts.unknown_rows:
        _log.warning("%s has triplets of rows or columns that are not declared. They are not used.", path)
    if facts.broken:
        _log.warning(
            "%s has lines with too few or too many cells. They are not used. `dpspca data check` names the first.", path
        )


def places_of_cell(path: Path, reading: Reading, row: int, column: int) -> list[str]:
    """Name the files, and in text the lines, of the first triplets of one row and column: two at most.

    One whose number cannot be used comes first, and missing values come last: they count only where there is nothing
    else. This reads all triplets again.
    """
    known, bad, good, missing = TripletRows(reading), list[str](), list[str](), list[str]()
    (codes,) = code_numbers(reading, [(known.columns.names or ())[column]])
    for file in files_at(path):
        with file_errors(file):
            for batch in _batches(file, reading):
                rows, columns = known.find(batch)
                for place in np.flatnonzero((rows == row) & (columns == column)).tolist():
                    line = "" if batch.lines is None else f", line {batch.lines[place]}"
                    number = 1.0 if batch.numbers is None else float(batch.numbers[place])
                    of_kind = missing if isnan(number) or number in codes else bad if isinf(number) else good
                    of_kind.append(f"{file}{line}")
    return [*bad, *good, *missing][:_ENOUGH]


def _batches(file: Path, reading: Reading) -> Iterator[TripletBatch]:
    source = RowSource(file, reading)
    read = format_of(source).triplets
    yield from read(source) if read else ()
