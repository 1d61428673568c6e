"""Gate, reserve, draw noise, evaluate, store, send: in this order, once for each query."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest
from facts import facts
from timeouts import TIMEOUT

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError, InvalidAnswerError, RefusedError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import Price
from dpspca.common.privacy.keystream import Draw, KeyStream, Purpose, keyed_stream, repeatable_entropy
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import ColumnSums, CompressedCovariance, Count, CovarianceProduct
from dpspca.common.queries.views import NormHistogram, View
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.accounts import JobPosition
from dpspca.provider.ledger.ledger import LedgerError, MemoryLedger
from dpspca.provider.release.gate import Gate
from dpspca.provider.release.responder import Responder

DIMENSION, ROUNDS = 12, 3


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(DIMENSION),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 4.0,
        "components": 2,
        "explained_variance": False,
        "options": {"sparsity": 5, "rounds": ROUNDS},
        "method": "dps-pca",
    }
    return JobSpec(**good | changes)


def basis(seed: int = 0, rows: int = 5, columns: int = 2) -> np.ndarray:
    made = np.zeros((DIMENSION, columns))
    made[:rows], _ = thin_qr(np.random.default_rng(seed).standard_normal((rows, columns)))
    return made


DENSE = CovarianceProduct(basis(rows=DIMENSION))
SPARSE = CovarianceProduct(basis(1))
ROWS = check_rows(np.random.default_rng(7).standard_normal((40, DIMENSION)))


def responder(
    job: JobSpec | None = None, ledger: MemoryLedger | None = None, shard: Any = None, seed: int = 0
) -> Responder:
    job = job or spec()
    return Responder(
        catalogue.plan(job), shard or Shard(ROWS, job.norm_bound), ledger or MemoryLedger(), repeatable_entropy(seed)
    )


def test_an_answer_is_the_exact_sum_plus_noise_of_the_planned_size() -> None:
    """Mean square of 5,000 draws: a false alarm beyond 6 % has probability below 1e-6."""
    step = catalogue.plan(spec())[0]
    exact = Shard(ROWS, 4.0).evaluate(DENSE)
    noise = np.concatenate([responder(seed=seed).respond(0, DENSE) - exact for seed in range(209)]).ravel()
    assert np.sqrt(np.mean(noise.astype(float) ** 2)) == pytest.approx(step.noise_std, rel=0.06)
    assert len(np.unique(noise)) == noise.size


def test_t05_the_same_query_gets_the_same_bytes_and_is_charged_once() -> None:
    ledger = MemoryLedger()
    asked = responder(ledger=ledger)
    first = asked.respond(0, DENSE)
    spent = ledger.standing(spec().digest())
    assert all((asked.respond(0, DENSE) == first).all() for _ in range(1000))
    assert (responder(ledger=ledger, seed=99).respond(0, DENSE) == first).all()
    assert ledger.standing(spec().digest()) == spent


OTHER_QUERIES: list[tuple[int, RowQuery]] = [
    (0, SPARSE),
    (0, CovarianceProduct(-DENSE.basis)),
    (0, CovarianceProduct(DENSE.basis[:, ::-1])),
    (0, CovarianceProduct(DENSE.basis, np.zeros(DIMENSION))),
    (0, CompressedCovariance(DENSE.basis)),
    (0, Count()),
]


@pytest.mark.parametrize(("position", "query"), OTHER_QUERIES)
def test_t06_another_query_at_the_same_position_is_refused_free_of_charge(position: int, query: RowQuery) -> None:
    ledger = MemoryLedger()
    asked = responder(ledger=ledger)
    asked.respond(0, DENSE)
    spent = ledger.standing(spec().digest())
    with pytest.raises(RefusedError, match=facts("Query 1")):
        asked.respond(position, query)
    assert ledger.standing(spec().digest()) == spent


@pytest.mark.parametrize("position", [-1, ROUNDS, ROUNDS + 1, 10**9])
def test_t08_queries_beyond_the_plan_are_refused(position: int) -> None:
    with pytest.raises(RefusedError, match=facts(f"{ROUNDS} queries")):
        responder().respond(position, DENSE)


@pytest.mark.parametrize(
    ("position", "query"),
    [
        (1, DENSE),  # only the first basis may be dense
        (0, CovarianceProduct(basis(columns=1))),
        (0, CovarianceProduct(np.eye(DIMENSION + 1)[:, :2])),
        (0, CompressedCovariance(SPARSE.basis)),
        (0, ColumnSums(DIMENSION)),
        (0, Count()),
        (0, CovarianceProduct(DENSE.basis, np.ones(DIMENSION))),
    ],
)
def test_an_unplanned_query_is_refused_and_costs_nothing(position: int, query: RowQuery) -> None:
    ledger = MemoryLedger()
    with pytest.raises(RefusedError):
        responder(ledger=ledger).respond(position, query)
    assert ledger.standing(spec().digest()) is None


def test_a_basis_with_more_rows_than_its_step_was_priced_for_is_refused() -> None:
    ledger = MemoryLedger()
    asked = responder(ledger=ledger)
    asked.respond(0, DENSE)
    paid = ledger.standing(spec().digest())
    with pytest.raises(RefusedError, match=facts("Query 2", "'covariance-product'")):
        asked.respond(1, DENSE)
    assert ledger.standing(spec().digest()) == paid


def test_the_budget_covers_every_planned_query_once() -> None:
    ledger = MemoryLedger()
    asked = responder(ledger=ledger)
    for position, query in enumerate([DENSE, SPARSE, SPARSE]):
        asked.respond(position, query)
    standing = ledger.standing(spec().digest())
    assert standing is not None
    assert standing.reached == ROUNDS
    left = Filter.for_budget(1.0, 1e-6).charge(Price(standing.spent.units, standing.spent.slack_units))
    assert left.remaining_mu < 1e-4


@pytest.mark.parametrize("spent", [Price(1), Price(0, 1), Price(10**30, 10**60)])
def test_a_job_whose_spending_differs_from_its_plan_is_refused(spent: Price) -> None:
    with pytest.raises(RefusedError, match=facts("`dpspca ledger verify`")):
        Gate(catalogue.plan(spec())).grant(0, DENSE, JobPosition(0, spent))


@pytest.mark.parametrize("position", [1, 2])
def test_t09_a_query_out_of_order_is_refused_and_costs_nothing(position: int) -> None:
    ledger = MemoryLedger()
    with pytest.raises(RefusedError, match=facts("query 1")):
        responder(ledger=ledger).respond(position, SPARSE)
    assert ledger.standing(spec().digest()) is None


def test_a_centre_is_allowed_only_in_a_job_that_centres() -> None:
    centred = CovarianceProduct(DENSE.basis, np.ones(DIMENSION))
    public = spec(centering="public", public_mean=(1.0,) * DIMENSION)
    assert responder(public).respond(0, centred).shape == (DIMENSION, 2)
    with pytest.raises(RefusedError, match=facts("centering = none")):
        responder().respond(0, centred)


def test_scales_are_allowed_only_in_a_job_that_scales() -> None:
    for scaling, allowed in (("none", False), ("private", True)):
        plan = catalogue.plan(spec(method="auto", options={}, scaling=scaling))
        position = next(place for place, step in enumerate(plan) if step.query is NormHistogram)
        standing = JobPosition(position, plan.prices[position])
        scaled = NormHistogram(View.whole(DIMENSION), scales=np.full(DIMENSION, 2.0))
        if allowed:
            assert Gate(plan).grant(position, scaled, standing).step.query is NormHistogram
        else:
            with pytest.raises(RefusedError, match=facts("scaling = none")):
                Gate(plan).grant(position, scaled, standing)


class Recorder(MemoryLedger):
    """A ledger that also records the order of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        self.steps.append("reserve")
        return super().reserve(job, query, digest, before, after)

    def store(self, job: str, position: int, answer: Integers) -> None:
        self.steps.append("store")
        super().store(job, position, answer)


