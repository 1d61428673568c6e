"""Reads rows from files of any kind that ``formats.py`` lists. No other code opens such files.

Reading executes nothing: no pickles. The result has passed ``check_rows`` or ``rows_or_zeros``, so that no job can fail
on it. An error names the place and the kind of a bad cell, and never its content, because others read the logs.

There are two ways to read. ``read_rows`` is for commands of people who may see the rows: it refuses a file with an
unusable row, and says where that row is. ``read_offered`` is for a provider, because others see whether it starts and
what it answers. It refuses a file for its form alone: its kind, its columns and their types, or a number of persons
that differs from the number of rows. There, an unusable row counts as a row of zeros. In text, each line is one row,
and its content never changes where the next line begins (``text_files.py``).

What is declared about a data set (``Reading``) is public and fixed. Values that stand for a missing one, and numbers
that are put in place of missing ones, change each row by itself, so neighbouring tables stay neighbours. A symmetric
matrix would not stay symmetric, so units of a matrix are refused for such data.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import Dictionary, prepare_sparse
from dpspca.common.errors import DpspcaError, InvalidDataError
from dpspca.common.storage import Reading

from .checked import CheckedRows, check_rows, check_size, numbers_of, require_genotypes
from .file_errors import file_errors, files_at, is_several
from .files import (
    FolderForm,
    Stamp,
    TemporarilyUnreadableError,
    joined_parts,
    located,
    partition_of,
    read_folder,
)
from .formats import format_of, unpacked_name
from .memory import Genotypes, entry_by_entry, prepared_genotypes
from .tables import (
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    declared_columns,
    filled,
    require_no_code_of_zero,
    without_codes,
)
from .trial_reading import require_readable
from .triplet_rows import rows_of_triplets, warn_of_unused

RawTables: TypeAlias = Iterator[tuple[Path, RawTable]]
"""The files of a data set, each opened when the one before was read."""

_PLAIN: Final = Reading()
MOST_DENSE_COLUMNS: Final = 256
"""Sparse rows that a dictionary prepares become dense if they have at most this number of columns. Jobs can then centre
them, and the time of an answer does not follow from how many entries rows have. The dictionary, which is public,
decides."""


def read_rows(path: Path, reading: Reading = _PLAIN, *, least: int = 2) -> CheckedRows:
    """Read a file by its ending. Refuse it if it does not have at least ``least`` rows, all of them usable.

    For a folder or a pattern, read the rows of all its files in the order of their names (``folders.py``).
    """
    if reading.triplets is not None:
        whole = read_as_stored(path, reading)
        return _all_usable(complete(whole.matrix, whole.names, reading), prepared_names(whole.names, reading), least)
    if is_several(path):
        whole = read_folder(path, lambda file: _checked(file, reading, least=1, within=path))
        return _all_usable(whole.matrix, whole.names, least)
    return _checked(path, reading, least)


def read_as_stored(path: Path, reading: Reading = _PLAIN, room: int | None = None) -> CheckedRows:
    """Read a file or folder, and check its form but not its numbers. NaN is a missing value, infinity no number.

    If the rows have to be in memory as a whole and take more than ``room`` bytes, they are refused.
    """
    if reading.triplets is not None:
        rows, facts = rows_of_triplets(path, reading, room)
        warn_of_unused(path, facts)
        return rows
    return joined(raw_tables(path, reading, room=room))


def raw_tables(path: Path, reading: Reading, cells: int | None = None, room: int | None = None) -> RawTables:
    """Open each file of a data set, one after the other. Refuse one that changed while its rows were read."""
    for file in _known_files(path, reading):
        place = located(file)
        before = Stamp.of(place) if place.is_file() else None
        raw = _opened(_source(file, reading, path, room), file, cells)
        room = None if room is None else max(0, room - held_by(raw.numbers))
        try:
            yield file, raw
        finally:
            if isinstance(raw.numbers, RowBatches):
                raw.numbers.close()
        if before is not None and Stamp.of(place) != before:
            raise TemporarilyUnreadableError(f"{file} changed while it was read.", "Start again when it is complete.")


def _known_files(path: Path, reading: Reading) -> list[Path]:
    """List the files of a data set. Refuse one of an unknown kind before any is opened."""
    files = files_at(path)
    for file in files:
        with file_errors(file):
            format_of(_source(file, reading, path))
    return files


def dense_batches(tables: RawTables) -> Iterator[tuple[Path, FloatArray]]:
    """Read the dense rows of all tables, some at a time. Refuse tables that do not fit together."""
    form = None
    for file, raw in tables:
        empty = without_rows(file, raw)
        form = form or FolderForm.of(file, empty)
        form.require(file, empty)
        with file_errors(file):
            for batch in raw.numbers.batches:
                yield file, batch


def without_rows(file: Path, raw: RawTable) -> CheckedRows:
    """Return a table without rows in the form of a file of dense rows. Refuse a file in another form."""
    if not isinstance(raw.numbers, RowBatches):
        raise InvalidDataError(
            f"{file} holds sparse rows or genotypes, and the files before it do not.", "Save all files in one form."
        )
    return CheckedRows(np.empty((0, raw.numbers.columns)), raw.columns.names)


def joined(tables: RawTables) -> CheckedRows:
    """Read all tables into memory, and refuse tables that do not fit together."""
    return joined_parts([(file, _numbers_of(file, raw, lenient=True)) for file, raw in tables])


def names_in(path: Path, reading: Reading = _PLAIN) -> tuple[str, ...] | None:
    """Read the names of a table's columns and nothing else. Return None if it has none, or cannot be read.

    With a dictionary, return the names of the columns of prepared rows.
    """
    if reading.preparation is not None:
        return reading.preparation.columns_prepared
    try:
        return _columns_in(path, reading).names
    except DpspcaError:
        return None  # reading the whole file reports the reason


def width_in(path: Path, reading: Reading = _PLAIN) -> int:
    """Return how many columns a row is read with, if that may be more than are used, or 0."""
    with suppress(DpspcaError):  # reading the whole file reports the reason
        return _columns_in(path, reading).width
    return 0


def outline_of(path: Path, reading: Reading = _PLAIN) -> list[tuple[str, str | None]]:
    """Read the names of a table's columns, whatever their types are, and those types if the file states them.

    No row is read. Refuse a file whose columns have no names.
    """
    columns = _columns_in(path, reading, any_type=True)
    if columns.names is None:
        raise InvalidDataError(f"The columns of {path} have no names.", "Save it in a form with names.")
    return list(zip(columns.names, columns.kinds or (None,) * len(columns.names), strict=True))


def stated_names(path: Path, reading: Reading = _PLAIN) -> tuple[str, ...] | None:
    """Read the names of a table's columns, whatever their types are. Return None if the file does not name them."""
    return _columns_in(path, reading, any_type=True).names


