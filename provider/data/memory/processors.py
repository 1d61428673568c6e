"""Divides rows, or columns, evenly among all processors, by their number alone."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def on_all_processors(work: Callable[[int, int], T], count: int) -> list[T]:
    """Call ``work`` with the start and the end of each thread's share of a number of rows. Return what it returned."""
    threads = os.cpu_count() or 1
    shares = pairwise(count * place // threads for place in range(threads + 1))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda share: work(*share), shares))
