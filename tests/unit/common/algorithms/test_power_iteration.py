"""Private power iteration keeps its promise, deflates, and pays for coherence and for nothing else."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.matrices import dilation
from dpspca.client.simulation import Progress, simulate
from dpspca.common.algorithms import catalogue, power_iteration
from dpspca.common.algorithms.power_iteration import IncoherenceError
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import entry_coherence, subspace_distance, thin_qr
from dpspca.common.plan import events, prices
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.costs import NOTHING, cost_units, slack_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model

ENTRY, SPECTRAL, ROWS = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL, PrivacyUnit.ROW_REPLACE_ONE
PUBLISHED = Accounting.PUBLISHED
LARGE = Budget(40.0, 1e-3)


def job(dimension: int = 60, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(dimension),
        "unit": ENTRY,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 1.0,
        "components": 2,
        "method": "power-iteration",
        "options": {"rounds": 6},
    }
    return JobSpec(**good | changes)


def directions(dimension: int, count: int = 2) -> np.ndarray:
    return thin_qr(np.random.default_rng(1).standard_normal((dimension, count)))[0]


def matrix(vectors: np.ndarray, *eigenvalues: float) -> np.ndarray:
    made = vectors @ np.diag(eigenvalues) @ vectors.T
    return (made + made.T) / 2


def watched(whole: Any, spec: JobSpec, seed: int = 1) -> tuple[Model, list[Progress]]:
    seen: list[Progress] = []
    return simulate([whole], spec, noise_seed=seed, watch=seen.append), seen


# --- The promise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unit": SPECTRAL},
        {"unit": ROWS},
        {"unit": PrivacyUnit.ROW_ADD_REMOVE},
        {"explained_variance": False},
        {"options": {"private_rounds": True}},
        {"options": {"rounds": 4, "coherence": 10}},
        {"accounting": PUBLISHED},
        {"accounting": PUBLISHED, "options": {"rounds": 4, "coherence": 10}},
        {"accounting": PUBLISHED, "components": 1},
    ],
)
def test_the_promise_and_the_ledger_s_prices_follow_from_the_events(changes: dict[str, Any]) -> None:
    spec = job(**changes)
    plan = catalogue.plan(spec)
    assert compose(events(plan)).delta(spec.budget.epsilon) <= spec.budget.delta
    last = [NOTHING, *prices(plan)][-1]
    assert (last.units, last.slack_units) == (cost_units(events(plan)), slack_units(events(plan)))


# --- What it finds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
def test_a_large_budget_gives_components_with_signed_eigenvalues(
    unit: PrivacyUnit,
) -> None:
    vectors = directions(60, 3)
    whole = matrix(vectors, 8000.0, -4000.0, 2000.0)
    spec = job(unit=unit, budget=LARGE, components=3, options={"rounds": 10})
    model, seen = watched(whole, spec)
    assert subspace_distance(model.components.T, vectors) < 0.05
    assert np.allclose(model.components @ model.components.T, np.eye(3), atol=1e-12)
    assert model.explained_variance is not None
    assert model.explained_variance_std is not None
    wrong = np.abs(model.explained_variance - [8000.0, -4000.0, 2000.0]).max()
    assert wrong < 8 * model.explained_variance_std + 1
    assert [each.step.name for each in seen] == [each.name for each in catalogue.plan(spec)]


def test_without_eigenvalues_one_query_less_is_asked() -> None:
    whole = matrix(directions(60), 8000.0, 4000.0)
    with_all, without = (job(explained_variance=flag, budget=LARGE) for flag in (True, False))
    assert len(catalogue.plan(with_all)) == len(catalogue.plan(without)) + 1
    model, _ = watched(whole, without)
    assert model.explained_variance is None
    assert subspace_distance(model.components.T, directions(60)) < 0.1


def test_over_rows_it_finds_their_principal_axes() -> None:
    rng, vectors = np.random.default_rng(0), directions(40)
    rows = rng.standard_normal((4000, 2)) * [6.0, 3.0] @ vectors.T + 0.1 * rng.standard_normal((4000, 40))
    model, _ = watched(rows, job(40, unit=ROWS, budget=LARGE, norm_bound=20.0))
    assert subspace_distance(model.components.T, vectors) < 0.2
    assert model.explained_variance_ratio is not None
    assert model.explained_variance_ratio.sum() > 0.9


# --- Coherence --------------------------------------------------------------------------------------------------------


def family(size: int, coherence: int) -> np.ndarray:
    """Section 6's matrices: a database of as many zeros as ones, in size / coherence equal rows."""
    copies, database = size // coherence, np.random.default_rng(5).permutation(np.arange(size) % 2)
    whole = np.zeros((size, size))
    whole[:copies] = database
    return whole


