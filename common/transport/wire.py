"""Queries and answers as bytes, in frames of about one MiB.

What may arrive is worked out from the signed job's plan before anything is allocated: a frame too many, too long, too
short or out of order is refused when it shows, not when memory is gone. Numbers are little-endian, and an answer has
exactly one form: any other bytes are refused, so that no second message can hide in the first.
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

FRAME: Final = 2**20

_INDEX_BYTES: Final = 4
_REAL_BYTES: Final = 8
_WHOLE: Final = np.dtype("<i8")


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
        self._query = step.query
        self._size = step.query.content_size(announced)
        # Reserved, not filled: the system gives memory a page at a time, as frames are written to it. The rows of a
        # basis start where their numbers lie evenly, so that they can be used in place.
        shift = -_INDEX_BYTES * announced.extent.nonzero_rows % _REAL_BYTES
        self._content = np.empty(shift + self._size, dtype=np.uint8)[shift:]
        self._received = 0
        self._basis_hash = sha256()

    @property
    def size(self) -> int:
        """Bytes of content that it has room for."""
        return self._size

    @property
    def complete(self) -> bool:
        """Tell whether all content has come."""
        return self._received == self._size

    def add(self, sequence: int, frame: bytes) -> None:
        """Take the next frame."""
        start = self._received
        expected = min(FRAME, self._size - start)
        if sequence * FRAME != start or expected <= 0 or len(frame) != expected:
            refuse(f"Frame {sequence} of {len(frame)} bytes does not follow.", "Send full frames in order.")
        self._content[start : start + expected] = np.frombuffer(frame, dtype=np.uint8)
        # Hashing a large basis takes as long as receiving it; whoever waits for frames has the time.
        self._basis_hash.update(frame[: max(0, basis_size(self._announced.extent) - start)])
        self._received += expected

    def query(self) -> RowQuery:
        """Give the query, checked as every query is."""
        if not self.complete:
            refuse(f"{self._received} of {self._size} bytes arrived.", "Send the query whole.")
        made = self._query.read(self._announced, self._content.data, self._basis_hash.hexdigest())
        if made.announcement != self._announced:
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
