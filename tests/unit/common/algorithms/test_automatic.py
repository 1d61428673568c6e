"""The automatic method finds what there is, sparse or dense, and stays within its plan whatever the rows are."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts, names_facts

from dpspca.client import decisions, findings
from dpspca.client.reports import report
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import automatic, catalogue
from dpspca.common.algorithms.stages import wide_release
from dpspca.common.algorithms.stages.view_steps import (
    LEAST_KEPT,
    ReleasedFacts,
    kept_part,
    longest,
    part_left,
    quantile,
)
from dpspca.common.algorithms.steps.free_structure import first_guess
from dpspca.common.algorithms.steps.released_matrix import MAX_MATRIX_COLUMNS
from dpspca.common.errors import CorruptModelError, InvalidParameterError, InvalidTypeError
from dpspca.common.job import PRIVATE_BOUND, Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import BINS, LARGEST_RANGE, MAX_AXES
from dpspca.common.results import Model, ReleasePath

REPLACE = PrivacyUnit.ROW_REPLACE_ONE


def fit(
    rows: np.ndarray, components: int = 2, parties: int = 1, bound: float = 30.0, noise: int = 1, **changes: object
) -> Model:
    plain = {"budget": Budget(1.0, 1e-6), "unit": REPLACE, "method": "auto"} | changes
    spec = JobSpec(schema=Schema(rows.shape[1]), norm_bound=bound, components=components, **plain)  # type: ignore[arg-type]
    return simulate(np.array_split(rows, parties), spec, noise_seed=noise)


def spiked(n: int, d: int, support: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make rows with two strong directions on the first columns; return them and the directions."""
    rng = np.random.default_rng(seed)
    axes = np.zeros((d, 2))
    axes[:support] = np.linalg.qr(rng.standard_normal((support, 2)))[0]
    return rng.standard_normal((n, d)) + rng.standard_normal((n, 2)) * [7, 5] @ axes.T, axes


def error(model: Model, axes: np.ndarray) -> float:
    return float(np.linalg.norm(axes - model.components.T @ (model.components @ axes)))


def beside_the_mean(model: Model) -> list[str]:
    """Return the warnings but the one that rows are not centred."""
    return [warning for warning in model.statement.warnings if "not centred" not in warning]


@pytest.mark.slow
@pytest.mark.parametrize("d", [40, 300])
@pytest.mark.parametrize("parties", [1, 3])
def test_a_small_support_is_found_at_no_cost(d: int, parties: int) -> None:
    rows, axes = spiked(40_000, d, 8)
    model = fit(rows, parties=parties)
    assert set(range(8)) <= set(model.support)
    assert len(model.support) <= 9  # a tenth of a column is kept by mistake, on average
    assert error(model, axes) < 0.05
    assert model.explained_variance is not None
    np.testing.assert_allclose(model.explained_variance, [50, 26], rtol=0.2)


@pytest.mark.parametrize("method", ["auto", "analyze-gauss"])
def test_nothing_but_noise_has_no_sparse_structure(method: str) -> None:
    """The best of many small sets of columns always looks better than one. Noise is the same in every run.

    One or two of 100 runs take noise for a structure. At that rate, more than 3 of 20 have a probability of 6e-4.
    """
    rows = np.random.default_rng(0).standard_normal((5000, 50))
    sparse = {"options": {"sparsity": "auto"}} if method != "auto" else {}
    supports = [len(fit(rows, 1, bound=10.0, noise=noise, method=method, **sparse).support) for noise in range(20)]
    assert sum(support < 50 for support in supports) <= 3


def test_a_weak_dense_component_is_not_cut_to_its_largest_loadings() -> None:
    rng = np.random.default_rng(3)
    axis = np.linalg.qr(rng.standard_normal((50, 1)))[0]
    rows = rng.standard_normal((5000, 50)) + rng.standard_normal((5000, 1)) @ axis.T
    for epsilon in (0.9, 1.0, 1.1):
        model = fit(rows, 1, bound=10.0, budget=Budget(epsilon, 1e-6))
        assert len(model.support) == 50
        assert error(model, axis) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("d", [40, 150])
