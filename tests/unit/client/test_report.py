"""Reports: the summary and the plots show what the model contains, no more and no less."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from facts import a_line_names, facts, names_facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.client.reports import report
from dpspca.client.reports.score_plot import score_contours
from dpspca.client.simulation import simulate
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model, ScoreMap


def fitted() -> Model:
    population = SpikedModel(dimension=30, components=2, support=4)
    spec = JobSpec(
        schema=Schema.of([f"gene {number}" for number in range(30)]),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(5.0, 1e-5),
        norm_bound=population.norm_bound,
        components=2,
        options={"sparsity": 5},
        method="dps-pca",
    )
    return simulate([spiked_rows(population, 4000, np.random.default_rng(3)).rows], spec, noise_seed=3)


MODEL = fitted()


def handmade(*components: list[float], names: tuple[str, ...] | None = None) -> Model:
    return Model(np.array(components), MODEL.statement, feature_names=names)


def picture(path: Path) -> FloatArray:
    """Read a PNG as rows x columns x (red, green, blue), between 0 and 1."""
    pixels: FloatArray = matplotlib.image.imread(path)[:, :, :3]
    return pixels


def loadings_of(model: Model, folder: Path) -> FloatArray:
    report.loadings(model, folder / "loadings.png")
    return picture(folder / "loadings.png")


def test_the_dictionary_has_every_number_and_survives_json() -> None:
    facts = report.to_dict(MODEL)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert (facts["features"], facts["support_size"]) == (30, 5)
    assert facts["support"] == MODEL.support.tolist()
    assert facts["price"]["epsilon"] == 5.0
    assert facts["price"]["mu"] == MODEL.statement.mu
    assert facts["statement"]["text"] == MODEL.statement.text
    for index, component in enumerate(facts["components"]):
        assert MODEL.explained_variance is not None
        assert component["explained_variance"] == MODEL.explained_variance[index]
        assert component["explained_variance_std"] == MODEL.explained_variance_std
        for feature in component["top_features"]:
            assert feature["loading"] == MODEL.components[index, feature["index"]]
            assert feature["name"] == f"gene {feature['index']}"


def test_top_features_are_sorted_by_loading_and_leave_out_zeros() -> None:
    (component,) = report.to_dict(handmade([0.0, 0.5, -0.7, -0.5, 0.1, 0.0]))["components"]
    assert [feature["index"] for feature in component["top_features"]] == [2, 1, 3, 4]
    assert component["support_size"] == 4


def test_the_summary_names_top_features_and_counts_the_rest() -> None:
    text = report.summary(handmade([0.1, 0.5, -0.7, -0.5]), top=2)
    assert "-0.700  feature 2" in text
    assert "+0.500  feature 1" in text
    assert "feature 3" not in text
    assert a_line_names(text, "2 features")


def test_the_summary_has_variances_and_the_whole_privacy_statement() -> None:
    facts, text = report.to_dict(MODEL), report.summary(MODEL)
    first = facts["components"][0]
    assert report.with_noise(first["explained_variance"], first["explained_variance_std"]) in text
    assert MODEL.statement.text in text
    assert a_line_names(text, "5 of 30")


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (PrivacyUnit.ROW_ADD_REMOVE, "one row had been left out or added"),
        (PrivacyUnit.ROW_REPLACE_ONE, "one row had been different"),
    ],
)
def test_the_promise_names_the_change_that_the_unit_hides(unit: PrivacyUnit, words: str) -> None:
    assert words in replace(MODEL.statement, unit=unit).text


def test_a_model_without_explained_variance_reports_none() -> None:
    silent = handmade([0.6, 0.8])
    assert report.to_dict(silent)["components"][0]["explained_variance"] is None
    assert "±" not in report.summary(silent)


def test_a_feature_name_cannot_control_the_terminal() -> None:
    text = report.summary(handmade([0.6, 0.8], names=("\x1b[2Jcleared", "two\nlines")))
    assert "\x1b" not in text
    assert "two\nlines" not in text


def of_variances(*variances: float, std: float | None, total: float = 100.0, bound: float = 100.0) -> Model:
    """Return a model with as many components as ``variances`` has entries, and with these explained variances."""
    return replace(
        handmade(*np.eye(len(variances)).tolist()),
        statement=replace(MODEL.statement, norm_bound=bound),
        explained_variance=np.array(variances),
        explained_variance_ratio=np.array(variances) / total,
        explained_variance_std=std,
    )


def test_a_variance_within_the_noise_is_marked_and_has_no_percentage() -> None:
    """With four components the limit is 3 + sqrt(8) - sqrt(2) = 4.414 standard deviations."""
    model = of_variances(40.0, 4.42, 4.41, 0.0, std=1.0)
    components = report.to_dict(model)["components"]
    assert [component["within_noise"] for component in components] == [False, False, True, True]
    paragraphs = report.summary(model).split("\n\n")[2:6]
    assert ["within the noise" in paragraph for paragraph in paragraphs] == [False, False, True, True]
    assert ["% of the total" in paragraph for paragraph in paragraphs] == [True, True, False, False]
    assert report.WITHIN_NOISE.capitalize() in report.summary(model)


def test_no_component_is_marked_above_the_noise_or_without_variances() -> None:
    for model in (MODEL, of_variances(40.0, 3.0, std=0.0), of_variances(40.0, 0.0, std=None), handmade([0.6, 0.8])):
        assert not any(component["within_noise"] for component in report.to_dict(model)["components"])
        assert "within the noise" not in report.summary(model).lower()


@pytest.mark.parametrize(
    ("total", "std", "small"),
    [(100.0, 1.0, True), (90.1, 1.0, True), (89.9, 1.0, False), (50.0, 1.0, False), (100.0, 20.0, False)],
)
def test_rows_that_reach_the_norm_bound_raise_a_warning(*, total: float, std: float, small: bool) -> None:
    model = of_variances(40.0, 30.0, std=std, total=total, bound=10.0)
    assert report.to_dict(model)["norm_bound_may_be_small"] is small
    assert a_line_names(report.summary(model), "norm bound", "90%") is small


@pytest.mark.parametrize(("share", "small"), [(0.5, True), (2.0, False)])
def test_the_warning_about_clipped_rows_is_right(*, share: float, small: bool) -> None:
    """Deterministic (fixed seeds). At half the usual norm bound nearly every row is longer, at twice the bound none."""
    population = SpikedModel(dimension=30, components=2, support=4)
    spec = JobSpec(
        schema=Schema(30),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(5.0, 1e-5),
        norm_bound=share * population.norm_bound,
        components=2,
        options={"sparsity": 5},
        method="dps-pca",
    )
    rows = spiked_rows(population, 4000, np.random.default_rng(3)).rows
    longer = float((np.linalg.norm(rows, axis=1) > spec.norm_bound).mean())
    assert (longer > 0.5) is small
    assert report.to_dict(simulate([rows], spec, noise_seed=3))["norm_bound_may_be_small"] is small


def test_a_total_variance_of_zero_raises_no_warning() -> None:
    model = replace(of_variances(0.0, 0.0, std=0.0), explained_variance_ratio=np.zeros(2))
    assert report.to_dict(model)["norm_bound_may_be_small"] is False


def labels_of(model: Model, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[list[str]]:
    """Draw both plots and return the texts at the components and on the axis below them."""
    seen: list[list[str]] = []
    finish = report._finish

    def look(canvas: Any, axes: Any, *others: Any) -> None:
        finish(canvas, axes, *others)
        ticks = [label.get_text() for label in axes.get_xticklabels()]
        seen.append([*ticks, *(text.get_text() for text in axes.texts), axes.get_xlabel()])

    monkeypatch.setattr(report, "_finish", look)
    report.scree(model, folder / "scree.png")
    report.loadings(model, folder / "loadings.png")
    return seen


def test_plots_mark_components_within_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scree, loadings = labels_of(of_variances(40.0, 2.0, std=1.0), monkeypatch, tmp_path)
    assert scree == ["1", "2*", "40.0%", "within\nthe noise", "component (*: within the noise)"]
    assert [loadings[0], loadings[1], loadings[-1]] == ["1", "2*", "component (*: within the noise)"]


def test_plots_mark_no_component_above_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scree, loadings = labels_of(of_variances(40.0, 20.0, std=1.0), monkeypatch, tmp_path)
    assert scree == ["1", "2", "40.0%", "20.0%", "component"]
    assert [loadings[0], loadings[1], loadings[-1]] == ["1", "2", "component"]


def axes_of(draw: Any, model: Model, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Draw a plot, and return its axes."""
    seen: list[Any] = []
    finish = report._finish

    def look(canvas: Any, axes: Any, *others: Any) -> None:
        finish(canvas, axes, *others)
        seen.append(axes)

    monkeypatch.setattr(report, "_finish", look)
    draw(model, folder / "plot.png")
    return seen[0]


