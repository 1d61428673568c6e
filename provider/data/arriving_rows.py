"""The files of a data set whose rows arrive: which are counted, the positions of their rows, and reading. Reads files.

Blocks compose in parallel because each row is in one block, by its position, whatever other rows contain. So a row's
position is fixed for good when its file is counted:

- Files are in the order of their names, and a new file must sort after all counted ones. Rows of counted files never
  move: the number of rows in each is remembered and not read again.
- No file is counted twice under two names, by a link of either kind. (Two files with the same content are two files.)
- A counted file must not change or vanish. When it is read again, its digest is compared with the counted one before
  any number is computed. At every query, its identity, size and time are compared as well.
- If any of this is violated, or a new file is no table in the form of the first, the data set answers nothing more
  until the operator restarts the daemon. The operator's log says why. The refusal that is sent is constant.
- A single row never causes this. A row that is not finite, or has too large a number, counts as a row of zeros
  (``odd_rows.py``). This depends on that row alone, and the log says that the file has such a row. A file may be
  without rows.
- If something cannot be read at the moment, because of the disk or missing memory, it is tried again. Only an answer
  that needs it at once fails. The digest still shows whether what is read later is what was counted.
- After a restart nothing is known about earlier counting. So ``digest`` is new at each start: a job that began before
  is refused, and spends nothing more.

Neighbours are tables in the same form: the other row is at the same place in the file. In text, each line is a row,
whatever it contains.

Memory: a query about a block reads the files with its rows one after the other. A query about all rows reads one file
at a time. As many queries as there are places may do so at once. For each of the jobs that asked last, the file that
its query read last stays in memory, because the next block often begins there. No job uses a file that another job's
query read, or for which another waited. Otherwise its answers would show when that was done.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Final, TypeAlias

from dpspca.common.errors import DataSetUnusableError, DpspcaError, InvalidDataError, RowsNotReadyError

from .checked import CheckedRows, Fingerprint, Table
from .files import FolderForm, Stamp, TemporarilyUnreadableError, files_of, stacked
from .offered_rows import read_arriving

DIGEST_BYTES: Final = 32

Read: TypeAlias = Callable[[Path], tuple[CheckedRows, bool]]
"""Reads a file. Returns its rows, and whether some of them count as zeros."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _CountedFile:
    """A counted file. Its rows have the positions from the previous file's ``end`` to its own ``end``."""

    file: Path
    end: int
    stamp: Stamp
    digest: str


_ReadFile: TypeAlias = tuple[_CountedFile, CheckedRows]


@dataclass(slots=True)
class LastFile:
    """The file that one reader read last, and its rows, in memory."""

    read: _ReadFile | None = None


