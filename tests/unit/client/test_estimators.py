"""The estimator: scikit-learn's own checks, parameters, errors and fitted attributes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from facts import facts, names_facts
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import dpspca
from dpspca import DPSPCA
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, InvalidTypeError
from dpspca.common.job import Budget
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model

ROWS = np.random.default_rng(0).standard_normal((300, 6)) * [5, 4, 1, 1, 1, 1]


def estimator(**changes: Any) -> DPSPCA:
    settings = {"n_components": 2, "sparsity": 4, "norm_bound": 12.0, "unit": "row-replace-one", "random_state": 0}
    return DPSPCA(**settings | changes)


EXPECTED_FAILURES: dict[str, str] = {}
"""Checks of scikit-learn that cannot pass here, each with the reason. There are none."""


@pytest.mark.parametrize(
    ("made", "check"),
    list(
        estimator_checks_generator(
            DPSPCA(n_components=2, norm_bound=10.0, unit="row-replace-one"), expected_failed_checks=EXPECTED_FAILURES
        )
    ),
    ids=lambda value: getattr(getattr(value, "func", value), "__name__", "DPSPCA"),
)
def test_every_check_of_scikit_learn_passes(made: DPSPCA, check: Any) -> None:
    assert check(made) is None


def test_defaults_construct_but_fit_needs_a_unit() -> None:
    fitted = DPSPCA(n_components=2, unit="row-replace-one").fit(ROWS)
    assert "found privately" in fitted.privacy_.text
    for bound in (None, "private"):
        with pytest.raises(InvalidParameterError, match=facts("norm_bound")):
            DPSPCA(n_components=2, unit="row-replace-one", method="dps-pca", norm_bound=bound).fit(ROWS)
    with pytest.raises(InvalidParameterError, match=facts("unit", None, "row-add-remove")):
        DPSPCA(n_components=2, norm_bound=3.0).fit(ROWS)


@pytest.mark.parametrize("given", [{"data_set": "cohort"}, {"providers": ["north"]}])
def test_a_data_set_or_providers_without_a_federation_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=facts(*given, "federation", "federation=", "X")):
        estimator().fit(ROWS, **given)


def test_a_sparsity_below_ten_limits_the_components_that_auto_looks_for() -> None:
    fitted = DPSPCA(n_components="auto", sparsity=3, unit="row-replace-one").fit(ROWS)
    assert fitted.model_.decision is not None
    assert fitted.model_.decision.asked == 3


def test_fit_sets_the_attributes() -> None:
    fitted = estimator().fit(ROWS)
    assert fitted.components_.shape == (2, 6)
    assert fitted.components_ @ fitted.components_.T == pytest.approx(np.eye(2))
    assert set(fitted.support_) <= set(range(6))
    assert len(fitted.support_) == 4
    assert fitted.explained_variance_.shape == fitted.explained_variance_ratio_.shape == (2,)
    assert (np.diff(fitted.explained_variance_) <= 0).all()
    assert fitted.n_features_in_ == 6
    assert fitted.rounds_ == 2  # the whole matrix, and the last release
    assert fitted.mean_ is None
    assert isinstance(fitted.model_, Model)
    assert fitted.privacy_.epsilon == 1.0


@pytest.mark.parametrize("columns", [1, 2, 4, 6, 40])
def test_the_defaults_fit_tables_of_any_width(columns: int) -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, columns)) * np.linspace(4, 1, columns)
    fitted = DPSPCA(unit="row-replace-one").fit(rows)
    assert 1 <= len(fitted.components_) <= min(10, columns)
    assert fitted.transform(rows).shape == (20_000, len(fitted.components_))
    assert DPSPCA(unit="row-replace-one", method="analyze-gauss", norm_bound=9.0).fit(rows).components_.shape == (
        min(5, columns),
        columns,
    )


@pytest.mark.parametrize(
    "columns",
    [
        101,
        310,
        pytest.param(1201, marks=pytest.mark.slow),
        *(pytest.param(d, marks=pytest.mark.nightly) for d in (8192, 8193, 66_000)),
    ],
)
def test_the_defaults_fit_wide_tables_of_few_rows(columns: int) -> None:
    """On each side of the widths from which other queries are planned. So few rows show next to nothing."""
    rows = np.random.default_rng(0).standard_normal((200, columns))
    fitted = DPSPCA(unit="row-replace-one").fit(rows)
    assert 1 <= len(fitted.components_) <= 10
    assert fitted.components_ @ fitted.components_.T == pytest.approx(np.eye(len(fitted.components_)))
    assert np.isfinite(fitted.transform(rows)).all()
    assert fitted.privacy_.epsilon == 1.0


@pytest.mark.parametrize("method", [name for name in CATALOGUE if not CATALOGUE[name].option("sparsity")])
def test_a_number_as_sparsity_is_refused_by_methods_that_have_none(method: str) -> None:
    made = DPSPCA(n_components=2, method=method, norm_bound=12.0, unit=CATALOGUE[method].units[0], sparsity=3)
    with pytest.raises(InvalidParameterError, match=facts("sparsity", 3, method, "auto")):
        made.fit(ROWS)


def test_a_matrix_has_no_forecast_and_odd_numbers_of_components_name_auto() -> None:
    with pytest.raises(InvalidParameterError, match=facts("entry", "rows")):
        DPSPCA(unit="entry").plan(20, rows=1000)
    for wrong in (None, 0.9, "mle", True):
        with pytest.raises(InvalidTypeError, match=facts("n_components", '"auto"')):
            DPSPCA(n_components=wrong, unit="row-replace-one").fit(ROWS)  # type: ignore[arg-type]


SETTINGS: dict[str, dict[str, Any]] = {}
"""Parameters that only this method needs. Methods that are not listed fit without any."""


@pytest.mark.parametrize("method", CATALOGUE)
def test_every_method_fits_with_default_parameters(method: str) -> None:
    entry, needed = CATALOGUE[method], SETTINGS.get(method, {})
    unit = entry.units[0]
    made = DPSPCA(n_components=2, method=method, norm_bound=12.0, unit=unit, epsilon=8.0, random_state=0, **needed)
    fitted = made.fit(ROWS)
    assert (fitted.model_.loading_std is not None) == entry.measures_loadings
    assert fitted.components_ @ fitted.components_.T == pytest.approx(np.eye(2))
    assert fitted.rounds_ >= 1
    assert fitted.rounds_ <= fitted.privacy_.answers
    assert fitted.privacy_.epsilon == 8.0


@pytest.mark.parametrize("unit", ["entry", "spectral"])
@pytest.mark.parametrize("method", [name for name in CATALOGUE if PrivacyUnit.ENTRY in CATALOGUE[name].units])
def test_methods_with_a_matrix_unit_fit_a_symmetric_matrix(method: str, unit: str) -> None:
    square = ROWS.T @ ROWS
    made = DPSPCA(n_components=2, method=method, norm_bound=1.0, unit=unit, epsilon=8.0, random_state=0)
    fitted = made.fit(square)
    assert fitted.components_ @ fitted.components_.T == pytest.approx(np.eye(2))
    assert set(fitted.support_) == set(range(6))
    assert np.abs(fitted.components_[0, 0]) == pytest.approx(1, abs=0.05)


def test_a_method_gets_its_options_and_the_matching_parameters() -> None:
    asked = estimator(method="streaming-power", rounds=4, options={"columns": 3}).fit(ROWS)
    assert asked.rounds_ == 4
    assert estimator(method="analyze-gauss").fit(ROWS).rounds_ == 1
    assert estimator(method="dps-pca", rounds=4, options={}).fit(ROWS).rounds_ == 4


def test_a_random_state_makes_a_fit_repeatable_and_unfit_for_release() -> None:
    first, second = estimator(random_state=7).fit(ROWS), estimator(random_state=7).fit(ROWS)
    assert first.model_.to_bytes() == second.model_.to_bytes()
    assert names_facts(first.privacy_.text, "NOT FOR RELEASE", "fixed seed")
    assert not first.privacy_.releasable


def test_without_random_state_a_fit_is_releasable_and_never_repeats() -> None:
    first, second = estimator(random_state=None).fit(ROWS), estimator(random_state=None).fit(ROWS)
    assert first.privacy_.releasable
    assert "NOT FOR RELEASE" not in first.privacy_.text
    assert first.model_.to_bytes() != second.model_.to_bytes()


def test_scores_come_as_pandas_or_polars_on_request() -> None:
    frame = pd.DataFrame(ROWS, columns=list("abcdef"))
    fitted = estimator().set_output(transform="pandas").fit(frame)
    assert list(fitted.transform(frame).columns) == ["dpspca0", "dpspca1"]
    assert fitted.model_.feature_names == tuple("abcdef")
    assert list(fitted.get_feature_names_out()) == ["dpspca0", "dpspca1"]
    polars = estimator().set_output(transform="polars").fit(pl.DataFrame(frame.to_dict("list")))
    assert isinstance(polars.transform(pl.DataFrame(frame.to_dict("list"))), pl.DataFrame)


def test_it_works_in_a_pipeline_and_can_be_cloned() -> None:
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows / 2), estimator(norm_bound=6.0))
    assert pipeline.fit_transform(ROWS).shape == (300, 2)
    copied = clone(estimator(epsilon=0.3))
    assert copied.get_params()["epsilon"] == 0.3
    assert not hasattr(copied, "components_")


def test_inverse_transform_stays_within_the_support() -> None:
    fitted = estimator().fit(ROWS)
    back = fitted.inverse_transform(fitted.transform(ROWS))
    assert back.shape == ROWS.shape
    assert set(np.flatnonzero(np.abs(back).sum(axis=0))) <= set(fitted.support_)


def test_sparse_rows_are_accepted() -> None:
    sparse = scipy.sparse.csr_array(np.where(np.abs(ROWS) > 1, ROWS, 0))
    fitted = estimator().fit(sparse)
    assert fitted.transform(sparse) == pytest.approx(fitted.transform(sparse.toarray()))


@pytest.mark.parametrize(
    ("centering", "more"),
    [
        ("private", {"mean_bound": 30.0}),
        ("private", {}),
        ("private", {"mean_bound": "private"}),
        ("public", {"public_mean": [10.0] * 6}),
        (None, {}),
    ],
)
def test_centring_subtracts_the_chosen_mean(centering: str | None, more: dict[str, Any]) -> None:
    fitted = estimator(centering=centering, epsilon=8.0, **more).fit(ROWS + 10)
    if centering is None:
        assert fitted.mean_ is None
    else:
        assert fitted.mean_ == pytest.approx(np.full(6, 10.0), abs=2)


def test_the_number_of_rows_helps_to_choose_and_sparse_rows_stay_sparse() -> None:
    few = estimator(method="auto", centering="auto", epsilon=1.0).fit(ROWS + 10)
    assert few.privacy_.centering == "pairs"
    many = estimator(method="auto", centering="auto", epsilon=1.0).fit(np.tile(ROWS + 10, (20, 1)))
    assert many.privacy_.centering == "private"
    np.testing.assert_allclose(many.mean_, 10, atol=1)
    sparse = estimator(method="auto", centering="auto", epsilon=1.0).fit(scipy.sparse.csr_array(np.tile(ROWS, (20, 1))))
    assert sparse.privacy_.centering == "pairs"
    assert "sparse" in sparse.privacy_.centering_reason


def test_a_plan_chooses_as_a_fit_and_refuses_unknown_hints() -> None:
    by_itself, paired = (
        estimator(method="auto", centering=centering, epsilon=1.0).plan(6, rows=6000) for centering in ("auto", "pairs")
    )
    found = estimator(method="auto", centering="private", epsilon=1.0).plan(6, rows=6000)
    assert by_itself.to_dict() == found.to_dict() != paired.to_dict()
    lifetime = Budget(8.0, 1e-5)
    answers = estimator(method="auto").answers(6, rows=6000, providers=2, target_error=1.0, lifetime=lifetime)
    assert answers.epsilon_for_target is not None
    assert answers.jobs_in_lifetime is not None
    assert answers.with_another_provider is not None
    assert answers.with_another_provider < answers.error
    with pytest.raises(InvalidParameterError, match=facts("hint", "row_lenght", "row_length")):
        estimator().plan(6, rows=6000, row_lenght=2.0)


def test_without_the_variance_query_there_is_no_explained_variance() -> None:
    fitted = estimator(method="dps-pca", explained_variance=False).fit(ROWS)
    assert fitted.explained_variance_ is None
    assert fitted.explained_variance_ratio_ is None
    assert fitted.privacy_.answers == fitted.rounds_


def changed(value: float) -> np.ndarray:
    rows = ROWS.copy()
    rows[3, 2] = value
    return rows


BAD: list[tuple[str, dict[str, Any], Any, type[DpspcaError], Any]] = [
    ("NaN", {}, changed(np.nan), InvalidDataError, "NaN"),
    ("infinity", {}, changed(np.inf), InvalidDataError, "infinity"),
    ("no rows", {}, ROWS[:0], InvalidDataError, "0 sample(s)"),
    ("one row", {}, ROWS[:1], InvalidDataError, "n_samples = 1"),
    ("no columns", {}, ROWS[:, :0], InvalidDataError, "(300, 0)"),
    ("one dimension", {}, ROWS[0], InvalidDataError, "1D"),
    ("text", {}, np.array([["a", "b"], ["c", "d"]]), InvalidTypeError, "<U1"),
    ("objects", {}, np.array([[object(), 1], [2, 3]], dtype=object), InvalidTypeError, "object"),
    ("complex", {}, ROWS * 1j, InvalidDataError, "Complex"),
    ("overflow", {}, changed(1e200), InvalidDataError, "1e+30"),
    ("k > d", {"n_components": 7, "sparsity": 10}, ROWS, InvalidParameterError, ("n_components", 7, 1, 6, "columns")),
    ("k = 0", {"n_components": 0}, ROWS, InvalidParameterError, ("n_components", 1, 6)),
    ("k not whole", {"n_components": 1.5}, ROWS, InvalidTypeError, ("n_components", 1.5)),
    (
        "s < k",
        {"n_components": 3, "sparsity": 2},
        ROWS,
        InvalidParameterError,
        ("sparsity", 2, 3, 6),
    ),
    ("epsilon = 0", {"epsilon": 0.0}, ROWS, InvalidParameterError, "epsilon"),
    ("epsilon < 0", {"epsilon": -1.0}, ROWS, InvalidParameterError, "epsilon"),
    ("epsilon NaN", {"epsilon": np.nan}, ROWS, InvalidParameterError, "epsilon"),
    ("epsilon huge", {"epsilon": 1e6}, ROWS, InvalidParameterError, "epsilon"),
    ("delta = 0", {"delta": 0.0}, ROWS, InvalidParameterError, "delta"),
    ("delta = 1", {"delta": 1.0}, ROWS, InvalidParameterError, "delta"),
    ("delta < 0", {"delta": -1e-6}, ROWS, InvalidParameterError, "delta"),
    ("bound = 0", {"norm_bound": 0.0}, ROWS, InvalidParameterError, "norm_bound"),
    ("bound unset", {"norm_bound": None}, ROWS, InvalidParameterError, "norm_bound"),
    ("bound text", {"norm_bound": "auto"}, ROWS, InvalidParameterError, "norm_bound"),
    ("unit unset", {"unit": None}, ROWS, InvalidParameterError, "unit"),
    ("unit unknown", {"unit": "swap"}, ROWS, InvalidParameterError, "unit"),
    ("method unknown", {"method": "magic"}, ROWS, InvalidParameterError, "dps-pca"),
    ("method a list", {"method": ["dps-pca"]}, ROWS, InvalidParameterError, "dps-pca"),
    (
        "option unknown",
        {"options": {"pace": 3}},
        ROWS,
        InvalidParameterError,
        ("pace", "sparsity, rounds, start, loop"),
    ),
    (
        "option of a parameter",
        {"options": {"rounds": 3}},
        ROWS,
        InvalidParameterError,
        ("options", "'rounds'", "rounds="),
    ),
    ("options a list", {"options": ["rounds"]}, ROWS, InvalidTypeError, ("options", "['rounds']")),
    ("unit unfit", {"unit": "spectral"}, ROWS, InvalidParameterError, "spectral"),
    ("variance not bool", {"explained_variance": "no"}, ROWS, InvalidTypeError, "explained_variance"),
    ("mean unasked", {"mean_bound": 3.0}, ROWS, InvalidParameterError, "mean_bound"),
    ("mean no list", {"centering": "public", "public_mean": 0}, ROWS, InvalidParameterError, "public_mean"),
    ("unit a list", {"unit": ["a"]}, ROWS, InvalidParameterError, "unit"),
    ("three dimensions", {}, ROWS[None], InvalidDataError, "3D"),
    ("sparse, one dimension", {}, scipy.sparse.coo_array(np.ones(5)), InvalidDataError, "1D"),
    ("rounds = 0", {"rounds": 0}, ROWS, InvalidParameterError, "rounds"),
    ("rounds text", {"rounds": "many"}, ROWS, InvalidTypeError, "rounds"),
    ("method misspelt", {"method": "analyse-gauss"}, ROWS, InvalidParameterError, ("'analyse-gauss'", "analyze-gauss")),
    ("no rows", {}, None, InvalidParameterError, "X"),
    ("a file's name", {}, "rows.csv", InvalidTypeError, "'rows.csv'"),
    ("no rounds", {"method": "sulq", "rounds": 4}, ROWS, InvalidParameterError, ("rounds", 4, "sulq", "dps-pca")),
    (
        "no start",
        {"method": "ppca", "start": "published", "sparsity": None},
        ROWS,
        InvalidParameterError,
        ("start", "'published'", "ppca"),
    ),
    ("start unknown", {"start": "warm"}, ROWS, InvalidParameterError, "start"),
    ("centre unknown", {"centering": "median"}, ROWS, InvalidParameterError, "centering"),
    ("mean unbounded", {"centering": "private"}, ROWS, InvalidParameterError, "mean_bound"),
    ("mean missing", {"centering": "public"}, ROWS, InvalidParameterError, "public_mean"),
    ("mean too short", {"centering": "public", "public_mean": [1.0]}, ROWS, InvalidParameterError, "public_mean"),
    (
        "sparse and centred",
        {"centering": "public", "public_mean": [1.0] * 6},
        scipy.sparse.csr_array(ROWS),
        InvalidParameterError,
        "centering none",
    ),
]


@pytest.mark.parametrize(
    ("change", "rows", "kind", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_input_is_refused_with_a_reason_and_a_remedy(
    change: dict[str, Any], rows: Any, kind: type[DpspcaError], reason: Any
) -> None:
    with pytest.raises(kind, match=facts(reason)) as caught:
        estimator(**{"method": "dps-pca"} | change).fit(rows)
    assert caught.value.what
    assert caught.value.remedy


def test_masked_entries_count_as_missing() -> None:
    with pytest.raises(InvalidDataError, match=facts("numpy.ma")):
        estimator().fit(np.ma.masked_greater(ROWS, 1.0))


def test_a_column_without_numbers_is_named_in_the_error() -> None:
    frame = pd.DataFrame(ROWS, columns=list("abcdef"))
    frame["c"] = "text"
    with pytest.raises(InvalidTypeError, match=facts("'c'")):
        estimator().fit(frame)
    nullable = pd.DataFrame(ROWS, columns=list("abcdef")).round().astype("Int64")
    assert estimator().fit(nullable).n_features_in_ == 6


@pytest.mark.parametrize("form", [pa.Table.from_pandas, pa.RecordBatch.from_pandas])
def test_arrow_tables_are_fitted_with_the_names_of_their_columns(form: Callable[[Any], Any]) -> None:
    frame = pd.DataFrame(ROWS, columns=list("abcdef"))
    made = estimator().fit(form(frame))
    assert made.feature_names_in_.tolist() == list("abcdef")
    assert made.model_.feature_names == tuple("abcdef")
    assert np.array_equal(made.transform(form(frame)), made.transform(frame))
    with pytest.raises(ValueError, match=facts("order")):
        made.transform(form(frame[list("fedcba")]))


@pytest.mark.parametrize("state", [-1, "seed", np.random.default_rng(0)])
def test_an_invalid_random_state_is_refused(state: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts("random_state")):
        estimator(random_state=state).fit(ROWS)


def test_the_noise_of_the_variances_is_reported() -> None:
    fitted = estimator().fit(ROWS)
    assert fitted.explained_variance_std_ > 0


def test_constant_columns_fit_like_any_other() -> None:
    rows = np.hstack([ROWS, np.full((300, 1), 0.5), np.zeros((300, 1))])
    assert np.isfinite(estimator().fit(rows).components_).all()
    assert np.isfinite(estimator().fit(np.zeros((10, 6))).components_).all()


def test_transform_refuses_rows_of_other_width_or_column_names() -> None:
    fitted = estimator().fit(pd.DataFrame(ROWS, columns=list("abcdef")))
    with pytest.raises(ValueError, match=facts("- g", "- f")):
        fitted.transform(pd.DataFrame(ROWS, columns=list("abcdeg")))
    with pytest.raises(ValueError, match=facts("5 features", "6 features")):
        estimator().fit(ROWS).transform(ROWS[:, :5])


def test_the_package_exports_its_names_and_no_others() -> None:
    assert set(dir(dpspca)) == set(dpspca.__all__)
    assert all(getattr(dpspca, name) is not None for name in dpspca.__all__)
    with pytest.raises(AttributeError, match=facts("'dpspca'", "'PCA'")):
        dpspca.PCA  # noqa: B018  # asking is the test


# --- Persons ----------------------------------------------------------------------------------------------------------


def test_a_person_is_protected_with_all_their_rows() -> None:
    whose = np.arange(len(ROWS)) // 3
    fitted = estimator(unit="person-replace-one", rows_per_person=2).fit(ROWS, persons=whose)
    assert fitted.privacy_.unit is PrivacyUnit.PERSON_REPLACE_ONE
    assert fitted.privacy_.rows_per_person == 2
    assert names_facts(fitted.privacy_.text, "2 rows")


def test_persons_and_the_unit_have_to_agree() -> None:
    with pytest.raises(InvalidParameterError, match=facts("'person-add-remove'", "persons=")):
        estimator(unit="person-add-remove").fit(ROWS)
    with pytest.raises(InvalidParameterError, match=facts("row-add-remove", "person-add-remove")):
        estimator(unit="row-add-remove").fit(ROWS, persons=np.arange(len(ROWS)))
