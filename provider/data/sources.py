"""Reads rows from files of any kind that ``formats.py`` lists. No other code opens such files.

Reading executes nothing: no pickles. The result has passed ``check_rows`` or ``rows_or_zeros``, so that no job can fail
on it. An error names the place and the kind of a bad cell, and never its content, because others read the logs.

There are two ways to read. ``read_rows`` is for commands of people who may see the rows: it refuses a file with an
unusable row, and says where that row is. ``read_protected`` is for a provider, because others see whether it starts and
what it answers. It refuses a file for its form alone: its kind, its columns and their types, or a number of persons
that differs from the number of rows. There, an unusable row counts as a row of zeros. In text, each line is one row,
and its content never changes where the next line begins (``text_files.py``).

What is declared about a data set (``Reading``) is public and fixed. Values that stand for a missing one, and numbers
that are put in place of missing ones, change each row by itself, so neighbouring tables stay neighbours. A symmetric
matrix would not stay symmetric, so units of a matrix are refused for such data.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.common.dictionary import prepare_sparse
from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage import Reading, is_pattern

from . import fingerprints
from .folders import UnreadableError, files_of, read_folder
from .formats import format_of
from .genotypes import Genotypes, entry_by_entry, prepared_genotypes
from .largest_entries import with_largest_entries
from .odd_rows import make_unusable, require_genotypes, rows_or_zeros
from .plink_files import located
from .preparation import CheckedRows, check_rows, check_size, numbers_of, with_persons
from .tables import Columns, Source, filled, without_codes
from .trial import require_readable
from .triplets import TripletFacts, TripletRows, declared_columns
from .variants import SAMPLE_LISTS, read_samples
from .zarr_files import is_zarr

_PLAIN: Final = Reading()
MOST_DENSE_COLUMNS: Final = 256
"""Sparse rows that a dictionary prepares become dense if they have at most so many columns. Jobs can then centre them,
and the time of an answer does not follow from how many entries rows have. The dictionary, which is public, decides."""

_log = logging.getLogger(__name__)


def read_rows(path: Path, reading: Reading = _PLAIN, *, least: int = 2) -> CheckedRows:
    """Read a file by its ending. Refuse it if it does not have at least ``least`` rows, all of them usable.

    For a folder or a pattern, read the rows of all its files in the order of their names (``folders.py``).
    """
    if reading.triplets is not None:
        whole = read_as_stored(path, reading)
        return _all_usable(complete(whole.matrix, whole.names, reading), _names(whole, reading), least)
    if _is_several(path):
        whole = read_folder(path, lambda file: _checked(file, reading, least=1))
        return _all_usable(whole.matrix, whole.names, least)
    return _checked(path, reading, least)


def read_protected(
    path: Path, reading: Reading = _PLAIN, *, persons: Path | None = None, row_entries: int | None = None
) -> CheckedRows:
    """Read a provider's file or folder. A row that cannot be used counts as a row of zeros.

    Whether the provider starts, and the form of everything that it sends, is the same for tables that differ in one
    row, whatever that row is. ``persons`` is a file that says whose each row is: a line for each row, with any name or
    number. A row whose line is blank counts as a row of zeros, too. ``row_entries`` is the number of entries of a row
    that count, the largest ones. By default all count.
    """
    table = read_as_stored(path, reading)
    whose = None if persons is None else read_persons(persons, table.count, reading)
    with _file_errors(path):
        if whose is None:
            return _usable(path, table, reading, row_entries)
        of_nobody = np.array([not each for each in whose], dtype=np.bool_)
        used = _usable(path, table, reading, row_entries, of_nobody)
    # Each row of nobody counts as a person of its own, so that none takes another's place.
    return with_persons(used, [(each, 0 if each else place) for place, each in enumerate(whose, start=1)])


def read_as_stored(path: Path, reading: Reading = _PLAIN) -> CheckedRows:
    """Read a file or folder, and check its form but not its numbers. NaN is a missing value, infinity no number."""
    if reading.triplets is not None:
        rows, facts = _rows_of_triplets(path, reading)
        if facts.unknown_columns or facts.unknown_rows:
            _log.warning("%s has triplets of rows or columns that are not declared. They are not used.", path)
        return rows
    return (
        read_folder(path, lambda file: _table(file, reading, lenient=True))
        if _is_several(path)
        else _table(path, reading, lenient=True)
    )


def read_arriving(path: Path, reading: Reading = _PLAIN, *, row_entries: int | None = None) -> tuple[CheckedRows, bool]:
    """Read a file that arrived while the provider runs, by the same rule.

    Also return whether it has rows that count as rows of zeros. A file may be without rows, for example if nobody came
    on that day.
    """
    if reading.triplets is not None:
        raise InvalidDataError(
            f"{path}: rows that arrive cannot be triplets, because one row's may be in several files.",
            "Name the folder under data_sets.",
        )
    table = _table(path, reading, lenient=True)
    with _file_errors(path):
        rows = _usable(path, table, reading, row_entries)
    return rows, rows.unusable is not None


def names_in(path: Path, reading: Reading = _PLAIN) -> tuple[str, ...] | None:
    """Read the names of a table's columns and nothing else. Return None if it has none, or cannot be read.

    With a dictionary, return the names of the columns of prepared rows.
    """
    if reading.preparation is not None:
        return reading.preparation.held.columns
    try:
        return _columns_in(path, reading).names
    except DpspcaError:
        return None  # reading the whole file reports the reason


def outline_of(path: Path, reading: Reading = _PLAIN) -> list[tuple[str, str | None]]:
    """Read the names of a table's columns, whatever their types are, and those types if the file states them.

    No row is read. Refuse a file whose columns have no names.
    """
    columns = _columns_in(path, reading, any_type=True)
    if columns.names is None:
        raise InvalidDataError(f"The columns of {path} have no names.", "Save it in a form with names.")
    return list(zip(columns.names, columns.kinds or (None,) * len(columns.names), strict=True))


def types_in(path: Path, reading: Reading = _PLAIN) -> tuple[str, ...] | None:
    """Read the types of a table's columns, if the file states types."""
    return _columns_in(path, reading).kinds


