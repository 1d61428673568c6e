"""Sums over all rows: blocks of rows are mapped to exact integers, and these are added up.

Everything that a provider computes about second moments has this form, so whatever can map blocks and add integers can
evaluate queries: the threads of this process, or other processes. An engine needs no order, because exact sums have the
same bits in every order and for every size of blocks.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial, reduce
from itertools import pairwise
from operator import iadd
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from dpspca.common.arrays import FloatArray, Integers

from . import exact_rows
from .memory import Need
from .one_thread import one_thread
from .products import SharedSums
from .wide_integers import RunningSum, WideIntegers

T = TypeVar("T")

Parts: TypeAlias = list[list[tuple[int, int]]]
"""Lists of blocks of rows, from a start to a stop. The sum over a list's blocks is exact in its own type."""
Visit: TypeAlias = Callable[[Any], Any]
"""Maps a block of rows, dense or sparse, to an array of integers in float64 or int64. Pure."""

EXACT_ROWS: Final = exact_rows.IN_FLOATS
"""Sums of this many rows are exact in float64."""
ROWS_IN_64_BITS: Final = 2**24
"""Sums of this many rows are exact in 64-bit integers."""
SMALL_PRODUCT: Final = 10**7
"""Up to this many multiplications, several threads are slower than one, and much slower if a core is busy."""
MOST_SUMS: Final = 2**28
"""The most numbers in the sums of all threads of one query: two gigabytes. Wide queries use fewer threads."""


class Rows(Protocol):
    """Integer rows that can be read in blocks of float64."""

    count: int
    dimension: int
    block_rows: int

    @property
    def gain_by_threads(self) -> bool:
        """Tell whether several threads are faster than one."""
        ...

    def parts(self, span: tuple[int, int], sums: int, tall: int) -> Parts:
        """Divide a thread's rows into blocks for sums of ``sums`` numbers. Dense blocks have at least ``tall`` rows.

        Returns lists of one or more blocks. The sum over a list's blocks is exact in float64, or in 64-bit integers.
        """
        ...

    def products(self, span: tuple[int, int], basis: FloatArray) -> Integers:
        """Return the sums X^T high beside X^T low over at most 2^24 rows, for X basis = 2^19 high + low."""
        ...

    def block(self, start: int, stop: int) -> Any:  # noqa: ANN401  # dense or sparse; both multiply
        """Return the rows from ``start`` to ``stop`` as float64."""
        ...


@runtime_checkable
class SharingRows(Rows, Protocol):
    """Rows whose products several threads add to the same sums."""

    def no_sums(self, basis: FloatArray) -> SharedSums:
        """Return sums of no rows."""
        ...

    def add_products(self, span: tuple[int, int], basis: FloatArray, sums: SharedSums) -> None:
        """Add what ``products`` returns for a span."""
        ...


class BlockEvaluator(Protocol):
    """Evaluates sums over rows. How it divides the work follows from public numbers, and never from how many rows."""

    def total(self, rows: Rows, visit: Visit, entries: int, parts: Callable[[tuple[int, int]], Parts]) -> WideIntegers:
        """Add up ``visit`` over all blocks. A sum has ``entries`` numbers.

        ``parts`` divides a span of rows into lists of blocks. Of no rows, it gives an empty block, so that sums have a
        shape.
        """
        ...

    def products(self, rows: Rows, basis: FloatArray) -> WideIntegers:
        """Add up ``rows.products`` over all rows."""
        ...


