"""`dpspca plan` plans a job from flags or from a file, or refuses it in one line."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts

from dpspca.client.jobs import JobFile
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.plan import Plan
from dpspca.common.privacy.units import PrivacyUnit

JOB = [
    *("--dimension", "40", "--components", "3", "--sparsity", "9", "--norm-bound", "5", "--unit", "row-add-remove"),
    *("--epsilon", "1", "--delta", "1e-6", "--centering", "none"),
]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def test_a_plan_lists_every_query_and_its_shares_add_up(tmp_path: Path, here: Callable[..., Ended]) -> None:
    flags = (
        "--dimension 400 --components 3 --sparsity 20 --norm-bound 50 --unit row-replace-one --epsilon 1 --delta 1e-6"
    )
    from_flags = here("plan", *flags.split(), "--json").facts
    assert from_flags["queries"][0] == {
        "name": "count",
        "kind": "count",
        "or_kind": None,
        "numbers": 1,
        "block": None,
        "noise": "none",
        "noise_fits": False,
        "mechanism": None,
        "noise_std": 0,
        "mu": 0,
        "share": 0,
    }
    assert sum(query["share"] for query in from_flags["queries"]) == pytest.approx(1)
    assert from_flags["total"]["epsilon"] == pytest.approx(1, abs=1e-6)
    assert from_flags["total"]["epsilon"] <= 1
    for stored in (from_flags["job"], from_flags):  # a job, and the output of plan
        (tmp_path / "job.json").write_text(json.dumps(stored))
        assert here("plan", "job.json", "--json").facts == from_flags


def test_a_plan_is_printed_as_a_table_with_its_total(tmp_path: Path, here: Callable[..., Ended]) -> None:
    spec = JobSpec(
        schema=Schema(50),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(2.0, 1e-5),
        norm_bound=1.0,
        components=2,
        options={"sparsity": 9, "rounds": 3},
        method="dps-pca",
    )
    (tmp_path / "job.json").write_text(json.dumps(spec.to_dict()))
    ended = here("plan", "job.json")
    assert ended.code == 0, ended.err
    assert "round 3 of 3" in ended.out
    assert "covariance-product" in ended.out
    assert a_line_names(ended.out, "budget", "epsilon = 2")


@pytest.mark.parametrize("method", ["auto", "dps-pca", "power-iteration"])
def test_a_job_is_planned_once_for_its_plan_and_its_forecast(
    method: str, here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast and the theorem's terms use the plan that is printed."""
    planned, plan = Counter[str](), catalogue.plan

    def counted(spec: JobSpec) -> Plan:
        planned[spec.digest()] += 1
        return plan(spec)

    flags = [each for each in JOB if each not in {"--sparsity", "9"}] if method == "power-iteration" else JOB
    monkeypatch.setattr(catalogue, "plan", counted)
    write = ("--centering", "none", "--write", "job.json")
    for job in ([*flags, "--method", method, *write], ["job.json"]):
        planned.clear()
        found = here("plan", *job, "--rows", "1000000", "--json").facts
        assert ("theory" in found) == (method == "dps-pca")
        assert planned[found["digest"]] == 1


def test_the_theorem_says_nothing_about_the_improved_loop(here: Callable[..., Ended]) -> None:
    found = here("plan", *JOB, "--method", "dps-pca", "--option", "loop=improved", "--rows", "1000000", "--json").facts
    assert "improved" in found["theory"]["says_nothing"]
    assert found["forecast"]["methods"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--dimension", "5"], "these flags are needed: --components"),
        (["plan", "job.json", "--epsilon", "1"], "Both a job and flags are given: --epsilon"),
        (["plan", *JOB, "--sparsity", "2"], "--sparsity is 2 and --components is 3"),
        (
            ["plan", *JOB, "--sparsity", "41"],
            "--sparsity is 41, but there are only 40 features. Give a --sparsity of at most",
        ),
        (
            ["plan", *JOB, "--method", "analyze-gauss", "--centering", "private"],
            "--mean-bound and --centering private go together",
        ),
        (["plan", *JOB, "--mean-bound", "5"], "--mean-bound and --centering private go together"),
        (["plan", *JOB, "--centering", "public"], "--public-mean and --centering public go together"),
        (["plan", *JOB, "--write", "no/folder.json"], "no is not a folder"),
    ],
)
def test_an_error_in_a_plan_is_one_line(arguments: list[str], message: str, here: Callable[..., Ended]) -> None:
    assert message in here(*arguments).error_line


