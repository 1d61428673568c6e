"""The files of a data set whose rows arrive: which are counted, where their rows stand, and how they are read. Edge.

Blocks compose in parallel because a row is in one of them, by its position, whatever other rows say. So a position is
fixed when its file is counted, and for good:

- Files follow one another by name, and a new one must sort after all those counted. Rows of counted files never move:
  how many each holds is remembered, and is not looked up again.
- No file is counted twice under two names, by a link of either kind. (Two files that are alike are two.)
- A counted file must not change or vanish. What is read of it later is held against the digest of what was counted,
  before a number is made of it; that it still is the same file, of the same size and time, is looked at besides, at
  every query.
- If any of this does not hold, or a new file is no table in the form of the first, the data set answers nothing more
  until somebody has looked and starts the daemon again. The operator's log says why; what goes out is a constant.
- A single row never does that. One that is no row of finite numbers, none of them too large, counts as a row of zeros
  (``odd_rows.py``), which follows from that row alone; the log says that a file has such a row. A file may have no rows
  at all.
- What could not be read at the moment, for a disk or for want of memory, is tried again: it ends nothing but an answer
  that needs it at once. The digest still says whether what is read then is what was counted.
- After a restart nothing is known of what was counted before, so that ``digest`` is new at each start: a job that
  began before is refused, and spends nothing more.

Neighbours are tables in the same form: the other row stands in the same place of the file. In text, each line is a row
by itself, whatever is on it.

Memory: of a query about a block those files are read, one after the other, that hold rows of it; of one about all
rows, one file at a time. As many queries as there are threads may do so at once. The file that was read last is kept,
one of each data set, for the next block often begins where this one ends.
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

import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, RefusedError

from .fingerprints import Fingerprint
from .folders import Form, Stamp, UnreadableError, files_of, stacked
from .preparation import CheckedRows
from .sources import read_arriving

DIGEST_BYTES: Final = 32

Read: TypeAlias = Callable[[Path], tuple[CheckedRows, bool]]
"""Reads a file, and tells whether it has rows that count as zeros."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A file whose rows have their positions: those before ``end``, from where the file before it ends."""

    file: Path
    end: int
    stamp: Stamp
    digest: str


