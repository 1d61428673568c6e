"""The HTML report: one page that loads nothing, escapes every name, and shows the numbers of the JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from facts import facts, names_facts
from html_pages import elements_of, of_tag
from hypothesis import given
from hypothesis import strategies as st

from dpspca.client.html_report import page
from dpspca.client.html_report.origin import NOT_HELD
from dpspca.client.html_report.scree import ticks
from dpspca.client.html_report.style import PAIRS, policy, sheet
from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.client.reports import report
from dpspca.client.reports.readings import best_guess_from
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.job import PRIVATE_BOUND, Budget, JobSpec, Schema
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.results import Model, Origin, Participant, ScoreMap
from dpspca.common.text import visible
from dpspca.common.version import __version__

HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src="https://example.org/x" onerror="alert(1)">',
    "</table></main><style>body{display:none}</style>",
    "' onload='alert(1)",
    "&lt;b&gt; &amp; ]]> -->",
    "\x00\x1b[2J\u202eabc\ud800",
)


def fitted(method: str = "auto", **changes: Any) -> Model:
    population = SpikedModel(dimension=30, components=2, support=4)
    spec: dict[str, Any] = {
        "schema": Schema.of([f"gene {number}" for number in range(30)]),
        "unit": PrivacyUnit.ROW_ADD_REMOVE,
        "budget": Budget(2.0, 1e-5),
        "norm_bound": population.norm_bound,
        "components": 2,
        "method": method,
    }
    rows = spiked_rows(population, 4000, np.random.default_rng(3)).rows
    return simulate([rows[:2000], rows[2000:]], JobSpec(**spec | changes), noise_seed=3)


def fresh(model: Model, **changes: Any) -> Model:
    """Return the model as if its noise had come from fresh randomness."""
    return replace(model, statement=replace(model.statement, fresh_noise=True, **changes))


def of_matrix() -> Model:
    """Return a model of a matrix, with eigenvalues of both signs."""
    values = np.array([30.0, -12.0])
    statement = replace(MODEL.statement, unit=PrivacyUnit.ENTRY)
    return Model(MODEL.components, statement, explained_variance=values, explained_variance_std=1.5)


def counted(*groups: str | None) -> ScoreMap:
    """Return counts of scores far above their noise, of all rows or of groups in different places."""
    maps = []
    for place, group in enumerate(groups or (None,)):
        counts = np.zeros((32, 32))
        counts[6 + 2 * place : 12 + 2 * place, 20:24] = 400.0
        maps.append(ScoreMap(counts, np.array([3.0, 2.0]), 5.0, group=group))
    return ScoreMap.of_groups(maps) if groups else maps[0]


MODEL: Final = fitted()
MODELS: Final = {
    "for release": fresh(MODEL),
    "not for release": MODEL,
    "with warnings": fresh(MODEL, warnings=("One.", "Two."), caveat="Only if."),
    "without the noise of loadings": fitted("dps-pca", options={"sparsity": 5}),
    "within the noise": replace(MODEL, explained_variance=np.array([9.0, 0.01]), explained_variance_std=1.0),
    "turned": MODEL.varimax(),
    "only components": Model(np.array([[0.6, -0.8, 0.0]]), MODEL.statement),
    "private bound": fresh(MODEL, norm_bound=PRIVATE_BOUND),
    "persons": fresh(MODEL, unit=PrivacyUnit.PERSON_REPLACE_ONE, rows_per_person=3, gaussian=False),
    "matrix": of_matrix(),
    "scores": fresh(replace(MODEL, scores=counted())),
    "scores of groups": fresh(replace(MODEL, scores=counted("sex=female", HOSTILE[0], HOSTILE[3], None))),
    "scores within the noise": replace(MODEL, scores=ScoreMap(np.zeros((8, 8)), np.array([3.0, 2.0]), 5.0)),
    "many components": Model(
        np.eye(70), MODEL.statement, explained_variance=np.ones(70) / 7, explained_variance_std=0.1
    ),
}

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@every_model
def test_a_report_loads_nothing_and_runs_nothing(model: Model) -> None:
    written = page(model)
    for forbidden in ("<script", "http:", "https:", "//", "@import", "url(", "javascript:", "data:"):
        assert forbidden not in written.lower()
    for each in elements_of(written):
        assert each.tag not in {"a", "base", "embed", "form", "iframe", "image", "img", "link", "object", "use"}
        assert not {"href", "src", "style"} & each.attributes.keys()
        assert not any(name.startswith("on") for name in each.attributes)


@every_model
def test_the_policy_of_a_report_allows_its_own_style_alone(model: Model) -> None:
    written = page(model)
    head = [each for each in elements_of(written) if each.within == ("html", "head")]
    assert head[1].attributes["http-equiv"] == "Content-Security-Policy"  # before the style sheet, which it is about
    (style,) = of_tag(written, "style")
    assert head[1].attributes["content"] == policy(style.text)
    assert policy(style.text) == policy(sheet(releasable=model.statement.releasable)) != policy("")
    assert head[1].attributes["content"].startswith("default-src 'none'; style-src 'sha256-")


@every_model
def test_a_report_can_be_read_without_seeing_it(model: Model) -> None:
    written = page(model)
    assert written.startswith("<!DOCTYPE html>\n")
    assert of_tag(written, "html")[0].attributes == {"lang": "en"}
    assert len(of_tag(written, "title")) == 1 + len(of_tag(written, "svg"))
    levels = [int(each.tag[1]) for each in of_tag(written, "h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels.count(1) == 1 == levels[0]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(each.text for each in of_tag(written, "h1", "h2", "h3", "th", "caption", "title"))
    for heading in of_tag(written, "th"):
        assert heading.attributes == {"scope": "col" if "thead" in heading.within else "row"}
    assert len(of_tag(written, "caption")) == len(of_tag(written, "table")) > 0
    named = [each.attributes["id"] for each in elements_of(written) if "id" in each.attributes]
    assert len(set(named)) == len(named)
    for drawing in of_tag(written, "svg"):
        assert drawing.attributes["role"] == "img"
        assert set(drawing.attributes["aria-labelledby"].split()) <= set(named)


def test_text_stands_out_from_its_background() -> None:
    """WCAG 2.1, success criterion 1.4.3: at least 4.5:1."""
    for text, background in PAIRS:
        dark, light = sorted(map(luminance, (text, background)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, background)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


# --- Numbers ----------------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("top", [1, 6, 40])
def test_every_number_of_a_report_is_one_of_the_json(model: Model, top: int) -> None:
    known = set(numbers_in(json.loads(json.dumps(report.to_dict(model, top=top)))))
    shown = of_tag(page(model, top=top), "data")
    assert {float(each.attributes["value"]) for each in shown} <= known
    for each in shown:
        exact, text = Decimal(each.attributes["value"]), each.text.replace("\N{MINUS SIGN}", "-").replace(",", "")
        percent = text.endswith("%")
        read = Decimal(text.removesuffix("%"))
        last_digit = Decimal(1).scaleb(int(read.as_tuple().exponent))
        assert abs(read - exact * (100 if percent else 1)) <= last_digit, each


def numbers_in(facts: Any) -> Iterator[float]:
    """Yield every number of what was read from JSON."""
    match facts:
        case dict():
            yield from (number for each in facts.values() for number in numbers_in(each))
        case list():
            yield from (number for each in facts for number in numbers_in(each))
        case int() | float():
            yield float(facts)


@every_model
def test_the_tables_have_the_variances_loadings_and_intervals_of_the_json(model: Model) -> None:
    facts = report.to_dict(model)
    values = Counter(float(each.attributes["value"]) for each in of_tag(page(model), "data"))
    wanted: list[float] = []
    for component in facts["components"]:
        for key in ("explained_variance", "explained_variance_ratio"):
            wanted += [] if component[key] is None else [component[key]]
        wanted += component["explained_variance_interval"] or []
        for feature in component["top_features"]:
            wanted += [feature["loading"], *(feature["loading_interval"] or [])]
        wanted += [component["left_out_at_most"]] if component["left_out_at_most"] is not None else []
    assert not Counter(wanted) - values


def test_the_intervals_of_the_json_are_those_of_the_model() -> None:
    ends = MODEL.intervals(report.LEVEL)
    for index, component in enumerate(report.to_dict(MODEL)["components"]):
        assert component["explained_variance_interval"] == [end[index] for end in ends["explained_variance"]]
        for feature in component["top_features"]:
            assert feature["loading_interval"] == [end[index, feature["index"]] for end in ends["loadings"]]
        left_out = ~MODEL.components.any(axis=0)
        assert component["left_out_at_most"] == max(np.abs(end[index, left_out]).max() for end in ends["loadings"]) > 0
    (without,) = report.to_dict(MODELS["only components"])["components"]
    assert without["explained_variance_interval"] is None
    assert without["top_features"][0]["loading_interval"] is None


def test_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=facts("JSON")):
        page(fresh(MODEL, mu=float("nan"), gaussian=False))


# --- The scree plot ---------------------------------------------------------------------------------------------------


def test_bars_and_lines_have_the_heights_of_the_numbers() -> None:
    """The pixels are rounded to a tenth."""
    written = page(MODELS["matrix"])
    bars = of_tag(written, "rect")
    heights = [float(each.attributes["height"]) for each in bars]
    assert heights[0] / heights[1] == pytest.approx(30 / 12, rel=0.01)
    assert float(bars[1].attributes["y"]) == pytest.approx(float(bars[0].attributes["y"]) + heights[0], abs=0.11)
    lines = [each for each in of_tag(written, "path") if "g" in each.within and each.attributes["stroke"] != "#ffffff"]
    ends = [each.attributes["d"].split("M")[-1].split()[1].split("V") for each in lines]
    (low, high) = report.to_dict(MODELS["matrix"])["components"][0]["explained_variance_interval"]
    assert (float(ends[0][1]) - float(ends[0][0])) / heights[0] == pytest.approx((high - low) / 30, rel=0.02)


def test_a_report_draws_nothing_where_no_variance_was_asked_for() -> None:
    assert not of_tag(page(MODELS["only components"]), "svg")
    assert of_tag(page(MODEL), "svg")


@given(st.floats(-1e9, 0), st.floats(1e-6, 1e9))
def test_the_axis_has_a_few_round_numbers_within_its_ends(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 6
    assert all(low - 1e-6 * (high - low) <= mark <= high + 1e-6 * (high - low) for mark in marks)
    assert 0.0 in marks


# --- The picture of scores --------------------------------------------------------------------------------------------


def drawn_of(name: str) -> list[str]:
    """Return the paths of a report's picture of scores, without its axes."""
    paths = of_tag(page(MODELS[name]), "path")
    return [each.attributes["d"] for each in paths if {"fill-opacity", "stroke-dasharray"} & each.attributes.keys()]