def test_the_variance_axis_is_not_labelled_as_percentages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = axes_of(report.scree, of_variances(9.0, 8.0, std=0.1, total=26.3), monkeypatch, tmp_path)
    assert names_facts(axes.get_ylabel(), "explained variance")
    assert "%" not in axes.get_ylabel()
    assert "34.2%" in [text.get_text() for text in axes.texts]
    assert max(axes.get_yticks()) < 15


def test_without_percentages_the_axis_label_does_not_mention_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = axes_of(report.scree, of_variances(1.0, 1.0, std=1.0), monkeypatch, tmp_path)
    assert axes.get_ylabel() == "explained variance"


def test_every_loading_is_written_however_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = handmade([0.9, -0.9, 0.004, -0.004, 0.0], [0.0, 0.006, -0.006, 0.0, 0.9])
    axes = axes_of(report.loadings, model, monkeypatch, tmp_path)
    written = [text.get_text().replace("\N{MINUS SIGN}", "-") for text in axes.texts]
    assert written == ["0.90", "0", "-0.90", "0.01", "0.00", "-0.01", "0.00", "0", "0", "0.90"]


@pytest.mark.parametrize("top", [0, -1])
def test_a_top_below_one_is_refused(top: int) -> None:
    with pytest.raises(InvalidParameterError):
        report.to_dict(MODEL, top=top)