A_JOB = {
    "schema": {"dimension": 4},
    "unit": "row-add-remove",
    "budget": {"epsilon": 1, "delta": 1e-6},
    "norm_bound": 1,
    "components": 2,
    "options": {"sparsity": 3},
    "method": "dps-pca",
}


@pytest.mark.parametrize(
    "change",
    [
        {"method": {}},
        {"method": None},
        {"options": 7},
        {"options": {"sparsity": [3]}},
        {"options": {"sparsity": 5}},
        {"options": {"sparsity": 3, "start": {}}},
        {"norm_bound": 10**400},
        {"components": 10**4000},
        {"budget": {"epsilon": 10**400, "delta": 1e-6}},
        {"budget": []},
        {"public_mean": {"a": 1}},
        {"unit": {}},
        {"job": {}},
        {"job": 3},
    ],
)
def test_a_job_file_of_the_wrong_form_is_refused(
    change: dict[str, Any], tmp_path: Path, here: Callable[..., Ended]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(A_JOB))
    assert here("plan", "job.json").code == 0
    (tmp_path / "job.json").write_text(json.dumps(A_JOB | change))
    assert here("plan", "job.json").error_line


@pytest.mark.parametrize("text", ["[" * 200_000, '{"seed": ' + "9" * 5000 + "}", "", "\x00", "null", "{" * 3])
def test_a_file_that_is_not_a_job_is_refused(text: str, tmp_path: Path, here: Callable[..., Ended]) -> None:
    (tmp_path / "job.json").write_text(text)
    assert here("plan", "job.json").error_line


def test_a_key_given_twice_is_refused_inside_a_plan_too(tmp_path: Path, here: Callable[..., Ended]) -> None:
    twice = json.dumps(A_JOB)[:-1] + ', "components": 1}'
    (tmp_path / "job.json").write_text(f'{{"job": {twice}}}')
    assert "given twice" in here("plan", "job.json").error_line


def test_a_written_job_has_the_same_plan(tmp_path: Path, here: Callable[..., Ended]) -> None:
    planned = here("plan", *JOB, "--write", "job.json", "--json").facts
    assert JobFile.read(tmp_path / "job.json").spec.digest() == planned["digest"]
    assert planned.pop("file") == "job.json"
    assert here("plan", "job.json", "--json").facts == planned


def test_a_plan_prices_the_private_mean(tmp_path: Path, here: Callable[..., Ended]) -> None:
    private = here("plan", *JOB, "--centering", "private", "--mean-bound", "9", "--json").facts
    assert [query["name"] for query in private["queries"]][1] == "mean"
    assert private["job"]["mean_bound"] == 9
    (tmp_path / "mean.json").write_text(json.dumps([0.5] * 40))
    public = here("plan", *JOB, "--centering", "public", "--public-mean", "mean.json", "--json").facts
    assert public["job"]["public_mean"] == [0.5] * 40
    (tmp_path / "mean.json").write_text("17")
    refusal = here("plan", *JOB, "--centering", "public", "--public-mean", "mean.json").error_line
    assert names_facts(refusal, "mean.json", 17, "JSON array")


@pytest.mark.parametrize("word", ["replace-one", "add-remove"])
def test_a_unit_that_is_cut_short_is_refused_with_its_full_name(
    word: str, tmp_path: Path, here: Callable[..., Ended]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(A_JOB | {"unit": word}))
    for words in ([*JOB, "--unit", word], ["job.json"]):
        refusal = here("plan", *words).error_line
        assert names_facts(refusal, f"'{word}'", f"Did you mean 'row-{word}'", "person-add-remove")


