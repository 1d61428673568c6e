"""Commands that show terms, hold jobs against them, and write jobs that fit; each file feeds the other commands."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Ended, commands_in
from facts import a_line_names, facts, names_facts
from files_in_use import put
from live import NAMES, live_parties

from dpspca import load_model
from dpspca.common.privacy import Filter, epsilon_within, format_down

POLICY = """
[data_sets.cohort]
analysts = {analysts}
unit = "row-replace-one"
rows_per_person = 1
methods = ["analyze-gauss", "dps-pca"]
accounting = ["exact"]
centering = ["none"]
explained_variance = {explained}
columns = 100
norm_bound = {{ least = 5.0, most = {most} }}
minimum_providers = 2
lifetime = {{ epsilon = 8.0, delta = 1e-5 }}
per_job = {{ epsilon = 1.0, delta = 1e-6 }}
"""
JOB = {
    "schema": {"dimension": 20},
    "unit": "row-add-remove",
    "budget": {"epsilon": 4, "delta": 1e-6},
    "norm_bound": 12,
    "components": 2,
    "centering": "none",
    "method": "sulq",
    "options": {},
    "data_set": "cohort",
    "providers": ["north", "south"],
}
FLAGS = [
    "--components",
    "2",
    "--norm-bound",
    "12",
    "--unit",
    "row-replace-one",
    "--epsilon",
    "4",
    "--delta",
    "1e-6",
    "--centering",
    "none",
]


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a federation whose two providers allow different things."""
    folder = tmp_path_factory.mktemp("town")
    with live_parties(folder):
        allowed = POLICY.format(analysts='["ada"]', explained="true", most=10.0)
        (folder / "policy.toml").write_text(allowed)
        yield folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], enrolment: Path) -> Callable[..., Ended]:
    return commands_in(enrolment, monkeypatch, capfd)


def test_terms_of_an_unknown_data_set_are_refused_with_the_choices(here: Callable[..., Ended]) -> None:
    unknown = here("terms", "cohrt", "--config", "ada.toml", "--json")
    assert unknown.code == 2
    assert re.search(facts("'cohrt'", "cohort"), unknown.error_line)
    for words in (("terms",), ("terms", "cohort")):
        silent = here(*words, "--provider", "ghost", "--config", "ada.toml")
        assert re.search(facts("ghost", "`dpspca datasets`"), silent.error_line)


def test_terms_are_shown_in_words_and_as_json(here: Callable[..., Ended]) -> None:
    shown = here("terms", "--config", "ada.toml")
    for words in ("Data set cohort", "north, south", "analyze-gauss, dps-pca", "5 to 10", "epsilon 1, delta 1e-06"):
        assert words in shown.out
    listed = here("datasets", "--terms", "--config", "ada.toml")
    assert listed.out.endswith(shown.out)
    facts = here("datasets", "--terms", "--config", "ada.toml", "--json").facts
    assert facts["data_sets"][0]["data_set"] == "cohort"
    alone = here("terms", "--config", "ada.toml", "--json").facts["terms"]
    asked_at = {"stated_at": 0}
    assert [each | asked_at for each in facts["terms"]] == [each | asked_at for each in alone]
    facts = here("terms", "cohort", "--provider", "north", "--config", "ada.toml", "--json").facts
    (terms,) = facts["terms"]
    assert (terms["provider"], terms["conditions"]["minimum_providers"]) == ("dpspca://town/provider/north", 2)
    assert (terms["dimension"], len(terms["columns_digest"])) == (len(NAMES), 64)
    assert terms["left"]["further_jobs"] > 0
    left = terms["left"]
    lifetime = Filter.for_budget(8.0, 1e-5)
    assert (left["epsilon"], left["delta"]) == (epsilon_within(lifetime.whole, 1e-6), 1e-6)
    assert left["mu"] == lifetime.budget
    assert f"epsilon {format_down(left['epsilon'], 4)} at delta 1e-06 (mu {format_down(left['mu'], 4)})" in shown.out
    assert facts["job"] is None


def test_an_unnamed_analyst_gets_the_reply_for_an_unknown_data_set(here: Callable[..., Ended], enrolment: Path) -> None:
    kept = (enrolment / "policy.toml").read_text()
    put(enrolment / "policy.toml", kept.replace('["ada"]', '["bob"]'))
    try:
        refused, nothing = (here("terms", name, "--config", "ada.toml") for name in ("cohort", "no-such-data"))
    finally:
        put(enrolment / "policy.toml", kept)
    assert refused.error_line.replace("cohort", "no-such-data") == nothing.error_line