def features_in(path: Path, dictionary: Dictionary, reading: Reading = _PLAIN) -> tuple[str, ...] | None:
    """Name the features of a dictionary that a data set has. Return None if its file does not name columns.

    A column has the name of its feature. A variant may have another one, and the place and the alleles of the feature.
    """
    if reading.triplets is None:
        file = _known_files(path, reading)[0]
        with file_errors(file):
            source = _source(file, reading, path)
            find = format_of(source).features
            if find is not None:
                return find(source, dictionary)
    names = stated_names(path, reading)
    return None if names is None else tuple(filter(frozenset(names).__contains__, dictionary.names))


def types_in(path: Path, reading: Reading = _PLAIN) -> tuple[str, ...] | None:
    """Read the types of a table's columns, if the file states types."""
    return _columns_in(path, reading).kinds


def names_to_read(path: Path, reading: Reading) -> tuple[str, ...]:
    """Read the names of the columns that are used as features. Refuse a file whose columns have no names."""
    names = _columns_in(path, reading).names
    if names is None:
        raise InvalidDataError(f"The columns of {path} have no names.", "Give them names under [reading].")
    return names


def has_persons_beside(path: Path, reading: Reading) -> bool:
    """Tell whether the column that says whose each row is stands beside the tables of rows, in all files or in none."""
    there = list[bool]()
    for file in files_at(path):
        with file_errors(file):
            there.append(format_of(_source(file, reading, path)).persons_beside)
    if any(there) != all(there):
        raise InvalidDataError(
            f"Of the files at {path}, only some hold AnnData, whose obs says whose rows they are.",
            "Save all files in one form.",
        )
    return all(there)