class CountedFiles:
    """The files and rows that were counted so far. Safe to use from many threads."""

    def __init__(self, name: str, folder: Path, *, read: Read = read_arriving) -> None:
        """Count the files that are there. At least one is needed, because it sets the columns."""
        self._name = name
        self._folder = folder
        self._read = read
        self._counted: list[_CountedFile] = []
        self._fault: Exception | None = None
        self._trouble = ""
        self._counting = Lock()
        self._digest = token_hex(DIGEST_BYTES)
        self._fingerprints: tuple[Fingerprint, ...] = ()
        files = files_of(folder)
        first = next(iter(files))
        self.form: Final = FolderForm.of(first, read(first)[0])
        for file, stamp in files.items():
            self._count(file, stamp)

    @property
    def count(self) -> int:
        """Number of rows that were counted."""
        return self._counted[-1].end if self._counted else 0

    @property
    def files(self) -> int:
        """Number of files that were counted."""
        return len(self._counted)

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return self.form.dimension

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.form.names

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self.form.is_sparse

    def digest(self) -> str:
        """Return a random identifier of what was counted since this start. The next start has another."""
        return self._digest

    def fingerprints(self) -> frozenset[str]:
        """Return the fingerprints of the rows that were counted so far, with their columns in the given order.

        There is one fingerprint of the rows as they were read, and one after each change that settings make to them.
        """
        return frozenset().union(*(each.names for each in self._fingerprints))

    def first(self, rows: int) -> "ArrivingRows":
        """Return the first ``rows`` rows, whether or not they have arrived."""
        return ArrivingRows(self, rows)

    @property
    def is_in_order(self) -> bool:
        """Tell whether no fault was found so far."""
        return self._fault is None

    def require_no_fault(self) -> None:
        """Refuse everything after a fault, in a constant text."""
        if self._fault is not None:
            raise DataSetUnusableError(
                "The files of this data set are out of order.",
                "Ask the provider's operator to read the provider's log.",
            ) from None

    def check(self) -> None:
        """Check all files by names and stamps alone, without waiting for a file to be read."""
        with self._recording_faults():
            self._files()

    def count_next(self, rows: int) -> None:
        """Check all files. If fewer than ``rows`` rows are counted and there is a new file, count it."""
        with self._counting, self._recording_faults():
            new = list(self._files().items())[self.files :]
            if new and self.count < rows:
                self._count(*new[0])

    def spans(self, rows: int) -> list[slice]:
        """Return, for each file, its span among the first ``rows`` rows."""
        edges = (0, *(each.end for each in self._counted))
        return [slice(start, min(end, rows)) for start, end in pairwise(edges) if start < min(end, rows)]

    def part(self, start: int, stop: int, last: LastFile | None = None) -> Table:
        """Read rows by their position. Refuse if they are not the ones that were counted.

        A file that this reader read last is not read again.
        """
        last = last or LastFile()
        if stop > self.count:
            raise RowsNotReadyError("The rows of this query have not arrived yet.", "Ask again later.")
        pieces, begins = [], 0
        with self._recording_faults():
            for each in tuple(self._counted):
                if max(begins, start) < min(each.end, stop):
                    last.read = read = self._read_again(each, last.read)
                    pieces.append(read[1].matrix[max(0, start - begins) : stop - begins])
                begins = each.end
            return stacked(pieces, is_sparse=self.form.is_sparse)

    def _count(self, file: Path, stamp: Stamp) -> None:
        """Count the next file, which fixes its rows' positions. ``stamp`` is from when it was found to be no link."""
        rows, mended = self._read(file)
        self.form.require(file, rows)
        if Stamp.of(file) != stamp:
            raise _changed(file)
        if mended:
            _log.warning("%s has rows that are not finite numbers. Such a row counts as a row of zeros.", file)
        counted = _CountedFile(file, self.count + rows.count, stamp, rows.digest())
        new = rows.fingerprints_in_order()
        self._fingerprints = tuple(map(Fingerprint.plus, self._fingerprints or (Fingerprint(),) * len(new), new))
        self._counted.append(counted)

    def _files(self) -> dict[Path, Stamp]:
        """List the files. Refuse if a counted file changed or is gone, or a new file sorts before one."""
        counted = tuple(self._counted)
        files = files_of(self._folder)
        for each in counted:
            if each.file not in files:
                raise InvalidDataError(f"{each.file} is gone, but its rows were counted.", _START_AGAIN)
            if files[each.file] != each.stamp:
                raise _changed(each.file)
        for file, each in zip(files, counted, strict=False):
            if file != each.file:
                raise InvalidDataError(
                    f"{file} came late: it sorts before {each.file.name}, whose rows were already counted.",
                    f"Name new files so that they sort last. {_START_AGAIN}",
                )
        return files

    def _read_again(self, counted: _CountedFile, last: _ReadFile | None) -> _ReadFile:
        if last is not None and last[0] is counted:
            return last
        rows, _ = self._read(counted.file)
        if rows.digest() != counted.digest:
            raise _changed(counted.file)
        return counted, rows

    @contextmanager
    def _recording_faults(self) -> Iterator[None]:
        """Record and log the first fault, and refuse in a constant text. Do not record errors that may pass."""
        self.require_no_fault()
        try:
            yield
        except (TemporarilyUnreadableError, MemoryError) as problem:
            self._warn_once(str(problem) or "There is too little memory.")
            raise RowsNotReadyError("This data set cannot be read at the moment.", "Ask again later.") from None
        except Exception as problem:  # noqa: BLE001  # after any error, positions may no longer be right
            self._fault = self._fault or problem
            # The text of an error that is not ours may contain a part of a row.
            why = problem if isinstance(problem, DpspcaError) else f"{type(problem).__name__}."
            _log.error("The data set '%s' answers nothing until the provider reloads or restarts: %s", self._name, why)
        else:
            self._trouble = ""
        self.require_no_fault()

    def _warn_once(self, trouble: str) -> None:
        """Log an error that may pass, once while it lasts."""
        if trouble != self._trouble:
            _log.warning("The data set '%s' cannot be read at the moment: %s", self._name, trouble)
        self._trouble = trouble


class ArrivingRows:
    """The first rows of a data set, as many as a job is about. They are read when they are used.

    They are for one job, whose queries are answered one after the other. So which file is in memory follows from what
    that job was asked, and not from which of several queries is done last.
    """

    def __init__(self, counted_files: CountedFiles, count: int) -> None:
        self.counted_files: Final = counted_files
        self.count: Final = count
        self._last = LastFile()

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return self.counted_files.dimension

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.counted_files.names

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self.counted_files.is_sparse

    @property
    def pieces(self) -> Sequence[slice]:
        """The span of rows in each file."""
        return self.counted_files.spans(self.count)

    def part(self, which: slice) -> Table:
        """Read rows by their position."""
        start, stop, _ = which.indices(self.count)
        return self.counted_files.part(start, stop, self._last)

    def forget(self) -> list[object]:
        """Drop the file that was read last, and return it."""
        gone, self._last.read = self._last.read, None
        return [gone]


_START_AGAIN: Final = "Put the folder in order, and reload or restart the daemon."


def _changed(file: Path) -> InvalidDataError:
    return InvalidDataError(
        f"{file} changed after its rows were counted.",
        f"Write a file under a name that begins with a dot, and rename it when it is complete. {_START_AGAIN}",
    )