def test_t22_reserve_then_noise_then_evaluate_then_store() -> None:
    ledger = Recorder()

    class Watched:
        def check(self, job: JobSpec) -> None:
            pass

        def evaluate(self, query: RowQuery) -> Integers:
            ledger.steps.append("evaluate")
            return Shard(ROWS, 4.0).evaluate(query)

    class WatchedWords(KeyStream):
        def words(self, count: int) -> Any:
            ledger.steps.append("noise")
            return super().words(count)

    def watched(draw: Draw) -> KeyStream:
        ledger.steps.append("randomness")
        return WatchedWords(keyed_stream(bytes(32), draw).words(8).tobytes())

    Responder(catalogue.plan(spec()), Watched(), ledger, watched).respond(0, DENSE)
    assert ledger.steps[:3] == ["reserve", "randomness", "noise"]
    assert [step for step in ledger.steps if step != "noise"] == ["reserve", "randomness", "evaluate", "store"]
    assert "noise" not in ledger.steps[ledger.steps.index("evaluate") :]


def test_an_answer_lost_before_storage_is_made_again_and_charged_once() -> None:
    """The lost answer never left, because answers are stored before they leave. So one answer leaves in all."""

    class Broken:
        def check(self, job: JobSpec) -> None:
            pass

        def evaluate(self, query: RowQuery) -> Integers:
            raise MemoryError

    ledger = MemoryLedger()
    with pytest.raises(MemoryError):
        responder(ledger=ledger, shard=Broken()).respond(0, DENSE)
    paid = ledger.standing(spec().digest())
    assert paid is not None
    answers = {responder(ledger=ledger, seed=seed).respond(0, DENSE).tobytes() for seed in range(3)}
    assert len(answers) == 1
    assert ledger.standing(spec().digest()) == paid
    with pytest.raises(RefusedError, match=facts("Query 1")):
        responder(ledger=ledger).respond(0, CovarianceProduct(-DENSE.basis))


