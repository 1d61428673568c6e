"""The last release is about the columns, and at the scale, that leave the least noise on the components."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import ortho_group

from dpspca.client.simulation import simulate
from dpspca.common.algorithms.stages.last_release import (
    AxisNoise,
    Spectrum,
    _restored,
    best_scale,
    loss_from,
    noise_at,
)
from dpspca.common.algorithms.stages.scaled_release import Restored, ScaledView, Stretch, completed
from dpspca.common.algorithms.stages.view_steps import ReleasedFacts
from dpspca.common.algorithms.steps import ReleasedMatrix, leading, matrix_noise
from dpspca.common.arrays import FloatArray
from dpspca.common.job import PRIVATE_BOUND, Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.results import Model

ROWS = 20_000


def drawn(values: list[float], size: int, columns: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Draw rows with these variances along components on the first columns, and variance 1 elsewhere."""
    rng, most = np.random.default_rng(4), columns or size
    axes = np.zeros((size, len(values)))
    axes[:most] = ortho_group.rvs(most, random_state=4)[:, : len(values)]
    spread = np.sqrt(np.array(values) - 1)
    return rng.standard_normal((ROWS, size)) + (rng.standard_normal((ROWS, len(values))) * spread) @ axes.T, axes


def job(columns: int, components: int, method: str, epsilon: float = 1.0, **changes: Any) -> JobSpec:
    plain: dict[str, Any] = {"norm_bound": 1.0, "explained_variance": False} | changes
    return JobSpec(
        schema=Schema(columns),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, 1e-6),
        components=components,
        method=method,
        **plain,
    )


def model_of(
    rows: FloatArray, components: int, method: str, noise: int, epsilon: float = 1.0, parties: int = 1, **changes: Any
) -> Model:
    bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.95))
    spec = job(rows.shape[1], components, method, epsilon, **{"norm_bound": bound} | changes)
    return simulate(np.array_split(rows, parties), spec, noise_seed=noise)


def errors(rows: FloatArray, axes: FloatArray, method: str, epsilon: float = 1.0) -> float:
    """Return the median error over five draws of noise."""
    count = axes.shape[1]
    models = (model_of(rows, count, method, noise, epsilon) for noise in range(5))
    return float(np.median([subspace_distance(axes, model.components.T) for model in models]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "size", "columns", "epsilon", "scaled", "gain"),
    [
        pytest.param([900.0, 3.0], 40, 40, 1.0, 1, 4.0, id="one component explains most"),
        pytest.param([8.0], 60, 60, 0.1, 1, 1.2, id="little is explained"),
        pytest.param([30.0, 20.0], 80, 50, 1.0, 0, 1.2, id="more than a quarter of the columns take part"),
        pytest.param([30.0, 20.0], 150, 90, 1.0, 0, 1.3, id="more than a third of many columns take part"),
    ],
)
def test_columns_and_scale_follow_from_what_the_first_release_shows(
    values: list[float], size: int, columns: int, epsilon: float, scaled: int, gain: float
) -> None:
    """``gain`` is by how much the error is smaller than that of one release of the whole matrix."""
    rows, axes = drawn(values, size, columns)
    decision = model_of(rows, len(values), "auto", 0, epsilon).decision
    assert decision is not None
    assert decision.last is not None
    assert abs(decision.last - columns) <= 2
    assert decision.scaled == scaled
    assert errors(rows, axes, "auto", epsilon) < errors(rows, axes, "analyze-gauss", epsilon) / gain


@pytest.mark.slow
def test_a_weak_component_that_only_the_last_release_shows_is_kept() -> None:
    rows, _ = drawn([900.0, 3.0], 40)
    model = model_of(rows, 2, "auto", 0, options={"fewer": True})
    assert model.decision is not None
    assert (model.decision.visible, model.decision.clear) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"norm_bound": PRIVATE_BOUND}, {"scaling": "private", "norm_bound": 1.0}], ids=["bound", "scaling"]
)
def test_the_last_release_is_scaled_whatever_comes_before_it(changes: dict[str, Any]) -> None:
    rows, _ = drawn([900.0, 3.0], 40)
    model = model_of(rows, 2, "auto", 0, parties=3, epsilon=4.0, **changes)
    assert model.decision is not None
    assert model.decision.scaled == 1
    assert np.allclose(model.components @ model.components.T, np.eye(2))


@pytest.mark.slow
def test_few_columns_are_released_at_a_scale_of_their_own() -> None:
    """Both at once: most of the columns are left out, and one component explains most."""
    rows, axes = drawn([60.0, 6.0], 80, 30)
    decision = model_of(rows, 2, "auto", 0).decision
    assert decision is not None
    assert decision.last is not None
    assert abs(decision.last - 30) <= 2
    assert decision.scaled
    assert errors(rows, axes, "auto") < errors(rows, axes, "analyze-gauss") / 2


