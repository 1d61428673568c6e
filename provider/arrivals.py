"""A data set whose rows arrive while the daemon runs: a folder to which files are added, one after the other. Edge.

Where ``folders.py`` reads a folder once, this one is looked at again at every question, and a question about rows that
are not there yet waits for them. Such a data set answers jobs alone that say how many rows, from the first, they are
about, and of which each question names a block.

Privacy. Blocks compose in parallel because a row is in one of them, by its position, whatever other rows say. So a
position is fixed when its file is first seen, and for good:

- Files follow one another by name, and a new one must sort after all those counted. Rows of counted files never move:
  how many each holds is remembered, and is not looked up again.
- A counted file must not change or vanish. What is read of it later is held against the digest of what was counted,
  before a number is made of it; that its size and time still are the same is looked at besides, at every question.
- If any of this does not hold, or a new file cannot be used, the data set answers nothing more until somebody has
  looked and starts the daemon again. The operator's log says why; what goes out is a constant.
- After a restart nothing is known of what was counted before, so that ``digest`` is new at each start: a job that
  began before is refused, and spends nothing more.

When a question is answered tells when rows came, and how fast, how long the files are. Both are taken for public, as
the number of rows is under replace-one: the neighbour has its other row in the same file, which comes at the same time.
This asks of whoever writes files that neither names nor numbers of rows nor times follow from what rows say. Of text a
row more or less long to read is not hidden, for files are read as they are asked about; in .npy all rows are as long.

Memory: of a question about a block those files are read, one after the other, that hold rows of it; of one about all
rows, one file at a time. A file is added whole by writing it under a name that begins with a dot, and renaming it.
"""

import asyncio
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

from .folders import Form, files_of, stacked
from .preparation import CheckedRows
from .sources import read_file

PAUSE: Final = 1.0
"""Seconds from one look at a folder to the next, while a question waits."""
DIGEST_BYTES: Final = 32

_Stamp: TypeAlias = tuple[int, int, int]
"""By which a change of a file shows: which it is, how long, and since when."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A file whose rows have their positions: those before ``end``, from where the file before it ends."""

    file: Path
    end: int
    stamp: _Stamp
    digest: str


class Arrivals:
    """The rows that have arrived so far. Safe to ask from any number of threads, and to wait for on one event loop."""

    def __init__(
        self, name: str, folder: Path, *, read: Callable[[Path], CheckedRows] = read_file, pause: float = PAUSE
    ) -> None:
        """Count what is there: one file at least, for it says which columns there are."""
        self._name = name
        self._folder = folder
        self._read = read
        self._pause = pause
        self._counted: list[_Counted] = []
        self._fault: DpspcaError | None = None
        self._looking = Lock()
        self._turn = asyncio.Lock()
        self._digest = token_hex(DIGEST_BYTES)
        first = files_of(folder)[0]
        self.form: Final = Form.of(first, read(first))
        self._take_in()

    @property
    def count(self) -> int:
        """Number of rows that have arrived."""
        return self._counted[-1].end if self._counted else 0

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

    def first(self, rows: int) -> "ArrivingRows":
        """Give so many rows, from the first, be they there or not."""
        return ArrivingRows(self, rows)

    async def until(self, rows: int, still: Callable[[], None]) -> None:
        """Wait until so many rows are there, or ``still`` raises; no thread is held between two looks.

        Every question looks at least once, so that one about rows that are there is refused as well if they changed.
        """
        told = False
        while True:
            async with self._turn:  # whoever waits, one thread looks
                await asyncio.to_thread(self.look)
            if self.count >= rows:
                return
            still()
            if not told:
                _log.info("A question waits for rows of '%s'.", self._name)
            told = True
            await asyncio.sleep(self._pause)

    def look(self) -> None:
        """Count what is new, and refuse if anything is not as it has to be."""
        with self._looking, self._orderly():
            self._take_in()

    def spans(self, rows: int) -> list[slice]:
        """Say which of the first rows are in which file."""
        edges = (0, *(each.end for each in self._counted))
        return [slice(start, min(end, rows)) for start, end in pairwise(edges) if start < rows]

    def part(self, start: int, stop: int) -> FloatArray | scipy.sparse.csr_array:
        """Read rows by their position, from the files that hold them; they are those that were counted, or refused."""
        if stop > self.count:
            raise RefusedError("Rows that were asked about are not there yet.", "Ask again when they are.")
        pieces, begins = [], 0
        with self._orderly():
            for each in tuple(self._counted):
                if each.end > start and begins < stop:
                    pieces.append(self._reread(each).matrix[max(0, start - begins) : stop - begins])
                begins = each.end
            return stacked(pieces, is_sparse=self.form.is_sparse)

    def _take_in(self) -> None:
        files = files_of(self._folder)
        self._require_known(files)
        for file in files[len(self._counted) :]:
            stamp, rows = _stamp(file), self._read(file)
            self.form.require(file, rows)
            if _stamp(file) != stamp:
                raise _changed(file)
            self._counted.append(_Counted(file, self.count + rows.count, stamp, rows.digest()))

    def _require_known(self, files: Sequence[Path]) -> None:
        """Refuse if of what was counted anything changed, is gone, or has something new before it."""
        there = set(files)
        for each in self._counted:
            if each.file not in there:
                raise InvalidDataError(f"{each.file} is gone, and its rows were counted.", _START_AGAIN)
            if _stamp(each.file) != each.stamp:
                raise _changed(each.file)
        for file, each in zip(files, self._counted, strict=False):
            if file != each.file:
                raise InvalidDataError(
                    f"{file} came late: it sorts before {each.file.name}, whose rows have their positions.",
                    f"Name new files so that they sort last. {_START_AGAIN}",
                )

    def _reread(self, counted: _Counted) -> CheckedRows:
        rows = self._read(counted.file)
        if rows.digest() != counted.digest:
            raise _changed(counted.file)
        return rows

    @contextmanager
    def _orderly(self) -> Iterator[None]:
        """Keep the first fault, tell the operator of it, and say nothing of it to others."""
        try:
            if self._fault is None:
                yield
        except DpspcaError as problem:
            self._fault = problem
            _log.error("The data set '%s' answers nothing until the next start: %s", self._name, problem)  # in words
        if self._fault is not None:
            raise RefusedError("This data set is out of order.", "Ask its operator to read its log.") from None


@dataclass(frozen=True, eq=False, slots=True)
class ArrivingRows:
    """The first rows of a data set, as many as a job is about; they are read where they are used."""

    arrivals: Arrivals
    count: int

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return self.arrivals.dimension

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the columns are called, where that is known."""
        return self.arrivals.names

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self.arrivals.form.is_sparse

    @property
    def pieces(self) -> Sequence[slice]:
        """Give the rows of one file after the other."""
        return self.arrivals.spans(self.count)

    def part(self, which: slice) -> FloatArray | scipy.sparse.csr_array:
        """Read some rows by their position."""
        start, stop, _ = which.indices(self.count)
        return self.arrivals.part(start, stop)


DataSet: TypeAlias = CheckedRows | Arrivals
"""What a provider offers under a name."""

_START_AGAIN: Final = "Put the folder in order, and start the daemon again."


def _changed(file: Path) -> InvalidDataError:
    return InvalidDataError(
        f"{file} changed after it came, and its rows have their positions.",
        f"Write a file under a name that begins with a dot, and rename it when it is whole. {_START_AGAIN}",
    )


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError as problem:
        raise InvalidDataError(f"{file} cannot be read: {problem.strerror}.", _START_AGAIN) from None
    return found.st_ino, found.st_size, found.st_mtime_ns