def test_t05_two_answers_made_at_once_both_return_the_stored_one() -> None:
    """Two responders, as of two processes, answer the same lost query. Both return what was stored first."""
    ledger, barrier = MemoryLedger(), Barrier(2, timeout=TIMEOUT)

    class Slow:
        def check(self, job: JobSpec) -> None:
            pass

        def evaluate(self, query: RowQuery) -> Integers:
            barrier.wait()
            return Shard(ROWS, 4.0).evaluate(query)

    class Lost(Slow):
        def evaluate(self, query: RowQuery) -> Integers:
            raise MemoryError

    with pytest.raises(MemoryError):
        responder(ledger=ledger, shard=Lost()).respond(0, DENSE)
    with ThreadPoolExecutor(2) as pool:
        both = [responder(ledger=ledger, shard=Slow(), seed=seed) for seed in range(2)]
        first, second = pool.map(lambda each: each.respond(0, DENSE), both)
    assert (first == second).all()


def test_each_answer_draws_noise_under_its_own_full_name() -> None:
    """The name contains the query's digest, so no draw happens before the query is known."""
    named: list[Draw] = []

    def noted(draw: Draw) -> KeyStream:
        named.append(draw)
        return keyed_stream(bytes(32), draw)

    ledger = MemoryLedger()
    queries = [CovarianceProduct(np.eye(DIMENSION, 2)), SPARSE, SPARSE]
    asked = Responder(catalogue.plan(spec()), Nothing(DIMENSION), ledger, noted, job="this job", seat=3)
    made = [asked.respond(position, query) for position, query in enumerate(queries)]
    again = asked.respond(1, SPARSE)
    assert named == [Draw("this job", 3, at, each.digest(), Purpose.NOISE) for at, each in enumerate(queries)]
    for step, draw, answer in zip(catalogue.plan(spec()), named, made, strict=True):
        law = DiscreteGaussian.with_std_at_least(step.noise_std)
        assert (answer.ravel() == law.sample(answer.size, keyed_stream(bytes(32), draw))).all()
    assert (again == made[1]).all()


