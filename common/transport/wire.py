"""Questions and answers as bytes, in frames of about one MiB.

What may arrive is worked out from the signed job's plan before anything is allocated: a frame too many, too long, too
short or out of order is refused when it shows, not when memory is gone. Numbers are little-endian, and an answer has
exactly one form: any other bytes are refused, so that no second message can hide in the first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, refuse
from dpspca.common.errors import InvalidAnswerError
from dpspca.common.plan import Step
from dpspca.common.queries import (
    BasisQuery,
    ColumnsQuery,
    ColumnSums,
    CompressedCovariance,
    Count,
    CountAbove,
    Covariance,
    CovarianceProduct,
    SquaredColumns,
)
from dpspca.common.question import Extent, RowQuery

FRAME: Final = 2**20

Integers: TypeAlias = NDArray[np.int64]

_INDEX: Final = np.dtype("<u4")
_REAL: Final = np.dtype("<f8")
_WHOLE: Final = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is said of a question before its content: enough to know how many bytes will follow."""

    kind: str
    extent: Extent
    centred: bool = False
    threshold: float = 0.0
    power: int = 1

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self._basis_size + (_REAL.itemsize * self.extent.dimension if self.centred else 0)

    @property
    def _basis_size(self) -> int:
        row = _INDEX.itemsize + _REAL.itemsize * self.extent.columns
        return row * self.extent.nonzero_rows if self.extent.columns else 0


def announce(query: RowQuery) -> Announcement:
    """Announce a question."""
    centred = getattr(query, "center", None) is not None
    if isinstance(query, CountAbove):
        return Announcement(query.kind, query.extent, threshold=query.threshold, power=query.power)
    return Announcement(query.kind, query.extent, centred)


def content(query: RowQuery) -> bytes:
    """Write a question's content: the rows of its basis that are not zero, their indices first, then its centre."""
    parts: list[bytes] = []
    if isinstance(query, BasisQuery):
        support = np.flatnonzero(query.basis.any(axis=1))
        parts += [support.astype(_INDEX).tobytes(), query.basis[support].astype(_REAL).tobytes()]
    if isinstance(query, BasisQuery | ColumnsQuery) and query.center is not None:
        parts.append(query.center.astype(_REAL).tobytes())
    return b"".join(parts)


def frames(whole: bytes | memoryview) -> Iterator[memoryview]:
    """Cut into frames; nothing at all is no frame."""
    view = memoryview(whole)
    return (view[start : start + FRAME] for start in range(0, len(view), FRAME))


class QuestionReader:
    """Collects the frames of one announced question that the plan has a step for."""

    def __init__(self, announced: Announcement, step: Step) -> None:
        if announced.kind != step.question.kind:
            refuse(f"'{announced.kind}' was asked where the plan has '{step.question.kind}'.", "Follow the plan.")
        if not step.extent.covers(announced.extent):
            refuse(f"The question's extent {announced.extent} is not within {step.extent}.", "Follow the plan.")
        self._announced = announced
        self._received = bytearray()

    @property
    def complete(self) -> bool:
        """Tell whether all content has come."""
        return len(self._received) == self._announced.size

    def add(self, sequence: int, frame: bytes) -> None:
        """Take the next frame."""
        start = len(self._received)
        expected = min(FRAME, self._announced.size - start)
        if sequence * FRAME != start or expected <= 0 or len(frame) != expected:
            refuse(f"Frame {sequence} of {len(frame)} bytes does not follow.", "Send full frames in order.")
        self._received += frame

    def query(self) -> RowQuery:
        """Give the question, checked as every question is."""
        if not self.complete:
            refuse(f"{len(self._received)} of {self._announced.size} bytes arrived.", "Send the question whole.")
        return _READERS[self._announced.kind](self._announced, bytes(self._received))


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


def answer_content(answer: Integers) -> bytes:
    """Write an answer."""
    return answer.astype(_WHOLE).tobytes()


def _read_basis(announced: Announcement, received: bytes) -> tuple[FloatArray, FloatArray | None]:
    extent = announced.extent
    rows = np.frombuffer(received, dtype=_INDEX, count=extent.nonzero_rows).astype(np.int64)
    if (np.diff(rows) <= 0).any() or (rows >= extent.dimension).any():
        refuse("The rows of the basis are not in ascending order below the dimension.", "Name every row once.")
    start = _INDEX.itemsize * extent.nonzero_rows
    values = np.frombuffer(received, dtype=_REAL, count=extent.nonzero_rows * extent.columns, offset=start)
    basis = np.zeros((extent.dimension, extent.columns))
    basis[rows] = values.reshape(extent.nonzero_rows, extent.columns)
    return basis, _read_center(announced, received)


def _read_center(announced: Announcement, received: bytes) -> FloatArray | None:
    if not announced.centred:
        return None
    size = _REAL.itemsize * announced.extent.dimension
    return np.frombuffer(received[len(received) - size :], dtype=_REAL).astype(np.float64)


_Reader: TypeAlias = Callable[[Announcement, bytes], RowQuery]

_READERS: Final[Mapping[str, _Reader]] = MappingProxyType(
    {
        Count.kind: lambda _, __: Count(),
        CountAbove.kind: lambda announced, _: CountAbove(announced.threshold, announced.power),
        ColumnSums.kind: lambda announced, _: ColumnSums(announced.extent.dimension),
        Covariance.kind: lambda announced, received: Covariance(
            announced.extent.dimension, _read_center(announced, received)
        ),
        SquaredColumns.kind: lambda announced, received: SquaredColumns(
            announced.extent.dimension, _read_center(announced, received)
        ),
        CovarianceProduct.kind: lambda announced, received: CovarianceProduct(*_read_basis(announced, received)),
        CompressedCovariance.kind: lambda announced, received: CompressedCovariance(*_read_basis(announced, received)),
    }
)
