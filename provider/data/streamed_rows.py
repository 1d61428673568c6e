"""Dense rows of one file as jobs use them, some at a time, and kept nowhere.

A worker of a cluster reads its files like this at every pass. Each row is finished as ``offered_rows.py`` finishes it,
so it has the same bits: missing values are filled in or the dictionary is applied, an unusable row counts as a row of
zeros, and only the largest entries of a row are kept. All of this depends on each row alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading

from .checked import CheckedRows, check_size, usable_entries, with_largest_entries
from .file_errors import file_errors, is_several
from .files import files_of
from .sources import complete, prepared_names, raw_tables
from .tables import RowBatches, without_codes

STREAMED: Final = frozenset({".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".npy"})
"""The endings of files that workers read: dense rows, by libraries that end on every damaged file."""
CELLS: Final = 2**21
"""How many numbers are read at a time, about. It bounds memory, and changes no bit."""
_PACKED: Final = frozenset({".gz", ".bz2", ".xz", ".zst"})
_FORM: Final = b"dpspca part of a data set 1\0"


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Some rows."""

    used: FloatArray
    """As jobs use them. A row that cannot be used is a row of zeros."""
    completed: FloatArray
    """Before any entry was left out."""
    read: FloatArray | None
    """As the file has them, if that was changed."""
    unusable: int
    """Number of rows that count as zeros."""


@dataclass(slots=True)
class RowStream:
    """The rows of one file. What is counted and hashed is complete when all batches were taken."""

    file: Path
    reading: Reading
    row_entries: int | None = None
    names: tuple[str, ...] | None = None
    """The names of the columns that jobs use. They and the dimension are known when the first batch is there."""
    dimension: int = 0
    width: int = 0
    """How many numbers of a row are read. Jobs may use fewer of them."""
    count: int = 0
    unusable: int = 0
    has_cut: bool = False
    """Whether a row had more entries than are kept."""
    _stored_names: tuple[str, ...] | None = None
    _hash: Any = field(default_factory=lambda: sha256(_FORM))

    def batches(self) -> Iterator[Batch]:
        """Read all rows, after a batch of none, which has their form.

        Refuse a file that does not hold dense rows, or that changes while it is read.
        """
        require_streamed(self.file)
        for file, raw in raw_tables(self.file, self.reading, CELLS):
            if not isinstance(raw.numbers, RowBatches):
                raise _not_dense(self.file)
            with file_errors(file):
                self._stored_names = raw.columns.names
                self.names = prepared_names(raw.columns.names, self.reading)
                first = self._finished(np.empty((0, raw.numbers.columns)))
                self.dimension = first.used.shape[1]
                self.width = max(self.dimension, raw.columns.width)
                check_size(0, self.dimension, least=0)
                self._hash.update(repr((self.dimension, self.names)).encode())
                yield first
                for batch in raw.numbers.batches:
                    yield self._finished(batch)

    def stages(self, batch: Batch) -> list[FloatArray]:
        """Return rows as they are completed and, if that differs, as the file has them.

        These are there twice: with rows of zeros, and with zeros in place of single numbers (``offered_rows.py``).
        """
        if batch.read is None:
            return [batch.completed]
        kept, odd = usable_entries(batch.read)
        lacking, _ = usable_entries(without_codes(batch.read, self._stored_names, self.reading))
        return [batch.completed, np.where(odd[:, None], 0.0, kept), lacking]

    def digest(self) -> str:
        """Return a hash of the rows as jobs use them, once all were read. It does not depend on the batches."""
        return str(self._hash.hexdigest())

    def _finished(self, batch: FloatArray) -> Batch:
        whole: FloatArray = complete(batch, self._stored_names, self.reading)
        numbers, blank = usable_entries(whole)
        completed = np.where(blank[:, None], 0.0, numbers)
        used = self._cut(completed)
        self.count += len(used)
        self.unusable += (unusable := int(np.count_nonzero(blank)))
        self._hash.update(np.ascontiguousarray(used).reshape(-1).data)
        return Batch(used, completed, None if whole is batch else batch, unusable)

    def _cut(self, completed: FloatArray) -> FloatArray:
        """Keep the largest entries of each row."""
        if self.row_entries is None or self.row_entries >= completed.shape[1]:
            return completed
        whole = CheckedRows(completed, uncut=frozenset())
        kept = with_largest_entries(whole, self.row_entries)
        self.has_cut |= kept.entries < whole.entries
        return np.asarray(kept.matrix)


def files_with_rows(source: Path) -> list[Path]:
    """List the files of a data set in the order of their rows: one file, or those of a folder or pattern."""
    files = list(files_of(source)) if is_several(source) else [source]
    for file in files:
        require_streamed(file)
    return files


def require_streamed(file: Path) -> None:
    """Refuse a file that workers do not read, by its ending."""
    plain = Path(file.stem) if file.suffix.lower() in _PACKED else file
    if plain.suffix.lower() not in STREAMED:
        raise _not_dense(file)


def _not_dense(file: Path) -> InvalidDataError:
    return InvalidDataError(
        f"{file} is of a kind that the workers of an engine do not read.",
        f"Use files of dense rows ({', '.join(sorted(STREAMED))}), or remove the engine of this data set.",
    )
