"""How rows are evaluated follows from public numbers alone: the plan, the number of columns, the machine."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import scipy.sparse

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.lattice import MAX_ROWS, ROW_BITS
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CompressedCovariance, Covariance, CovarianceProduct
from dpspca.provider.data.checked.preparation import CheckedRows, check_rows
from dpspca.provider.data.memory import stored_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.memory.stored_rows import RowWriter
from dpspca.provider.evaluate import block_sums, moments
from dpspca.provider.evaluate.block_sums import LocalThreads
from dpspca.provider.evaluate.moments import DenseRows, GramMoments, SparseRows, StreamedMoments
from dpspca.provider.evaluate.packed_rows import PackedRows
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.evaluate.wide_integers import WideIntegers
from dpspca.provider.jobs import prepared_rows

DIMENSION: Final = 200
ROUNDS: Final = 5
"""As many products as make the matrix pay at this width."""
COUNTS: Final = (2, 3, 63, 64, 65, 199, 200, 201, 5000)
"""Numbers of rows, far below and above the number of columns, and next to those at which something might change."""


def job(rounds: int = ROUNDS, dimension: int = DIMENSION) -> JobSpec:
    return JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(1.0, 1e-6),
        norm_bound=10.0,
        components=2,
        explained_variance=False,
        options={"sparsity": dimension, "rounds": rounds},
        method="dps-pca",
    )


def rows(count: int, *, sparse: bool = False, dimension: int = DIMENSION) -> Any:
    made = np.random.default_rng(count).standard_normal((count, dimension))
    return scipy.sparse.csr_array(made) if sparse else made


def basis(dimension: int = DIMENSION, support: int = 10) -> np.ndarray[Any, np.dtype[np.float64]]:
    made = np.zeros((dimension, 2))
    made[:support], _ = np.linalg.qr(np.random.default_rng(0).standard_normal((support, 2)))
    return made


def preparation(rounds: int) -> prepared_rows._Preparation:
    return prepared_rows._Preparation.of(catalogue.plan(job(rounds)))


def in_scratch(held: CheckedRows, folder: Path) -> CheckedRows:
    writer = RowWriter(Scratch(folder / "scratch"), held.dimension, np.dtype(np.float64))
    writer.add(np.asarray(held.matrix), np.zeros(held.count, dtype=np.bool_))
    return CheckedRows(writer.rows())


class Trace:
    """What was done: which code ran, on how many threads, with numbers of how many digits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[object] = []
        for kind, name in ((StreamedMoments, "product"), (GramMoments, "product"), (StreamedMoments, "gram")):
            self._note(monkeypatch, kind, name)
        pool, digits = ThreadPoolExecutor, moments._digits
        monkeypatch.setattr(block_sums, "ThreadPoolExecutor", lambda count: self.seen.append(count) or pool(count))
        monkeypatch.setattr(stored_rows, "ThreadPoolExecutor", lambda count: self.seen.append(count) or pool(count))
        monkeypatch.setattr(moments, "_digits", lambda *given: self.seen.append(given[2]) or digits(*given))

    def _note(self, monkeypatch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
        original = getattr(kind, name)

        def noted(*given: Any) -> Any:
            self.seen.append((kind.__name__, name))
            return original(*given)

        monkeypatch.setattr(kind, name, noted)


@pytest.mark.parametrize("form", ["dense", "sparse", "stored"])
@pytest.mark.parametrize("rounds", [1, ROUNDS])
@pytest.mark.parametrize("support", [2, 64, 200])
def test_operations_do_not_depend_on_the_number_of_rows(
    form: str, rounds: int, support: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The coordinator chooses the basis: at no number of its rows may the number of ours decide what is done."""
    trace, done = Trace(monkeypatch), set()
    query = CovarianceProduct(basis(support=support))
    for count in COUNTS:
        held = check_rows(rows(count, sparse=form == "sparse"))
        if form == "stored":
            held = in_scratch(held, tmp_path)
        shard = prepared_rows._shard_of(held, job(rounds), preparation(rounds))
        trace.seen.clear()
        for _ in range(ROUNDS + 1):
            shard.evaluate(query)
        done.add(tuple(trace.seen))
    assert len(done) == 1


def test_no_thread_goes_on_after_an_answer() -> None:
    """What is done beside the answers would make one of them, or one of another job, take longer."""
    before = threading.active_count()
    shard = prepared_rows._shard_of(check_rows(rows(64)), job(100), preparation(100))
    for _ in range(10):
        shard.evaluate(CovarianceProduct(basis()))
    assert threading.active_count() == before


@pytest.mark.parametrize("dimension", [3, 64, 65, 1000, 4096])
def test_a_matrix_has_as_many_digits_as_the_most_rows_need(dimension: int) -> None:
    """Rows of full length in one direction make the largest entry that there is, and it is kept exactly."""
    largest = MAX_ROWS * 2 ** (2 * ROW_BITS)
    gram = np.zeros((dimension, dimension), dtype=np.int64)
    gram[0, 0], gram[1, 1] = largest >> 32, -largest >> 32
    kept = GramMoments(WideIntegers(gram, np.zeros_like(gram)))
    assert len(kept._digits) == len(GramMoments(WideIntegers.of(np.eye(dimension, dtype=np.int64)))._digits)
    corners = [digit[:2, :2].astype(object) for digit in kept._digits]
    whole = sum(corner * 2 ** (place * kept._digit_bits) for place, corner in enumerate(corners))
    assert whole[0, 0] == largest
    assert whole[1, 1] == -largest
    assert all(np.abs(digit).max() <= 2**kept._digit_bits for digit in kept._digits)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_more_threads_than_rows_change_nothing(count: int, sparse: bool) -> None:
    whole = np.random.default_rng(count).integers(-1000, 1000, (count, 300)).astype(np.int32)
    made = SparseRows(scipy.sparse.csr_array(whole.astype(float))) if sparse else DenseRows(whole)
    one, many = StreamedMoments(made, threads=1), StreamedMoments(made, threads=7)
    asked = np.rint(basis(300) * 2**20)
    exact = whole.astype(object)
    assert (one.product(asked) == many.product(asked)).all()
    assert (many.gram().narrow() == exact.T @ exact).all()
    assert many.trace() == (exact**2).sum()
    assert (one.compressed(asked) == many.compressed(asked)).all()


def test_wide_queries_are_asked_on_fewer_threads() -> None:
    """Each thread adds up an answer of its own: sixteen of half a gigabyte would be more than a machine has."""
    assert LocalThreads(16).threads_for(2**10) == 16
    assert LocalThreads(16).threads_for(2**26) == 2
    assert LocalThreads(16).threads_for(2**28) == 1
    assert LocalThreads(16, 2**30).threads_for(2**24) == 1
    assert LocalThreads(16, 2**31).threads_for(2**24) == 2


def test_the_gram_matrix_is_used_for_dense_rows_and_many_products() -> None:
    def chosen(rounds: int, dimension: int, *, is_sparse: bool = False) -> Strategy:
        return Strategy.for_plan(dimension, catalogue.plan(job(rounds, dimension)), is_sparse=is_sparse)

    assert chosen(ROUNDS, DIMENSION) is Strategy.GRAM
    assert chosen(ROUNDS - 2, DIMENSION) is Strategy.STREAM
    assert chosen(ROUNDS, DIMENSION, is_sparse=True) is Strategy.STREAM
    assert chosen(500, 2**12) is Strategy.GRAM
    assert chosen(500, 2**12 + 1) is Strategy.STREAM
    plan = catalogue.plan(job(500, 2000))
    assert Strategy.for_plan(2000, plan, is_sparse=False, memory=2**32) is Strategy.GRAM
    assert Strategy.for_plan(2000, plan, is_sparse=False, memory=2**28) is Strategy.STREAM


def test_threads_with_different_centres_get_their_own_answers() -> None:
    """A shard serves several jobs, each with a centre of its own; it keeps the last one ready."""
    rng = np.random.default_rng(3)
    values = rng.standard_normal((200, 6)) / 4
    centres = [None, *rng.standard_normal((3, 6)) / 10]
    vectors = np.eye(6)[:, :2]
    queries = [CovarianceProduct(vectors, centre) for centre in centres]
    queries += [CompressedCovariance(vectors, centre) for centre in centres] + [Covariance(6)]  # type: ignore[list-item]
    expected = [Shard(check_rows(values), 1.0).evaluate(query) for query in queries]
    shard = Shard(check_rows(values), 1.0, strategy=Strategy.GRAM, threads=1)
    wrong: list[int] = []

    def ask(number: int) -> None:
        answers = [shard.evaluate(queries[number]) for _ in range(20)]
        wrong.extend(number for answer in answers if not (answer == expected[number]).all())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(queries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sums_of_sparse_rows_are_as_wide_as_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If they were only as wide as the columns in use, one full row would make every block wider, and slower."""
    widths: list[tuple[int, ...]] = []
    across = SparseRows.across

    def seen(block: Any, wide: Any) -> Any:
        widths.append((block.shape[1], *wide.shape[1:]))
        return across(block, wide)

    monkeypatch.setattr(SparseRows, "across", staticmethod(seen))
    asked = []
    for used in (3, 30):
        places = np.arange(100) % used
        sparse = scipy.sparse.csr_array((np.full(100, 1000.0), (np.arange(100), places)), shape=(100, 30))
        widths.clear()
        StreamedMoments(SparseRows(sparse), threads=2).product(np.rint(basis(30) * 2**20))
        asked.append(list(widths))
    assert asked[0] == asked[1]


def test_the_blocks_of_sparse_rows_do_not_depend_on_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are as wide as the table: made for every so many rows, they would tell in steps how many there are."""
    widths: list[int] = []
    across = SparseRows.across
    monkeypatch.setattr(SparseRows, "across", staticmethod(lambda *given: widths.append(1) or across(*given)))
    for count in (3, 100, 20_000, 100_000):
        places = np.arange(count) % 30
        sparse = scipy.sparse.csr_array((np.full(count, 1000.0), (np.arange(count), places)), shape=(count, 30))
        widths.clear()
        asked = np.rint(basis(30) * 2**20)
        product = StreamedMoments(SparseRows(sparse), threads=2).product(asked)
        dense = StreamedMoments(DenseRows(sparse.toarray().astype(np.int32)), threads=2).product(asked)
        assert (product == dense).all()
        assert len(widths) == moments.SPARSE_BLOCKS  # of so narrow a query


def test_sums_over_a_wide_sparse_table_are_made_of_few_blocks() -> None:
    wide = SparseRows(scipy.sparse.csr_array((200, 1_000_000)))
    assert wide.parts((0, 200), 10 * 1_000_000, 0) == [[(0, 50), (50, 100), (100, 150), (150, 200)]]


def test_the_largest_sums_of_sparse_rows_are_exact() -> None:
    row, rows = 2**17 - 1, 200_001
    sparse = SparseRows(scipy.sparse.csr_array(np.full((rows, 1), float(row))))
    column = 2.0**20 - 1
    streamed = StreamedMoments(sparse, threads=1)
    assert (
        int(streamed.product(np.array([[column]]))[0, 0]) == (rows * row * row * int(column)) >> moments.PRODUCT_SHIFT
    )
    assert int(streamed.gram().narrow()[0, 0]) == rows * row * row
    assert streamed.trace() == rows * row * row


def test_a_matrix_is_made_for_no_other_centre_unless_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    gram = StreamedMoments.gram
    monkeypatch.setattr(StreamedMoments, "gram", lambda self: made.append(self) or gram(self))
    table, centers = check_rows(rows(40)), [np.full(DIMENSION, float(each)) for each in range(3)]
    shard, streaming = (Shard(table, 10.0, strategy=each) for each in (Strategy.GRAM, Strategy.STREAM))
    shard.evaluate(CovarianceProduct(basis(), centers[0]))
    assert len(made) == 1
    for center in (centers[1], centers[2], centers[0]):
        query = CovarianceProduct(basis(), center)
        np.testing.assert_array_equal(shard.evaluate_as_prepared(query), streaming.evaluate(query))
    assert len(made) == 1
    shard.evaluate(CovarianceProduct(basis(), centers[1]))
    assert len(made) == 2


def test_integers_are_kept_for_no_other_centre_unless_they_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    kept = PackedRows.kept
    monkeypatch.setattr(PackedRows, "kept", lambda self, threads: made.append(self) or kept(self, threads))
    shard = Shard(in_scratch(check_rows(rows(40)), tmp_path), 10.0, keeps=True)
    assert shard.kept_columns == DIMENSION
    answers = []
    for center in (np.zeros(DIMENSION), np.ones(DIMENSION)):
        query = CovarianceProduct(basis(), center)
        answers.append((shard.evaluate_as_prepared(query), shard.evaluate(query)))
        assert len(made) == len(answers)
    assert all((one == other).all() for one, other in answers)