def test_dense_components_stay_dense(d: int) -> None:
    rows, axes = spiked(40_000, d, d)
    model = fit(rows)
    assert len(model.support) == d
    assert error(model, axes) < 0.15


def test_a_norm_bound_a_hundred_times_too_large_does_no_harm() -> None:
    rows, axes = spiked(20_000, 40, 40)
    assert error(fit(rows, bound=3000.0), axes) < 1.2 * error(fit(rows, bound=30.0), axes) + 0.02


def test_a_norm_bound_ten_thousand_times_too_large_is_warned_of() -> None:
    rows, _ = spiked(20_000, 20, 20)
    for bound, loose in ((30.0, False), (300_000.0, True)):
        model = fit(rows, bound=bound, budget=Budget(48.0, 0.5))
        assert any(names_facts(warning, 'norm_bound = "private"') for warning in model.statement.warnings) == loose


@pytest.mark.parametrize("d", [30, 130])
def test_a_given_sparsity_limits_the_support(d: int) -> None:
    rows, _ = spiked(20_000, d, d)
    assert len(fit(rows, options={"sparsity": 5}).support) == 5


@pytest.mark.parametrize(
    "rows", [np.zeros((50, 130)), np.full((50, 130), 1e9), np.eye(130)], ids=["zero", "huge", "few"]
)
@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if unit in catalogue.find("auto").units])
def test_any_rows_end_in_a_model(rows: np.ndarray, unit: PrivacyUnit) -> None:
    persons = [list(range(len(rows)))] if unit.is_person else None
    spec = JobSpec(schema=Schema(130), norm_bound=1.0, components=3, budget=Budget(0.1, 1e-6), unit=unit, method="auto")
    model = simulate([rows], spec, noise_seed=2, persons=persons)
    assert np.allclose(model.components @ model.components.T, np.eye(3))


@pytest.mark.nightly
def test_with_many_columns_pairs_find_what_no_sum_shows() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((20_000, 1600))
    rows[:, :10] = 0.6 * rows[:, :10] + 0.8 * rng.standard_normal((20_000, 1))
    model = fit(rows, components=1, bound=200.0)
    assert set(model.support) >= set(range(10))
    assert len(model.support) <= 12  # a fifth of a column is kept by mistake, on average
    assert len(fit(rows[:2000], components=1, bound=200.0, options={"sparsity": 4}).support) == 4


@pytest.mark.nightly
def test_many_dense_columns_end_in_dense_components() -> None:
    rows, axes = spiked(5000, 1600, 1600)
    model = fit(rows * 1.0 + rows @ axes @ axes.T, bound=200.0, budget=Budget(8.0, 1e-6))
    assert model.decision is not None
    assert model.decision.path is ReleasePath.DENSE
    assert error(model, axes) < 0.5


def test_for_most_of_the_columns_at_most_two_releases_are_planned() -> None:
    """One release, where components leave no other directions or are more than the axes of a view."""
    last = ["norms along components", "scaled release"]
    for dimension, components, again in ((101, 34, last), (1000, 257, []), (20, 20, []), (20, 19, last)):
        spec = JobSpec(
            schema=Schema(dimension), norm_bound=1.0, components=components, budget=Budget(1, 1e-6), unit=REPLACE
        )
        about_scores = ["lengths of scores", "explained variance"] if components <= MAX_AXES else []
        names = [step.name for step in catalogue.plan(spec)]
        assert names == ["count", "norms", "whole matrix", *again, *about_scores]


@pytest.mark.parametrize(("rows", "blind"), [(40_000, False), (60, True)])
def test_a_model_says_that_it_was_blind(rows: int, blind: bool) -> None:
    model = fit(spiked(rows, 40, 40)[0])
    assert model.decision is not None
    assert model.decision.visible == (0 if blind else 2)
    assert names_facts(decisions.decision_of(model), "all releases") == blind


def test_what_auto_does_not_offer_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("rounds")):
        fit(np.ones((10, 5)), options={"rounds": 3})


