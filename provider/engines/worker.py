"""The worker of a cluster: it reads files, checks that their rows are those of the start, and adds up.

A worker is trusted with rows. It keeps nothing between two tasks, writes no row anywhere, and sends back sums, counts
and digests alone. The same task gives the same bytes on every worker, so another may do it again.
"""

from collections.abc import Iterator
from operator import add
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.decoding import STORED, decode
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.queries import RowQuery
from dpspca.common.storage import Reading
from dpspca.common.version import __version__
from dpspca.provider.data import CheckedRows, RowStream, files_with_rows, first_sums, ordered_totals, second_keys
from dpspca.provider.evaluate import LocalSums, LocalThreads, WideIntegers

from .messages import (
    PartFacts,
    PartTask,
    Problem,
    Task,
    Work,
    WorkerReply,
    read_arrays,
    read_query,
    read_task,
    version_of,
    write,
    written,
)

OTHER_VERSION: Final = "other-version"
PART_CHANGED: Final = "part-changed"
UNREADABLE: Final = "unreadable"
FAULT: Final = "fault"

_Words: TypeAlias = NDArray[np.uint64]


class PartChangedError(RefusedError):
    """A file no longer has the rows that it had when the provider started."""

    code = PART_CHANGED


def work(message: bytes) -> bytes:
    """Do a task, and return the reply. It never raises, so that no error of Python goes back."""
    try:
        return _done(message)
    except DpspcaError as problem:
        return _failed(problem.code, problem.what, problem.remedy)
    except OSError as problem:
        what = f"A worker cannot read {problem.filename or 'a file'}: {problem.strerror or type(problem).__name__}."
        return _failed(UNREADABLE, what, "Mount the folder of the data set on every worker, under the same path.")
    except Exception as problem:  # noqa: BLE001  # its text may hold a value, so only its type is reported
        return _failed(FAULT, f"A worker failed with {type(problem).__name__}.", "See the worker's own log.")


def _failed(code: str, what: str, remedy: str) -> bytes:
    return write(WorkerReply(version=__version__, problem=Problem(code, what, remedy)))


def _done(message: bytes) -> bytes:
    theirs = version_of(message)
    if theirs != __version__:
        return _failed(
            OTHER_VERSION,
            f"The provider has dpspca {theirs}, and a worker has {__version__}.",
            "Install the same version on all of them.",
        )
    task, content = read_task(message)
    match task.work:
        case Work.LIST:
            files = tuple(map(str, files_with_rows(Path(task.source))))
            return write(WorkerReply(version=__version__, files=files))
        case Work.COUNT:
            return _counted(task)
        case Work.PRINT:
            return _printed(task, read_arrays(content))
        case Work.SUM:
            return _summed(task, content)


def _reading(task: Task) -> Reading:
    reading: Reading = decode(Reading, task.reading, STORED)
    if task.preparation is None:
        return reading
    return reading.prepared(Preparation.from_written(task.preparation))


def _stream(task: Task, part: PartTask) -> RowStream:
    return RowStream(Path(part.file), _reading(task), task.row_entries)


# --- Counting, and fingerprints ---------------------------------------------------------------------------------------


class _Prints:
    """The sums from which fingerprints are made, for the rows in each of their stages (``_stages``)."""

    def __init__(self, before: list[_Words] | None = None, *, is_last: bool = False) -> None:
        self._before = before
        self._is_last = is_last
        self.found: list[_Words] = []

    def add(self, stages: list[FloatArray]) -> None:
        """Add rows, in each of their stages."""
        made = [each for place, rows in enumerate(stages) for each in self._of(place, rows)]
        self.found = [one + other for one, other in zip(self.found, made, strict=True)] if self.found else made

    def _of(self, place: int, rows: FloatArray) -> list[_Words]:
        if self._before is None:
            return first_sums(rows)
        keys = self._before[place]
        return [ordered_totals(rows, keys) if self._is_last else second_keys(rows, keys)]


def _counted(task: Task) -> bytes:
    """Count and hash the rows of each file, and begin its fingerprints."""
    facts, prints = [], list[_Words]()
    for part in task.parts:
        stream, of_part = _stream(task, part), _Prints()
        for stages in _stages(stream):
            of_part.add(stages)
        facts.append(
            PartFacts(
                part.file,
                stream.count,
                stream.unusable,
                stream.has_cut,
                stream.dimension,
                stream.width,
                stream.names,
                stream.digest(),
            )
        )
        prints += of_part.found
    return write(WorkerReply(version=__version__, facts=tuple(facts)), written(prints))


def _printed(task: Task, before: list[NDArray[np.int64]]) -> bytes:
    """Go on with fingerprints, of all files of the task together."""
    prints = _Prints([each.view(np.uint64) for each in before], is_last=task.is_last)
    for part in task.parts:
        stream = _stream(task, part)
        for stages in _stages(stream):
            prints.add(stages)
        _require_same(stream, part)
    return write(WorkerReply(version=__version__), written(prints.found))


def _stages(stream: RowStream) -> Iterator[list[FloatArray]]:
    """Give rows in each of their stages, some at a time."""
    return map(stream.stages, stream.batches())


# --- Sums -------------------------------------------------------------------------------------------------------------


def _summed(task: Task, content: memoryview) -> bytes:
    """Add up what a query needs. Nothing is sent before every file's digest was compared."""
    query = read_query(task.query, content)
    total = list[WideIntegers]()
    for part in task.parts:
        for sums in _sums_of(task, part, query):
            total = list(map(add, total, sums)) if total else sums
    return write(WorkerReply(version=__version__), written([half for each in total for half in (each.high, each.low)]))


def _sums_of(task: Task, part: PartTask, query: RowQuery) -> Iterator[list[WideIntegers]]:
    """Give the sums over some rows at a time. Then compare the digest.

    Of no rows, give zeros, which takes as long as the sums over one row.
    """
    stream, begun, has_rows, form = _stream(task, part), 0, False, np.empty((0, 0))
    for batch in stream.batches():
        form, rows = batch.used[:0], batch.used[max(0, part.start - begun) : max(0, part.stop - begun)]
        if len(rows):
            has_rows = True
            yield _sums(task, rows, stream.names, query)
        begun += len(batch.used)
    if not has_rows:
        yield _sums(task, form, stream.names, query)
    _require_same(stream, part)


def _sums(task: Task, rows: FloatArray, names: tuple[str, ...] | None, query: RowQuery) -> list[WideIntegers]:
    """Add up over rows that are in memory, on one thread: a worker has as many tasks as processors."""
    used = CheckedRows(rows, names).with_columns(task.columns)
    sums = LocalSums(used, task.norm_bound, task.mean_bound, engine=LocalThreads(1)).of(query)
    return [_wide(each) for each in sums]


def _wide(sums: Any) -> WideIntegers:  # noqa: ANN401  # 64-bit or wider integers
    return sums if isinstance(sums, WideIntegers) else WideIntegers.of(np.array(sums, dtype=np.int64))


def _require_same(stream: RowStream, part: PartTask) -> None:
    if stream.digest() != part.digest:
        raise PartChangedError(
            f"{part.file} no longer holds the rows that it had when the provider started.",
            "Put the file back as it was, or restart the provider: jobs that are open then end.",
        )
