"""Queries and answers as bytes, in frames of about one MiB.

What may arrive is worked out from the signed job's plan before anything is allocated: a frame too many, too long, too
short or out of order is refused when it shows, not when memory is gone. Numbers are little-endian, and an answer has
exactly one form: any other bytes are refused, so that no second message can hide in the first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray, Integers, refuse
from dpspca.common.errors import InvalidAnswerError
from dpspca.common.names import shortened
from dpspca.common.plan import Step
from dpspca.common.queries import (
    BODIED,
    SUBSPACE_QUERIES,
    BasisQuery,
    CappedProduct,
    ColumnsQuery,
    ColumnSums,
    CompressedCovariance,
    Count,
    CountAbove,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
    EntryTotal,
    Extent,
    MatrixProduct,
    RowQuery,
    RowSparse,
    SketchQuery,
    SpectralProduct,
    SquaredColumns,
    SubspaceQuery,
    SymmetricProduct,
)

FRAME: Final = 2**20

Received: TypeAlias = bytes | memoryview

_INDEX: Final = np.dtype("<u4")
_REAL: Final = np.dtype("<f8")
_WHOLE: Final = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is said of a query before its content: enough to know how many bytes will follow."""

    kind: str
    extent: Extent
    centred: bool = False
    threshold: float = 0.0
    power: int = 0

    @property
    def size(self) -> int:
        """Bytes of content."""
        if self.kind in _BODIED:
            return _BODIED[self.kind].body_size(self.extent)
        return self.basis_size + (_REAL.itemsize * self.extent.dimension if self.centred else 0)

    @property
    def basis_size(self) -> int:
        """Bytes of the basis, which comes first."""
        row = _INDEX.itemsize + _REAL.itemsize * self.extent.columns
        return row * self.extent.nonzero_rows if self.extent.columns else 0


def announce(query: RowQuery) -> Announcement:
    """Announce a query."""
    centred = getattr(query, "center", None) is not None
    if isinstance(query, CountAbove):
        return Announcement(query.kind, query.extent, threshold=query.threshold, power=query.power)
    if isinstance(query, CappedProduct):
        return Announcement(query.kind, query.extent, threshold=query.largest)
    return Announcement(query.kind, query.extent, centred)


def content(query: RowQuery) -> Received:
    """Write a query's content: the rows of its basis that are not zero, their indices first, then its centre."""
    if isinstance(query, SketchQuery):
        return query.body
    parts: list[Any] = []
    if isinstance(query, BasisQuery | MatrixProduct):
        parts += [query.kept.support.astype(_INDEX), np.ascontiguousarray(query.kept.rows, dtype=_REAL)]
    if isinstance(query, BasisQuery | ColumnsQuery) and query.center is not None:
        parts.append(query.center.astype(_REAL, copy=False))
    # In an array's memory, of which the system gives large pieces at once, where bytes get it page by page.
    whole = np.empty(sum(part.nbytes for part in parts), dtype=np.uint8)
    start = 0
    for part in parts:
        whole[start : start + part.nbytes] = part.reshape(-1).view(np.uint8)
        start += part.nbytes
    return whole.data


def frames(whole: bytes | memoryview) -> Iterator[memoryview]:
    """Cut into frames; nothing at all is no frame."""
    view = memoryview(whole)
    return (view[start : start + FRAME] for start in range(0, len(view), FRAME))


class QueryReader:
    """Collects the frames of one announced query that the plan has a step for."""

    def __init__(self, announced: Announcement, step: Step) -> None:
        if announced.kind != step.query.kind:
            asked = shortened(announced.kind)  # which is a stranger's word
            refuse(f"{asked} was asked where the plan has '{step.query.kind}'.", "Follow the plan.")
        if not step.extent.covers(announced.extent):
            refuse(f"The query's extent {announced.extent} is not within {step.extent}.", "Follow the plan.")
        self._announced = announced
        # Reserved, not filled: the system gives memory a page at a time, as frames are written to it. The rows of a
        # basis start where their numbers lie evenly, so that they can be used in place.
        shift = -_INDEX.itemsize * announced.extent.nonzero_rows % _REAL.itemsize
        self._content = np.empty(shift + announced.size, dtype=np.uint8)[shift:]
        self._received = 0
        self._basis_hash = sha256()

    @property
    def size(self) -> int:
        """Bytes of content that it has room for."""
        return self._announced.size

    @property
    def complete(self) -> bool:
        """Tell whether all content has come."""
        return self._received == self._announced.size

    def add(self, sequence: int, frame: bytes) -> None:
        """Take the next frame."""
        start = self._received
        expected = min(FRAME, self._announced.size - start)
        if sequence * FRAME != start or expected <= 0 or len(frame) != expected:
            refuse(f"Frame {sequence} of {len(frame)} bytes does not follow.", "Send full frames in order.")
        self._content[start : start + expected] = np.frombuffer(frame, dtype=np.uint8)
        # Hashing a large basis takes as long as receiving it; whoever waits for frames has the time.
        self._basis_hash.update(frame[: max(0, self._announced.basis_size - start)])
        self._received += expected

    def query(self) -> RowQuery:
        """Give the query, checked as every query is."""
        if not self.complete:
            refuse(f"{self._received} of {self._announced.size} bytes arrived.", "Send the query whole.")
        if self._announced.kind in _BODIED:
            made: RowQuery = _BODIED[self._announced.kind].of_body(self._announced.extent, self._content.data)
        else:
            made = _READERS[self._announced.kind](self._announced, self._content.data, self._basis_hash.hexdigest())
        if announce(made) != self._announced:
            refuse("The announcement says more than its query.", "Announce it in its one form.")
        return made