@pytest.mark.parametrize(
    ("value", "noise", "text"),
    [
        (98.2412, 1.4321, "98.2 ± 1.4"),
        (98.2412, 0.0123, "98.241 ± 0.012"),
        (98.2412, 12.3, "98 ± 12"),
        (123456.0, 1234.0, "1.235e+05 ± 1.2e+03"),
        (3.14159, None, "3.142"),
        (3.14159, 0.0, "3.142"),
    ],
)
def test_a_number_is_rounded_to_the_digits_that_its_noise_allows(value: float, noise: float | None, text: str) -> None:
    assert report.with_noise(value, noise) == text


@given(count=st.integers(1, 5000), room=st.integers(1, 100))
def test_labels_are_thinned_to_the_available_room(count: int, room: int) -> None:
    shown = report._thinned(count, room)
    assert 1 <= len(shown) <= room
    assert shown[0] == 0
    assert shown[-1] < count


def test_both_plots_are_pictures_that_are_not_blank(tmp_path: Path) -> None:
    for draw in (report.scree, report.loadings):
        draw(MODEL, tmp_path / "plot.png")
        pixels = picture(tmp_path / "plot.png")
        assert min(pixels.shape[:2]) > 400
        assert pixels.std() > 0.05


def test_red_is_positive_and_blue_negative(tmp_path: Path) -> None:
    positive, negative = (loadings_of(handmade([sign, 0.0]), tmp_path) for sign in (1.0, -1.0))
    redness = [float((pixels[:, :, 0] - pixels[:, :, 2]).mean()) for pixels in (positive, negative)]
    assert redness[0] > 0.1
    assert redness[1] < -0.1


def test_a_zero_loading_is_nearly_white_whatever_the_others_are(tmp_path: Path) -> None:
    pixels = loadings_of(handmade([1.0, 0.0], [0.0, 0.2]), tmp_path)
    height, width = pixels.shape[:2]
    lower_left = pixels[int(0.62 * height), int(0.2 * width)]  # the second feature's loading on the first component
    assert np.all(lower_left > 0.95)
    assert np.ptp(lower_left) < 0.02


def test_features_outside_the_support_are_not_drawn(tmp_path: Path) -> None:
    without = loadings_of(handmade([0.6, 0.8]), tmp_path)
    with_zeros = loadings_of(handmade([0.6, 0.8, *([0.0] * 500)]), tmp_path)
    assert np.array_equal(without, with_zeros)


@pytest.mark.slow
def test_many_features_and_odd_names_are_drawn_without_a_warning(tmp_path: Path) -> None:
    wide = np.linalg.qr(np.random.default_rng(0).standard_normal((900, 30)))[0].T
    names = tuple(f"cost in $ of {number}$_{{broken" for number in range(900))
    variances = np.linspace(9, 1, 30)
    model = replace(
        handmade(*wide.tolist(), names=names), explained_variance=variances, explained_variance_ratio=variances / 500
    )
    report.loadings(model, tmp_path / "wide.png")
    report.scree(model, tmp_path / "scree.png")
    assert max(picture(tmp_path / "wide.png").shape) < 2200


def stating(**changes: Any) -> Model:
    return replace(MODEL, statement=replace(MODEL.statement, **changes))


def test_a_plot_of_a_seeded_run_says_not_for_release() -> None:
    seeded, released = MODEL, stating(fresh_noise=True)
    assert report._footer(seeded).startswith("NOT FOR RELEASE")
    assert names_facts(report._footer(seeded), "fixed seed")
    assert report._footer(released) == released.statement.headline
    assert names_facts(report._footer(released), "(5, 1e-05)", "row-add-remove")
    assert "RELEASE" not in report._footer(released)


