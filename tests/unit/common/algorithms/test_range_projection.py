"""Range finder, pruning, projection: what it costs, what it finds, and what it refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts

from dpspca import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.range_projection import columns_of, whitening
from dpspca.common.algorithms.steps.row_steps import PartiesChangedError
from dpspca.common.errors import (
    DpspcaError,
    InvalidQueryError,
    NoiseTooWideError,
    PlanOverBudgetError,
)
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import row_coherence, subspace_distance
from dpspca.common.plan import events, prices
from dpspca.common.privacy.accountant import Filter, compose, usable_mu
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.directions import directions
from dpspca.common.privacy.events import GaussianEvent
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.sketch import Commit, Peaks, Projection
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.integer_rows import integer_rows
from dpspca.provider.evaluate.moments import DenseRows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.sketches import add_sketch, gram_of, round_sketch
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder
from dpspca.server.jobs.sums import combine


def job(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(40),
        "unit": "row-replace-one",
        "budget": Budget(4.0, 1e-6),
        "norm_bound": 12.0,
        "components": 2,
        "method": "range-projection",
    }
    return JobSpec(**good | changes)


def gaussian(rows: int, dimension: int = 40) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, dimension)) * np.r_[5, 4, np.ones(dimension - 2)]


# --- Price ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [Budget(0.1, 1e-9), Budget(1.0, 1e-6), Budget(8.0, 1e-4), Budget(40.0, 1e-2)])
@pytest.mark.parametrize("explained", [False, True])
def test_the_plan_spends_its_budget_and_no_more_and_ledgers_count_the_same(budget: Budget, explained: bool) -> None:
    steps = catalogue.plan(job(budget=budget, explained_variance=explained))
    cost = events(steps)
    loss = compose(cost)
    assert loss.delta(budget.epsilon) <= budget.delta
    assert loss.mu == pytest.approx(usable_mu(budget.epsilon, budget.delta), rel=1e-6)
    Filter.for_budget(budget.epsilon, budget.delta).admit(cost)
    *_, last = prices(steps)
    assert (last.units, last.slack_units) == (cost_units(cost), slack_units(cost))


def test_what_is_asked_before_and_after_a_release_is_free() -> None:
    steps = {step.name: step.event for step in catalogue.plan(job())}
    assert [name for name, event in steps.items() if event is None] == [
        "count",
        "commitments",
        "largest entries",
        "longest rows",
    ]


def test_the_two_releases_have_equal_shares() -> None:
    sketch, projection = (
        step.event for step in catalogue.plan(job()) if step.name in {"sketch", "projection"} and step.event
    )
    assert isinstance(sketch, GaussianEvent)
    assert isinstance(projection, GaussianEvent)
    assert sketch.mu == pytest.approx(projection.mu, rel=1e-9)


# --- What it finds ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_large_budget_and_many_rows_give_the_true_components() -> None:
    rows = gaussian(200_000)
    model = simulate([rows[:60_000], rows[60_000:]], job(budget=Budget(40.0, 0.5)), noise_seed=3)
    assert subspace_distance(np.eye(40)[:, :2], model.components.T) < 0.1
    assert model.explained_variance is not None
    np.testing.assert_allclose(model.explained_variance, [25, 16], rtol=0.1)


@pytest.mark.slow
def test_more_rows_help() -> None:
    truth = np.eye(40)[:, :2]
    errors = [
        np.mean([subspace_distance(truth, simulate([gaussian(n)], job(), noise_seed=s).components.T) for s in range(3)])
        for n in (2_000, 100_000)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_sparse_and_dense_rows_give_the_same_model_to_the_last_bit() -> None:
    rows = scipy.sparse.random_array((900, 40), density=0.2, rng=np.random.default_rng(1), format="csr")
    dense = simulate([rows.toarray()], job(), noise_seed=3)
    sparse = simulate([rows], job(), noise_seed=3)
    assert dense.components.tobytes() == sparse.components.tobytes()


def test_without_noise_a_sketch_catches_what_theorem_3_1_says() -> None:
    """E ||M - W W^T M||^2 <= (1 + k/(p - k - 1)) sum of the squares left (Halko, Martinsson & Tropp, Theorem 10.5).

    The mean of 30 draws, all of them from fixed keys; a factor of 1.1 is left for chance and for the grids.
    """
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((400, 30)) * np.r_[6, 5, 4, np.linspace(1, 0.5, 27)]
    whole = integer_rows(rows, 30.0)
    exact = whole * (30.0 / 2**17)
    left = np.square(np.linalg.svd(exact, compute_uv=False))[3:].sum()
    missed = []
    for key in range(30):
        noisy = np.zeros((400, 9), dtype=np.int64)
        add_sketch(noisy, DenseRows(whole), directions(bytes([key]) * 32, 30, 9))
        kept = round_sketch(noisy, 1.0)
        basis = kept @ whitening(gram_of(kept).astype(float))
        np.testing.assert_allclose(basis.T @ basis, np.eye(9), atol=1e-9)
        missed.append(np.square(exact - basis @ (basis.T @ exact)).sum())
    assert left <= np.mean(missed) <= (1 + 3 / (9 - 3 - 1)) * left * 1.1


def ratings(times: float) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Make up ratings of 60 films by 20,000 people, most of them blank; twenty people's count so many times as much.

    Two tastes divide the people, and what is left is chance: the two leading directions are given as well.
    """
    rng = np.random.default_rng(0)
    films = np.zeros((60, 2))
    films[:20, 0] = films[20:40, 1] = 1
    seen = rng.random((20_000, 60)) < np.where(np.arange(60) < 40, 0.25, 0.12)
    liked = 1.6 * rng.choice([-1.0, 1.0], (20_000, 2)) @ films.T + 0.7 * rng.standard_normal((20_000, 60))
    rated = np.where(seen, np.clip(np.rint(liked), -2, 2), 0.0)
    rated[:20] *= times
    _, axes = np.linalg.eigh(rated.T @ rated)
    return scipy.sparse.csr_array(rated), axes[:, -2:]


