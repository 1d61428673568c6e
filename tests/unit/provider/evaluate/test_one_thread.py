"""While rows are gone through in threads of ours, the BLAS makes none of its own, whichever thread asked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpspca.provider.evaluate.moments import DenseRows, StreamedMoments

THREADS = 3


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def several() -> Iterator[list[int]]:
    """Let the BLAS have several threads, however many cores there are."""
    with threadpool_limits(limits=THREADS, user_api="blas"):
        yield blas_threads()


class WatchedRows(DenseRows):
    """Rows that note how many threads the BLAS has when a block is read."""

    seen: list[list[int]]

    def integers(self, start: int, stop: int) -> np.ndarray:
        self.seen.append(blas_threads())
        return super().integers(start, stop)


def test_each_thread_can_limit_the_blas_to_one_thread(
    several: list[int],
) -> None:
    rows = WatchedRows(np.ones((3, 2), dtype=np.int32))
    rows.seen = []
    together = Barrier(THREADS)

    def ask(_: int) -> list[int]:
        together.wait()  # so that each of them is a thread of its own
        StreamedMoments(rows).product(np.ones((2, 1)))
        together.wait()
        return blas_threads()

    with ThreadPoolExecutor(THREADS) as alive:
        after = [one for _ in range(2) for one in alive.map(ask, range(THREADS))]
    assert {count for counts in rows.seen for count in counts} == {1}
    assert len(rows.seen) == 2 * THREADS
    assert after == [several] * 2 * THREADS