def test_an_unproven_model_starts_with_not_for_release() -> None:
    chain = stating(fresh_noise=True, proven=False, caveat="Only if it converged.")
    for told in (report._footer(chain), report.summary(chain)):
        assert told.startswith("NOT FOR RELEASE")
        assert " ".join(told.split()).index("NOT FOR RELEASE") < " ".join(told.split()).index("-differentially private")
    assert not report.to_dict(chain)["statement"]["releasable"]


def test_a_plot_names_the_caveat_before_the_promise() -> None:
    assert report._footer(stating(fresh_noise=True, caveat="The promise is one.")).startswith("With a caveat")


def test_a_model_that_cannot_be_plotted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=facts("explained_variance=True")):
        report.scree(handmade([0.6, 0.8]), tmp_path / "scree.png")
    with pytest.raises(InvalidParameterError, match=facts(0)):
        report.loadings(handmade([0.0, 0.0]), tmp_path / "loadings.png")


PLOT = """
import sys
from pathlib import Path
from dpspca.client.reports import report
from dpspca.common.results import Model
model = Model.from_bytes(Path(sys.argv[1]).read_bytes())
{}
report.scree(model, Path(sys.argv[1]).with_suffix(".png"))
print("matplotlib.pyplot" in sys.modules)
"""


def in_a_fresh_process(folder: Path, preparation: str) -> subprocess.CompletedProcess[str]:
    stored = folder / "model.dpspca"
    stored.write_bytes(MODEL.to_bytes())
    command = [sys.executable, "-c", PLOT.format(preparation), str(stored)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own code


@pytest.mark.slow
def test_plotting_touches_no_global_state_of_matplotlib(tmp_path: Path) -> None:
    assert in_a_fresh_process(tmp_path, "").stdout == "False\n"


def test_without_matplotlib_the_report_says_how_to_install_it(tmp_path: Path) -> None:
    ended = in_a_fresh_process(tmp_path, "sys.modules['matplotlib'] = None")
    assert "MissingExtraError" in ended.stderr
    assert "pip install matplotlib" in ended.stderr


@pytest.mark.parametrize("components", [1, 3, 8, 20])
def test_pure_noise_is_marked_for_any_number_of_components(components: int) -> None:
    """The largest eigenvalue of noise alone, 200 draws: more than four beyond the limit has probability below 1e-4.

    A draw exceeds the limit with probability at most 0.0015 (seen in simulation): 0.3 of 200 are expected.
    """
    rng = np.random.default_rng(components)
    beyond = 0
    for _ in range(200):
        square = rng.standard_normal((components, components))
        values = np.sort(np.linalg.eigvalsh((square + square.T) / 2))[::-1]
        noisy = replace(
            MODEL,
            components=np.eye(components, 30),
            mean=None,
            feature_names=None,
            explained_variance=np.maximum(values, 0.0),
            explained_variance_ratio=np.full(components, 1 / components),
            explained_variance_std=1.0,
        )
        beyond += not report.to_dict(noisy)["components"][0]["within_noise"]
    assert beyond <= 4


def test_a_picture_of_scores_shows_contours_where_they_are_sure(tmp_path: Path) -> None:
    counts = np.zeros((32, 32))
    counts[20:26, 8:12] = 400.0
    for name, shown in {"clear": counts, "noise": np.zeros((32, 32))}.items():
        model = replace(MODEL, scores=ScoreMap(shown, np.array([3.0, 2.0]), 5.0))
        score_contours(model, tmp_path / f"{name}.png")
    dark = {name: (picture(tmp_path / f"{name}.png").min(axis=2) < 0.5).mean() for name in ("clear", "noise")}
    assert dark["clear"] > 3 * dark["noise"]
    assert report.to_dict(model)["scores"]["noise_std"] == 5.0
    with pytest.raises(InvalidParameterError, match=facts("auto", "picture")):
        score_contours(MODEL, tmp_path / "none.png")


def test_a_picture_by_groups_shows_contours_of_those_that_are_sure(tmp_path: Path) -> None:
    counts = np.zeros((32, 32))
    counts[20:26, 8:12] = 400.0
    reach, names = np.array([3.0, 2.0]), ("sex=female", "sex=male", None)
    for place, shown in enumerate([[counts, counts.T, 0 * counts], [counts, 0 * counts, 0 * counts], [0 * counts] * 3]):
        parts = [ScoreMap(each, reach, 5.0, group=name) for each, name in zip(shown, names, strict=True)]
        score_contours(replace(MODEL, scores=ScoreMap.of_groups(parts)), tmp_path / f"{place}.png")
    coloured = [np.ptp(picture(tmp_path / f"{place}.png"), axis=2) > 0.2 for place in range(3)]
    assert coloured[0].sum() > 1.5 * coloured[1].sum() > 3 * coloured[2].sum()
