"""Messages between a provider and the workers of its cluster, as bytes: a head in JSON, and numbers after it.

No object of Python is sent, so that reading a message runs no code, and so that everything that a message holds is
written down here. A task holds no credentials: paths of files, how they are read, and a query, which is public.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.decoding import STORED, Count, decode, parse_json
from dpspca.common.errors import InvalidParameterError, InvalidQueryError
from dpspca.common.queries import (
    Announcement,
    ColumnSizes,
    ColumnSums,
    CompressedCovariance,
    Covariance,
    CovarianceProduct,
    GroupedScores,
    NormHistogram,
    NormRange,
    RowQuery,
    ScoreHistogram,
    SignPairs,
    TiedColumns,
    ViewCovariance,
    ViewProduct,
    ViewSquares,
)

Words: TypeAlias = NDArray[np.int64]

_FORM: Final = b"dpspca engine 1\n"
_LENGTH: Final = 8
_WHOLE: Final = np.dtype("<i8")
_QUERIES: Final[Mapping[str, type[RowQuery]]] = {
    each.kind: each
    for each in (
        ColumnSizes, ColumnSums, CompressedCovariance, Covariance, CovarianceProduct, GroupedScores, NormHistogram,
        NormRange, ScoreHistogram, SignPairs, TiedColumns, ViewCovariance, ViewProduct, ViewSquares,
    )
}  # fmt: skip
"""The queries that are answered from sums over rows."""


class Work(StrEnum):
    """Kinds of work of a worker."""

    LIST = "list"
    """List the files of a data set."""
    COUNT = "count"
    """Count and hash the rows of files."""
    PRINT = "print"
    """Add up what fingerprints are made of."""
    SUM = "sum"
    """Add up what the answer to a query is made of."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """A file, which of its rows to add up, and the digest that its rows must have."""

    file: str
    start: Count = 0
    stop: Count = 0
    digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Work on some files of a data set."""

    version: str
    """The sender's version of this software."""
    work: Work
    source: str
    """The data set's file, folder or pattern."""
    reading: Any
    """The settings that say how files are read."""
    preparation: Any = None
    """The dictionary, and what the settings say about it."""
    row_entries: int | None = None
    parts: tuple[PartTask, ...] = ()
    columns: tuple[str, ...] | None = None
    norm_bound: float = 1.0
    mean_bound: float | None = None
    query: Any = None
    """The announcement of a query. Its content is among the numbers."""
    is_last: bool = False
    """Of fingerprints: whether keys are known, and rows are hashed by them."""


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The facts that a worker found about a file."""

    file: str
    count: Count
    unusable: Count
    has_cut: bool
    dimension: int
    width: int
    """How many numbers of a row are read. Jobs may use fewer of them."""
    names: tuple[str, ...] | None
    digest: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a worker did not do its work. The text is for the steward and holds no value of a row."""

    code: str
    what: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReply:
    """The reply of a worker."""

    version: str
    problem: Problem | None = None
    files: tuple[str, ...] = ()
    facts: tuple[PartFacts, ...] = ()


def write(head: Task | WorkerReply, content: bytes | memoryview = b"") -> bytes:
    """Write a message."""
    text = json.dumps(asdict(head), separators=(",", ":"), allow_nan=False).encode()
    return b"".join((_FORM, len(text).to_bytes(_LENGTH, "big"), text, content))


def read_task(message: bytes) -> tuple[Task, memoryview]:
    """Read a task, and the bytes after it."""
    raw, content = _read(message)
    return decode(Task, raw, STORED), content


def read_reply(message: bytes) -> tuple[WorkerReply, memoryview]:
    """Read a reply, and the bytes after it."""
    raw, content = _read(message)
    return decode(WorkerReply, raw, STORED), content


def version_of(message: bytes) -> str:
    """Return the version that wrote a message, whatever else that version writes."""
    raw, _ = _read(message)
    version = raw.get("version") if isinstance(raw, dict) else None
    return version if isinstance(version, str) else "unknown"


def _read(message: bytes) -> tuple[Any, memoryview]:
    view, start = memoryview(message), len(_FORM) + _LENGTH
    if bytes(view[: len(_FORM)]) != _FORM or len(view) < start:
        raise InvalidParameterError("A message of the cluster has another form.", "Install one version everywhere.")
    stop = start + int.from_bytes(view[len(_FORM) : start], "big")
    return parse_json(bytes(view[start:stop]), "A message of the cluster"), view[stop:]


# --- Queries ----------------------------------------------------------------------------------------------------------


def announced(query: RowQuery) -> dict[str, Any]:
    """Write a query's announcement as plain values."""
    return asdict(query.announcement)


def read_query(raw: object, content: memoryview) -> RowQuery:
    """Read a query, with every check that a query passes."""
    made = decode(Announcement, raw, STORED)
    kind = _QUERIES.get(made.kind)
    if kind is None:
        raise InvalidQueryError(f"Workers cannot answer a query '{made.kind}'.", "Choose another method.")
    return kind.read(made, content, "")


# --- Numbers ----------------------------------------------------------------------------------------------------------


def written(arrays: Sequence[NDArray[Any]]) -> bytes:
    """Write arrays of 64-bit integers, each after its shape."""
    parts = []
    for array in arrays:
        shape = np.array([array.ndim, *array.shape], dtype=_WHOLE)
        parts += [shape.tobytes(), np.ascontiguousarray(array).view(_WHOLE).tobytes()]
    return b"".join(parts)


def read_arrays(content: memoryview) -> list[Words]:
    """Read what ``written`` wrote."""
    numbers = np.frombuffer(content, dtype=_WHOLE)
    arrays, at = list[Words](), 0
    while at < len(numbers):
        dimensions = int(numbers[at])
        shape = tuple(map(int, numbers[at + 1 : at + 1 + dimensions]))
        at += 1 + dimensions
        size = int(np.prod(shape, dtype=np.int64))
        if min(shape, default=0) < 0 or size > len(numbers) - at:
            raise InvalidParameterError(f"A reply of the cluster was cut after {len(numbers)} numbers.", "Ask again.")
        arrays.append(numbers[at : at + size].reshape(shape).astype(np.int64))
        at += size
    return arrays