@pytest.mark.parametrize("coherence", [2, 8, 32])
def test_the_matrices_of_section_6_have_the_stated_coherence(coherence: int) -> None:
    whole = family(64, coherence)
    assert np.linalg.norm(whole, 2) == pytest.approx(64 / math.sqrt(2 * coherence))
    assert entry_coherence(whole) == pytest.approx(coherence)


def kept(coherence: int, seed: int) -> float:
    """How much of the largest singular value the vector that was found keeps, at epsilon 1."""
    size = 256
    spec = job(2 * size, components=1, explained_variance=False, options={"rounds": 5})
    model, _ = watched(dilation(family(size, coherence), 0, size), spec, seed)
    vector = model.components[0, size:]
    whole = family(size, coherence)
    return float(np.linalg.norm(whole @ vector) / np.linalg.norm(vector) / np.linalg.norm(whole, 2))


@pytest.mark.slow
def test_a_database_in_many_rows_is_found_and_one_in_few_stays_hidden() -> None:
    """Theorem 4.4 and Theorem 6.1 at one size: the loss grows with sqrt(C), the singular value falls with it.

    Of C = 2 nearly all is kept (.95 seen); of C = 64, where any method that is private must lose a constant part,
    hardly anything (.04), though a vector of ones that nobody had to ask for would keep 0.71.
    """
    assert np.mean([kept(2, seed) for seed in range(3)]) > 0.9
    assert np.mean([kept(64, seed) for seed in range(3)]) < 0.5


def loss(dimension: int, seed: int) -> float:
    """How much of the largest eigenvalue is lost, in units of a change."""
    whole = matrix(directions(dimension, 1), 500.0)
    model, _ = watched(whole, job(dimension, components=1, explained_variance=False), seed)
    return 500.0 - float(np.linalg.norm(whole @ model.components[0]))


@pytest.mark.slow
def test_on_incoherent_matrices_the_loss_does_not_grow_with_the_dimension() -> None:
    """A loss that knows the dimension would grow sixteenfold from 50 to 800 columns: it is quadratic in the noise."""
    small, large = (np.mean([loss(dimension, seed) for seed in range(3)]) for dimension in (50, 800))
    assert large < 4 * small


# --- The paper's noise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("components", [1, 3])
def test_published_noise_is_the_paper_s_and_exact_noise_is_less(components: int) -> None:
    """Figures 2 and 3; each component has its rounds and one product more."""
    bound, coherence, rounds, epsilon, delta = 7.0, 40.0, 4, 1.0, 1e-6
    spec = job(
        norm_bound=bound,
        components=components,
        options={"rounds": rounds, "coherence": coherence},
        accounting=PUBLISHED,
    )
    whole = matrix(directions(60, 3), 80_000.0, 40_000.0, 20_000.0)
    _, seen = watched(whole, spec)
    if components > 1:
        epsilon, delta = epsilon / math.sqrt(4 * components * math.log(1 / delta)), delta / components
    sigma = 2 / epsilon * math.sqrt(4 * (rounds + 1) * math.log(1 / delta))
    stds = [each.aggregate.noise_std for each in seen if each.aggregate]
    assert stds == pytest.approx([bound * sigma * math.sqrt(coherence / 60)] * len(seen), rel=1e-4)
    _, exact = watched(whole, replace(spec, accounting=Accounting.EXACT))
    assert all(each.aggregate and each.aggregate.noise_std < stds[0] for each in exact)


