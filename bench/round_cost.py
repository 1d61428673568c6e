"""What one round costs a provider: from a cached Gram matrix, and in one pass over the rows.

    python bench/round_cost.py [--quick] [--json]

First table: a query A Q answered from a cached Gram matrix, for a basis with 50 non-zero rows (all rounds but the
first) and for a dense one, beside plain float64 ``G @ Q``; the noise; and the whole round inside one process: gate,
ledger, noise, answer, sum, two orthonormalisations, cut, next query. The first round comes on top once: it also
prepares the rows, multiplies them into the Gram matrix and makes the noise tables. Below stands Table 1 of Ge et al.
(2018), measured by its authors on their hardware: it says what was claimed, not what would be measured here.

Second table: the pass over the rows compared with plain float64 ``X.T @ (X @ Q)``, in turns, with a pause before each
so that no thread of the other still spins; and the time to read the same integers once with as many threads, which is a
lower bound. "bits" shows whether the answer is the same for any number of threads and order of rows. "Gram pays" is the
number of rounds from which making a Gram matrix is faster than as many passes.

Times are medians.
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.client.simulation import Progress, simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import hard_threshold, thin_qr
from dpspca.common.plan import prices
from dpspca.common.privacy.keystream import Draw, Purpose
from dpspca.common.privacy.lattice import BASIS_BITS
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.integer_rows import integer_csr, integer_rows
from dpspca.provider.evaluate.moments import DenseRows, SparseRows, StreamedMoments
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.ledger.accounts import JobPosition
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.gate import Gate
from dpspca.server.jobs.sums import combine

Result: TypeAlias = dict[str, Any]
Sizes: TypeAlias = list[tuple[str, int, int]]

COMPONENTS = 5
SPARSITY = 50
NORM_BOUND = 1.0
THREADS = os.cpu_count() or 1
PAUSE_SECONDS = 0.1
DENSITY = 0.005
PAPER_TABLE_1 = {
    "DPS-PCA": {200: "< 1 ms", 400: "< 1 ms", 800: "< 1 ms"},
    "MOD-SuLQ": {200: "8 ms", 400: "21 ms", 800: "97 ms"},
    "PPCA": {200: "9.82 s", 400: "37.46 s", 800: "173.78 s"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a round from a Gram matrix, and as a pass over the rows.")
    parser.add_argument("--quick", action="store_true", help="small matrices, fewer repeats")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    dimensions, repeats = ([80, 160], 5) if options.quick else ([200, 400, 800, 3200], 51)
    gram = [gram_result(dimension, repeats) for dimension in dimensions]
    stream = [stream_result(*size, repeats=3 if options.quick else 7) for size in stream_sizes(quick=options.quick)]
    if options.json:
        print(json.dumps({"gram": gram, "stream": stream, "paper_table_1": PAPER_TABLE_1}, indent=2))
    else:
        print(gram_table(gram), paper_table(), stream_table(stream), sep="\n\n")


# --- From a cached Gram matrix ----------------------------------------------------------------------------------------


def gram_result(dimension: int, repeats: int) -> Result:
    """Time the parts of a round. The number of rows matters only through the digits of the Gram matrix."""
    generator = np.random.default_rng(dimension)
    rows = generator.standard_normal((4000, dimension)) / dimension**0.5
    shard = Shard(check_rows(rows), NORM_BOUND, strategy=Strategy.GRAM)
    sparse, dense = (CovarianceProduct(basis(dimension, kept, generator)) for kept in (SPARSITY, dimension))
    plain = rows.T @ rows
    parts = {
        "sparse": lambda: shard.evaluate(sparse),
        "dense": lambda: shard.evaluate(dense),
        "plain": lambda: plain @ sparse.basis,
        **other_parts(dimension, sparse, shard),
    }
    milliseconds = {f"{name}_ms": 1e3 * median_seconds(part, repeats) for name, part in parts.items()}
    return {"dimension": dimension, **milliseconds, **round_times(rows, repeats)}


def other_parts(dimension: int, query: CovarianceProduct, shard: Shard) -> dict[str, Callable[[], object]]:
    """Return the times of the other parts of a round."""
    spec = job(dimension, rounds=10)
    step = catalogue.plan(spec)[5]
    noise = DiscreteGaussian.with_std_at_least(step.noise_std)
    answer = shard.evaluate(query)
    words = system_entropy(Draw("bench", 5, 0, query.digest(), Purpose.NOISE))
    rules = Gate(catalogue.plan(spec))
    standing = JobPosition(5, list(prices(rules.plan))[4])
    return {
        "gate": lambda: rules.grant(5, query, standing),
        "noise": lambda: noise.sample(answer.size, words),
        "combine": lambda: combine(spec, step, [answer]),
        "next_basis": lambda: thin_qr(hard_threshold(thin_qr(answer.astype(np.float64))[0], SPARSITY)),
    }


def round_times(rows: FloatArray, repeats: int) -> Result:
    """Time whole rounds of one job. Only the first two make noise tables, each for its own standard deviation."""
    moments = [time.perf_counter()]

    def note(_: Progress) -> None:
        moments.append(time.perf_counter())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DpspcaWarning)  # about what these rows show, which is not looked at
        simulate([rows], job(rows.shape[1], rounds=repeats + 2), strategy=Strategy.GRAM, watch=note)
    first, second, *others = [1e3 * (end - start) for start, end in pairwise(moments)]
    return {"round_ms": statistics.median(others), "first_round_ms": first, "second_round_ms": second}


def job(dimension: int, rounds: int) -> JobSpec:
    return JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(1.0, 1e-6),
        norm_bound=NORM_BOUND,
        components=COMPONENTS,
        explained_variance=False,
        options={"sparsity": min(SPARSITY, dimension), "rounds": rounds},
        method="dps-pca",
    )


def basis(dimension: int, kept: int, generator: np.random.Generator) -> FloatArray:
    """Draw an orthonormal basis with ``kept`` non-zero rows."""
    made = np.zeros((dimension, COMPONENTS))
    made[generator.choice(dimension, kept, replace=False)], _ = thin_qr(generator.standard_normal((kept, COMPONENTS)))
    return made


# --- In one pass over the rows ----------------------------------------------------------------------------------------


def stream_sizes(*, quick: bool) -> Sizes:
    if quick:
        return [("dense", 5_000, 200), ("dense", 20_000, 50), ("CSR", 5_000, 1_000)]
    return [("dense", 100_000, 1_000), ("dense", 250_000, 200), ("dense", 1_000_000, 50), ("CSR", 200_000, 5_000)]


def stream_result(kind: str, count: int, dimension: int, repeats: int) -> Result:
    generator = np.random.default_rng(0)
    rows, integers, preparation = prepared(kind, count, dimension, generator)
    Q = basis(dimension, dimension, generator)
    whole = np.rint(Q * 2.0**BASIS_BITS)
    moments = StreamedMoments(integers)
    ours, plain, read = alternating(
        [lambda: moments.product(whole), lambda: rows.T @ (rows @ Q), lambda: read_once(integers)], repeats
    )
    gram = {} if kind == "CSR" else {"gram_seconds": median_seconds(moments.gram, 3)}
    return {
        "rows": f"{kind} {count} x {dimension}",
        "ours_seconds": ours,
        "plain_seconds": plain,
        "speedup": plain / ours,
        "gigabytes_a_second": stored_bytes(integers) / ours / 1e9,
        "readable_gigabytes_a_second": stored_bytes(integers) / read / 1e9,
        "share_of_bandwidth": read / ours,
        "same_bits": same_bits(integers, whole),
        "preparation_seconds": preparation,
        **gram,
    }


def prepared(
    kind: str, count: int, dimension: int, generator: np.random.Generator
) -> tuple[Any, DenseRows | SparseRows, float]:
    """Draw rows and convert them to integers. About half of them are longer than the bound."""
    if kind == "CSR":
        sparse: Any = scipy.sparse.random_array((count, dimension), density=DENSITY, format="csr", rng=generator)
        bound = (dimension * DENSITY / 3) ** 0.5
        return sparse, SparseRows(integer_csr(sparse, bound)), median_seconds(lambda: integer_csr(sparse, bound), 3)
    dense = generator.standard_normal((count, dimension))
    bound = dimension**0.5
    return dense, DenseRows(integer_rows(dense, bound)), median_seconds(lambda: integer_rows(dense, bound), 3)


def same_bits(integers: DenseRows | SparseRows, whole: FloatArray) -> bool:
    """Compare the answer of one thread with that of several, and of the rows with that of the rows in reverse order."""
    backwards = type(integers)(integers.rows[::-1])  # type: ignore[arg-type]  # each kind of shard holds its own kind of rows
    answers = [StreamedMoments(rows, threads).product(whole) for rows, threads in ((integers, 1), (backwards, THREADS))]
    return all((StreamedMoments(integers).product(whole) == answer).all() for answer in answers)


def arrays(integers: DenseRows | SparseRows) -> list[Any]:
    return [integers.rows] if isinstance(integers, DenseRows) else [integers.rows.data, integers.rows.indices]


def stored_bytes(integers: DenseRows | SparseRows) -> int:
    return sum(array.nbytes for array in arrays(integers))


def read_once(integers: DenseRows | SparseRows) -> list[Any]:
    """Read every stored byte: return the largest 64-bit word of each thread's part."""
    words = [array.reshape(-1)[: array.size // 2 * 2].view(np.int64) for array in arrays(integers)]
    parts = [part for array in words for part in np.array_split(array, THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(np.max, parts))


# --- Timing and printing ----------------------------------------------------------------------------------------------


def alternating(works: list[Callable[[], object]], repeats: int) -> list[float]:
    """Run the works in turns, so that a busy machine slows all of them."""
    times = [[paused_seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def paused_seconds(work: Callable[[], object]) -> float:
    time.sleep(PAUSE_SECONDS)
    return seconds(work)


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    work()
    return statistics.median(seconds(work) for _ in range(repeats))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def gram_table(results: list[Result]) -> str:
    head = "A Q from a cached Gram matrix, k = 5, s_hat = 50; and a whole round in one process (milliseconds)"
    parts = ("sparse", "dense", "plain", "gate", "noise", "combine", "next_basis", "round", "first_round")
    titles = "     d" + "".join(f"{part.replace('_', ' '):>12}" for part in parts)
    lines = [
        f"{result['dimension']:>6}" + "".join(f"{result[f'{part}_ms']:>12.3f}" for part in parts) for result in results
    ]
    return "\n".join([head, titles, *lines])


def paper_table() -> str:
    dimensions = PAPER_TABLE_1["DPS-PCA"]
    titles = "     d" + "".join(f"{name:>12}" for name in PAPER_TABLE_1)
    lines = [f"{d:>6}" + "".join(f"{times[d]:>12}" for times in PAPER_TABLE_1.values()) for d in dimensions]
    return "\n".join(["Table 1 of the paper (its authors' hardware)", titles, *lines])


def stream_table(results: list[Result]) -> str:
    head = f"X^T (X Q) in one pass, k = 5, {THREADS} threads"
    titles = ("ours", "plain", "speedup", "GB/s", "readable", "share", "bits", "prepare", "Gram", "Gram pays")
    lines = [head, f"{'':<24}" + "".join(f"{title:>10}" for title in titles)]
    return "\n".join([*lines, *map(stream_line, results)])


def stream_line(result: Result) -> str:
    gram = result.get("gram_seconds")
    made = f"{gram:>8.3f} s{gram / result['ours_seconds']:>10.0f}" if gram else f"{'-':>10}{'-':>10}"
    return (
        f"{result['rows']:<24}{result['ours_seconds']:>8.3f} s{result['plain_seconds']:>8.3f} s"
        f"{result['speedup']:>9.2f}x{result['gigabytes_a_second']:>10.1f}{result['readable_gigabytes_a_second']:>10.1f}"
        f"{result['share_of_bandwidth']:>10.0%}{'same' if result['same_bits'] else 'DIFFER':>10}"
        f"{result['preparation_seconds']:>8.3f} s{made}"
    )


if __name__ == "__main__":
    main()
