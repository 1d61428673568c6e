"""How much time one row can add to an answer, for each number of its contribution.

    python bench/answer_times.py [--quick] [--json]

The interval between two moments at which an answer may leave (``provider/release/schedule.py``) is ten times the
largest of these figures. Each case is a pair of neighbouring data sets whose times differ as much as in any pair that
we know: one row with an entry in every column among rows with one entry each; one row more than fits into a block, or
into a floating-point sum. Both are queried in turns on one thread. The least processor time of each counts, because
other work can only make an answer slower. Differences below the clock's noise appear as zero or less. For narrow
queries the figure comes from some microseconds that do not depend on the size.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import scipy.sparse

from dpspca.common.linalg import thin_qr
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import Covariance, CovarianceProduct
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.moments import rows_per_block
from dpspca.provider.evaluate.products import EXACT_ROWS, Division
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.release.schedule import ENTRY_SECONDS, SPARSE_ENTRY_SECONDS

REPEATS: Final = 15
BOUND: Final = 10.0


class Case(NamedTuple):
    """Two neighbouring data sets, a query, and how many numbers one row adds to its answer."""

    name: str
    dimension: int
    columns: int
    fewer: Any
    more: Any
    query: RowQuery
    entries: int


def cases(*, quick: bool) -> Iterator[Case]:
    """Return pairs of neighbours over the range of shapes."""
    widths = (1000, 10_000) if quick else (1000, 10_000, 200_000)
    for dimension in widths:
        for columns in (1, 4, 10):
            yield _products("sparse, one full row", dimension, columns, *_sparse(dimension))
    for dimension in (100, 1000, 20_000) if quick else (100, 1000, 20_000, 1_000_000):
        for columns in (1, 4, 10):
            step = Division.of(dimension, columns).rows
            yield _products("dense, one row more than a block", dimension, columns, *_dense(step, dimension))
    for dimension in (10_000,) if quick else (10_000, 200_000):
        fewer, more = (_one_hot(EXACT_ROWS + extra, dimension) for extra in (0, 1))
        yield _products("sparse, one row more than 2^14", dimension, 4, fewer, more)
    for dimension in (100, 1000):
        yield _products("dense, one row more than 2^14", dimension, 4, *_dense(EXACT_ROWS, dimension))
    for dimension in (100, 400) if quick else (100, 400, 1500):
        tall = min(EXACT_ROWS, max(rows_per_block(dimension), 2 * dimension))
        fewer, more = _dense(tall, dimension)
        yield Case("whole matrix", dimension, dimension, fewer, more, Covariance(dimension), dimension**2)


def _products(name: str, dimension: int, columns: int, fewer: Any, more: Any) -> Case:  # noqa: ANN401
    basis, _ = thin_qr(np.random.default_rng(0).standard_normal((dimension, columns)))
    return Case(name, dimension, columns, fewer, more, CovarianceProduct(basis), dimension * columns)


def _one_hot(rows: int, dimension: int) -> Any:  # noqa: ANN401
    places = np.random.default_rng(1).integers(dimension, size=rows)
    return scipy.sparse.csr_array((np.ones(rows), (np.arange(rows), places)), shape=(rows, dimension))


def _sparse(dimension: int, rows: int = 2000) -> tuple[Any, Any]:
    fewer = _one_hot(rows, dimension)
    full = scipy.sparse.csr_array(np.random.default_rng(2).standard_normal((1, dimension)))
    return fewer, scipy.sparse.vstack([fewer[:-1], full], format="csr")


def _dense(rows: int, dimension: int) -> tuple[Any, Any]:
    more = np.random.default_rng(3).standard_normal((rows + 1, dimension))
    return more[:-1], more


def nanoseconds(case: Case, repeats: int = REPEATS) -> float:
    """Return the nanoseconds that the row adds, for each number of its contribution."""
    shards = [Shard(check_rows(rows), BOUND, threads=1) for rows in (case.fewer, case.more)]
    least = [float("inf")] * 2
    for _ in range(repeats):
        for at, shard in enumerate(shards):
            least[at] = min(least[at], _seconds(lambda asked=shard: asked.evaluate(case.query)))
    return 1e9 * (least[1] - least[0]) / case.entries


def _seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def main(given: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small shapes, in seconds")
    parser.add_argument("--json", action="store_true", help="facts instead of a table")
    chosen = parser.parse_args(given)
    found = [
        {"case": case.name, "columns": case.dimension, "asked": case.columns, "nanoseconds": nanoseconds(case)}
        for case in cases(quick=chosen.quick)
    ]
    if chosen.json:
        print(
            json.dumps(
                {"measured": found, "dense": 1e9 * ENTRY_SECONDS, "sparse": 1e9 * SPARSE_ENTRY_SECONDS}, indent=2
            )
        )
        return
    for each in found:
        print(f"{each['case']:34} d = {each['columns']:>9,}  asked {each['asked']:>5}  {each['nanoseconds']:8.2f} ns")
    print(f"An interval has {1e9 * ENTRY_SECONDS:.0f} ns for each number, {1e9 * SPARSE_ENTRY_SECONDS:.0f} if sparse.")


if __name__ == "__main__":
    main()
