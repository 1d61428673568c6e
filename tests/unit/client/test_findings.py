"""Warnings about results: the same in Python, in the privacy statement and on the command line, and each only once."""

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from facts import facts, names_facts

import dpspca
from dpspca import DPSPCA, DpspcaWarning, simulate
from dpspca.client import decisions, findings
from dpspca.client.reports import report
from dpspca.common.algorithms import catalogue
from dpspca.common.job import PRIVATE_BOUND, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model

FEW, SHORT, NOISE, DELTA = "too few rows", "Most rows were probably clipped", "Within the noise", "delta of 0.01 is"
BASIS = np.linalg.qr(np.r_[np.random.default_rng(1).standard_normal((10, 2)), np.zeros((50, 2))])[0]
METHODS = ("dps-pca", "analyze-gauss", "mod-sulq", "sulq", "noisy-power", "power-iteration")


def rows(count: int) -> np.ndarray:
    """Return rows of sixty columns with two strong components. A row is rarely longer than 16."""
    rng = np.random.default_rng(2)
    return rng.standard_normal((count, 2)) * np.sqrt([15, 12]) @ BASIS.T + rng.standard_normal((count, 60))


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(60),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 16.0,
        "components": 2,
        "options": {"sparsity": 10},
        "method": "dps-pca",
    }
    return JobSpec(**good | changes)


