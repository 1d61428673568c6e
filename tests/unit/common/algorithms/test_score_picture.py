"""A picture of scores counts every row once, in the cell of its scores on the components of the same model."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from facts import facts

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.stages.score_picture import PICTURE
from dpspca.common.algorithms.stages.staged_release import NORMS
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.job import PRIVATE_BOUND, Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import SIDE
from dpspca.common.results import Model, ScoreMap


def spec_of(dimension: int, **changes: Any) -> JobSpec:
    plain = {"budget": Budget(2.0, 1e-6), "unit": PrivacyUnit.ROW_REPLACE_ONE, "method": "auto", "norm_bound": 20.0}
    plain |= {"schema": Schema(dimension), "components": 2, "options": {"picture": True}}
    return JobSpec(**plain | changes)


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
    with pytest.raises(InvalidParameterError, match=facts("picture")):
        catalogue.plan(spec_of(30, components=1))
    with pytest.raises(InvalidTypeError, match=facts("picture", "'yes'")):
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


KNOWN = Dictionary.parse(
    {
        "format": "dpspca-dictionary-1",
        "features": {
            **{f"x{number}": {"kind": "number", "unit": "", "range": [-10, 10], "scale": 2.0} for number in range(6)},
            "site": {"kind": "category", "levels": ["north", "south", "east"]},
            "sex": {"kind": "category", "levels": ["female", "male"]},
        },
    }
)


def by_group(**changes: Any) -> JobSpec:
    plain = {"budget": Budget(4.0, 1e-6), "unit": PrivacyUnit.ROW_REPLACE_ONE, "components": 2}
    return KNOWN.job(**plain | {"options": {"picture": True, "picture_by": "site"}} | changes)


def raw_rows() -> pd.DataFrame:
    """Make rows of three sites, and of some for whom no site is known, that two directions tell apart."""
    rng = np.random.default_rng(3)
    site = rng.choice(4, 6000, p=[0.4, 0.3, 0.2, 0.1])
    middles = np.array([[6, 0], [-3, 5], [-3, -5], [0, 0]])[site]
    numbers = rng.standard_normal((6000, 6)) * [1, 1, 0.5, 0.5, 0.5, 0.5]
    numbers[:, :2] += middles
    table = pd.DataFrame(numbers, columns=[f"x{number}" for number in range(6)])
    table["site"] = np.array(["north", "south", "east", None], dtype=object)[site]
    return table.assign(sex="female")


@pytest.mark.parametrize(
    "changes", [{}, {"centering": Centering.PRIVATE}, {"norm_bound": "private"}, {"unit": PrivacyUnit.ROW_ADD_REMOVE}]
)
def test_each_group_has_the_counts_of_its_own_rows_but_for_the_noise(changes: dict[str, Any]) -> None:
    table = raw_rows()
    model = simulate([table[:2500], table[2500:]], by_group(**changes), noise_seed=1, dictionary=KNOWN)
    assert model.scores is not None
    assert [each.group for each in model.scores.groups] == ["site=north", "site=south", "site=east", None]
    for each, name in zip(model.scores.groups, ["north", "south", "east", None], strict=True):
        own = table[table["site"].isna()] if name is None else table[table["site"] == name]
        off = np.sqrt(np.mean(np.square(each.counts - cells(model, own))))
        assert off == pytest.approx(each.noise_std, rel=0.15)
    together = cells(model, table)
    assert np.sqrt(np.mean(np.square(model.scores.counts - together))) == pytest.approx(
        model.scores.noise_std, rel=0.15
    )
    again = Model.from_bytes(model.to_bytes())
    assert again.scores is not None
    assert again.scores.to_dict() == model.scores.to_dict()
    assert [each["group"] for each in model.scores.to_dict()["groups"]][::3] == ["site=north", None]


def test_groups_cost_what_one_picture_costs() -> None:
    plain, grouped = (
        catalogue.plan(by_group(options={"picture": True} | more)) for more in ({}, {"picture_by": "site"})
    )
    assert plain.price.units == grouped.price.units
    assert [step.noise_std for step in plain] == pytest.approx([step.noise_std for step in grouped], rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"options": {"picture": True, "picture_by": "x1"}}, ("picture_by", "'x1'", "site, sex")),
        ({"options": {"picture": True, "picture_by": "provider"}}, ("picture_by", "'provider'", "site, sex")),
        ({"options": {"picture_by": "site"}}, ("picture_by", "'site'", "picture")),
        ({"options": {"picture": True, "picture_by": 3}}, ("picture_by", 3)),
        ({"features": ["x0", "x1", "sex"]}, ("picture_by", "'site'", "sex")),
    ],
)
def test_a_picture_by_an_undeclared_category_is_refused(changes: dict[str, Any], said: Any) -> None:
    with pytest.raises(DpspcaError, match=facts(said)):
        catalogue.plan(by_group(**changes))


def test_columns_that_look_like_levels_make_no_groups_without_a_dictionary() -> None:
    names = Schema(3, ("a", "site=north", "site=south"))
    with pytest.raises(InvalidParameterError, match=facts("picture_by", "'site'", "none")):
        catalogue.plan(spec_of(3, schema=names, options={"picture": True, "picture_by": "site"}))


@pytest.mark.parametrize("groups", [[], [{"group": 3}], [{"group": "a", "counts": [[1.0]], "noise_std": -1.0}]])
def test_damaged_groups_are_refused(groups: list[Any]) -> None:
    good = ScoreMap.of_groups([ScoreMap(np.ones((2, 2)), np.ones(2), 1.0, group="a")]).to_dict()
    if not groups:
        assert ScoreMap.from_dict(good).to_dict() == good
        return
    with pytest.raises((ValueError, LookupError)):
        ScoreMap.from_dict(good | {"groups": groups})