def fault_of_row(file: Path, reading: Reading, row: int) -> str | None:
    """Describe the fault of a row of a text file, counted from 0. Return None for files of other kinds."""
    source = RowSource(located(file), reading)
    with file_errors(file):
        describe = format_of(source).fault
        return None if describe is None else f"{file}: {describe(source, row)}"


def suspected_thousands(file: Path, reading: Reading) -> tuple[str, ...]:
    """Name columns of a text file whose decimal mark may divide thousands."""
    source = RowSource(located(file), reading)
    with file_errors(file):
        find = format_of(source).thousands
        return () if find is None else find(source)


def kinds_of_cells(file: Path, reading: Reading) -> dict[str, tuple[str, str]]:
    """Say what columns of a text file hold in place of numbers, and what to do about it."""
    source = RowSource(located(file), reading)
    with file_errors(file):
        find = format_of(source).kinds
        return {} if find is None else find(source)


def undecoded_columns(path: Path, reading: Reading) -> tuple[str, ...]:
    """Name columns of text files with cells that are not in the encoding in which the files are read."""
    found = dict[str, None]()
    for file in files_at(path):
        source = _source(file, reading, path)
        with file_errors(file):
            find = format_of(source).undecoded
            found |= dict.fromkeys(() if find is None else find(source))
    return tuple(found)


def index_columns(path: Path, reading: Reading) -> tuple[str, ...]:
    """Name columns that number or name rows, as the first file says, if nobody chose the columns."""
    if reading.triplets is not None or reading.columns is not None:
        return ()
    file = files_at(path)[0]
    source = _source(file, reading, path)
    with file_errors(file):
        find = format_of(source).index
        return () if find is None else find(source)


def packed_twins(path: Path) -> tuple[str, ...]:
    """Name files of a folder that are there both packed and not, or packed in two ways: all their rows are used."""
    counts = Counter(file.with_name(unpacked_name(file)) for file in files_at(path))
    return tuple(str(file) for file, count in counts.items() if count > 1)


def unstored_parts(path: Path, reading: Reading) -> Iterator[str]:
    """Say of each file which part of its rows is not stored, if there is such a part."""
    for file in files_at(path):
        source = _source(file, reading, path)
        with file_errors(file):
            describe = format_of(source).unstored
            described = None if describe is None else describe(source)
        if described is not None:
            yield f"{file}: {described}."


def notes(path: Path, reading: Reading) -> Iterator[str]:
    """Give remarks for people about how the rows of each file are read."""
    for file in files_at(path):
        source = _source(file, reading, path)
        with file_errors(file):
            note = format_of(source).notes
            yield from () if note is None else note(source)


def first_fault(path: Path, reading: Reading = _PLAIN) -> str | None:
    """Say where the first unusable row is, and why, for people who may see the rows. Return None if all are usable.

    Of sparse rows and genotypes, the first file with an unusable row is named. Triplets have their own
    (``fault_in_triplets``).
    """
    for file in files_at(path):
        try:
            _checked(file, reading, least=0, within=path)
        except DpspcaError as problem:
            return str(problem)
    return None