@pytest.mark.parametrize(
    ("counts", "keep", "expected"),
    [
        ([100.0, 0, 0, 0, 0], 0.95, 1.0),
        ([0.0, 0, 100, 0, 0], 0.5, 2 ** (-0.75)),
        ([0.0, 10, 0, 90, 0], 0.95, 2 ** (-0.25)),
        ([0.0, 0, 0, 0, 0], 0.95, 1.0),
    ],
)
def test_a_quantile_is_read_off_a_histogram_from_above(counts: list[float], keep: float, expected: float) -> None:
    assert quantile(np.array(counts), 1.0, 100.0, keep) == pytest.approx(expected)


# --- What was decided -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "support", "path"),
    [
        (40, 40, ReleasePath.WHOLE),
        (40, 6, ReleasePath.WHOLE),
        (150, 8, ReleasePath.SPARSE),
        (150, 150, ReleasePath.DENSE),
    ],
)
def test_the_model_and_the_statement_say_what_was_decided(d: int, support: int, path: ReleasePath) -> None:
    model = fit(spiked(40_000, d, support)[0])
    assert model.decision is not None
    assert (model.decision.path, model.decision.columns) == (path, len(model.support))
    told = decisions.decision_of(model)
    assert f"How the budget was spent: {told}" in model.statement.text
    assert str(d) in told
    assert Model.from_bytes(model.to_bytes()).decision == model.decision
    assert json.loads(json.dumps(report.to_dict(model)))["decision"] == model.decision.to_dict() | {"text": told}


def test_other_methods_decide_nothing() -> None:
    model = fit(spiked(500, 10, 10)[0], method="analyze-gauss")
    assert model.decision is None
    assert decisions.decision_of(model) == model.statement.decision == ""
    assert report.to_dict(model)["decision"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "elsewhere"},
        {"columns": -1},
        {"columns": "many"},
        {"outstanding": 0.5},
        {"held": "all"},
        {"visible": -1},
    ],
)
def test_a_decision_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    model = fit(spiked(500, 10, 10)[0])
    header, _, body = model.to_bytes().partition(b"\n")
    spoiled = json.loads(header)
    spoiled["decision"] |= wrong
    with pytest.raises(CorruptModelError):
        Model.from_bytes(json.dumps(spoiled).encode() + b"\n" + body)


def test_too_few_rows_for_the_budget_are_warned_of() -> None:
    rows, _ = spiked(60, 30, 30)
    assert any("too few rows" in warning for warning in fit(rows).statement.warnings)
    rows, _ = spiked(40_000, 30, 30)
    assert beside_the_mean(fit(rows)) == []


def test_a_table_too_wide_for_a_matrix_is_planned_without_one() -> None:
    spec = JobSpec(
        schema=Schema(MAX_MATRIX_COLUMNS + 1), norm_bound=30.0, components=2, budget=Budget(1, 1e-6), unit=REPLACE
    )
    assert all(math.prod(step.shape) <= 1000**2 for step in catalogue.plan(spec))
    with pytest.raises(InvalidParameterError, match=facts(MAX_MATRIX_COLUMNS + 1, 256, 257)):
        catalogue.plan(replace(spec, components=257))


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("bound", [30.0, PRIVATE_BOUND])
def test_a_wide_table_gets_sparse_components_by_the_default(bound: float, *, sparse: bool) -> None:
    d = MAX_MATRIX_COLUMNS + 1
    rng = np.random.default_rng(3)
    rows = scipy.sparse.random_array((1500, d), density=0.001, rng=rng).tolil()
    rows[:, 5:9] = rng.standard_normal((1500, 1)) @ np.full((1, 4), 5.0)
    table = rows.tocsr() if sparse else rows.toarray()
    spec = JobSpec(schema=Schema(d), norm_bound=bound, components=1, budget=Budget(4, 1e-6), unit=REPLACE)
    model = simulate([table], spec, noise_seed=1)
    assert model.decision is not None
    assert (model.decision.path, model.decision.visible) == (ReleasePath.WIDE, 1)
    assert set(model.support) >= {5, 6, 7, 8}
    assert len(model.support) <= 6
    assert names_facts(decisions.decision_of(model), f"{d} columns")
    assert beside_the_mean(model) == []