def test_an_iterate_beyond_the_coherence_fails_the_job_and_ends_its_queries() -> None:
    whole = matrix(np.eye(60, 1), 1e6)
    for accounting in Accounting:
        seen: list[Progress] = []
        spec = job(components=1, options={"rounds": 5, "coherence": 20}, accounting=accounting)
        with pytest.raises(IncoherenceError, match=facts("coherence")):
            simulate([whole], spec, noise_seed=1, watch=seen.append)
        assert 0 < len(seen) < 5


def test_the_search_ends_at_the_first_bound_and_the_plan_pays_for_all() -> None:
    spec = job(64, components=1, options={"rounds": 3}, accounting=PUBLISHED, budget=Budget(20.0, 1e-3))
    assert power_iteration.tries_of(spec) == 7
    assert len(catalogue.plan(spec)) == 7 * 3 + 1
    coherent, incoherent = (matrix(vectors, 1e7) for vectors in (np.eye(64, 1), np.full((64, 1), 0.125)))
    _, many = watched(coherent, spec)
    model, few = watched(incoherent, spec)
    assert len(few) < len(many) <= 7 * 3 + 1
    assert few[-1].aggregate is not None
    assert many[-1].aggregate is not None
    assert few[-1].aggregate.noise_std < many[-1].aggregate.noise_std / 2
    assert subspace_distance(model.components.T, np.full((64, 1), 0.125)) < 0.1


@pytest.mark.nightly
def test_a_noisy_sum_chooses_the_rounds_and_the_plan_pays_for_the_most() -> None:
    """4 ln of a sum near 38,000, 100 times C more or less; noise of the sum has deviation 60."""
    whole = matrix(np.full((64, 1), 0.125), 600.0)
    for scale in (1.0, 1e-3):
        spec = job(64, components=1, norm_bound=scale, options={"private_rounds": True})
        model, seen = watched(whole * scale, spec)
        assert len(seen) == 1 + math.ceil(4 * math.log(64 * 600)) + 1
        assert len(catalogue.plan(spec)) == 1 + 64 + 1
        assert subspace_distance(model.components.T, np.full((64, 1), 0.125)) < 0.5


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"rounds": 0}}, "rounds"),
        ({"options": {"coherence": 0.5}}, ("coherence", 0.5)),
        ({"options": {"coherence": 61}}, ("coherence", 61)),
        ({"options": {"coherence": "much"}}, ("coherence", "'much'")),
        ({"options": {"private_rounds": 1}}, ("private_rounds", 1)),
        ({"options": {"private_rounds": True, "rounds": 3}}, ("private_rounds", "rounds")),
        ({"options": {"private_rounds": True}, "accounting": PUBLISHED}, ("private_rounds", "published")),
        ({"options": {"private_rounds": True}, "unit": SPECTRAL}, ("private_rounds", "entry", "spectral")),
        ({"options": {"coherence": 3.0}, "unit": ROWS}, ("coherence", "entry", "row-replace-one")),
        ({"options": {"columns": 3}}, ("columns", "power-iteration", "rounds, coherence, private_rounds")),
        ({"accounting": PUBLISHED, "unit": SPECTRAL}, ("published", "spectral")),
        ({"accounting": PUBLISHED, "unit": ROWS}, ("published", "row-replace-one")),
        ({"centering": Centering.PUBLIC, "public_mean": (0.0,) * 60}, ("entry", "centering", "public", "none")),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes: dict[str, Any], reason: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts(reason)):
        catalogue.plan(job(**changes))


@pytest.mark.parametrize("columns", [100, 1000, 10_000])
def test_a_random_start_has_the_coherence_that_the_option_s_help_says(columns: int) -> None:
    """Seeded, so no run differs from another. The help says: about 2 ln(columns), and room at twice that."""
    generator = np.random.default_rng(columns)
    starts = generator.standard_normal((200, columns))
    coherences = columns * (starts**2).max(axis=1) / (starts**2).sum(axis=1)
    assert 1.5 * np.log(columns) < np.median(coherences) < 2 * np.log(columns)
    assert np.mean(coherences <= 4 * np.log(columns)) == 1
