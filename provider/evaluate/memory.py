"""How much memory answers take: it follows from the numbers of columns, vectors and threads alone. Pure.

Each thread has a sum of its own, and what its blocks need. Of genotypes, all threads share a sum, and need less than
this says. If all threads together need more than the provider's settings allow, fewer are used. A job is refused only
if one thread needs too much.

The figures are upper bounds: ``tests/unit/provider/evaluate/test_memory.py`` measures them.
"""

from typing import Final, NamedTuple, Self

from .products import CACHED, MADE_AT_ONCE, MADE_TOGETHER, Division

_NUMBER_BYTES: Final = 8
_BLOCK_FORMS: Final = 2
"""Copies of a block while it is made: as it was read, and as integers."""
_MAKING_FORMS: Final = 3
"""Copies of the entries that are made integers together."""
_DIGITS: Final = 5
"""Arrays that a Gram matrix takes besides its sum."""
_EIGENVECTORS: Final = 8
"""Arrays that are made of a square matrix on the way to its eigenvectors, and to noise that fits them."""
_SAMPLER: Final = 2**21
"""Numbers that an exact sampler of directions keeps."""
_SIGN_FORMS: Final = 3
"""How often a block is there while its signs are taken."""
_OBJECTS: Final = 30
"""Of the numbers of a small square, each is a Python object for a while."""


class Need(NamedTuple):
    """The memory that an answer takes, counted in numbers of eight bytes."""

    thread: int
    """For each thread while it works."""
    result: int
    """For each thread when it is done."""
    last: int
    """When the results are added up and made an answer."""
    shared: int
    """At all times: what is multiplied with, the noise and the answer."""

    @classmethod
    def of_sum(cls, entries: int, last: int = 3) -> Self:
        """Return the memory for a sum of this many numbers, such as a square matrix.

        A thread has the sum so far, in two parts beyond 2^24 rows, that of a list of blocks, what a block adds, and,
        for a square matrix, a block of twice as many rows as columns.
        """
        return cls(6 * entries + 2 * _BLOCK_FORMS * CACHED, 2 * entries, last * entries, 2 * entries)

    @classmethod
    def of_gram(cls, dimension: int) -> Self:
        """Return the memory for a Gram matrix that is kept for further answers."""
        return cls.of_sum(dimension**2, _DIGITS)

    @classmethod
    def of_subspace(cls, dimension: int) -> Self:
        """Return the memory for a mechanism that releases eigenvectors."""
        need = cls.of_sum(dimension**2, _EIGENVECTORS)
        return need._replace(shared=need.shared + _SAMPLER)

    @classmethod
    def of_signs(cls, dimension: int, block_rows: int, scores: int) -> Self:
        """Return the memory for scores of columns, or of pairs of columns. One thread adds them up."""
        return cls(_SIGN_FORMS * block_rows * dimension + scores + scores // 2, scores, 0, scores)

    @classmethod
    def of_product(cls, dimension: int, columns: int) -> Self:
        """Return the memory for a product with a basis. Its sums have two halves (``products.py``)."""
        division, entries = Division.of(dimension, columns, MADE_AT_ONCE), dimension * columns
        width = min(dimension, division.width)
        block = division.rows * (_BLOCK_FORMS * dimension + width + 4 * columns) + 2 * width * columns
        made = _MAKING_FORMS * min(MADE_TOGETHER, division.rows * dimension)
        return cls(8 * entries + block + made, 4 * entries, 5 * entries, 3 * entries)

    @classmethod
    def of_compressed(cls, dimension: int, columns: int, block_rows: int) -> Self:
        """Return the memory for basis^T X^T X basis."""
        block, square = 2 * _BLOCK_FORMS * block_rows * dimension, _OBJECTS * columns**2
        return cls(block + 3 * block_rows * columns + square, square, square, 2 * dimension * columns)

    def bytes(self, threads: int) -> int:
        """Return how many bytes an answer takes on this many threads."""
        return _NUMBER_BYTES * (max(threads * self.thread, threads * self.result + self.last) + self.shared)

    def threads_in(self, memory: int, most: int) -> int:
        """Return with how many threads, up to ``most``, an answer fits into this many bytes. One is always used."""
        room = memory // _NUMBER_BYTES - self.shared
        return max(1, min(most, room // self.thread, (room - self.last) // self.result))