class Tally:
    """The rows that were counted so far. Safe to ask from any number of threads."""

    def __init__(self, name: str, folder: Path, *, read: Read = read_arriving) -> None:
        """Count what is there: one file at least, for it says which columns there are."""
        self._name = name
        self._folder = folder
        self._read = read
        self._counted: list[_Counted] = []
        self._kept: tuple[_Counted, CheckedRows] | None = None
        self._fault: Exception | None = None
        self._trouble = ""
        self._counting = Lock()
        self._digest = token_hex(DIGEST_BYTES)
        self._fingerprint = Fingerprint()
        files = files_of(folder)
        first = next(iter(files))
        self.form: Final = Form.of(first, read(first)[0])
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
        """What the columns are called, where that is known."""
        return self.form.names

    def digest(self) -> str:
        """Name what was counted since this start, of which nobody knows after the next."""
        return self._digest

    def fingerprints(self) -> frozenset[str]:
        """Name what the rows say that were counted so far, by their columns as they stand."""
        return self._fingerprint.names

    def first(self, rows: int) -> "ArrivingRows":
        """Give so many rows, from the first, be they there or not."""
        return ArrivingRows(self, rows)

    def require_order(self) -> None:
        """Refuse once and for all after a fault, and say nothing of it."""
        if self._fault is not None:
            raise RefusedError("This data set is out of order.", "Ask its operator to read its log.") from None

    def check(self) -> None:
        """Refuse if anything is not as it has to be, by names and stamps alone; no reading is waited for."""
        with self._orderly():
            self._files()

    def more(self, rows: int) -> None:
        """Check, and count the next file if one is there while fewer rows than these are counted."""
        with self._counting, self._orderly():
            new = list(self._files().items())[self.files :]
            if new and self.count < rows:
                self._count(*new[0])

    def spans(self, rows: int) -> list[slice]:
        """Say which of the first rows are in which file."""
        edges = (0, *(each.end for each in self._counted))
        return [slice(start, min(end, rows)) for start, end in pairwise(edges) if start < min(end, rows)]

    def part(self, start: int, stop: int) -> FloatArray | scipy.sparse.csr_array:
        """Read rows by their position, from the files that hold them; they are those that were counted, or refused."""
        if stop > self.count:
            raise RefusedError("Rows that were asked about are not there yet.", "Ask again when they are.")
        pieces, begins = [], 0
        with self._orderly():
            for each in tuple(self._counted):
                if max(begins, start) < min(each.end, stop):
                    pieces.append(self._reread(each).matrix[max(0, start - begins) : stop - begins])
                begins = each.end
            return stacked(pieces, is_sparse=self.form.is_sparse)

    def _count(self, file: Path, stamp: Stamp) -> None:
        """Give the rows of the next file their positions; ``stamp`` was made when it was seen to be no other's link."""
        rows, mended = self._read(file)
        self.form.require(file, rows)
        if Stamp.of(file) != stamp:
            raise _changed(file)
        if mended:
            _log.warning("%s has a row that is no row of finite numbers; such a row counts as one of zeros.", file)
        counted = _Counted(file, self.count + rows.count, stamp, rows.digest())
        self._kept = counted, rows
        self._fingerprint = self._fingerprint.plus(rows.matrix)
        self._counted.append(counted)

    def _files(self) -> dict[Path, Stamp]:
        """List what is there; refuse if anything counted changed or is gone, or has something new before it."""
        counted = tuple(self._counted)
        files = files_of(self._folder)
        for each in counted:
            if each.file not in files:
                raise InvalidDataError(f"{each.file} is gone, and its rows were counted.", _START_AGAIN)
            if files[each.file] != each.stamp:
                raise _changed(each.file)
        for file, each in zip(files, counted, strict=False):
            if file != each.file:
                raise InvalidDataError(
                    f"{file} came late: it sorts before {each.file.name}, whose rows have their positions.",
                    f"Name new files so that they sort last. {_START_AGAIN}",
                )
        return files

    def _reread(self, counted: _Counted) -> CheckedRows:
        kept = self._kept
        if kept is not None and kept[0] is counted:
            return kept[1]
        rows, _ = self._read(counted.file)
        if rows.digest() != counted.digest:
            raise _changed(counted.file)
        self._kept = counted, rows
        return rows

    @contextmanager
    def _orderly(self) -> Iterator[None]:
        """Keep the first fault, tell the operator of it, and say nothing of it to others; let what passes pass."""
        self.require_order()
        try:
            yield
        except (UnreadableError, MemoryError) as problem:
            self._tell(str(problem) or "There is too little memory.")
            raise RefusedError("This data set cannot be read at the moment.", "Ask again later.") from None
        except Exception as problem:  # noqa: BLE001  # whatever it is, positions may not hold any longer
            self._fault = self._fault or problem
            # The text of what is not ours may hold what a row says.
            why = problem if isinstance(problem, DpspcaError) else f"{type(problem).__name__}."
            _log.error("The data set '%s' answers nothing until the next start: %s", self._name, why)
        else:
            self._trouble = ""
        self.require_order()

    def _tell(self, trouble: str) -> None:
        """Tell the operator of what may pass, once while it lasts."""
        if trouble != self._trouble:
            _log.warning("The data set '%s' cannot be read at the moment: %s", self._name, trouble)
        self._trouble = trouble


@dataclass(frozen=True, eq=False, slots=True)
class ArrivingRows:
    """The first rows of a data set, as many as a job is about; they are read where they are used."""

    tally: Tally
    count: int

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return self.tally.dimension

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the columns are called, where that is known."""
        return self.tally.names

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self.tally.form.is_sparse

    @property
    def pieces(self) -> Sequence[slice]:
        """Give the rows of one file after the other."""
        return self.tally.spans(self.count)

    def part(self, which: slice) -> FloatArray | scipy.sparse.csr_array:
        """Read some rows by their position."""
        start, stop, _ = which.indices(self.count)
        return self.tally.part(start, stop)


_START_AGAIN: Final = "Put the folder in order, and start the daemon again."


def _changed(file: Path) -> InvalidDataError:
    return InvalidDataError(
        f"{file} changed after it came, and its rows have their positions.",
        f"Write a file under a name that begins with a dot, and rename it when it is whole. {_START_AGAIN}",
    )