class LocalThreads:
    """Threads of this process. Each has its share of the rows, which may be empty."""

    def __init__(self, threads: int | None = None, memory: int | None = None) -> None:
        """``memory`` is how many bytes a query may take."""
        self.threads: Final = threads or os.cpu_count() or 1
        self._memory = memory

    def threads_for(self, entries: int, need: Need | None = None) -> int:
        """Choose the number of threads: one if a sum has so few entries that even 2^14 rows are little work.

        Starting more than one takes a fraction of a millisecond. If all threads take too much memory, fewer are used.
        The choice does not depend on the number of rows.
        """
        if 3 * entries * EXACT_ROWS <= SMALL_PRODUCT:
            return 1
        most = max(1, min(self.threads, MOST_SUMS // (2 * entries)))
        return most if self._memory is None else (need or Need.of_sum(entries)).threads_in(self._memory, most)

    def memory_of(self, entries: int, need: Need | None = None) -> int:
        """Return how many bytes an answer takes if its sum has this many entries."""
        return (need or Need.of_sum(entries)).bytes(self.threads_for(entries, need))

    def total(self, rows: Rows, visit: Visit, entries: int, parts: Callable[[tuple[int, int]], Parts]) -> WideIntegers:
        """Add up the results of visiting every block."""

        def of_span(span: tuple[int, int]) -> WideIntegers:
            """Add up each list of blocks in its own type, where it is exact, and then the lists in wider integers."""
            total = RunningSum(ROWS_IN_64_BITS)
            for blocks in parts(span):
                visited = reduce(iadd, (visit(rows.block(first, last)) for first, last in blocks))
                total.add(np.array(visited, dtype=np.int64), blocks[-1][1] - blocks[0][0])
            return total.total()

        return self._on_threads(of_span, rows, entries)

    def products(self, rows: Rows, basis: FloatArray) -> WideIntegers:
        """Add up the products of every thread's rows."""
        need = Need.of_product(*basis.shape)
        threads = self.threads_for(basis.size, need) if rows.gain_by_threads else 1
        total = RunningSum(ROWS_IN_64_BITS)
        for first, last in chunks_of((0, rows.count)):
            spans = [(first + start, first + stop) for start, stop in spans_of(last - first, threads)]
            total.add(_products(rows, basis, spans), last - first)
        return total.total()

    def _on_threads(self, of_span: Callable[[tuple[int, int]], WideIntegers], rows: Rows, entries: int) -> WideIntegers:
        """Add up the results of every thread's work. They are integers, so the order does not matter."""
        spans = spans_of(rows.count, self.threads_for(entries) if rows.gain_by_threads else 1)
        return reduce(iadd, _all_done(of_span, spans))


def _products(rows: Rows, basis: FloatArray, spans: Sequence[tuple[int, int]]) -> Integers:
    """Return the products over at most 2^24 rows, so that 64 bits hold the sum of what the threads return."""
    if not isinstance(rows, SharingRows):
        return reduce(iadd, _all_done(partial(rows.products, basis=basis), spans))
    sums = rows.no_sums(basis)
    _all_done(partial(rows.add_products, basis=basis, sums=sums), spans)
    return sums.whole


def _all_done(work: Callable[[tuple[int, int]], T], spans: Sequence[tuple[int, int]]) -> list[T]:
    """Work on each span in a thread of its own."""
    with one_thread, ThreadPoolExecutor(len(spans)) if len(spans) > 1 else nullcontext() as pool:
        return list((pool.map if pool else map)(work, spans))


def square_memory(dimension: int, memory: int) -> int:
    """Return how many bytes the square matrix of all columns takes, on as many threads as ``memory`` allows."""
    return LocalThreads(memory=memory).memory_of(dimension**2, Need.of_gram(dimension))


def stepped(span: tuple[int, int], step: int) -> Parts:
    """Divide rows into blocks of ``step`` rows, in lists whose sums are exact. Without rows, return an empty block."""
    start, stop = span
    return [
        [(at, min(at + step, last)) for at in range(first, max(last, first + 1), step)]
        for first in range(start, max(stop, start + 1), EXACT_ROWS)
        for last in (min(first + EXACT_ROWS, stop),)
    ]


def chunks_of(span: tuple[int, int]) -> list[tuple[int, int]]:
    """Divide rows into spans whose sums are exact in 64-bit integers. Without rows, return an empty span."""
    start, stop = span
    firsts = range(start, max(stop, start + 1), ROWS_IN_64_BITS)
    return [(first, min(first + ROWS_IN_64_BITS, stop)) for first in firsts]


def spans_of(rows: int, parts: int) -> list[tuple[int, int]]:
    """Divide rows into this many spans of about the same length."""
    edges = [rows * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))
