"""Queries and answers as bytes, in frames of one MiB.

The size of a message follows from the signed job's plan before anything is allocated. A frame that is extra, too long,
too short or out of order is refused when it arrives, not when memory is full. Numbers are little-endian. An answer has
exactly one encoding, and any other bytes are refused, so that no second message can hide in the first.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

import numpy as np

from dpspca.common.arrays import Integers, refuse
from dpspca.common.errors import InvalidAnswerError
from dpspca.common.names import shortened
from dpspca.common.plan import Step
from dpspca.common.queries import Announcement, RowQuery, basis_size
from dpspca.common.results import FULL, weighted

FRAME: Final = 2**20

_FOLLOW: Final = "The coordinator and this provider may run different versions: install the same one."
_INDEX_BYTES: Final = 4
_REAL_BYTES: Final = 8
_WHOLE: Final = np.dtype("<i8")


def frames(whole: bytes | memoryview) -> Iterator[memoryview]:
    """Cut content into frames. Empty content has no frame."""
    view = memoryview(whole)
    return (view[start : start + FRAME] for start in range(0, len(view), FRAME))


class QueryReader:
    """Collects the frames of one announced query, which must match a step of the plan."""

    def __init__(self, announced: Announcement, step: Step) -> None:
        step = step.of_kind(announced.kind)
        if announced.kind != step.query.kind:
            asked = shortened(announced.kind)  # untrusted text
            refuse(f"The query is {asked}, but the plan has '{step.query.kind}' here.", _FOLLOW)
        if not step.query.is_within(announced.extent, step.extent):
            refuse(f"The query's extent {announced.extent} is not within {step.extent}.", _FOLLOW)
        self._announced = announced
        self._query = step.query
        self._size = step.query.content_size(announced)
        # Reserved, not filled: the system provides memory page by page, as frames are written. The rows of a basis
        # start at an aligned address, so that they can be used in place.
        shift = -_INDEX_BYTES * announced.extent.nonzero_rows % _REAL_BYTES
        self._content = np.empty(shift + self._size, dtype=np.uint8)[shift:]
        self._received = 0
        self._basis_hash = sha256()

    @property
    def size(self) -> int:
        """Bytes of content that are expected."""
        return self._size

    @property
    def complete(self) -> bool:
        """Whether all content has arrived."""
        return self._received == self._size

    def add(self, sequence: int, frame: bytes) -> None:
        """Take the next frame."""
        start = self._received
        expected = min(FRAME, self._size - start)
        if sequence * FRAME != start or expected <= 0 or len(frame) != expected:
            refuse(f"Frame {sequence} of {len(frame)} bytes is not the next frame.", "Send full frames in order.")
        self._content[start : start + expected] = np.frombuffer(frame, dtype=np.uint8)
        # Hashing a large basis takes as long as receiving it, so it is hashed while the reader waits for frames.
        self._basis_hash.update(frame[: max(0, basis_size(self._announced.extent) - start)])
        self._received += expected

    def query(self) -> RowQuery:
        """Return the query, after the checks that every query passes."""
        if not self.complete:
            refuse(f"{self._received} of {self._size} bytes arrived.", "Send the whole query.")
        made = self._query.read(self._announced, self._content.data, self._basis_hash.hexdigest())
        if made.announcement != self._announced:
            refuse("The announcement differs from that of its query.", "Announce the query as it is.")
        return made

    def drop(self) -> None:
        """Give up the content. A query that was read keeps what it uses."""
        self._content = np.empty(0, dtype=np.uint8)


class AnswerReader:
    """Adds one provider's answer into a sum, frame by frame, so that memory does not grow with the number of providers.

    An answer with a ``weight`` is weighed frame by frame, too (``common/results/weights.py``).

    If a provider disconnects half-way, its first frames stay in the sum: it is ``started`` but not ``complete``. The
    providers have stored their answers, so the sum can be computed again without it, at no price.
    """

    def __init__(self, total: Integers, largest: int, weight: int = FULL) -> None:
        self._total = total.reshape(-1)
        self._largest = largest
        self._weight = weight
        self._received = 0
        self._added = 0

    @property
    def started(self) -> bool:
        """Whether any of the answer is in the sum."""
        return self._added > 0

    @property
    def complete(self) -> bool:
        """Whether the whole answer is in the sum."""
        return self._added == self._total.nbytes

    def restart(self) -> None:
        """Expect the same answer again from its first frame. Frames that are in the sum already are not added twice."""
        self._received = 0

    def add(self, sequence: int, frame: bytes) -> None:
        """Check the next frame, then add it. A refused frame adds nothing."""
        expected = min(FRAME, self._total.nbytes - self._received)
        if sequence * FRAME != self._received or expected <= 0 or len(frame) != expected:
            raise InvalidAnswerError(
                f"Frame {sequence} of {len(frame)} bytes is not the next frame.", "Send full frames in order."
            )
        numbers = np.frombuffer(frame, dtype=_WHOLE)
        if numbers.max() > self._largest or numbers.min() < -self._largest:
            raise InvalidAnswerError(
                f"The answer has a number beyond the range of the lattice, {self._largest}.",
                "Ask the provider's operator.",
            )
        if self._received == self._added:
            start = self._added // _WHOLE.itemsize
            self._total[start : start + len(numbers)] += weighted(numbers, self._weight)
            self._added += len(frame)
        self._received += len(frame)


def answer_content(answer: Integers) -> memoryview:
    """Return an answer's bytes, without a copy if its memory has the right form already."""
    return np.ascontiguousarray(answer, dtype=_WHOLE).data.cast("B")
