"""The last release is about the columns, and at the scale, that leave the least noise on the components."""

import math

import numpy as np
import pytest
from scipy.stats import ortho_group

from dpspca.client.simulation import simulate
from dpspca.common.algorithms.stages.last_release import AxisNoise, Spectrum, best_scale, loss_from, noise_at
from dpspca.common.algorithms.stages.scaled_release import Restored
from dpspca.common.algorithms.steps import leading
from dpspca.common.arrays import FloatArray
from dpspca.common.job import Budget, JobSpec, Schema
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


def model_of(rows: FloatArray, components: int, method: str, noise: int, epsilon: float = 1.0) -> Model:
    spec = JobSpec(
        schema=Schema(rows.shape[1]),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, 1e-6),
        norm_bound=float(np.quantile(np.linalg.norm(rows, axis=1), 0.95)),
        components=components,
        method=method,
        explained_variance=False,
    )
    return simulate([rows], spec, noise_seed=noise)


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
    assert math.isinf(found.stds[0, 0])  # what it was calibrated with says nothing new
    assert found.stds[0, 1] == pytest.approx(true[0, 0] / seen[0, 0])