@pytest.mark.parametrize("unit", ["entry", "spectral"])
def test_an_unsupported_unit_is_refused_and_the_error_lists_others(unit: str, here: Callable[..., Ended]) -> None:
    refusal = here("plan", *JOB, "--unit", unit).error_line
    assert (
        f"--unit is {unit}, which auto does not support. Choose one of: row-replace-one, row-add-remove, person-"
        in refusal
    )


# --- What error to expect ---------------------------------------------------------------------------------------------

ASSUMED = [
    (
        "--method=dps-pca --dimension=200 --components=3 --sparsity=40 --norm-bound=40 --unit=row-replace-one "
        "--epsilon=8 --delta=1e-6"
    ),
    "--leading=0.08 --following=0.005 --support=10 --row-length=35",
]


def test_a_plan_prints_the_theorem_s_terms_for_an_assumed_population(here: Callable[..., Ended]) -> None:
    flags = " ".join([*ASSUMED, "--rows=1000000"]).split()
    output = here("plan", *flags, "--json").facts["theory"]
    assert output["total"] == pytest.approx(output["statistical"] + output["noise"] + output["convergence"])
    shown = here("plan", *flags).out
    for term in ("total", "statistical", "noise", "convergence"):
        assert f"{output[term]:.3g}" in shown
    more = here("plan", *flags[:-1], "--rows=2000000", "--json").facts["theory"]
    assert more["statistical"] < output["statistical"]
    assert more["noise"] < output["noise"]
    assert "4.3" in here("plan", *flags[:-1], "--rows=2000").out  # the theorem says nothing, and the plan is printed
    assert "theory" not in here("plan", *JOB[:4], *JOB[6:], "--rows=2000", "--json").facts


FORECAST = [
    *("--dimension=150", "--components=2", "--norm-bound=10", "--unit=row-replace-one", "--epsilon=1", "--delta=1e-6"),
    *("--rows=40000", "--providers=4", "--leading=0.1", "--support=12"),
]


def test_a_plan_with_rows_says_what_to_expect_of_every_method(here: Callable[..., Ended]) -> None:
    facts = here("plan", *FORECAST, "--target-error=0.1", "--lifetime-epsilon=3", "--json").facts
    forecast, answers = facts["forecast"], facts["answers"]
    assert forecast["recommended"] == "auto"
    assert len(forecast["methods"]) > 10
    own = next(each for each in forecast["methods"] if each["method"] == "auto")
    assert answers["error"] == own["error"]
    assert own["answers"] == len(facts["queries"])
    assert answers["with_one_owner"] < answers["with_another_provider"] < answers["error"]
    shown = here("plan", *FORECAST, "--target-error=0.1", "--lifetime-epsilon=3").out
    assert forecast["reason"] in shown
    for number in ("error", "with_another_provider", "with_one_owner", "epsilon_for_target", "left_epsilon"):
        assert f"{answers[number]:.3g}" in shown
    assert f"{answers['jobs_in_lifetime']} such jobs" in shown


def test_methods_that_cannot_run_a_job_are_named_once_for_each_reason(here: Callable[..., Ended]) -> None:
    private = [flag for flag in FORECAST if not flag.startswith("--norm-bound")]
    shown = here("plan", *private, "--norm-bound=private", "--scaling=private").out
    (line,) = [line for line in shown.splitlines() if line.startswith("Not for this job:")]
    assert "dps-pca, analyze-gauss, mod-sulq" in line
    assert "scaling" in line
    assert "the method the method" not in line


def test_methods_that_need_a_norm_bound_are_marked(here: Callable[..., Ended]) -> None:
    private = [flag for flag in FORECAST if not flag.startswith("--norm-bound")]
    methods = here("plan", *private, "--norm-bound=private", "--json").facts["forecast"]["methods"]
    assert {each["method"] for each in methods if each["norm_bound"] is None} == {"auto"}
    (bound,) = {each["norm_bound"] for each in methods if each["norm_bound"] is not None}
    lines = here("plan", *private, "--norm-bound=private").out.splitlines()
    assert any("analyze-gauss *" in line for line in lines)
    assert any(line.startswith("* ") and f"{bound:.3g}" in line for line in lines)


