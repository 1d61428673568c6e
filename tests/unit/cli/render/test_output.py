"""Output is complete on a terminal of any width."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from facts import names_facts
from local_federation import spec

from dpspca import save_model, simulate
from dpspca.cli.render.output import PLOTS, Folder, print_components, to_json
from dpspca.client.findings import UNCENTRED
from dpspca.client.reports.report import to_dict
from dpspca.common.job import Schema

PLAN = [
    *("plan", "--dimension", "40", "--components", "2", "--sparsity", "9", "--norm-bound", "5"),
    *("--unit", "row-add-remove", "--epsilon", "1", "--delta", "1e-6"),
]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize("width", [20, 40, 60, 76, 77, 78, 80, 100])
def test_a_table_fits_the_terminal_and_loses_nothing(
    width: int, here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    plan = here(*PLAN).out.partition("noise: the standard deviation")[0]
    assert "…" not in plan
    assert max(map(len, plan.splitlines())) <= width
    queries = here(*PLAN, "--json").facts["queries"]
    letters = "".join(letter for letter in plan if letter.isalpha())
    for query in queries:
        assert query["kind"].replace("-", "") in letters
    for heading in ("query", "kind", "numbers", "noise", "mu"):
        assert heading in letters


def test_a_table_that_is_piped_keeps_its_width(here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, here(*PLAN).out.partition("noise: the standard")[0].splitlines())) > 80


@pytest.mark.parametrize(("delta", "warned"), [("0.5", True), ("2e-3", True), ("1e-3", False)])
def test_a_plan_warns_of_a_large_delta(*, delta: str, warned: bool, here: Callable[..., Ended]) -> None:
    words = [*PLAN[:-1], delta]
    uncentred, *remarks = here(*words, "--json").facts["remarks"]
    assert uncentred == UNCENTRED
    assert [names_facts(remark, float(delta)) for remark in remarks] == [True] * warned
    text = here(*words).out
    assert all(remark in text for remark in remarks)
    assert ("is large" in text) is warned


@pytest.mark.parametrize(("sparsity", "warned"), [("40", True), ("39", False)])
def test_a_plan_warns_of_a_sparsity_without_effect(*, sparsity: str, warned: bool, here: Callable[..., Ended]) -> None:
    words = [*PLAN, "--sparsity", sparsity]
    _, *remarks = here(*words, "--json").facts["remarks"]
    assert [names_facts(remark, "sparsity", 40) for remark in remarks] == [True] * warned
    text = here(*words).out
    assert all(remark in text for remark in remarks)
    assert ("limits nothing" in text) is warned


def test_a_model_without_explained_variance_is_shown_and_plotted(
    here: Callable[..., Ended], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is missing if the job did not ask for it, or if a provider left before it was queried."""
    rows = np.random.default_rng(0).standard_normal((50, 30))
    model = simulate([rows], spec(explained_variance=False))
    save_model(model, tmp_path / "model.dpspca")
    assert here("model", "show", "model.dpspca").out
    assert here("model", "plot", "model.dpspca", "--json").facts["files"] == {
        "loadings": "loadings.png",
        "biplot": "biplot.png",
    }
    capfd.readouterr()
    print_components(to_dict(model))
    assert "not known" in capfd.readouterr().out
    assert set(Folder(tmp_path / "plots", PLOTS).write_plots(model)[0]) == {"loadings", "biplot"}


def test_each_loading_stays_beside_its_feature(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of covariates may take several lines."""
    monkeypatch.setenv("COLUMNS", "90")
    rows = np.random.default_rng(0).standard_normal((50, 3)) * [3, 2, 1]
    names = ("short", "condition era group during day -365 through 0 days relative to index: diabetes", "last")
    facts = to_dict(simulate([rows], spec(schema=Schema(3, names), options={"sparsity": 3, "rounds": 4})))
    capfd.readouterr()
    print_components(facts)
    lines = capfd.readouterr().out.splitlines()
    starts = {name: name[:20] for name in names}
    for feature in facts["components"][0]["top_features"]:
        line = next(each for each in lines if starts[feature["name"]] in each)
        assert f"{feature['loading']:+.3f}" in line


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "output-perturbation",
            "'subspace', which is private by itself: each provider adds noise to its own components",
        ),
        ("ppca", "'subspace', which is private by itself: each provider draws a subspace at random"),
        (
            "range-projection",
            "'sketch', which is private by itself: each provider multiplies its rows by the random directions",
        ),
    ],
)
def test_a_plan_explains_mechanisms_that_add_no_noise_to_answers(
    method: str, message: str, here: Callable[..., Ended]
) -> None:
    words = ["plan", "--method", method, "--dimension", "40", "--components", "2", "--norm-bound", "20"]
    words += ["--unit", "row-replace-one", "--epsilon", "1", "--delta", "1e-6"]
    assert message in here(*words).out
    for query in here(*words, "--json").facts["queries"]:
        assert bool(query["mechanism"]) is (query["noise"] == "mechanism")


def test_json_holds_no_half_characters_and_nothing_that_controls_a_terminal() -> None:
    names = {"names": ["\ud800", "\x1b[31m", "\x9b31m", "\u202etxet", "größe", "\U0001f600"]}
    text = to_json(names)
    assert json.loads(text) == names
    assert "größe" in text
    text.encode()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
