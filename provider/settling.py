"""Rows that are asked again and again: stream at first, and make the Gram matrix once it would have paid.

Nobody knows at the first question how many will follow. Streaming until the passes have cost what the matrix costs
never wastes more than as much again, whatever follows. The matrix is made beside the answers, on one core: no answer
waits for it, and the bits are the same before and after.
"""

from threading import Lock, Thread

import numpy as np

from .moments import Basis, DenseRows, Exact, GramMoments, Integers, Moments, StreamedMoments, whole


class SettlingMoments:
    """Second moments of dense rows; after ``patience`` products the matrix answers wherever that is less work."""

    def __init__(self, rows: DenseRows, patience: int, threads: int | None = None) -> None:
        self._rows = rows
        self._left = patience
        self._counting = Lock()
        self._streamed = StreamedMoments(rows, threads)
        self._matrix: GramMoments | None = None

    @property
    def settled(self) -> bool:
        """Tell whether the matrix is there."""
        return self._matrix is not None

    def product(self, basis: Basis) -> Integers:
        self._count()
        integers = whole(basis)
        return self._least_work(int(np.count_nonzero(integers.any(axis=1)))).product(integers)

    def compressed(self, basis: Basis) -> Exact:
        integers = whole(basis)
        return self._least_work(int(np.count_nonzero(integers.any(axis=1)))).compressed(integers)

    def gram(self) -> Integers:
        return self._least_work().gram()

    def trace(self) -> int:
        return self._least_work().trace()

    def _least_work(self, used: int = 0) -> Moments:
        """Choose by how many rows of the matrix, or of the data, are gone through: both are as wide."""
        return self._matrix if self._matrix and used <= self._rows.count else self._streamed

    def _count(self) -> None:
        with self._counting:
            self._left -= 1
            due = self._left == 0
        if due:  # a daemon thread, so that a program which stops does not wait for it
            Thread(target=self._settle, name="gram", daemon=True).start()

    def _settle(self) -> None:
        self._matrix = GramMoments(StreamedMoments(self._rows, threads=1).gram(), self._rows.count)
