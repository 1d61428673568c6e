"""The memory that is forecast for answers is what they take, and many cores refuse no job that few cores take."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts

from dpspca.common.errors import RefusedError
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy import ChoiceEvent, KeyStream, PureEvent
from dpspca.common.queries import (
    ColumnSizes,
    CompressedCovariance,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
    DrawnSubspace,
    NormRange,
    SignPairs,
    SubspaceQuery,
)
from dpspca.provider.data import Arrivals, CheckedRows, Scratch, check_rows
from dpspca.provider.data.memory.stored_rows import RowWriter
from dpspca.provider.evaluate.block_sums import LocalThreads
from dpspca.provider.evaluate.memory import Need
from dpspca.provider.evaluate.memory_needs import need_of
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.kernels import load

pytestmark = pytest.mark.usefixtures("compiled_or_not")

CLOSE = 2.5
"""A forecast is at most so many times what was measured."""


def stored(folder: Path, count: int, dimension: int) -> CheckedRows:
    writer, rng = RowWriter(Scratch(folder / "scratch"), dimension, np.dtype(np.int8)), np.random.default_rng(0)
    for start in range(0, count, 4096):
        some = min(4096, count - start)
        writer.add(rng.integers(-3, 4, (some, dimension)), np.zeros(some, dtype=np.bool_))
    return CheckedRows(writer.rows())


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes that some work takes at the same time, in all threads."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def step(kind: type, shape: tuple[int, ...], dimension: int) -> Any:
    return SimpleNamespace(query=kind, shape=shape, extent=SimpleNamespace(dimension=dimension, blocks=0))


def basis(dimension: int, columns: int) -> np.ndarray:
    return thin_qr(np.random.default_rng(0).standard_normal((dimension, columns)))[0]


WIDTHS = [
    (Covariance, 300, 0),
    (CovarianceTriangle, 300, 0),
    (CovarianceProduct, 8000, 20),
    (CovarianceProduct, 1000, 150),
    (CovarianceProduct, 8000, 2),
    (CovarianceProduct, 40_000, 1),
    (CompressedCovariance, 3000, 60),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dimension", "columns"), WIDTHS)
def test_the_memory_that_is_forecast_is_what_an_answer_takes(
    kind: Any, dimension: int, columns: int, tmp_path: Path
) -> None:
    square = dimension * (dimension + 1) // 2 if kind is CovarianceTriangle else dimension**2
    shape = (columns**2 + 1,) if kind is CompressedCovariance else (dimension * columns or square,)
    query = kind(dimension) if not columns else kind(basis(dimension, columns))
    entries, need = need_of(step(kind, shape, dimension))
    for threads in (1, 3):
        rows = stored(tmp_path, threads * (2**14 + 1000 if not columns else 300), dimension)
        shard = Shard(rows, 1.0, threads=threads)
        noise = np.zeros(shape, dtype=np.int64)  # drawn before rows are read
        taken = peak(lambda shard=shard: shard.evaluate(query)) + 2 * noise.nbytes  # type: ignore[misc]
        assert taken <= need.bytes(threads), (threads, taken)
        assert load() or need.bytes(threads) <= CLOSE * taken, (threads, taken)  # what kernels take is not traced
        assert LocalThreads(threads).threads_for(entries, need) == threads


def test_a_gram_matrix_that_is_kept_takes_what_is_forecast(tmp_path: Path) -> None:
    dimension = 300
    rows, query = stored(tmp_path, 2**14 + 1000, dimension), CovarianceProduct(basis(dimension, 3))
    taken = peak(lambda: Shard(rows, 1.0, threads=1, strategy=Strategy.GRAM).evaluate(query))
    assert taken <= Need.of_gram(dimension).bytes(1) <= CLOSE * taken


@pytest.mark.parametrize(
    ("query", "event"),
    [
        (SignPairs(300), ChoiceEvent(1, 5.0, 10)),
        (SignPairs(2000), ChoiceEvent(1, 5.0, 10)),
        (SignPairs(2500, among=np.arange(1500)), ChoiceEvent(1, 5.0, 10)),
        (DrawnSubspace(300, columns=3), PureEvent(1.0)),
    ],
)
def test_private_choices_and_subspaces_take_at_most_what_is_forecast(query: Any, event: Any, tmp_path: Path) -> None:
    rows = stored(tmp_path, 3000, query.dimension)
    kind = SignPairs if isinstance(query, SignPairs) else SubspaceQuery
    words = KeyStream.repeatable(0, "memory")
    taken = peak(lambda: Shard(rows, 1.0, threads=1).release(query, event, words))
    asked = step(kind, (1,), query.dimension)
    if kind is SignPairs:
        asked.extent = query.extent
    assert taken <= need_of(asked)[1].bytes(1)


@pytest.mark.parametrize(
    ("kind", "shape", "dimension"),
    [
        (Covariance, (3000, 3000), 3000),
        (CovarianceProduct, (200_000, 40), 200_000),
        (CovarianceProduct, (3000, 9), 3000),
    ],
)
def test_many_cores_take_every_job_that_few_cores_take(kind: type, shape: tuple[int, ...], dimension: int) -> None:
    """Fewer threads are used where all of them would need too much, and what they need fits."""
    asked = step(kind, shape, dimension)
    entries, need = need_of(asked)
    rows = check_rows(np.zeros((3, dimension)))
    least = need.bytes(1)
    for memory in (least, int(1.7 * least), 5 * least, 100 * least):
        for threads in (1, 2, 16, 256):
            Shard(rows, 1.0, threads=threads, memory=memory).require_sums([asked], 1)
            engine = LocalThreads(threads, memory)
            assert engine.memory_of(entries, need) <= memory
            used = engine.threads_for(entries, need)
            assert (
                used == threads or need.bytes(used + 1) > memory or used == LocalThreads(threads).threads_for(entries)
            )
    for threads in (1, 2, 256):
        with pytest.raises(RefusedError, match=facts("memory_mebibytes")):
            Shard(rows, 1.0, threads=threads, memory=least - 8).require_sums([asked], 1)


SPARSE_BYTES = 52
"""For each stored entry, of an answer beside its sums. Reading takes 48, and what is there already is not counted."""


@pytest.mark.parametrize(
    ("dimension", "make"),
    [
        (300, lambda: CovarianceProduct(basis(300, 4))),
        (300_000, lambda: CovarianceProduct(basis(300_000, 4))),
        (300, lambda: Covariance(300)),
        (300, lambda: CompressedCovariance(basis(300, 4))),
        (300, lambda: NormRange(300)),
        (300, lambda: ColumnSizes(300)),
    ],
    ids=["product", "wide product", "covariance", "compressed", "norms", "sizes"],
)
def test_t35_an_answer_from_sparse_rows_takes_about_what_reading_takes(dimension: int, make: Callable[[], Any]) -> None:
    """So it counts as all of the memory, into which reading had to fit."""
    rng, count, each = np.random.default_rng(0), 60_000, 10
    places = np.sort(rng.integers(0, dimension, (count, each))).ravel().astype(np.int32)
    starts = np.arange(0, count * each + 1, each, dtype=np.int32)
    stored = scipy.sparse.csr_array((rng.standard_normal(count * each), places, starts), shape=(count, dimension))
    shard, query = Shard(check_rows(stored), 1.0, threads=1, memory=10**9), make()
    answers = list[Any]()
    taken = peak(lambda: answers.append(shard.evaluate(query)))
    asked = step(type(query), answers[0].shape, dimension)
    assert taken - need_of(asked)[1].bytes(1) <= SPARSE_BYTES * stored.nnz
    assert shard.memory_of(asked) == 10**9


def test_t35_a_block_of_rows_that_arrived_is_counted_and_may_be_too_large(tmp_path: Path) -> None:
    for name in "abcd":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).standard_normal((10_000, 50)))
    rows = Arrivals("cohort", tmp_path).first(40_000)
    asked = step(CovarianceProduct, (50, 2), 50)
    for blocks in (1, 2, 4):
        asked.extent.blocks = blocks
        needed = Shard(rows, 1.0, threads=1).memory_of(asked)
        shard = Shard(rows, 1.0, threads=1, memory=needed)
        shard.require_sums([asked], 1)
        assert peak(lambda: shard.evaluate(CovarianceProduct(basis(50, 2), None, 1, blocks))) <= needed  # noqa: B023
        with pytest.raises(RefusedError, match=facts("smaller blocks", "memory_mebibytes")):
            Shard(rows, 1.0, threads=1, memory=needed - 1).require_sums([asked], 1)