class AnswerReader:
    """Adds one provider's answer into a sum, frame by frame: memory is the sum's, however many providers there are.

    A provider that vanishes half-way leaves its first frames in the sum; ``started`` and ``complete`` tell. The
    answers are stored where they were made, so the sum can then be made anew without it, at no price.
    """

    def __init__(self, total: Integers, largest: int) -> None:
        self._total = total.reshape(-1)
        self._largest = largest
        self._received = 0
        self._added = 0

    @property
    def started(self) -> bool:
        """Tell whether any of it is in the sum."""
        return self._added > 0

    @property
    def complete(self) -> bool:
        """Tell whether all of it is in the sum."""
        return self._added == self._total.nbytes

    def again(self) -> None:
        """Expect the same answer from its first frame on: what is in the sum already is not added twice."""
        self._received = 0

    def add(self, sequence: int, frame: bytes) -> None:
        """Check the next frame, then add it; a refused frame adds nothing."""
        expected = min(FRAME, self._total.nbytes - self._received)
        if sequence * FRAME != self._received or expected <= 0 or len(frame) != expected:
            raise InvalidAnswerError(
                f"Frame {sequence} of {len(frame)} bytes does not follow.", "An answer comes in full frames, in order."
            )
        numbers = np.frombuffer(frame, dtype=_WHOLE)
        if numbers.max() > self._largest or numbers.min() < -self._largest:
            raise InvalidAnswerError("An answer leaves the lattice's range.", "Ask that provider's operator.")
        if self._received == self._added:
            start = self._added // _WHOLE.itemsize
            self._total[start : start + len(numbers)] += numbers
            self._added += len(frame)
        self._received += len(frame)


def answer_content(answer: Integers) -> memoryview:
    """Write an answer: its own memory, where that has the form already."""
    return np.ascontiguousarray(answer, dtype=_WHOLE).data.cast("B")


def _read_basis(announced: Announcement, received: Received, hashed: str = "") -> tuple[RowSparse, FloatArray | None]:
    extent = announced.extent
    rows = np.frombuffer(received, dtype=_INDEX, count=extent.nonzero_rows).astype(np.intp)
    start = rows.size * _INDEX.itemsize
    values = np.frombuffer(received, dtype=_REAL, count=rows.size * extent.columns, offset=start)
    basis = np.require(values.reshape(rows.size, extent.columns), np.float64, "A")
    return RowSparse(extent.dimension, rows, basis, hashed), _read_center(announced, received)


def _read_center(announced: Announcement, received: Received) -> FloatArray | None:
    if not announced.centred:
        return None
    size = _REAL.itemsize * announced.extent.dimension
    return np.frombuffer(received[len(received) - size :], dtype=_REAL).astype(np.float64)


_BODIED: Final[Mapping[str, type[SketchQuery]]] = MappingProxyType({each.kind: each for each in BODIED})
"""Queries that know themselves how their content is written."""

_Reader: TypeAlias = Callable[[Announcement, Received, str], RowQuery]


def _reader_of(query: type[SubspaceQuery]) -> _Reader:
    return lambda announced, received, _: query(
        announced.extent.dimension, _read_center(announced, received), announced.extent.columns
    )


_READERS: Final[Mapping[str, _Reader]] = MappingProxyType(
    {
        Count.kind: lambda _, __, ___: Count(),
        CountAbove.kind: lambda announced, _, __: CountAbove(announced.threshold, announced.power),
        ColumnSums.kind: lambda announced, _, __: ColumnSums(announced.extent.dimension),
        Covariance.kind: lambda announced, received, _: Covariance(
            announced.extent.dimension, _read_center(announced, received)
        ),
        CovarianceTriangle.kind: lambda announced, received, _: CovarianceTriangle(
            announced.extent.dimension, _read_center(announced, received)
        ),
        SquaredColumns.kind: lambda announced, received, _: SquaredColumns(
            announced.extent.dimension, _read_center(announced, received)
        ),
        CovarianceProduct.kind: lambda announced, *rest: CovarianceProduct(
            *_read_basis(announced, *rest), announced.extent.block, announced.extent.blocks
        ),
        CompressedCovariance.kind: lambda *whole: CompressedCovariance(*_read_basis(*whole)),
        SymmetricProduct.kind: lambda *whole: SymmetricProduct(_read_basis(*whole)[0]),
        CappedProduct.kind: lambda announced, *rest: CappedProduct(
            _read_basis(announced, *rest)[0], largest=announced.threshold
        ),
        SpectralProduct.kind: lambda *whole: SpectralProduct(_read_basis(*whole)[0]),
        EntryTotal.kind: lambda announced, _, __: EntryTotal(announced.extent.dimension),
    }
    | {each.kind: _reader_of(each) for each in SUBSPACE_QUERIES}
)