def test_a_lost_answer_is_made_again_with_fresh_noise() -> None:
    """If the lost answer were reused as noise, it would already contain the rows, and they would count twice."""

    class Full(MemoryLedger):
        full = True

        def store(self, job: str, position: int, answer: Integers) -> None:
            if self.full:
                raise LedgerError("The disk is full.", "Make room.")
            super().store(job, position, answer)

    class Fives(Nothing):
        def evaluate(self, query: RowQuery) -> Integers:
            return super().evaluate(query) + 5

    ledger, streams = Full(), [keyed_stream(bytes([seed] * 32), A_DRAW) for seed in (0, 1)]
    left = iter(streams)
    asked = Responder(catalogue.plan(spec()), Fives(DIMENSION), ledger, lambda _: next(left))
    with pytest.raises(LedgerError):
        asked.respond(0, DENSE)
    ledger.full = False
    law = DiscreteGaussian.with_std_at_least(catalogue.plan(spec())[0].noise_std)
    expected = law.sample(2 * DIMENSION, keyed_stream(bytes([1] * 32), A_DRAW))
    assert (asked.respond(0, DENSE).ravel() - 5 == expected).all()


def test_rows_are_prepared_for_the_first_query_about_moments_alone() -> None:
    """The interval of that query counts it. If others could, a coordinator would send another centre with each."""
    prepared = []

    class Preparing(Nothing):
        def evaluate(self, query: RowQuery) -> Integers:
            prepared.append(query.kind)
            return self.evaluate_as_prepared(query)

        def evaluate_as_prepared(self, query: RowQuery) -> Integers:
            return np.zeros(query.answer_shape(query.extent), dtype=np.int64)

    job = spec(unit=PrivacyUnit.ROW_ADD_REMOVE, centering=Centering.PRIVATE, mean_bound=4.0)
    asked = responder(job, shard=Preparing(DIMENSION))
    queries: list[RowQuery] = [Count(), ColumnSums(DIMENSION)]
    queries += [CovarianceProduct(basis(seed), np.full(DIMENSION, float(seed))) for seed in range(ROUNDS)]
    for position, query in enumerate(queries):
        asked.respond(position, query)
    assert prepared == [CovarianceProduct.kind]


A_DRAW = Draw("a job", 0, 0, "a query", Purpose.NOISE)