def test_a_job_written_by_plan_feeds_every_other_command(here: Callable[..., Ended], enrolment: Path) -> None:
    (enrolment / "job.json").write_text(json.dumps(JOB))
    held = here("terms", "--job", "job.json", "--config", "ada.toml", "--json")
    assert held.code == 1
    told = {each["key"]: each["becomes"] for each in json.loads(held.out)["job"]["changes"]}
    assert told == {
        "unit": "row-replace-one",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "norm_bound": 10.0,
        "method": "analyze-gauss",
        "minimum_providers": 2,
    }
    planned = here("plan", "job.json", "--config", "ada.toml", "--write", "fit.json")
    assert a_line_names(planned.out, "norm_bound", "--norm-bound", "12.0 -> 10.0", "north", "south")
    written = (enrolment / "fit.json").read_text()
    assert {"data_set": "cohort", "providers": ["north", "south"]}.items() <= json.loads(written).items()
    again = here("plan", "fit.json", "--config", "ada.toml", "--write", "again.json", "--json").facts
    assert again["fit"]["fits_as_it_is"]
    assert (enrolment / "again.json").read_text() == written
    assert here("terms", "--job", "fit.json", "--config", "ada.toml").code == 0
    checked = here("policy", "check", "policy.toml", "--job", "fit.json", "--analyst", "ada", "--json").facts
    assert (checked["job"]["allowed"], checked["job"]["data_set"]) == (True, "cohort")
    budget = here("budget", "--config", "north.toml", "--job", "fit.json", "--analyst", "ada", "--json").facts
    assert budget["job"]["fits"]
    before = here("terms", "cohort", "--config", "ada.toml", "--json").facts["terms"]
    ran = here("run", "fit.json", "--config", "ada.toml", "--out", "fit.model", "--json").facts
    assert [each["name"] for each in ran["participants"]] == ["north", "south"]
    assert load_model(enrolment / "fit.model").statement.epsilon == 1.0
    after = here("terms", "cohort", "--config", "ada.toml", "--json").facts["terms"]
    assert [each["left"]["further_jobs"] for each in after] == [each["left"]["further_jobs"] - 1 for each in before]
    assert all(one["left"]["epsilon"] < two["left"]["epsilon"] for one, two in zip(after, before, strict=True))


def test_a_job_of_flags_takes_its_columns_and_data_set_from_what_is_on_offer(
    here: Callable[..., Ended], enrolment: Path
) -> None:
    facts = here(
        "plan", *FLAGS, "--method", "dps-pca", "--sparsity", 4, "--config", "ada.toml", "--write", "f.json", "--json"
    ).facts
    assert facts["fit"]["can_be_made_to_fit"]
    assert (facts["job"]["schema"]["dimension"], facts["total"]["budget_epsilon"]) == (20, 1.0)
    assert json.loads((enrolment / "f.json").read_text())["data_set"] == "cohort"


def test_a_plan_recommends_only_what_the_terms_allow_and_says_what_is_left(here: Callable[..., Ended]) -> None:
    words = "plan", *FLAGS, "--method", "dps-pca", "--sparsity", 4, "--config", "ada.toml", "--rows", 100_000
    facts = here(*words, "--json").facts
    forecast, answers = facts["forecast"], facts["answers"]
    assert {each["method"] for each in forecast["methods"]} == {"analyze-gauss", "dps-pca"}
    assert forecast["recommended"].split(",")[0] in {"analyze-gauss", "dps-pca"}
    assert names_facts(forecast["refused"]["auto, sparsity 4"], "north", "auto", "analyze-gauss, dps-pca")
    assert 0 < answers["share_of_left"] < 1
    assert answers["jobs_in_left"] == math.floor(1 / answers["share_of_left"])
    (left,) = {each["left"]["epsilon"] for each in facts["terms"]}
    assert 0 < answers["left_after_job"] < left
    assert names_facts(here(*words).out, f"room for {answers['jobs_in_left']} such jobs")


def test_providers_that_differ_are_named_and_no_unfit_job_is_written(
    here: Callable[..., Ended], enrolment: Path
) -> None:
    (enrolment / "job.json").write_text(json.dumps(JOB))
    kept = (enrolment / "policy.toml").read_text()
    try:
        put(enrolment / "policy.toml", kept.replace("minimum_providers = 2", "minimum_providers = 3"))
        refused = here("plan", "job.json", "--config", "ada.toml", "--write", "none.json")
        shown = here("plan", "job.json", "--config", "ada.toml")
    finally:
        put(enrolment / "policy.toml", kept)
    assert names_facts(refused.error_line, "minimum_providers", "--write")
    assert not (enrolment / "none.json").exists()
    _, then, obstacles = shown.out.partition("not fit:")
    assert then
    assert names_facts(obstacles, "minimum_providers")


@pytest.mark.slow
def test_plan_writes_json_only_and_needs_no_federation_without_settings(
    here: Callable[..., Ended], enrolment: Path
) -> None:
    refused = here("plan", *FLAGS, "--dimension", 20, "--write", "job.toml").error_line
    assert names_facts(refused, "job.toml", ".json")
    here("plan", *FLAGS, "--dimension", 20, "--data-set", "cohort", "--provider", "north", "--write", "own.json")
    written = json.loads((enrolment / "own.json").read_text())
    assert (written["data_set"], written["providers"]) == ("cohort", ["north"])
