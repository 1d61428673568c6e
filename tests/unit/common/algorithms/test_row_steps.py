"""What components explain is cut to what rows within the bound can have, and no cut takes it further from the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca import Budget, JobSpec, PrivacyUnit, Schema, simulate
from dpspca.common.algorithms.steps.row_steps import nearest_possible

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_what_is_possible_is_not_negative_and_no_more_than_there_is(given: list[float], most: float) -> None:
    cut = nearest_possible(np.array(given), most)
    assert (cut >= 0).all()
    assert cut.sum() <= most * (1 + 1e-9)
    assert (cut <= np.maximum(given, 0)).all()


@given(st.data(), st.integers(1, 8), st.floats(1e-3, 1e3))
def test_the_cut_is_never_further_from_a_possible_truth(data: st.DataObject, count: int, most: float) -> None:
    noisy = np.array(data.draw(st.lists(NUMBERS, min_size=count, max_size=count)))
    parts = np.array(data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
    truth = most * parts / max(1.0, parts.sum())
    cut = nearest_possible(noisy, most)
    assert np.linalg.norm(cut - truth) <= np.linalg.norm(noisy - truth) * (1 + 1e-9) + 1e-9


def test_what_is_possible_already_is_left_as_it_is() -> None:
    assert nearest_possible(np.array([0.5, 0.25, 0.0]), 1.0).tolist() == [0.5, 0.25, 0.0]
    assert nearest_possible(np.array([0.5, 0.25, -3.0]), 0.75).tolist() == [0.5, 0.25, 0.0]
    assert nearest_possible(np.array([1.25, 0.25]), 1.0) == pytest.approx([1.0, 0.0])
    assert nearest_possible(np.array([1.0, 1.0]), 1.0) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("method", ["dps-pca", "analyze-gauss", "mod-sulq", "ppca"])
@pytest.mark.parametrize("centering", ["none", "public"])
def test_variances_that_noise_swamps_stay_within_the_bound_on_a_row(method: str, centering: str) -> None:
    """Fifty rows at epsilon 1/4: without the cut noise alone gave many times the bound. Seeded."""
    rows = np.random.default_rng(0).standard_normal((50, 6)) + 100.0
    job = JobSpec(
        schema=Schema(6),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(0.25, 1e-6),
        norm_bound=2.0,
        components=3,
        method=method,
        centering=centering,
        public_mean=(100.0,) * 6 if centering == "public" else None,
        options={"sparsity": 6} if method == "dps-pca" else {},
    )
    cut = 0
    for seed in range(8):
        model = simulate([rows], job, noise_seed=seed)
        variances, ratios = model.explained_variance, model.explained_variance_ratio
        assert variances is not None
        assert ratios is not None
        assert (variances >= 0).all()
        assert variances.sum() <= 4 * (1 + 1e-9)
        assert ratios.sum() <= 1 + 1e-9
        cut += variances.sum() > 4 * (1 - 1e-9)
    assert cut > 0
