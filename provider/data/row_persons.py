"""Whose each row is: a line of a persons file for each row, or a column that is read together with the rows.

Whose rows they are decides which are protected together. A column is read in the same pass as the rows, because a
database may give them in another order the second time. It is no feature, and no fingerprint depends on it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final, Self

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError, MissingExtraError
from dpspca.common.storage import SAMPLE_LISTS, Reading

from .file_errors import file_errors
from .files import beside, label_of, labels_in, located, read_samples, sample_ids
from .sources import RawTables, has_persons_beside, names_to_read, raw_tables
from .tables import PERSON, Columns, PersonCells, RawTable, RowBatches, require_room

_BYTES_COUNTED: Final = 2**20
_GENOTYPES: Final = (".bed", ".pgen")
_FAMILY: Final = ("IID", "FID")


@dataclass(slots=True)
class RowPersons:
    """The person of each row. Of a column, persons are known as far as rows were read."""

    path: Path
    """Where the rows are."""
    reading: Reading
    """How the rows are read: with the column, if it is one."""
    lines: list[bytes]
    """The label of each row's person. No bytes stand for nobody."""
    file: Path | None = None
    cells: PersonCells | None = None
    room: int | None = None

    @classmethod
    def of(cls, path: Path, reading: Reading, persons: Path | None, room: int | None) -> Self | None:
        """Read a persons file, or prepare to read a column. Return None if nothing says whose the rows are."""
        persons = persons or _samples_beside(path, reading)
        if persons is not None:
            return cls(path, reading, _lines_of(persons, reading, room), file=persons)
        return None if reading.person is None else cls._of_column(path, reading, reading.person, room)

    @classmethod
    def _of_column(cls, path: Path, reading: Reading, column: str, room: int | None) -> Self:
        cells = PersonCells(label_of, reading.codes_of(column))
        with_column = replace(reading, texts={**reading.texts, column: cells})
        if not has_persons_beside(path, reading):
            used = names_to_read(path, reading)
            with_column = replace(with_column, columns=(*used, column), leave_out=())
        return cls(path, with_column, [], cells=cells, room=room)

    def tables(self, cells: int | None = None, room: int | None = None) -> RawTables:
        """Open each file of the data set, one after the other, without the column of persons."""
        tables = raw_tables(self.path, self.reading, cells, room)
        return tables if self.cells is None else self._without_column(tables)

    def of_rows(self, rows: int) -> Sequence[bytes]:
        """Return a label for each row. Of a file, refuse more or fewer lines than rows."""
        return self.lines if self.file is None else _for_each_row(self.file, self.lines, rows)

    def lacks_last_line(self, rows: int) -> bool:
        """Tell whether a persons file has one line fewer than there are rows, so that the last row is nobody's.

        A last label that is empty looks like that too, where no line break ends the last line.
        """
        is_list = self.file is not None and self.file.suffix.lower() in SAMPLE_LISTS
        return self.file is not None and not is_list and 0 < rows == len(self.lines) and not self.lines[-1]

    def differing_samples(self) -> int:
        """Count the names in a list of samples that differ from those in the list beside the genotypes, by place."""
        own = _list_beside(self.path)
        if self.file is None or own is None or self.file.suffix.lower() not in SAMPLE_LISTS:
            return 0
        pairs = zip_longest(sample_ids(self.file), sample_ids(own), fillvalue=("", ""))
        return sum(one != other for (_, one), (_, other) in pairs)

    def _without_column(self, tables: RawTables) -> RawTables:
        self.lines.clear()
        for file, raw in tables:
            if raw.persons is not None:
                require_room("labels of persons", len(self.lines) + len(raw.persons), PERSON, self.room)
                self.lines += raw.persons
                yield file, raw
                continue
            if not isinstance(raw.numbers, RowBatches) or has_persons_beside(file, self.reading):
                raise InvalidDataError(f"{file} has no column of persons.", "Name a persons file under [persons].")
            numbers = replace(raw.numbers, columns=raw.numbers.columns - 1, batches=self._divided(raw.numbers))
            yield file, RawTable(numbers, _first(raw.columns))

    def _divided(self, numbers: RowBatches) -> Iterator[FloatArray]:
        """Divide rows from the persons in their last column. Persons are known before the rows are given out."""
        assert self.cells is not None
        for batch in numbers.batches:
            require_room("rows with their persons", len(self.lines) + len(batch), PERSON, self.room)
            self.lines += self.cells.labels(batch[:, -1])
            yield batch[:, :-1].copy()


def _first(columns: Columns) -> Columns:
    """Return all columns but the last."""
    return replace(
        columns,
        names=None if columns.names is None else columns.names[:-1],
        places=None if columns.places is None else columns.places[:-1],
        kinds=None if columns.kinds is None else columns.kinds[:-1],
        in_file=columns.in_file[:-1],
    )


def _samples_beside(path: Path, reading: Reading) -> Path | None:
    """Find the list of samples beside genotypes, if the settings say which of its columns names persons."""
    return None if reading.person is None else _list_beside(path)


def _list_beside(path: Path) -> Path | None:
    """Find the list of samples beside genotypes."""
    with suppress(MissingExtraError):
        place = located(path)
        if place.suffix.lower() in _GENOTYPES:
            return next(filter(None, (beside(place.with_suffix(""), end) for end in SAMPLE_LISTS)), None)
    return None


# --- A persons file ---------------------------------------------------------------------------------------------------


def _lines_of(file: Path, reading: Reading, room: int | None) -> list[bytes]:
    """Read the lines of a persons file. Of the samples that PLINK lists, read the declared names.

    The last line may end with a line break or without, which ``_for_each_row`` decides. Refuse more lines than fit into
    ``room`` bytes.
    """
    is_list = file.suffix.lower() in SAMPLE_LISTS
    column = reading.person or _FAMILY[0]
    if is_list and column not in _FAMILY:
        raise InvalidDataError(f"person is {column!r:.60}, and {file} lists samples.", "Use IID or FID.")
    if not is_list and reading.person is not None:
        raise InvalidDataError(
            f"The settings name a column of persons, {column!r:.60}, and a persons file, {file}.",
            "Keep one: person under [reading], or the file under [persons].",
        )
    try:
        with file_errors(file):
            require_room("lines that say whose rows are", _count(file), PERSON, room)
        if is_list:
            return list(map(label_of, read_samples(file, column)))
        content = file.read_bytes()
    except OSError as problem:
        raise InvalidDataError(f"{file} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    with file_errors(file):
        return labels_in(content)


def _count(file: Path) -> int:
    """Count the lines of a file, some of it at a time."""
    with file.open("rb") as opened:
        blocks = iter(lambda: opened.read(_BYTES_COUNTED), b"")
        counts = [(block.count(b"\n"), block.count(b"\r")) for block in blocks]
    return 1 + max(map(sum, zip(*counts, strict=True)), default=0)


def _for_each_row(file: Path, lines: Sequence[bytes], rows: int) -> Sequence[bytes]:
    """Return one line for each row. Otherwise a last row without a person would look like no line."""
    if len(lines) != rows and not lines[-1] and file.suffix.lower() not in SAMPLE_LISTS:
        lines = lines[:-1]
    if len(lines) != rows:
        raise InvalidDataError(
            f"{file} has {len(lines)} lines, but there are {rows} rows.",
            "Write one line for each row, with the name or number of its person.",
        )
    return lines