@pytest.mark.slow
def test_the_less_coherent_ratings_are_the_smaller_is_the_error() -> None:
    """The paper's claim for matrices like Netflix's, at a bound that is the longest row's; means of four seeds.

    C-coherence is how many times as long as usual the longest row is. The error is at most sqrt(2).
    """
    coherences, errors = [], []
    for times in (1.0, 2.0, 6.0):
        rated, truth = ratings(times)
        longest = float(np.sqrt(rated.multiply(rated).sum(axis=1).max()))
        what = job(schema=Schema(60), norm_bound=longest, budget=Budget(20.0, 1e-6), explained_variance=False)
        found = [simulate([rated], what, noise_seed=seed).components.T for seed in range(4)]
        errors.append(float(np.mean([subspace_distance(truth, each) for each in found])))
        coherences.append(row_coherence(rated))
    assert coherences == sorted(coherences)
    assert errors == sorted(errors)
    assert errors[0] < 0.6
    assert errors[-1] > 1.0


def test_pruning_bounds_the_noise_of_every_row_that_is_projected() -> None:
    """The paper's Lemma 5.4: entries above the cut go, and alpha, by which noise on a row is multiplied, with them."""

    def alpha(cut: float) -> np.ndarray:
        asked = asking(job(budget=Budget(40.0, 0.5), options={"cut": cut}, explained_variance=False), gaussian(5_000))
        looked, projected = asked[3], asked[-1]
        assert isinstance(looked, Peaks)
        assert isinstance(projected, Projection)
        return cut * np.linalg.norm(looked.map, axis=0) / np.linalg.norm(projected.map, axis=0)

    plain, pruned = alpha(1.0), alpha(0.03)
    assert pruned.max() <= 0.03
    assert 0.04 < plain.min() < plain.max() < 0.1


def asking(what: JobSpec, rows: np.ndarray) -> list[RowQuery]:
    """List what the method asks of one provider."""
    asked: list[RowQuery] = []
    responder = Responder(
        catalogue.plan(what), Shard(check_rows(rows), what.norm_bound), MemoryLedger(), repeatable_entropy(0)
    )
    plan = catalogue.plan(what)

    def ask(query: RowQuery) -> Aggregate:
        step = plan[len(asked)].fit_to(query, what.unit)
        answer = responder.respond(len(asked), query)
        asked.append(query)
        return combine(what, step, [answer])

    drive(catalogue.run(catalogue.plan(what)), ask)
    return asked


@pytest.mark.parametrize("rows", [np.zeros((50, 40)), np.ones((50, 40)), np.eye(40)[:2]])
def test_rows_of_too_low_a_rank_give_a_model_all_the_same(rows: np.ndarray) -> None:
    for budget in (Budget(1.0, 1e-6), Budget(40.0, 0.5)):
        model = simulate([rows], job(budget=budget), noise_seed=1)
        np.testing.assert_allclose(model.components @ model.components.T, np.eye(2), atol=1e-9)


