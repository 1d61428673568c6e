"""The private power method keeps its promise, finds what is there, and does not mind a wide incoherent matrix."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts

from dpspca.client.simulation import Progress, simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import basis_coherence, subspace_distance, thin_qr
from dpspca.common.plan import events, prices
from dpspca.common.privacy.accountant import Filter, compose
from dpspca.common.privacy.costs import NOTHING, cost_units, slack_units
from dpspca.common.privacy.units import PrivacyUnit

ENTRY, SPECTRAL, ROWS = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL, PrivacyUnit.ROW_REPLACE_ONE
LARGE = Budget(40.0, 1e-3)


def job(dimension: int = 60, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(dimension),
        "unit": ENTRY,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 1.0,
        "components": 2,
        "method": "noisy-power",
        "options": {"rounds": 6},
    }
    return JobSpec(**good | changes)


def directions(dimension: int, count: int = 2, seed: int = 1) -> np.ndarray:
    """Directions without large entries."""
    return thin_qr(np.random.default_rng(seed).standard_normal((dimension, count)))[0]


def matrix(vectors: np.ndarray, *eigenvalues: float) -> np.ndarray:
    made = vectors @ np.diag(eigenvalues) @ vectors.T
    return (made + made.T) / 2


def shares(whole: np.ndarray, parties: int) -> list[np.ndarray]:
    """Divide a matrix into shares that say nothing of it by themselves."""
    rng, dimension = np.random.default_rng(3), len(whole)
    parts = [part + part.T for part in rng.standard_normal((parties - 1, dimension, dimension))]
    return [*parts, whole - sum(parts)]


# --- The promise ------------------------------------------------------------------------------------------------------

PROMISES = [
    {},
    {"unit": SPECTRAL},
    {"unit": ROWS},
    {"unit": PrivacyUnit.ROW_ADD_REMOVE},
    {"options": {"rounds": 3, "low_rank": True}},
    {"options": {"rounds": 3, "noise": "laplace"}, "budget": Budget(1.0, 1e-30)},
    {"unit": SPECTRAL, "options": {"rounds": 3, "noise": "laplace"}, "budget": Budget(1.0, 1e-30)},
    {"unit": ROWS, "options": {"rounds": 3, "noise": "laplace"}, "budget": Budget(1.0, 1e-30)},
    {"accounting": Accounting.PUBLISHED},
    {"unit": SPECTRAL, "accounting": Accounting.PUBLISHED},
]


@pytest.mark.parametrize("changes", PROMISES)
def test_the_promise_and_the_ledger_s_prices_follow_from_the_events(changes: dict[str, Any]) -> None:
    spec = job(**changes)
    plan = catalogue.plan(spec)
    assert compose(events(plan)).delta(spec.budget.epsilon) <= spec.budget.delta
    last = [NOTHING, *prices(plan)][-1]
    assert (last.units, last.slack_units) == (cost_units(events(plan)), slack_units(events(plan)))


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
def test_exact_accounting_fills_the_budget(unit: PrivacyUnit) -> None:
    spec = job(unit=unit)
    room = Filter.for_budget(spec.budget.epsilon, spec.budget.delta)
    assert room.whole.units * (1 - 1e-9) < catalogue.plan(spec).price.units <= room.whole.units


# --- What it finds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
@pytest.mark.parametrize("options", [{"rounds": 8}, {"rounds": 8, "low_rank": True}, {"rounds": 8, "columns": 2}])
def test_a_large_budget_gives_eigenvectors_with_signed_eigenvalues(unit: PrivacyUnit, options: dict[str, Any]) -> None:
    """Noise of a fixed seed; an error ten times the one seen (5e-4) would fail."""
    vectors = directions(60)
    whole = matrix(vectors, 3000.0, -2000.0)
    for form in (np.array, scipy.sparse.csr_array):
        parts = [form(part) for part in shares(whole, 3)]
        model = simulate(parts, job(unit=unit, budget=LARGE, options=options), noise_seed=1)
        assert subspace_distance(model.components.T, vectors) < 0.02
        assert np.allclose(model.components @ model.components.T, np.eye(2), atol=1e-12)
        assert model.explained_variance is not None
        assert model.explained_variance_std is not None
        assert np.abs(model.explained_variance - [3000.0, -2000.0]).max() < 8 * model.explained_variance_std + 1
        assert model.explained_variance_ratio is None


def test_over_rows_it_finds_their_principal_axes() -> None:
    rng, vectors = np.random.default_rng(0), directions(40)
    rows = rng.standard_normal((4000, 2)) * [5.0, 4.0] @ vectors.T + 0.1 * rng.standard_normal((4000, 40))
    for options in ({"rounds": 6}, {"rounds": 3, "noise": "laplace"}):
        spec = job(40, unit=ROWS, budget=LARGE, norm_bound=20.0, options=options)
        model = simulate(np.array_split(rows, 2), spec, noise_seed=1)
        assert subspace_distance(model.components.T, vectors) < 0.2
        assert model.explained_variance_ratio is not None


def test_the_approximation_of_low_rank_is_as_good_as_the_noise_lets_it_be() -> None:
    """Corollary 4.3: the error in spectral norm is below the next eigenvalue and noise of the order of one product."""
    vectors = directions(80, 3)
    whole = matrix(vectors, 900.0, -700.0, 20.0)
    noise = [0.0]

    def watch(progress: Progress) -> None:
        assert progress.aggregate is not None
        noise.append(progress.aggregate.noise_std)

    spec = job(80, options={"rounds": 6, "low_rank": True})
    model = simulate([whole], spec, noise_seed=4, watch=watch)
    assert model.explained_variance is not None
    approximation = model.components.T * model.explained_variance @ model.components
    assert np.linalg.norm(whole - approximation, 2) < 20 + 4 * math.sqrt(80) * max(noise)


def error(dimension: int, vectors: np.ndarray, seed: int = 1, **changes: Any) -> float:
    model = simulate([matrix(vectors, 4000.0, 3000.0)], job(dimension, **changes), noise_seed=seed)
    return subspace_distance(model.components.T, vectors)


@pytest.mark.nightly
def test_the_error_on_incoherent_matrices_does_not_grow_with_the_dimension() -> None:
    """Theorem 1.4: sqrt(mu log d) where Theorem 1.3 has sqrt(d). From 50 to 800 columns sqrt(d) grows fourfold.

    Means of three runs with seeds of their own, seen .022 and .027; by the unit spectral .060 becomes .245.
    """
    small, large = (
        np.mean([error(dimension, directions(dimension), seed) for seed in range(3)]) for dimension in (50, 800)
    )
    assert large < 2 * small
    wide = np.mean([error(800, directions(800), seed, unit=SPECTRAL) for seed in range(3)])
    assert wide > 5 * large


def test_a_coherent_matrix_takes_the_noise_that_its_axes_need() -> None:
    """The eigenvectors are axes: a step then asks about these, and noise has to hide an entry between them."""
    dimension = 800
    axes = np.eye(dimension, 2)
    assert basis_coherence(axes) > 30 * basis_coherence(directions(dimension))
    assert error(dimension, axes) > 4 * error(dimension, directions(dimension))


# --- The paper's noise ------------------------------------------------------------------------------------------------


def noise_of(spec: JobSpec, whole: np.ndarray) -> tuple[list[float], list[float]]:
    """Give the noise of every answer, and the largest entry of the basis it is about, as worked out from answers."""
    stds, largest = [], []
    basis = [thin_qr(np.random.Generator(np.random.Philox(key=0)).standard_normal((len(whole), 4)))[0]]

    def watch(progress: Progress) -> None:
        assert progress.aggregate is not None
        stds.append(progress.aggregate.noise_std)
        largest.append(float(np.abs(basis[-1]).max()))
        basis.append(thin_qr(progress.aggregate.values)[0])

    simulate([whole], spec, noise_seed=2, watch=watch)
    return stds, largest


@pytest.mark.parametrize("bound", [1.0, 7.0])
def test_published_noise_is_the_paper_s_and_exact_noise_is_less(bound: float) -> None:
    whole = matrix(directions(60), 900.0, 700.0)
    sigma = math.sqrt(4 * 4 * 6 * math.log(1e6))
    for unit in (ENTRY, SPECTRAL):
        spec = job(unit=unit, norm_bound=bound, accounting=Accounting.PUBLISHED)
        published, largest = noise_of(spec, whole)
        expected = [bound * sigma * (size if unit is ENTRY else 1.0) for size in largest]
        assert published == pytest.approx(expected, rel=1e-4)
        exact, _ = noise_of(replace(spec, accounting=Accounting.EXACT), whole)
        assert all(less < more for less, more in zip(exact, published, strict=True))


def test_published_laplace_noise_is_the_paper_s_and_exact_a_tenth_of_it() -> None:
    options, budget = {"rounds": 3, "noise": "laplace"}, Budget(1.0, 1e-30)
    spec = job(unit=SPECTRAL, options=options, budget=budget, accounting=Accounting.PUBLISHED)
    steps = catalogue.plan(spec)
    scale = 10 * 4 * 3 * math.sqrt(60)
    unit_value = steps[0].query.unit_value(1.0)
    assert [each.noise_std * unit_value / math.sqrt(2) for each in steps] == pytest.approx([scale] * 3, rel=1e-4)
    exact = catalogue.plan(replace(spec, accounting=Accounting.EXACT))
    assert exact[0].noise_std == pytest.approx(steps[0].noise_std / 10, rel=1e-4)


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"columns": 1}}, "columns"),
        ({"options": {"columns": 61}}, "columns"),
        ({"options": {"rounds": 0}}, "rounds"),
        ({"options": {"noise": "uniform"}}, "noise"),
        ({"options": {"low_rank": 1}}, "low_rank"),
        ({"options": {"low_rank": True}, "unit": ROWS}, ("low_rank", "row-replace-one")),
        ({"options": {"sparsity": 3}}, ("sparsity", "entry")),
        ({"options": {"sparse": 3}}, ("sparse", "low_rank", "sparsity")),
        ({"centering": Centering.PRIVATE, "mean_bound": 1.0}, ("entry", "centering", "private", "none")),
        ({"accounting": Accounting.PUBLISHED, "unit": ROWS}, ("published", "noisy-power", "row-replace-one")),
        ({"accounting": Accounting.PUBLISHED, "options": {"noise": "laplace"}}, ("published", "noisy-power", "entry")),
        ({"schema": Schema(2**24), "components": 4}, (8, 2**24, 2**26)),
        ({"rows_per_person": 2}, "rows_per_person"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes: dict[str, Any], reason: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts(reason)):
        catalogue.plan(job(**changes))


def test_a_table_that_is_not_square_is_refused_with_its_shard_or_shape() -> None:
    with pytest.raises(DpspcaError, match=facts("59 rows", "60 columns")):
        simulate([np.ones((59, 60))], job(), noise_seed=1)
    with pytest.raises(DpspcaError, match=facts("Shard 2 of 2")):
        simulate([np.ones((60, 60)), np.ones((60, 61))], job(), noise_seed=1)


def test_a_matrix_of_one_column_has_one_component() -> None:
    model = simulate([np.array([[5000.0]])], job(1, components=1), noise_seed=1)
    assert model.components.tolist() == [[1.0]]
    assert model.explained_variance == pytest.approx(5000.0, abs=200)