def test_one_party_cannot_be_compared_with_one_party(here: Callable[..., Ended]) -> None:
    assert here("plan", *FORECAST, "--providers=1", "--json").facts["answers"]["with_one_owner"] is None
    assert "If one party" not in here("plan", *FORECAST, "--providers=1").out


@pytest.mark.slow
def test_a_plan_draws_the_error_by_epsilon(tmp_path: Path, here: Callable[..., Ended]) -> None:
    assert here("plan", *FORECAST, "--plot=error.png").code == 0
    assert (tmp_path / "error.png").read_bytes().startswith(b"\x89PNG")
    assert names_facts(here("plan", *FORECAST, "--plot=no/error.png").error_line, "no/error.png")
    assert names_facts(here("plan", *FORECAST, "--plot=error.pdf").error_line, "error.pdf", ".png")
    shown = here("plan", *FORECAST, "--plot=error.png", "--json").facts["curves"]
    assert all(len(errors) == len(shown["epsilons"]) for errors in shown["errors"].values())


def test_a_plan_that_sees_nothing_says_what_would_help(here: Callable[..., Ended]) -> None:
    flags = [*FORECAST, "--rows=400", "--epsilon=0.1"]
    forecast = here("plan", *flags, "--json").facts["forecast"]
    assert forecast["recommended"] is None
    shown = here("plan", *flags).out
    for remedy in forecast["remedies"]:
        assert remedy in shown
    assert "chance" in shown


def test_a_job_s_file_says_how_many_providers_there_are(tmp_path: Path, here: Callable[..., Ended]) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"job": A_JOB, "providers": ["north", "south", "west"]}))
    assert here("plan", "job.json", "--rows=9000", "--json").facts["forecast"]["assumed"]["providers"] == 3
    told = here("plan", "job.json", "--rows=9000", "--providers=2", "--json").facts
    assert told["forecast"]["assumed"]["providers"] == 2


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--leading=0.1"], "--leading: a forecast needs the number of rows."),
        (["--rows=1000", "--leading=2"], "leading is 2.0"),
        (["--rows=1000", "--leading=0.01", "--following=0.02"], "0.02"),
        (["--rows=1000", "--following=0.02"], "following or largest is given without leading."),
        (["--rows=1000", "--lifetime-delta=1e-6"], "--lifetime-delta is given without --lifetime-epsilon."),
        (["--rows=1000", "--target-error=-1"], "-1"),
        (["--rows=1000", "--support=2"], "support"),
    ],
)
def test_impossible_assumptions_are_refused(flags: list[str], why: str, here: Callable[..., Ended]) -> None:
    output = here("plan", *ASSUMED[0].split(), *flags)
    assert output.code == 2
    assert why in output.err


def test_a_job_that_is_to_be_signed_says_how_rows_are_centred(here: Callable[..., Ended], tmp_path: Path) -> None:
    """A plan may leave it open. A dictionary has public centres, and a matrix has no mean."""
    bare = [word for word in JOB if word not in {"--centering", "none"}]
    assert here("plan", *bare).code == 0
    choices = ("centering", "auto", "none", "--centering auto")
    assert names_facts(here("plan", *bare, "--write", "bare.json").error_line, *choices)
    (tmp_path / "job.json").write_text(json.dumps(A_JOB), encoding="utf-8")
    for words in (("plan", "job.json", "--write", "other.json"), ("run", "job.json", "--config", "ada.toml")):
        assert names_facts(here(*words).error_line, *choices)
    assert not (tmp_path / "bare.json").exists()
    matrix = [*bare[:8], "--unit", "entry", "--method", "noisy-power", "--epsilon", "1", "--delta", "1e-6"]
    matrix = [word for word in matrix if word not in {"--sparsity", "9"}]
    assert here("plan", *matrix, "--write", "matrix.json").code == 0
    assert here("plan", "matrix.json", "--write", "again.json").code == 0


def test_a_job_in_toml_under_another_name_is_refused_with_the_reason(
    tmp_path: Path, here: Callable[..., Ended]
) -> None:
    (tmp_path / "job.txt").write_text('method = "auto"\n')
    assert names_facts(here("plan", "job.txt").error_line, "job.txt", ".toml")
