"""Puts zeros in place of numbers that cannot be used, in one loop. Pure."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .compiling import compiled

_SIZE: Final = 2**63 - 1
"""All bits of a number but its sign. As integers they are in the order of sizes, and NaN is the largest."""


@compiled("(int64[:, ::1], int64, int64[:, ::1], boolean[::1])")
def put_usable(numbers: NDArray[np.int64], largest: int, usable: NDArray[np.int64], blank: NDArray[np.bool_]) -> None:
    """Write numbers of at most this size, and zeros for others. Mark the rows that have others.

    All are given by their bits. A mask removes bits, so all numbers take the same steps.
    """
    for row in range(numbers.shape[0]):
        worst = 0
        for column in range(numbers.shape[1]):
            beyond = (largest - (numbers[row, column] & _SIZE)) >> 63  # -1 or 0
            usable[row, column] = numbers[row, column] & ~beyond
            worst |= beyond
        blank[row] = worst != 0


@compiled(
    "(int64[::1], int32[::1], int64, int64[::1], boolean[::1])",
    "(int64[::1], int64[::1], int64, int64[::1], boolean[::1])",
)
def put_usable_rows(
    numbers: NDArray[np.int64], starts: NDArray[Any], largest: int, usable: NDArray[np.int64], spoilt: NDArray[np.bool_]
) -> None:
    """Write the stored numbers of sparse rows, and zeros for all of a row that has one beyond this size. Mark those.

    All are given by their bits. A mask removes bits, so all numbers take the same steps.
    """
    for row in range(len(starts) - 1):
        worst = 0
        for entry in range(starts[row], starts[row + 1]):
            worst |= (largest - (numbers[entry] & _SIZE)) >> 63  # -1 or 0
        for entry in range(starts[row], starts[row + 1]):
            usable[entry] = numbers[entry] & ~worst
            spoilt[entry] = worst != 0