def test_directions_in_which_a_sketch_has_no_length_are_left_out() -> None:
    tall = np.random.default_rng(3).standard_normal((60, 2)) @ np.random.default_rng(4).standard_normal((2, 5))
    basis = tall @ whitening(tall.T @ tall)
    np.testing.assert_allclose(basis.T @ basis, np.diag([0, 0, 0, 1, 1]), atol=1e-6)
    assert not whitening(np.zeros((4, 4))).any()


# --- Who has to stay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", range(1, 6))
def test_a_provider_that_leaves_before_the_projection_ends_the_job(leaves: int) -> None:
    what = job(explained_variance=False)
    plan = catalogue.plan(what)
    shards = [Shard(check_rows(part), what.norm_bound) for part in np.array_split(gaussian(90), 3)]
    responders = [
        Responder(catalogue.plan(what), shard, MemoryLedger(), repeatable_entropy(seat), seat=seat)
        for seat, shard in enumerate(shards)
    ]
    position = 0

    def ask(query: RowQuery) -> Aggregate:
        nonlocal position
        staying = responders[: 2 if position >= leaves else 3]
        answers = [responder.respond(position, query) for responder in staying]
        aggregate = combine(what, plan[position].fit_to(query, what.unit), answers)
        position += 1
        return aggregate

    with pytest.raises(PartiesChangedError):
        drive(catalogue.run(catalogue.plan(what)), ask)
    assert position == leaves + 1


def test_a_list_that_does_not_add_up_ends_the_job() -> None:
    def ask(query: RowQuery) -> Aggregate:
        assert isinstance(query, Commit)
        return Aggregate(np.full(Commit.answer_shape(query.extent), 2.0**33), 0.0, 2)

    with pytest.raises(InvalidQueryError, match=facts("32-bit")):
        drive(catalogue.run(catalogue.plan(job(explained_variance=False))), ask)


# --- What it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unit": "row-add-remove"}, ("range-projection", "row-add-remove", "row-replace-one")),
        ({"unit": "person-add-remove"}, ("range-projection", "person-add-remove", "row-replace-one")),
        ({"unit": "person-replace-one", "rows_per_person": 2}, ("range-projection", "rows_per_person", 2)),
        ({"unit": "entry"}, ("row-replace-one", "person-replace-one", "entry", "noisy-power")),
        ({"accounting": Accounting.PUBLISHED}, "published"),
        ({"centering": Centering.PRIVATE, "mean_bound": 1.0}, ("centering", "private", "none")),
        ({"centering": Centering.PUBLIC, "public_mean": (0.0,) * 40}, ("centering", "public", "none")),
        ({"options": {"oversampling": -1}}, "oversampling"),
        ({"options": {"oversampling": 39}}, "oversampling"),
        ({"options": {"oversampling": 1.5}}, "oversampling"),
        ({"options": {"oversampling": True}}, "oversampling"),
        ({"options": {"cut": 0.0}}, "cut"),
        ({"options": {"cut": 1.01}}, "cut"),
        ({"options": {"cut": "none"}}, "cut"),
        ({"options": {"cut": True}}, "cut"),
        ({"options": {"cut": None}}, "cut"),
        ({"options": {"sparsity": 5}}, ("sparsity", "oversampling", "cut")),
        ({"schema": Schema(300), "components": 257}, ("256 columns", 257)),
        ({"schema": Schema(2**24), "options": {"oversampling": 3}}, ("256 columns", 2**24)),
    ],
)
def test_bad_input_is_refused_by_name(changes: dict[str, Any], why: Any) -> None:
    with pytest.raises(DpspcaError, match=facts(why)):
        catalogue.plan(job(**changes))


def test_a_budget_too_small_for_the_noise_of_a_sketch_is_refused() -> None:
    with pytest.raises(NoiseTooWideError):
        catalogue.plan(job(budget=Budget(1e-7, 1e-15)))


def test_a_budget_in_which_an_unlucky_draw_has_no_room_is_refused() -> None:
    """A chance of 2^-100 costs e^epsilon times as much: at epsilon = 48 more than is kept back of a delta of 1e-6."""
    with pytest.raises(PlanOverBudgetError):
        catalogue.plan(job(budget=Budget(48.0, 1e-6)))


def test_a_sketch_has_sixteen_more_columns_than_components_if_possible() -> None:
    assert columns_of(job()) == 18
    assert columns_of(job(schema=Schema(5))) == 5
    assert columns_of(job(options={"oversampling": 0})) == 2
    assert columns_of(job(schema=Schema(300), components=250)) == 256
    assert columns_of(replace(job(), options={"oversampling": 38})) == 40