def fitted(count: int, **changes: Any) -> tuple[Model, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = simulate([rows(count)], spec(**changes), noise_seed=5)
    return model, [each for each in caught if issubclass(each.category, DpspcaWarning)]


@pytest.mark.parametrize(
    ("count", "changes", "said"),
    [
        (40_000, {}, set()),
        (100, {}, {FEW, NOISE}),
        (40_000, {"norm_bound": 4.0}, {SHORT}),
        (40_000, {"budget": Budget(1.0, 1e-2)}, {DELTA}),
        (40_000, {"explained_variance": False}, set()),
    ],
)
def test_each_warning_is_issued_once_and_points_to_the_caller(
    count: int, changes: dict[str, Any], said: set[str]
) -> None:
    model, caught = fitted(count, **changes)
    texts = [str(each.message) for each in caught]
    assert texts == list(model.statement.warnings)
    assert len(texts) == len(said | {findings.UNCENTRED})
    assert all(any(part in text for text in texts) for part in {*said, findings.UNCENTRED})
    assert {each.filename for each in caught} <= {__file__}


@pytest.mark.parametrize("method", METHODS)
def test_too_few_rows_are_warned_of_only_if_components_are_noise(method: str) -> None:
    """The noise is seeded, so the test cannot fail by chance. The largest possible error is 1.41."""
    options = {"sparsity": 10} if method == "dps-pca" else {}
    for count, wrong in ((150, True), (40_000, False)):
        model, caught = fitted(count, method=method, options=options)
        assert (subspace_distance(model.components.T, BASIS) > 1.0) == wrong
        assert any(FEW in str(each.message) for each in caught) == wrong


def test_a_caveat_is_a_warning_and_is_in_the_statement_once() -> None:
    model, caught = fitted(1000, method="ppca", options={"sampler": "gibbs"}, components=1, explained_variance=False)
    assert [str(each.message) for each in caught] == [model.statement.caveat, findings.UNCENTRED]
    assert model.statement.text.count(model.statement.caveat) == 1
    assert model.statement.warnings == (findings.UNCENTRED,)


@pytest.mark.parametrize(
    "changes", [{"centering": "private", "mean_bound": 16.0}, {"centering": "public", "public_mean": (0.0,) * 60}]
)
def test_centred_rows_get_no_warning_that_component_1_may_be_the_mean(changes: dict[str, Any]) -> None:
    assert findings.UNCENTRED not in fitted(1000, **changes)[0].statement.warnings


def test_warnings_are_stored_and_shown_with_the_model() -> None:
    model, _ = fitted(100)
    assert Model.from_bytes(model.to_bytes()).statement == model.statement
    plain = json.loads(json.dumps(model.statement.to_dict()))
    assert plain["warnings"] == list(model.statement.warnings)
    facts = report.to_dict(model)
    assert next(iter(facts.items())) == ("promise", model.statement.headline)
    assert sorted(facts["warnings"]) == sorted(model.statement.warnings)
    for sentence in model.statement.warnings:
        assert report.summary(model).count(sentence) == 1


def test_the_estimator_issues_the_same_warnings() -> None:
    with pytest.warns(DpspcaWarning) as caught:
        pca = DPSPCA(2, sparsity=10, norm_bound=16.0, unit="row-replace-one", random_state=0, epsilon=0.5).fit(
            rows(100)
        )
    assert [str(each.message) for each in caught] == list(pca.privacy_.warnings)
    assert {each.filename for each in caught} == {__file__}
    assert pca.privacy_.to_dict()["warnings"] == list(pca.privacy_.warnings)


def test_a_sparsity_without_effect_gives_one_warning_everywhere() -> None:
    said = "A sparsity of 60 limits nothing: all 60 columns may be in the support."
    of_all = spec(options={"sparsity": 60})
    assert findings.of_job(catalogue.plan(of_all)) == [findings.UNCENTRED, said]
    assert said in simulate([rows(100)], of_all, noise_seed=5).statement.warnings


@pytest.mark.parametrize("used", [1, 4])
def test_a_plan_says_how_many_rows_of_a_person_are_used(used: int) -> None:
    job = spec(unit=PrivacyUnit.PERSON_ADD_REMOVE, rows_per_person=used, centering=Centering.NONE)
    said, uncentred = findings.of_job(catalogue.plan(job))
    assert names_facts(said, f"rows_per_person = {used}")
    assert uncentred == findings.UNCENTRED
    pure = replace(job, unit=PrivacyUnit.ROW_ADD_REMOVE, dictionary="ab" * 32)
    assert not findings.of_job(catalogue.plan(pure))


def test_the_warning_class_is_exported_and_a_user_warning() -> None:
    assert dpspca.DpspcaWarning is DpspcaWarning
    assert issubclass(DpspcaWarning, UserWarning)


def test_a_matrix_gets_no_warning_about_rows() -> None:
    job = spec(method="noisy-power", unit=PrivacyUnit.ENTRY, options={"rounds": 2}, norm_bound=1.0)
    square = rows(60)
    with pytest.warns(DpspcaWarning, match=facts("eigenvalue")):
        model = simulate([square + square.T], job, noise_seed=0)
    assert findings.noise_of_directions(catalogue.plan(job), model) is None


@pytest.mark.parametrize("method", ["analyze-gauss", "auto"])
def test_variances_of_rows_of_zeros_are_within_the_noise(method: str) -> None:
    """They are eigenvalues of a whole matrix of noise, and so many deviations from zero."""
    what = spec(method=method, options={}, norm_bound=1.0)
    model = simulate([np.zeros((5000, 60))], what, noise_seed=5)
    assert model.within_noise.all()
    assert model.blind is (True if method == "auto" else None)
    assert any(NOISE in text for text in model.statement.warnings)


def test_a_hidden_length_is_a_warning_and_not_only_a_remark() -> None:
    line = np.random.default_rng(0).choice([-1e4, 1e4], 100)[:, None] * np.ones(60) / 60**0.5
    model = simulate([line], spec(method="auto", options={}, norm_bound=PRIVATE_BOUND, components=1), noise_seed=5)
    assert model.decision is not None
    assert model.decision.hidden
    assert findings.HIDDEN in model.statement.warnings


def test_components_that_stood_out_nowhere_are_a_warning() -> None:
    noise = np.random.default_rng(0).standard_normal((5000, 60))
    model = simulate([noise], spec(method="auto", options={}, components=3), noise_seed=5)
    assert model.decision is not None
    assert model.decision.visible == 0
    assert any(text.startswith("No component") for text in model.statement.warnings)
    found = simulate([rows(40_000)], spec(method="auto", options={}), noise_seed=5)
    assert not any(text.startswith(("No component", "Only")) for text in found.statement.warnings)


def test_a_variance_in_noise_says_nothing_about_a_clear_component() -> None:
    """Variances are asked for apart, so components may be clear where their variances are not."""
    table = np.random.default_rng(1).standard_normal((20_000, 200))
    table[:, :3] += 2 * np.random.default_rng(2).standard_normal((20_000, 1))
    what = spec(method="auto", options={}, components=1, norm_bound=30.0, schema=Schema(200))
    model = simulate([table], what, noise_seed=5)
    assert model.decision is not None
    assert model.decision.values is not None
    assert model.explained_variance is not None
    assert set(model.support) == {0, 1, 2}
    hidden = replace(model, explained_variance=np.array([0.1]), explained_variance_std=5.0)
    texts = [*findings.of_model(hidden), *findings.of_result(catalogue.plan(what), hidden)]
    said = [text for text in texts if "nothing but noise" in text]
    assert len(said) == 1
    assert "component itself" in said[0]


@pytest.mark.parametrize(("dimension", "path"), [(2000, "staged-sparse"), (9000, "staged-wide")])
def test_pure_noise_is_said_to_be_noise_whichever_columns_were_looked_at(dimension: int, path: str) -> None:
    """The seed is fixed. Some columns always stand out a little, and their block is what the last release shows."""
    noise = np.random.default_rng(0).standard_normal((500, dimension))
    asked = {"schema": Schema(dimension), "norm_bound": 8.0, "components": 3, "options": {"fewer": True}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DpspcaWarning)
        model = simulate([noise], spec(**asked, method="auto"), noise_seed=5)
    assert model.decision is not None
    assert (model.decision.path, model.decision.clear) == (path, 0)
    said = findings.of_model(model)
    assert decisions.NONE_CLEAR in said
    assert not any("answers with less noise" in sentence for sentence in said)
    assert "100%" not in decisions.decision_of(model)
    shows = replace(model, decision=replace(model.decision, clear=1))
    assert decisions.NONE_CLEAR not in findings.of_model(shows)


def test_a_component_that_clipping_shortened_is_said_to_have_other_intervals() -> None:
    """Rows with heavy tails are clipped to find components, and hardly clipped to say what these explain."""
    heavy = np.random.default_rng(0).standard_t(2.2, (20_000, 8)) * np.sqrt([6, 3, 1.5, 0.8, 0.4, 0.3, 0.2, 0.1])
    asked = {"schema": Schema(8), "norm_bound": 200.0, "method": "auto", "options": {}, "budget": Budget(40.0, 1e-6)}
    model = simulate([heavy], spec(**asked), noise_seed=1)
    (found,) = [each for each in findings.of_model(model) if names_facts(each, "intervals", "clipped")]
    assert model.explained_variance is not None
    assert names_facts(found, f"{model.explained_variance[0]:.3g}")
    assert not [each for each in findings.of_model(model.varimax()) if names_facts(each, "intervals", "clipped")]
    short = np.random.default_rng(0).uniform(-1, 1, (5000, 8)) * [4, 3, 1, 1, 1, 1, 1, 1]
    even = simulate([short], spec(**asked | {"norm_bound": 6.0}), noise_seed=1)
    assert not [each for each in findings.of_model(even) if names_facts(each, "intervals", "clipped")]