@pytest.mark.slow
@pytest.mark.parametrize("bound", [60.0, 6000.0, PRIVATE_BOUND])
def test_a_wide_table_gets_dense_components_from_products(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that counts as wide, so that the test is quick. The columns of largest variance are few of all."""
    monkeypatch.setattr(automatic, "MAX_MATRIX_COLUMNS", 500)
    monkeypatch.setattr(wide_release, "WIDE_COLUMNS", 300)
    monkeypatch.setattr(wide_release, "MOST_CANDIDATES", 100)
    rows, axes = spiked(5000, 600, 600)
    model = fit(rows + 2 * rows @ axes @ axes.T, bound=bound, budget=Budget(8, 1e-6))
    assert model.decision is not None
    assert (model.decision.path, model.decision.columns, model.decision.visible) == (ReleasePath.PRODUCTS, 600, 2)
    assert error(model, axes) < 0.15
    assert model.decision.held is not None
    assert names_facts(decisions.decision_of(model), "600 columns", f"{model.decision.held:.0%}")
    assert model.explained_variance is not None
    np.testing.assert_allclose(model.explained_variance, [450, 234], rtol=0.3)
    limited = fit(rows + 2 * rows @ axes @ axes.T, bound=bound, budget=Budget(8, 1e-6), options={"sparsity": 9})
    assert len(limited.support) == 9


def test_without_the_largest_matrix_answers_are_small_and_find_the_same() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6000, 1200))
    rows[:, 7:13] = 4 * rng.standard_normal((6000, 1)) + rng.standard_normal((6000, 6))
    model = fit(rows, components=1, budget=Budget(4, 1e-6), bound=60.0, options={"matrix": False})
    assert model.decision is not None
    assert model.decision.path is ReleasePath.WIDE
    assert set(model.support) == {*range(7, 13)}
    given = {"norm_bound": 30.0, "components": 2, "budget": Budget(1, 1e-6), "unit": REPLACE}
    large = JobSpec(schema=Schema(8000), **given)
    small = replace(large, options={"matrix": False})
    assert catalogue.plan(small).answer_bytes < catalogue.plan(large).answer_bytes / 50
    with pytest.raises(InvalidParameterError, match=facts("matrix", 1000)):
        catalogue.plan(replace(large, schema=Schema(1000), options={"matrix": False}))
    with pytest.raises(InvalidTypeError, match=facts("matrix", "no")):
        catalogue.plan(replace(large, options={"matrix": "no"}))


def test_in_a_wide_table_pairs_show_what_unequal_variances_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variances name a hundred columns that take no part, and their block shows little; pairs name those that do.

    They are looked for among fewer than half of the columns.
    """
    monkeypatch.setattr(wide_release, "PAIRED_COLUMNS", 900)
    rng = np.random.default_rng(0)
    variances, axes = np.exp(0.6 * rng.standard_normal(2000)), np.zeros((2000, 2))
    variances[:12] = variances[:12].mean()
    axes[:12] = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    rows = rng.standard_normal((4000, 2000)) * np.sqrt(variances)
    rows += rng.standard_normal((4000, 2)) * np.sqrt([12, 10]) @ axes.T
    models = [fit(rows, bound=70.0, noise=noise, options={"matrix": False}) for noise in (1, 2, 3)]
    assert max(error(model, axes) for model in models) < 0.35
    for model in models:
        assert model.decision is not None
        assert (model.decision.path, model.decision.visible) == (ReleasePath.WIDE, 2)


@pytest.mark.slow
def test_of_a_wide_table_columns_beyond_the_block_join_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the columns have small variance, so that only the product shows that they take part."""
    monkeypatch.setattr(automatic, "MAX_MATRIX_COLUMNS", 500)
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((20_000, 700)) * np.linspace(1, 1.3, 700)[::-1]
    rows[:, 680:690] = rng.standard_normal((20_000, 1)) + 0.4 * rng.standard_normal((20_000, 10))
    rows[:, 0:10] = 3 * rows[:, [680]] + rng.standard_normal((20_000, 10))
    model = fit(rows, components=1, budget=Budget(4, 1e-6), bound=60.0)
    assert model.decision is not None
    assert model.decision.path is ReleasePath.WIDE
    assert set(model.support) >= {*range(10), *range(680, 690)}


# --- The same for a matrix that was released whole


@pytest.mark.parametrize("method", ["analyze-gauss", "mod-sulq", "sulq"])
@pytest.mark.parametrize("explained", [True, False])
def test_a_released_matrix_gives_sparse_components_at_no_cost(method: str, *, explained: bool) -> None:
    rows, axes = spiked(40_000, 60, 6)
    plain = fit(rows, method=method, explained_variance=explained)
    sparse = fit(rows, method=method, explained_variance=explained, options={"sparsity": "auto"})
    assert set(sparse.support) >= set(range(6))
    assert len(sparse.support) <= 8
    assert len(plain.support) == 60
    assert error(sparse, axes) < error(plain, axes)
    assert sparse.statement.mu <= plain.statement.mu * (1 + 1e-9)
    limited = fit(rows, method=method, explained_variance=explained, options={"sparsity": 4})
    assert len(limited.support) == 4


@pytest.mark.parametrize("sparsity", ["all", 1, 61, 2.5, True])
@pytest.mark.parametrize("method", ["auto", "analyze-gauss"])
def test_a_sparsity_that_is_none_is_refused(method: str, sparsity: object) -> None:
    spec = JobSpec(schema=Schema(60), norm_bound=1.0, components=2, budget=Budget(1, 1e-6), unit=REPLACE, method=method)
    with pytest.raises((InvalidParameterError, InvalidTypeError), match=facts("sparsity")):
        catalogue.plan(replace(spec, options={"sparsity": sparsity}))  # type: ignore[dict-item]


# --- A bound that nobody knows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("d", [40, 150])
def test_a_private_bound_is_as_good_as_a_known_one_whatever_the_units(d: int, scale: float) -> None:
    rows, axes = spiked(20_000, d, 8)
    model, known = fit(rows * scale, bound=PRIVATE_BOUND), fit(rows, bound=20.0)
    assert error(model, axes) < 1.5 * error(known, axes) + 0.01
    assert model.explained_variance is not None
    assert known.explained_variance is not None
    np.testing.assert_allclose(model.explained_variance / scale**2, known.explained_variance, rtol=0.3)
    assert "found privately" in model.statement.text
    assert model.statement.to_dict()["norm_bound_is_private"] is True
    assert model.statement.mu <= known.statement.mu * (1 + 1e-9)


@pytest.mark.parametrize("rows", [np.zeros((50, 20)), np.full((50, 20), 1e30), np.eye(20) * 1e-100])
@pytest.mark.parametrize("unit", [REPLACE, PrivacyUnit.ROW_ADD_REMOVE])
def test_a_private_bound_ends_in_a_model_whatever_the_rows_are(rows: np.ndarray, unit: PrivacyUnit) -> None:
    model = fit(rows, bound=PRIVATE_BOUND, unit=unit)
    assert np.allclose(model.components @ model.components.T, np.eye(2))


@pytest.mark.parametrize(
    ("counts", "length"),
    [
        ([0.0, 0, 100, 0], LARGEST_RANGE / 16),
        ([0.0, 1, 99, 0], LARGEST_RANGE / 16),
        ([0.0, 40, 60, 0], LARGEST_RANGE),
        ([100.0, 0, 0, 0], LARGEST_RANGE),
        ([0.0, 0, 0, 0], LARGEST_RANGE),
    ],
)
def test_a_length_is_read_off_a_range_of_norms(counts: list[float], length: float) -> None:
    assert longest(np.array(counts), 0.2, 100.0) == length


def test_only_a_method_that_finds_a_bound_goes_without() -> None:
    with pytest.raises(InvalidParameterError, match=facts("norm_bound", "'private'", "analyze-gauss", "auto")):
        fit(np.ones((10, 5)), bound=PRIVATE_BOUND, method="analyze-gauss")
    text = json.dumps(json.loads(fit_spec().to_json()) | {"norm_bound": "private"})
    assert JobSpec.from_json(text) == replace(fit_spec(), norm_bound=PRIVATE_BOUND)


def fit_spec() -> JobSpec:
    return JobSpec(schema=Schema(5), norm_bound=3.0, components=1, budget=Budget(1, 1e-6), unit=REPLACE)


# --- How many components ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("d", "support"), [(40, 40), (40, 8), (150, 8), (150, 150)])
def test_components_that_show_nothing_are_left_out_on_request(d: int, support: int) -> None:
    rows, axes = spiked(40_000, d, support)
    model = fit(rows, components=6, options={"fewer": True})
    assert len(model.components) == 2
    assert error(model, axes) < 0.2
    assert model.decision is not None
    assert (model.decision.asked, model.decision.useful) == (6, 2)
    assert model.decision.clear is not None
    other = replace(model.decision, asked=666, clear=555, useful=444)
    assert names_facts(decisions.decision_of(replace(model, decision=other)), 666, 555, 444, "model has 2")
    earlier = replace(model, decision=replace(other, clear=None))
    assert names_facts(decisions.decision_of(earlier), 666, 444, "model has 2")
    assert len(fit(rows, components=6).components) == 6
    assert Model.from_bytes(model.to_bytes()).decision == model.decision


def test_a_component_that_explains_little_is_left_out_with_that_reason() -> None:
    """Two strong directions, and one below an average column that many rows still show."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((60_000, 20)) * np.r_[6.0, 5.0, 1.5, np.full(17, 0.2)]
    model = fit(rows, bound=20.0, components=3, options={"fewer": True}, budget=Budget(8.0, 1e-6))
    assert model.decision is not None
    assert (model.decision.asked, model.decision.clear, model.decision.useful) == (3, 3, 2)
    assert names_facts(decisions.decision_of(model), 3, 2, "average column")


def test_one_component_is_kept_where_none_shows() -> None:
    model = fit(np.random.default_rng(1).standard_normal((100, 20)), components=3, options={"fewer": True})
    assert len(model.components) == 1
    assert model.decision is not None
    assert model.decision.useful == 0
    assert names_facts(decisions.decision_of(model), "model has 1", "at least")


def test_whether_to_leave_out_components_is_true_or_false() -> None:
    with pytest.raises(InvalidTypeError, match=facts("fewer", "'many'")):
        fit(np.ones((10, 5)), options={"fewer": "many"})


def test_columns_that_sums_missed_are_found_by_choices() -> None:
    """Thirty columns of slightly larger variance, in few rows: the whole matrix shows about twenty-five of them."""
    rows, axes = spiked(5000, 400, 30, seed=4)
    model = fit(rows, bound=25.0)
    assert len(set(range(30)) - set(model.support)) <= 3
    assert error(model, axes) < 0.12


def test_where_nothing_shows_all_columns_stay() -> None:
    model = fit(np.random.default_rng(5).standard_normal((200, 150)), budget=Budget(0.1, 1e-6))
    assert model.decision is not None
    assert (model.decision.path, model.decision.visible) == (ReleasePath.DENSE, 0)


# --- Where noise rules ------------------------------------------------------------------------------------------------


def bent(rows: int, seed: int, columns: int = 40) -> np.ndarray:
    """Rows of very different lengths, most of which are short, along two directions more than along others."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((rows, columns))
    table[:, :2] *= 4.0
    return table * rng.lognormal(0, 1, (rows, 1))


@pytest.mark.parametrize("rows", [1500, 6000])
def test_where_noise_rules_short_rows_count_as_much_as_long_ones(rows: int) -> None:
    """With 1,500 rows noise hides even their lengths. A row clipped at the 95 % quantile is mostly far from it."""
    errors = []
    for seed in range(3):
        table = bent(rows, seed)
        bound = float(np.quantile(np.linalg.norm(table, axis=1), 0.95))
        own, other = (
            error(fit(table, bound=bound, budget=Budget(0.3, 1e-6), method=method), np.eye(40)[:, :2])
            for method in ("auto", "analyze-gauss")
        )
        errors.append([own, other])
    own_error, other_error = np.median(errors, axis=0)
    assert own_error < 0.6 * other_error


def test_clipping_hard_leaves_the_scale_of_variances() -> None:
    """At epsilon .3 nearly all of 4,000 rows are clipped, and what that takes off is put back."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((4000, 60)) * np.r_[6.0, np.ones(59)] * rng.uniform(0.5, 1.5, (4000, 1))
    model = fit(table, components=1, bound=20.0, budget=Budget(0.3, 1e-6))
    asked = replace(fit_spec(), schema=Schema(60), budget=Budget(0.3, 1e-6))
    assert kept_part(ReleasedFacts(asked, None, 4000.0, None), 60) == LEAST_KEPT
    assert model.explained_variance is not None
    expected = float(np.linalg.eigvalsh(table.T @ table / 4000)[-1])
    assert model.explained_variance[0] == pytest.approx(expected, rel=0.5)


def test_the_part_that_clipping_leaves_is_read_off_the_histogram() -> None:
    counts = np.zeros(BINS)
    counts[[1, 9]] = 100.0, 900.0
    places = (np.arange(1000) + 0.5) / 1000 - 0.5
    mean = float(((13 / 12 - places**2) * 2.0**places).mean())  # a parabola over a bin whose neighbours are empty
    long, short = mean * 2.0**-0.5, mean * 2.0**-8.5
    assert part_left(counts, 1.0, 1.0) == 1.0
    assert part_left(counts, 1.0, 2.0**-4) == pytest.approx(
        (100 * 2.0**-8 + 900 * short) / (100 * long + 900 * short), rel=1e-3
    )
    assert part_left(np.ones(BINS), 1.0, 0.5) == 1.0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_without_a_bound_rows_count_alike_where_noise_hides_their_lengths(scale: float) -> None:
    """A range that noise alone made the largest would be off by a power of 16, and the result by chance."""
    for seed in range(3):
        model = fit(bent(600, seed, 10) * scale, components=1, bound=PRIVATE_BOUND, budget=Budget(0.3, 1e-6))
        assert model.decision is not None
        assert model.decision.hidden
        assert np.linalg.norm(model.components[0, :2]) > 0.7
        assert model.explained_variance is not None
        assert 0 <= model.explained_variance[0] <= 1
        assert findings.HIDDEN in model.statement.warnings
        assert Model.from_bytes(model.to_bytes()).decision == model.decision


@pytest.mark.nightly
def test_pairs_find_what_the_noise_of_two_providers_hides_from_sums() -> None:
    """Two blocks of 15 of 1,200 columns of equal variance. Without pairs the error was 1.4."""
    rng = np.random.default_rng(4)
    rows, axes = rng.standard_normal((30_000, 1200)), np.zeros((1200, 2))
    for block in range(2):
        these = slice(15 * block, 15 * (block + 1))
        rows[:, these] = math.sqrt(0.5) * (rows[:, these] + rng.standard_normal((30_000, 1)))
        axes[these, block] = 15**-0.5
    assert error(fit(rows, parties=2, bound=36.0), axes) < 0.1


def test_pruning_starts_with_columns_of_every_component() -> None:
    """Two components of nearly one size, of 15 columns each: the ten largest loadings may be of one alone."""
    vectors = np.zeros((40, 2))
    vectors[:15, 0], vectors[15:30, 1] = 1.01 / np.sqrt(15), 1 / np.sqrt(15)
    mixed = vectors @ np.linalg.qr(np.random.default_rng(0).standard_normal((2, 2)))[0]
    for given in (vectors, mixed):
        start = first_guess(given)
        assert len(start) == 10
        assert 3 <= np.count_nonzero(start < 15) <= 7
