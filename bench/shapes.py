"""How long an exact pass over rows takes for tables of many shapes, compared with plain floating point.

    python bench/shapes.py [--quick] [--json]

For each number of columns of a table (d) and of a basis (k), the exact product X^T (X Q) of integer rows is compared
with plain float64 ``X.T @ (X @ Q)`` over as many numbers, in turns. Both figures are ratios, ours over plain, of
medians: the time on all processors, and the processor time of one thread each, which other work on the machine changes
less. Plain runs twice in each turn. How far its two medians are apart, as a ratio, is the machine's noise.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from dpspca.common.arrays import FloatArray
from dpspca.common.privacy import BASIS_BITS
from dpspca.provider.evaluate.moments import DenseRows, StreamedMoments

Result: TypeAlias = dict[str, Any]
Clock: TypeAlias = Callable[[], float]

DIMENSIONS: Final = (50, 200, 1000, 5000, 20_000, 50_000, 100_000)
COLUMNS: Final = (1, 2, 5, 10, 20, 40)
CELLS: Final = 4 * 10**7
THREADS: Final = os.cpu_count() or 1
DRAWN: Final = 999_983
"""So many numbers are drawn, and repeated: neither side's time depends on values."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare exact passes over rows of many shapes with plain numpy.")
    parser.add_argument("--quick", action="store_true", help="few shapes, small tables, fewer repeats")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    shapes = ((50, 2000), (1, 5), 10**6, 3) if options.quick else (DIMENSIONS, COLUMNS, CELLS, 3)
    results = list(measured(*shapes))
    found = {"machine": machine(), "summary": summary(results), "shapes": results}
    print(json.dumps(found, indent=2) if options.json else text(found))


def measured(dimensions: tuple[int, ...], columns: tuple[int, ...], cells: int, repeats: int) -> Iterator[Result]:
    """Time every shape."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(-300, 301, DRAWN, dtype=np.int32)
    for dimension in dimensions:
        whole = np.resize(drawn, (cells // dimension, dimension))
        plain = whole.astype(np.float64)
        for width in columns:
            basis = rng.standard_normal((dimension, width)) / dimension**0.5
            yield {"dimension": dimension, "columns": width, **compared(whole, plain, basis, repeats)}


def compared(whole: Any, plain: FloatArray, basis: FloatArray, repeats: int) -> Result:  # noqa: ANN401
    """Time both sides on all processors, and on one thread."""
    asked, rows = np.rint(basis * 2.0**BASIS_BITS), DenseRows(whole)

    def numpy_alone() -> FloatArray:
        product: FloatArray = plain.T @ (plain @ basis)
        return product

    def turns(threads: int, clock: Clock) -> tuple[float, float, float]:
        ours = StreamedMoments(rows, threads)
        with threadpool_limits(threads, user_api="blas"):
            return in_turns([numpy_alone, lambda: ours.product(asked), numpy_alone], repeats, clock)

    first, together, second = turns(THREADS, time.perf_counter)
    first_alone, alone, second_alone = turns(1, time.thread_time)
    return {
        "rows": len(whole),
        "seconds": together,
        "plain_seconds": (first + second) / 2,
        "ratio": 2 * together / (first + second),
        "noise": max(first, second) / min(first, second),
        "one_thread_seconds": alone,
        "one_thread_plain_seconds": (first_alone + second_alone) / 2,
        "one_thread_ratio": 2 * alone / (first_alone + second_alone),
        "one_thread_noise": max(first_alone, second_alone) / min(first_alone, second_alone),
    }


def in_turns(works: list[Callable[[], object]], repeats: int, clock: Clock) -> tuple[float, ...]:
    """Run the works in turns, and return the median time of each. The first turn does not count."""
    times = [[seconds(work, clock) for work in works] for _ in range(repeats + 1)]
    return tuple(statistics.median(column) for column in zip(*times[1:], strict=True))


def seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def summary(results: list[Result]) -> Result:
    """Return the median and the largest of each figure over all shapes."""
    names = ("ratio", "noise", "one_thread_ratio", "one_thread_noise")
    return {
        name: {"median": statistics.median(values), "largest": max(values)}
        for name in names
        for values in [[each[name] for each in results]]
    }


def machine() -> Result:
    kernels = sorted({str(each.get("architecture")) for each in threadpool_info() if each["user_api"] == "blas"})
    return {"threads": THREADS, "kernels": kernels, "load": os.getloadavg()[0], "numpy": np.__version__}


def text(found: Result) -> str:
    about = found["machine"]
    return "\n\n".join(
        [
            f"{about['threads']} threads, OpenBLAS kernels {', '.join(about['kernels'])}, load {about['load']:.1f}",
            *(table(found, name) for name in ("one_thread_ratio", "ratio")),
        ]
    )


def table(found: Result, name: str) -> str:
    """Lay out a figure by d and k."""
    results, about = found["shapes"], found["summary"]
    noise = about[name.replace("ratio", "noise")]
    widths = list(dict.fromkeys(each["columns"] for each in results))
    lines = ["| rows x d | " + " | ".join(f"k={width}" for width in widths) + " |", "|---" * (len(widths) + 1) + "|"]
    for dimension in dict.fromkeys(each["dimension"] for each in results):
        own = [each for each in results if each["dimension"] == dimension]
        figures = " | ".join(f"{each[name]:.2f}" for each in own)
        lines.append(f"| {own[0]['rows']:,} x {dimension:,} | {figures} |")
    titles = {"ratio": "Time on all processors", "one_thread_ratio": "Processor time of one thread"}
    figures = about[name]
    head = f"{titles[name]}, ours / plain: median {figures['median']:.2f}, largest {figures['largest']:.2f}."
    spread = f"Plain / plain: median {noise['median']:.2f}, largest {noise['largest']:.2f}."
    return "\n".join([f"{head} {spread}", "", *lines])


if __name__ == "__main__":
    main()