class Nothing:
    """Rows that are all zero, of any width, so that the answer is the noise."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def check(self, job: JobSpec) -> None:
        pass

    def evaluate(self, query: RowQuery) -> Integers:
        return np.zeros((self._dimension, 2), dtype=np.int64)


def test_the_public_number_of_rows_needs_no_noise() -> None:
    job = spec(explained_variance=True)
    assert responder(job).respond(0, Count()).tolist() == [40]
    hidden = spec(explained_variance=True, unit="row-add-remove")
    counts = {int(responder(hidden, seed=seed).respond(0, Count())[0]) for seed in range(20)}
    assert len(counts) > 5


def test_t23_a_refusal_does_not_depend_on_the_rows() -> None:
    messages = set()
    for rows in (ROWS, check_rows(np.full((9, DIMENSION), 1e20))):
        with pytest.raises(RefusedError) as caught:
            responder(shard=Shard(rows, 4.0)).respond(0, CovarianceProduct(basis(columns=1)))
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_t20_neighbouring_data_sets_have_answers_on_the_same_lattice() -> None:
    """Answers are integers for all rows, and all residues modulo 16 occur, so low bits reveal no rounding."""
    for rows in (np.ones((5, DIMENSION)), np.ones((5, DIMENSION)) * 0.999999):
        noisy = np.concatenate(
            [responder(shard=Shard(check_rows(rows), 4.0), seed=seed).respond(0, DENSE).ravel() for seed in range(30)]
        )
        assert noisy.dtype == np.int64
        assert len(np.unique(noisy % 16)) == 16


@pytest.fixture
def hasty_switching() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_switching")
def test_t11_threads_that_ask_at_once_get_one_answer_charged_once() -> None:
    for attempt in range(20):
        ledger = MemoryLedger()
        asked = responder(ledger=ledger, seed=attempt)
        barrier = Barrier(8)

        def ask(query: CovarianceProduct, asked: Responder = asked, barrier: Barrier = barrier) -> bytes | None:
            barrier.wait()
            try:
                return asked.respond(0, query).tobytes()
            except RefusedError:
                return None

        queries = [DENSE, CovarianceProduct(-DENSE.basis)] * 4
        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(ask, queries)) - {None}
        assert len(answers) == 1
        standing = ledger.standing(spec().digest())
        assert standing is not None
        assert standing.reached == 1


def test_an_answer_with_another_shape_than_its_noise_never_leaves() -> None:
    """One draw that is broadcast over many entries would cancel in their differences."""

    class Wide:
        def check(self, job: JobSpec) -> None:
            pass

        def evaluate(self, query: RowQuery) -> Integers:
            return np.zeros((3, DIMENSION, 2), dtype=np.int64)

    with pytest.raises(InvalidAnswerError, match=facts("int64", f"({DIMENSION}, 2)")) as refused:
        responder(shard=Wide()).respond(0, DENSE)
    assert f"(3, {DIMENSION}, 2)" not in str(refused.value)  # a bug may give it a size that follows from rows


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (spec(schema=Schema(DIMENSION - 1)), (DIMENSION, DIMENSION - 1)),
        (spec(norm_bound=4.5), ("norm_bound", 4.5)),
        (spec(centering="private", mean_bound=9.0), ("centering", "private")),
    ],
)
def test_rows_prepared_for_another_job_are_refused_before_payment(job: JobSpec, reason: object) -> None:
    with pytest.raises(DpspcaError, match=facts(reason)):
        Responder(catalogue.plan(job), Shard(ROWS, 4.0), MemoryLedger(), repeatable_entropy(0))


def test_a_caller_cannot_change_a_stored_answer() -> None:
    asked = responder()
    first = asked.respond(0, DENSE)
    kept = first.copy()
    with pytest.raises(ValueError, match=facts("read-only")):
        first += 1
    assert (asked.respond(0, DENSE) == kept).all()


def test_a_repeated_query_waits_for_the_answer_in_progress() -> None:
    """As after a lost connection: both get the same bytes, no refusal, at one price."""
    begun, go_on = Event(), Event()
    shard = Shard(ROWS, 4.0)

    class Slow:
        def check(self, job: JobSpec) -> None:
            shard.check(job)

        def evaluate(self, query: RowQuery) -> Integers:
            begun.set()
            assert go_on.wait(20)
            return shard.evaluate(query)

    asked = responder(shard=Slow())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(asked.respond, 0, DENSE)
        assert begun.wait(20)
        second = pool.submit(asked.respond, 0, DENSE)
        go_on.set()
        assert (first.result(20) == second.result(20)).all()


def test_t31_asking_providers_different_queries_costs_each_the_same() -> None:
    """Each provider's answers are private by themselves, so different queries to different providers gain nothing."""
    standings = []
    for seed in range(3):
        ledger = MemoryLedger()
        responder(ledger=ledger).respond(0, CovarianceProduct(basis(seed, DIMENSION)))
        standings.append(ledger.standing(spec().digest()))
    assert standings[0] == standings[1] == standings[2]


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_t18_one_person_s_rows_change_an_answer_by_at_most_its_sensitivity(rows: int) -> None:
    """The bound is nearly reached: as many equal rows, in the span of the basis, are replaced by others."""
    job = spec(rows_per_person=rows)
    step = catalogue.plan(job)[1]
    first, second = (np.vstack([np.zeros((5, DIMENSION)), np.tile(4.0 * row, (rows, 1))]) for row in SPARSE.basis.T)
    some, others = (Shard(check_rows(table), 4.0).evaluate(SPARSE) for table in (first, second))
    assert step.event is not None
    moved = float(np.linalg.norm((some - others).astype(float)))
    assert 0.999 * step.event.sensitivity < moved <= step.event.sensitivity
