"""Plots of a model as figures and as Vega-Lite: they show the promise, no row, and names as they are."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from commands import commands_in
from facts import facts
from local_federation import spec

from dpspca import save_model
from dpspca.client.reports import report
from dpspca.client.reports.biplot import MOST_ARROWS, arrows
from dpspca.client.reports.plots import VEGA_LITE, Plots
from dpspca.client.simulation import simulate
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Schema
from dpspca.common.results import Model, ScoreMap

NAMES = ("<b>bold</b>", "$\\frac{1}{2}$", "datum.loading", "=1+1", *(f"gene {number}" for number in range(26)))


def fitted(**changes: Any) -> Model:
    rows = np.random.default_rng(0).standard_normal((2000, 30)) * np.r_[9, 7, 5, 3, np.ones(26)]
    asked: dict[str, Any] = {"schema": Schema.of(NAMES), "norm_bound": 20.0, "method": "analyze-gauss", "options": {}}
    return simulate([rows], spec(**asked | changes), noise_seed=1)


@pytest.fixture(scope="module")
def model() -> Model:
    return fitted()


def with_scores(model: Model) -> Model:
    """Return the model with counts of scores, of which some are far above the noise."""
    counts = np.zeros((8, 8))
    counts[2, 5] = 900.0
    return replace(model, scores=ScoreMap(counts, np.array([5.0, 5.0]), 1.0))


@pytest.mark.parametrize("name", VEGA_LITE)
def test_each_plot_is_a_figure_with_the_promise_and_a_file_on_request(model: Model, name: str, tmp_path: Path) -> None:
    model = with_scores(model)
    figure = getattr(model.plot, name)(tmp_path / "drawn.png")
    assert "NOT FOR RELEASE" in figure.get_supxlabel()
    pixels = matplotlib.image.imread(tmp_path / "drawn.png")
    assert pixels.std() > 0.01
    assert getattr(model.plot, name)().axes[0].get_title(loc="left")
    assert isinstance(model.plot, Plots)


def test_a_biplot_draws_the_longest_loadings_and_no_rows(model: Model) -> None:
    drawn = arrows(model)
    lengths = [np.hypot(across, up) for _, across, up in drawn]
    assert lengths == sorted(lengths, reverse=True)
    assert 2 <= len(drawn) <= MOST_ARROWS
    assert lengths[-1] >= 0.1 * lengths[0]
    plane = dict(zip(NAMES, model.components[:2].T.tolist(), strict=True))
    assert all([across, up] == plane[name] for name, across, up in drawn)
    texts = [each.get_text() for each in model.plot.biplot().axes[0].texts]
    assert [text for text in texts if text] == [name for name, _, _ in drawn]


def test_a_biplot_shows_private_counts_where_they_are_above_the_noise(model: Model) -> None:
    assert not model.plot.biplot().axes[0].collections
    assert with_scores(model).plot.biplot().axes[0].collections
    faint = replace(model, scores=ScoreMap(np.ones((8, 8)), np.array([5.0, 5.0]), 50.0))
    assert not faint.plot.biplot().axes[0].collections
    cells = with_scores(model).plot.vega_lite("biplot")["layer"][0]["data"]["values"]
    assert cells
    assert max(cells, key=lambda each: each["rows"])["left"] < 0


def test_a_model_has_the_plots_that_its_numbers_allow(model: Model) -> None:
    without = {"explained_variance": None, "explained_variance_ratio": None, "loading_std": None}
    one = replace(model, components=model.components[:1].copy(), **without)
    assert model.plot.names == ("scree", "loadings", "biplot")
    assert with_scores(model).plot.names == ("scree", "loadings", "biplot", "scores")
    assert one.plot.names == ("loadings",)
    for wrong in (one.plot.biplot, one.plot.scree, one.plot.scores, lambda: one.plot.vega_lite("scores")):
        with pytest.raises(InvalidParameterError):
            wrong()
    with pytest.raises(InvalidParameterError, match=facts("'pie'", "scree, loadings, biplot, scores")):
        model.plot.vega_lite("pie")


# --- Vega-Lite --------------------------------------------------------------------------------------------------------


def strings(value: Any) -> Iterator[str]:
    """List all text in a specification but that among its data."""
    match value:
        case dict():
            for key, each in value.items():
                yield key
                if key != "values":
                    yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)
        case str():
            yield value


@pytest.mark.parametrize("name", VEGA_LITE)
def test_t41_names_stand_only_among_the_data_of_vega_lite(model: Model, name: str) -> None:
    """A name that became an expression, a field or a title could make a viewer do something."""
    specification = with_scores(model).plot.vega_lite(name)
    text = json.dumps(specification, allow_nan=False)
    assert not set(NAMES) & set(strings(specification))
    assert not any(each in text for each in ('"url"', '"transform"', '"params"', '"expr"', '"href"'))
    assert specification["title"]["subtitle"] == model.statement.headline
    assert specification["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_vega_lite_has_the_numbers_of_the_report(model: Model) -> None:
    facts = report.to_dict(model)["components"]
    bars = model.plot.vega_lite("scree")["data"]["values"]
    assert [each["value"] for each in bars] == [each["explained_variance"] for each in facts]
    assert [[each["low"], each["high"]] for each in bars] == [each["explained_variance_interval"] for each in facts]
    cells = model.plot.vega_lite("loadings")["data"]["values"]
    assert {(each["feature"], each["component"]): each["loading"] for each in cells} == {
        (name, number + 1): float(value)
        for number, row in enumerate(model.components)
        for name, value in zip(NAMES, row, strict=True)
        if value
    }


def test_vega_lite_has_a_circle_for_each_cell_that_shows(model: Model) -> None:
    drawn = with_scores(model).plot.vega_lite("scores")
    top = max(drawn["data"]["values"], key=lambda each: each["rows"])
    assert (top["component_1"], top["component_2"], top["group"]) == (-1.875, 1.875, "all")
    assert "color" not in drawn["encoding"]
    counts = np.zeros((3, 8, 8))
    counts[0, 2, 5] = counts[1, 6, 1] = 900.0
    groups = [
        ScoreMap(each, np.array([5.0, 5.0]), 1.0, group=name)
        for each, name in zip(counts, ("a", None, "b"), strict=True)
    ]
    drawn = replace(model, scores=ScoreMap.of_groups(groups)).plot.vega_lite("scores")
    assert {each["group"] for each in drawn["data"]["values"]} == {"a", "no level"}
    assert drawn["encoding"]["color"]["field"] == "group"


def test_the_command_writes_pictures_or_vega_lite(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    here = commands_in(tmp_path, monkeypatch, capfd)
    model = with_scores(model)
    save_model(model, tmp_path / "a.model")
    made = here("model", "plot", "a.model", "--out", "pictures", "--json").facts["files"]
    assert made == {name: f"pictures/{name}.png" for name in VEGA_LITE}
    written = here("model", "plot", "a.model", "--format", "vega-lite", "--json").facts["files"]
    assert written == {name: f"{name}.json" for name in VEGA_LITE}
    for name, path in written.items():
        assert json.loads((tmp_path / path).read_text(encoding="utf-8")) == model.plot.vega_lite(name)
