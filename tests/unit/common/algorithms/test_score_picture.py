"""A picture of scores counts every row once, in the cell of its scores on the components of the same model."""

from typing import Any

import numpy as np
import pytest

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.score_picture import PICTURE
from dpspca.common.algorithms.staged_release import NORMS
from dpspca.common.errors import InvalidParameterError, InvalidTypeError
from dpspca.common.model import Model
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import SIDE
from dpspca.common.score_map import ScoreMap
from dpspca.common.spec import PRIVATE_BOUND, Budget, Centering, JobSpec, Schema


def spec_of(dimension: int, **changes: Any) -> JobSpec:
    plain = {"budget": Budget(2.0, 1e-6), "unit": PrivacyUnit.ROW_REPLACE_ONE, "method": "auto", "norm_bound": 20.0}
    return JobSpec(schema=Schema(dimension), **plain | {"components": 2, "options": {"picture": True}} | changes)


def three_groups(dimension: int) -> np.ndarray:
    """Make rows of three groups that two directions tell apart."""
    rng = np.random.default_rng(5)
    axes = np.zeros((2, dimension))
    axes[:, :10] = np.linalg.qr(rng.standard_normal((10, 2)))[0].T
    middles = np.array([[6, 0], [-3, 4], [-3, -4]])[rng.integers(0, 3, 20_000)]
    return (middles + rng.standard_normal((20_000, 2))) @ axes + 0.5 * rng.standard_normal((20_000, dimension))


def cells(model: Model, rows: np.ndarray) -> np.ndarray:
    """Count the scores that the model gives these rows."""
    assert model.scores is not None
    reach = model.scores.reach
    scores = np.clip(model.transform(rows)[:, :2] / reach, -1, 1 - 1e-12)
    return np.histogram2d(*scores.T, bins=SIDE, range=[[-1, 1], [-1, 1]])[0]


@pytest.mark.parametrize("dimension", [30, 150])
@pytest.mark.parametrize("changes", [{}, {"norm_bound": PRIVATE_BOUND}, {"norm_bound": 2000.0}], ids=str)
def test_counts_are_those_of_the_scores_but_for_the_noise(dimension: int, changes: dict[str, float]) -> None:
    rows = three_groups(dimension)
    model = simulate(np.array_split(rows, 3), spec_of(dimension, **changes), noise_seed=1)
    assert model.scores is not None
    counts, noise = model.scores.counts, model.scores.noise_std
    # 1,024 cells with noise of this size: their root mean square is beyond 15 % of it once in 10^10 runs.
    assert np.sqrt(np.mean(np.square(counts - cells(model, rows)))) == pytest.approx(noise, rel=0.15)
    assert 0.9 < model.scores.smoothed()[0].sum() / len(rows) < 1.1


def test_a_picture_around_a_private_mean_is_of_centred_scores() -> None:
    rows = three_groups(30) + 2.0
    spec = spec_of(30, centering=Centering.PRIVATE, mean_bound=20.0)
    model = simulate([rows], spec, noise_seed=1)
    assert model.scores is not None
    off = np.sqrt(np.mean(np.square(model.scores.counts - cells(model, rows))))
    assert off == pytest.approx(model.scores.noise_std, rel=0.15)


def test_a_picture_takes_its_share_and_the_rest_of_the_plan_less() -> None:
    plain, pictured = (catalogue.plan(spec_of(30, options={"picture": wanted})) for wanted in (False, True))
    assert [step.name for step in pictured.steps] == [*(step.name for step in plain.steps), "picture of scores"]
    before, after = ({step.name: step.noise_std for step in each.steps} for each in (plain, pictured))
    assert after["whole matrix"] == pytest.approx(before["whole matrix"] / np.sqrt(1 - PICTURE), rel=1e-3)
    # A histogram of norms has the same sensitivity; what rounding adds to the noise is the same for both.
    assert after["picture of scores"] == pytest.approx(before["norms"] * np.sqrt(NORMS / PICTURE), rel=0.04)
    assert pictured.price.mu == pytest.approx(plain.price.mu, rel=1e-3)


def test_a_model_without_a_second_useful_component_has_no_picture() -> None:
    rows = np.random.default_rng(1).standard_normal((500, 20))
    model = simulate([rows], spec_of(20, options={"picture": True, "fewer": True}), noise_seed=1)
    assert len(model.components) == 1
    assert model.scores is None


def test_a_picture_survives_a_file_and_not_a_rotation() -> None:
    model = simulate([three_groups(30)], spec_of(30), noise_seed=1)
    again = Model.from_bytes(model.to_bytes())
    assert model.scores is not None
    assert again.scores is not None
    assert again.scores.to_dict() == model.scores.to_dict()
    assert model.varimax().scores is None


def test_a_picture_of_one_component_and_a_wrong_option_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="two components"):
        catalogue.plan(spec_of(30, components=1))
    with pytest.raises(InvalidTypeError, match="picture is 'yes'"):
        catalogue.plan(spec_of(30, options={"picture": "yes"}))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"counts": [[1.0]], "noise_std": 1.0, "edges_of_component_1": [], "edges_of_component_2": [1.0]},
        {"counts": [[1.0, 2.0]], "noise_std": 1.0, "edges_of_component_1": [1.0], "edges_of_component_2": [1.0]},
        {"counts": [[1.0]], "noise_std": -1.0, "edges_of_component_1": [1.0], "edges_of_component_2": [1.0]},
        {"counts": [[1.0]], "noise_std": 1.0, "edges_of_component_1": [-1.0], "edges_of_component_2": [1.0]},
        {"counts": [[1e999]], "noise_std": 1.0, "edges_of_component_1": [1.0], "edges_of_component_2": [1.0]},
    ],
)
def test_a_damaged_picture_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises((ValueError, LookupError)):
        ScoreMap.from_dict(raw)


def test_noise_alone_is_smoothed_and_its_size_is_known() -> None:
    noise = np.random.default_rng(2).normal(0, 10.0, (SIDE, SIDE))
    smoothed, left = ScoreMap(noise, np.ones(2), 10.0).smoothed()
    inner = smoothed[10:-10, 10:-10]
    assert left < 1.0
    assert np.abs(inner).max() < 5 * left