def test_a_report_fills_the_cells_whose_counts_are_clear_of_the_noise() -> None:
    lowest, *_ = drawn_of("scores")
    left, top, width = map(float, re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", lowest)[0])
    assert 70 + 12 * 4 <= left + width / 2 <= 70 + 12 * 14  # on the left of the middle, and above it
    assert 10 + 12 * 6 <= top <= 10 + 12 * 12
    contours = [each for each in of_tag(page(MODELS["scores"]), "path") if each.attributes.get("stroke-width") == "0.5"]
    assert len(contours) == 1
    assert contours[0].attributes["d"]
    assert not drawn_of("scores within the noise")
    assert "nothing shows above the noise" in page(MODELS["scores within the noise"])


def test_a_report_draws_outlines_of_groups_with_their_names() -> None:
    written = page(MODELS["scores of groups"])
    assert len(drawn_of("scores of groups")) == 8  # four outlines, and as many samples of lines
    assert {"sex=female", HOSTILE[0], "no level"} <= {each.text for each in of_tag(written, "text")}
    assert not of_tag(written, "script")


# --- Names and words --------------------------------------------------------------------------------------------------


@given(st.lists(st.text() | st.sampled_from(HOSTILE), min_size=3, max_size=3))
def test_a_name_is_shown_and_never_becomes_markup(names: list[str]) -> None:
    plain = Model(np.array([[0.8, 0.5, 0.3]]), MODEL.statement, feature_names=("a", "b", "c"))
    named = replace(plain, feature_names=tuple(names))
    for write in (page, Model._repr_html_):
        outline, found = (
            [(each.tag, each.attributes, each.within) for each in elements_of(write(model))] for model in (plain, named)
        )
        assert found == outline
    assert {*map(visible, names)} <= {each.text for each in of_tag(page(named), "th") if "tbody" in each.within}


@pytest.mark.parametrize("text", HOSTILE)
def test_the_words_of_a_stored_statement_are_escaped(text: str) -> None:
    def tags(model: Model) -> list[str]:
        return [each.tag for each in elements_of(page(model))]

    def worded(text: str) -> Model:
        return fresh(MODEL, caveat=text, decision=text, warnings=(text,))

    assert tags(worded(text)) == tags(worded("plain"))
    page(worded(text)).encode()


def test_what_is_not_for_release_says_so_first_and_is_not_to_be_cited() -> None:
    written = page(MODEL)
    main = [each for each in elements_of(written) if each.within == ("html", "body", "main")]
    assert main[0].text == MODEL.statement.headline
    assert main[0].attributes == {"class": "alarm"}
    assert of_tag(written, "title")[0].text.startswith("NOT FOR RELEASE")
    assert "@top-center" in of_tag(written, "style")[0].text  # of every printed page
    assert not of_tag(written, "blockquote")
    assert MODEL._repr_html_().startswith("<div><p><strong>NOT FOR RELEASE")


def test_what_may_be_released_has_a_paragraph_to_cite() -> None:
    model = MODELS["with warnings"]
    written = page(model)
    assert "NOT FOR RELEASE" not in written
    (cited,) = of_tag(written, "blockquote")
    for fact in (
        "ε = 2",
        "δ = 1e-05",
        "2 providers",
        "2 principal components",
        "30 features",
        str(model.statement.unit),
    ):
        assert fact in cited.text
    assert cited.text.endswith("Only if.")
    assert [each.text for each in of_tag(written, "li")][:3] == ["Only if.", "One.", "Two."]


@every_model
def test_a_report_has_the_whole_statement_and_the_decision(model: Model) -> None:
    paragraphs = [each.text for each in of_tag(page(model), "p")]
    assert [text for text in model.statement.text.split("\n\n") if text not in paragraphs] == []
    assert model.statement.decision in " ".join(paragraphs)


def test_the_same_model_gives_the_same_bytes() -> None:
    assert page(MODEL) == page(Model.from_bytes(MODEL.to_bytes()))


# --- In notebooks -----------------------------------------------------------------------------------------------------


@every_model
def test_a_notebook_shows_the_promise_and_a_table(model: Model) -> None:
    shown = model._repr_html_()
    assert of_tag(shown, "p")[0].text == model.statement.headline
    assert len(of_tag(shown, "tr")) == 1 + min(10, len(model.components))
    values = {float(each.attributes["value"]) for each in of_tag(shown, "data")}
    assert float(np.abs(model.components[0]).max()) in set(map(abs, values))
    assert len(shown) < 10_000


# Where a model comes from


def from_providers(model: Model, *participants: Participant, **changes: Any) -> Model:
    """Return a model as a federation gives it."""
    facts: dict[str, Any] = {"method": "auto", "queries": 3, "software": "0.2.0", "data_set": "cohort"}
    return replace(model, origin=Origin(**facts | {"job": "ab" * 32} | changes, participants=participants))


def test_the_report_names_who_took_part_and_who_dropped_out_and_why() -> None:
    parts = (Participant("north", 3), Participant("south", 3), Participant("west", 1, "Its connection ended."))
    made = from_providers(fresh(MODEL), *parts, software="0.1.9")
    written = page(made)
    cells = [each.text for each in of_tag(written, "th", "td")]
    for known in (
        "north",
        "south",
        "west",
        "cohort",
        "3 of 3",
        "1 of 3",
        "dropped out: Its connection ended.",
        "ab" * 32,
    ):
        assert known in cells
    (method,) = [cell for cell in cells if cell.startswith("auto: ")]
    assert method == f"auto: {catalogue.CATALOGUE['auto'].summary}"
    paragraphs = [each.text for each in of_tag(written, "p")]
    assert any(names_facts(each, "1 provider") for each in paragraphs)
    assert any(names_facts(each, "dpspca", "0.1.9", __version__) for each in paragraphs)
    assert any(names_facts(each, "dpspca", "0.1.9", "auto") for each in paragraphs)


def test_the_report_of_an_older_model_says_what_it_lacks() -> None:
    written = page(replace(fresh(MODEL), origin=None))
    assert NOT_HELD in of_tag(written, "body")[0].text
    (software,) = [each.text for each in of_tag(written, "p") if names_facts(each.text, "Software", "dpspca")]
    assert re.findall(r"\d+\.\d+\.\d+", software) == [__version__]  # of the program alone


@pytest.mark.parametrize("name", HOSTILE)
def test_t41_names_of_providers_data_sets_methods_and_versions_are_text(name: str) -> None:
    """A model file may come from a stranger: whatever it says of its origin becomes neither markup nor a link."""
    plain = page(from_providers(fresh(MODEL), Participant("north", 3), Participant("west", 1, "gone")))
    spoilt = from_providers(
        fresh(MODEL),
        Participant(name, 3),
        Participant("west", 1, name),
        method=name,
        software=name,
        data_set=name,
        job=name,
    )
    written = page(spoilt)
    assert [each.tag for each in elements_of(written)] == [each.tag for each in elements_of(plain)]
    assert {key for each in elements_of(written) for key in each.attributes} == {
        key for each in elements_of(plain) for key in each.attributes
    }
    shown = "\n".join(map(visible, name.split("\n")))
    texts = [each.text for each in of_tag(written, "th", "td", "code")]
    assert sum(shown in text for text in texts) >= 4
    assert written.encode()


def test_the_report_explains_the_price_and_the_stability_in_words() -> None:
    made = fresh(fitted("analyze-gauss"))
    facts, text = report.to_dict(made), of_tag(page(made), "body")[0].text
    assert f"right in at most {facts['price']['guess_at_most']:.1%} of cases" in text
    (pair,) = facts["stability"]["neighbours"]
    assert pair["told_apart"] == (pair["difference"] > 3 * pair["difference_std"])
    assert ("clearly separate" in text) == pair["told_apart"]
    clear, known = (facts["stability"][f"loadings_{what}"] for what in ("clear_of_zero", "with_interval"))
    assert 0 < clear <= known
    assert f"Of the {known} loadings listed above, {clear} differ clearly from zero." in text


def test_the_report_says_to_read_mixed_components_together() -> None:
    read_off = replace(MODEL, decision=None, explained_variance_std=1.0)
    alike = replace(read_off, explained_variance=np.array([10.0, 9.9]))
    (said,) = [each for each in report.remarks(report.to_dict(alike)) if names_facts(each, "Components", 1, 2)]
    assert "together" in said  # the command line prints it
    assert said in of_tag(page(fresh(alike)), "body")[0].text
    apart = replace(read_off, explained_variance=np.array([90.0, 9.9]))
    assert "clearly separate" in page(fresh(apart))
    assert not any("Components" in each for each in report.remarks(report.to_dict(apart)))
    unknown = replace(read_off, explained_variance_std=None)
    assert report.to_dict(unknown)["stability"]["neighbours"] == []


def test_components_that_the_matrix_tells_apart_are_separate_in_the_report() -> None:
    """Variances that were asked for apart have more noise than the matrix that components were read off."""
    assert MODEL.decision is not None
    alike = replace(MODEL, explained_variance=np.array([10.0, 9.9]), explained_variance_std=1.0)
    for values, told_apart in (((10.0, 5.0), True), ((10.0, 9.9), False)):
        model = replace(alike, decision=replace(MODEL.decision, values=values, noise_std=0.1))
        (between,) = report.to_dict(model)["stability"]["neighbours"]
        assert between["told_apart"] is told_apart


@pytest.mark.parametrize(("epsilon", "mu", "gaussian", "most"), [(1.0, 0.24, True, 0.548), (1.0, 0.24, False, 0.732)])
def test_a_guess_is_never_better_than_the_promise_says(epsilon: float, mu: float, gaussian: bool, most: float) -> None:
    statement = replace(MODEL.statement, epsilon=epsilon, delta=1e-6, mu=mu, gaussian=gaussian)
    assert best_guess_from(statement) == most
    assert best_guess_from(replace(statement, epsilon=48.0, gaussian=False)) == 1.0