def held_by(numbers: Any) -> int:  # noqa: ANN401  # of any form
    """Return how many bytes rows take in memory, if they are there as a whole."""
    if isinstance(numbers, scipy.sparse.csr_array):
        return int(numbers.data.nbytes + numbers.indices.nbytes + numbers.indptr.nbytes)
    return int(numbers.nbytes) if isinstance(numbers, Genotypes | np.ndarray) else 0


def _columns_in(path: Path, reading: Reading, *, any_type: bool = False) -> Columns:
    if reading.triplets is not None:
        return declared_columns(reading)
    file = _known_files(path, reading)[0]
    with file_errors(file):
        source = replace(_source(file, reading, path), any_type=any_type)
        return format_of(source).columns(source)


def _source(file: Path, reading: Reading, path: Path, room: int | None = None) -> RowSource:
    """Return how to read a file of a data set that is at ``path``."""
    within, part = path if is_several(path) else None, partition_of(path, file)
    return RowSource(located(file), reading, room=room, within=within, partition=part)


def complete(
    matrix: Any,  # noqa: ANN401  # of any form
    names: tuple[str, ...] | None,
    reading: Reading,
) -> Any:  # noqa: ANN401
    """Put declared numbers in place of missing ones. With a dictionary, prepare the rows.

    Sparse rows of many columns stay sparse.
    """
    whole = entry_by_entry(matrix, lambda numbers: filled(without_codes(numbers, names, reading), names, reading))
    if reading.preparation is None:
        return whole
    if isinstance(whole, Genotypes):
        return prepared_genotypes(whole, names or (), reading.preparation)
    if isinstance(whole, np.ndarray):
        return reading.preparation.prepare(whole, names or ())
    prepared = prepare_sparse(reading.preparation, whole, names or (), absent_in(reading))
    return prepared.toarray() if prepared.shape[1] <= MOST_DENSE_COLUMNS else prepared


def absent_in(reading: Reading) -> float:
    """Return the value of a number that sparse rows do not store: zero or, for triplets, a missing value."""
    return 0.0 if reading.triplets is None else nan


def prepared_names(names: tuple[str, ...] | None, reading: Reading) -> tuple[str, ...] | None:
    """Return the names of the columns, prepared or as they were read."""
    return names if reading.preparation is None else reading.preparation.columns_prepared


def _checked(path: Path, reading: Reading, least: int, within: Path | None = None) -> CheckedRows:
    """Read one file, perhaps within a folder, and refuse it if a row cannot be used."""
    source = replace(_source(path, reading, within or path), lenient=False)
    table = _numbers_of(path, _opened(source, path), lenient=False)
    with file_errors(path):
        return _all_usable(complete(table.matrix, table.names, reading), prepared_names(table.names, reading), least)


def _all_usable(matrix: Any, names: tuple[str, ...] | None, least: int) -> CheckedRows:  # noqa: ANN401  # of any form
    if isinstance(matrix, Genotypes):
        check_size(*matrix.shape, least=least)
        require_genotypes(matrix, names)
        return CheckedRows(matrix, names)
    return replace(check_rows(matrix, least=least), names=names)


def _opened(source: RowSource, path: Path, cells: int | None = None) -> RawTable:
    """Open one file, and check its form but not its numbers."""
    with file_errors(path):
        found = format_of(source)
        if source.lenient and found.may_hang:
            require_readable(source)
        table = found.read(source if cells is None else replace(source, cells=cells))
        require_no_code_of_zero(table, source.reading)
        return table


def _numbers_of(path: Path, raw: RawTable, *, lenient: bool) -> CheckedRows:
    """Read the rows of an opened file into memory."""
    with file_errors(path):
        numbers = raw.numbers.gathered() if isinstance(raw.numbers, RowBatches) else raw.numbers
        matrix: Any = numbers_of(numbers, lenient=lenient)
        if raw.to_select is not None:
            matrix = matrix[:, list(raw.to_select)]
        return CheckedRows(matrix, raw.columns.names)