@pytest.mark.parametrize("again", [0.2, 1.0])
@pytest.mark.parametrize("value", [400.0, 250.0])
def test_variances_after_a_scaled_release_are_right_on_average(value: float, again: float) -> None:
    """Over 40 draws of both releases. The mean of a variance has a standard deviation of 14 / sqrt(40), or 2.2."""
    size, std, rng, found = 80, 10.0, np.random.default_rng(6), []
    facts = ReleasedFacts(job(size, 1, "auto"), None, 1000.0, None)
    true = np.zeros((size, size))
    true[0, 0] = value

    def noise() -> FloatArray:
        drawn = rng.standard_normal((size, size)) * std
        return np.asarray((drawn + drawn.T) / math.sqrt(2))

    for _ in range(40):
        known = ReleasedMatrix(true + noise(), std, 1000.0)
        axes = completed(leading(known.matrix, 1)[0])
        factor = np.ones((size, size))
        factor[0], factor[:, 0] = again, again
        released = axes.T @ true @ axes + noise() * factor
        scaled = ScaledView(facts, np.arange(size), axes, Stretch(1, 1.0, 1.0))
        spectrum = Spectrum.of(known, 1, 0.0)
        joined = _restored(facts, known, spectrum, scaled, Restored(released, std * factor, 1))
        found.append(matrix_noise(joined, leading(joined.matrix, 1)[0]).values[0])
    assert np.mean(found) == pytest.approx(value, abs=8)


def test_where_nothing_is_gained_all_columns_are_released_in_the_same_way() -> None:
    rows, axes = drawn([30.0], 60)
    decision = model_of(rows, 1, "auto", 0).decision
    assert decision is not None
    assert (decision.last, decision.scaled) == (60, 0)
    assert errors(rows, axes, "auto") < 1.1 * errors(rows, axes, "analyze-gauss")


@pytest.mark.slow
def test_a_component_that_explains_little_is_not_lost_by_clipping() -> None:
    """Scaled rows are clipped mostly along the component. Without calibration its variance seems too small."""
    rows, axes = drawn([2.0], 50)
    assert errors(rows, axes, "auto", 4.0) < errors(rows, axes, "analyze-gauss", 4.0) < 0.2


@pytest.mark.parametrize(("between", "inside"), [(1.0, 1.0), (0.4, 1.0), (1.5, 0.3), (0.5, 2.0)])
def test_the_expected_loss_is_that_of_noise_in_blocks(between: float, inside: float) -> None:
    """The mean of 20 draws; its standard deviation was 3 % of it, so 15 % are five. Seeds are fixed."""
    size, strength, rng = 400, 45.0, np.random.default_rng(1)
    lost = []
    for _ in range(20):
        noise = rng.standard_normal((size, size))
        noise = (noise + noise.T) / math.sqrt(2) * inside
        noise[0, 1:] = noise[1:, 0] = rng.standard_normal(size - 1) * between
        noise[0, 0] = strength
        lost.append(strength * (1 - leading(noise, 1)[0][0, 0] ** 2))
    spectrum = Spectrum(np.array([strength]), np.array([strength + 1]), 1)
    expected = loss_from(spectrum, size, AxisNoise(np.array([between]), inside))
    assert expected == pytest.approx(np.mean(lost), rel=0.15)


def test_a_component_below_the_noise_in_the_rest_counts_as_lost() -> None:
    spectrum = Spectrum(np.array([20.0]), np.array([21.0]), 1)
    assert loss_from(spectrum, 400, AxisNoise(np.array([0.1]), 1.1)) == 20.0


def test_without_a_clear_component_there_is_no_scale() -> None:
    """Components that noise hides count as strong as one that just shows."""
    hidden = Spectrum.among(np.array([5.0, 4.0]), 1.0, 2.0, 100)
    assert hidden.clear == 0
    assert hidden.strengths.tolist() == [20.0, 20.0]
    assert best_scale(hidden, 100, 200.0, (2.0, 2.0), np.arange(100)).count == 0


def test_without_noise_nothing_is_lost() -> None:
    spectrum = Spectrum.among(np.array([50.0]), 1.0, 0.0, 10)
    aim = best_scale(spectrum, 10, 60.0, (0.0, 0.0), np.arange(10))
    assert (aim.count, aim.loss) == (0, 0.0)
    assert not noise_at(spectrum, 60.0, (0.0, 0.0), aim).between.any()


def test_a_turn_is_measured_right_although_rows_are_clipped() -> None:
    """Weights that depend on the part along an axis change a sum, but not a regression coefficient."""
    rng = np.random.default_rng(2)
    along = rng.standard_normal(400_000) * 3
    rest = 0.2 * along + rng.standard_normal(400_000)
    weights = np.minimum(1, 9 / np.square(along))
    seen = np.array([[along @ (weights * along), along @ (weights * rest)], [0.0, rest @ (weights * rest)]])
    seen[1, 0] = seen[0, 1]
    true = np.array([[along @ along, along @ rest], [along @ rest, rest @ rest]])
    found = Restored(seen, np.ones((2, 2)), 1).calibrated(true[:1, 0], float(true[1, 1]))
    assert found.matrix == pytest.approx(true, rel=0.03)
    assert found.stds[0, 1] == pytest.approx(true[0, 0] / seen[0, 0])