def read_persons(path: Path, rows: int, reading: Reading = _PLAIN) -> list[bytes]:
    """Read whose each row is. A blank line names nobody.

    The last line may end with a line break or without. Otherwise a last row of nobody would look like no line. Of the
    samples that PLINK lists, read the names that are declared.
    """
    try:
        if path.suffix.lower() in SAMPLE_LISTS:
            lines = read_samples(path, reading.person)
            return _one_for_each_row(path, lines, rows)
        lines = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    except OSError as problem:
        raise InvalidDataError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    if len(lines) != rows and not lines[-1]:
        lines.pop()
    return _one_for_each_row(path, lines, rows)


def _one_for_each_row(path: Path, lines: list[bytes], rows: int) -> list[bytes]:
    if len(lines) != rows:
        raise InvalidDataError(
            f"{path} has {len(lines)} lines, but there are {rows} rows.",
            "Write one line for each row, which says whose it is.",
        )
    return [line.strip() for line in lines]


def first_fault(path: Path, reading: Reading = _PLAIN) -> str | None:
    """Say where the first unusable row is, and why, for people who may see the rows. Return None if all are usable.

    Only text has lines that can be named; of other files, the first with an unusable row is named.
    """
    for file in files_of(path) if _is_several(path) and reading.triplets is None else [path]:
        try:
            if reading.triplets is not None:
                read_rows(path, reading, least=0)
                continue
            _checked(file, reading, least=0)
        except DpspcaError as problem:
            return str(problem)
    return None


def triplets_in(path: Path, reading: Reading) -> TripletFacts:
    """Count the triplets of a data set, and those that are not used."""
    return _rows_of_triplets(path, reading)[1]


def _rows_of_triplets(path: Path, reading: Reading) -> tuple[CheckedRows, TripletFacts]:
    """Build rows from all triplets of a file, or of all files of a folder."""
    with _file_errors(path):
        rows = TripletRows(reading)
    for file in files_of(path) if _is_several(path) else [path]:
        with _file_errors(file):
            source = Source(file, reading)
            read = format_of(source).triplets
            for batch in read(source) if read else ():
                rows.add(batch)
    return CheckedRows(numbers_of(rows.matrix()), rows.columns.names), rows.facts


def _columns_in(path: Path, reading: Reading, *, any_type: bool = False) -> Columns:
    if reading.triplets is not None:
        return declared_columns(reading)
    file = next(iter(files_of(path))) if _is_several(path) else located(path)
    with _file_errors(file):
        source = Source(file, reading, any_type=any_type)
        return format_of(source).columns(source)


def _is_several(path: Path) -> bool:
    return (path.is_dir() and not is_zarr(path)) or is_pattern(path)


def _usable(
    path: Path,
    table: CheckedRows,
    reading: Reading,
    row_entries: int | None,
    of_nobody: Any = None,  # noqa: ANN401
) -> CheckedRows:
    """Fill in what is missing, count unusable rows and those of nobody as zeros, and keep the largest entries."""
    matrix = complete(table.matrix, table.names, reading)
    if of_nobody is not None:
        matrix = make_unusable(matrix, of_nobody)
    used = replace(_bounded(path, rows_or_zeros(matrix), row_entries), names=_names(table, reading))
    if matrix is table.matrix:
        return used
    stored: Any = table.matrix
    if isinstance(stored, Genotypes):
        # Most samples lack some genotype. As rows of zeros, they would leave no content to recognise.
        return replace(used, uncut=used.fingerprints() | fingerprints.of_table(stored.as_counted()))
    # Fingerprints include the rows as stored, so that another list of persons, or other numbers in place of missing
    # ones, do not give the rows a new budget.
    return replace(used, uncut=used.fingerprints() | rows_or_zeros(stored).fingerprints())


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
    """Return what a number that is not stored in sparse rows stands for: zero, or, of triplets, a missing value."""
    return 0.0 if reading.triplets is None else nan


def _names(table: CheckedRows, reading: Reading) -> tuple[str, ...] | None:
    """Return the names of the columns, prepared or as they were read."""
    return table.names if reading.preparation is None else reading.preparation.held.columns


def _bounded(path: Path, rows: CheckedRows, row_entries: int | None) -> CheckedRows:
    """Keep the ``row_entries`` largest entries of each row. Log if that left any out."""
    if row_entries is None or row_entries >= rows.dimension:
        return rows
    kept = with_largest_entries(rows, row_entries)
    if kept.entries < rows.entries:
        _log.warning(
            "%s has rows with more than %d entries. Only the %d largest of each row count.",
            path,
            row_entries,
            row_entries,
        )
    return kept


def _checked(path: Path, reading: Reading, least: int) -> CheckedRows:
    """Read one file, and refuse it if a row cannot be used."""
    table = _table(path, reading, lenient=False)
    with _file_errors(path):
        return _all_usable(complete(table.matrix, table.names, reading), _names(table, reading), least)


def _all_usable(matrix: Any, names: tuple[str, ...] | None, least: int) -> CheckedRows:  # noqa: ANN401  # of any form
    if isinstance(matrix, Genotypes):
        check_size(*matrix.shape, least=least)
        require_genotypes(matrix, names)
        return CheckedRows(matrix, names)
    return replace(check_rows(matrix, least=least), names=names)


def _table(path: Path, reading: Reading, *, lenient: bool) -> CheckedRows:
    """Read one file, and check its form but not its numbers."""
    source = Source(located(path), reading, lenient)
    with _file_errors(path):
        found = format_of(source)
        if lenient and found.may_hang:
            require_readable(source)
        raw = found.read(source)
        matrix: Any = numbers_of(raw.numbers, lenient=lenient)
        if raw.to_select is not None:
            matrix = matrix[:, list(raw.to_select)]
        return CheckedRows(matrix, raw.columns.names)


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Turn every error in reading a file into one that names the file."""
    try:
        yield
    except (MissingExtraError, UnreadableError) as problem:
        raise type(problem)(f"{path}: {problem.what}", problem.remedy) from None
    except DpspcaError as problem:
        raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None
    except MemoryError:
        raise UnreadableError(
            f"{path} takes more memory than there is.", "Divide it, or write it again if it is not that large."
        ) from None
    except Exception as problem:  # noqa: BLE001  # errors of zlib, of the tokenizer, and others
        if isinstance(problem, OSError) and problem.errno is not None:  # of the system, not of a library
            raise UnreadableError(f"{path} cannot be read: {problem.strerror}.", "Check its path.") from None
        raise InvalidDataError(
            f"{path} does not hold a table of numbers.",
            "Write it again, whole: .npy with numpy.save and without pickles, .npz with scipy.sparse.save_npz.",
        ) from None
