"""Every method of the catalogue can be listed and chosen on the command line, and errors name its flags."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from examples import EXAMPLES
from facts import names_facts

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.job import JobSpec, Scaling
from dpspca.common.privacy.accountant import compose

JOB = [
    *("--dimension", "40", "--components", "3", "--norm-bound", "5", "--unit", "row-replace-one"),
    *("--epsilon", "1", "--delta", "1e-6"),
]
LOOP = ["--method", "dps-pca"]
KEYS = ("accounting", "rows_per_person", "seed", "minimum_providers", "answer_seconds")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def flags_of(spec: JobSpec, folder: Path) -> list[str]:
    """Return a job as flags. Fail if the flags cannot express it."""
    assert spec.schema.names is None
    words = {
        "dimension": spec.schema.dimension,
        "components": spec.components,
        "method": spec.method,
        "norm-bound": repr(spec.norm_bound),
        "unit": spec.unit,
        "epsilon": repr(spec.budget.epsilon),
        "delta": repr(spec.budget.delta),
        "centering": spec.centering,
    }
    words |= {name.replace("_", "-"): getattr(spec, name) for name in KEYS}
    if spec.mean_bound is not None:
        words["mean-bound"] = repr(spec.mean_bound)
    if spec.scaling is not Scaling.NONE:
        words["scaling"] = spec.scaling
    if spec.public_mean is not None:
        (folder / "mean.json").write_text(json.dumps(spec.public_mean))
        words["public-mean"] = "mean.json"
    given = [
        f"--option={name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in spec.options.items()
    ]
    explained = "--explained-variance" if spec.explained_variance else "--no-explained-variance"
    return [*(f"--{name}={value}" for name, value in words.items()), *given, explained]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_example_job_can_be_written_as_flags(name: str, here: Callable[..., Ended], tmp_path: Path) -> None:
    for what, spec in EXAMPLES[name].jobs.items():
        if spec.schema.names is None:
            planned = here("plan", *flags_of(spec, tmp_path), "--json")
            assert planned.code == 0, (what, planned.err)
            assert planned.facts["job"] == spec.to_dict(), what


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_is_planned_from_toml_as_from_json(name: str, here: Callable[..., Ended], tmp_path: Path) -> None:
    spec = next(iter(EXAMPLES[name].jobs.values()))
    options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in spec.options.items())
    (tmp_path / "job.json").write_text(json.dumps(spec.to_dict()))
    (tmp_path / "job.toml").write_text(
        f'method = "{name}"\nunit = "{spec.unit}"\nnorm_bound = {spec.norm_bound}\ncomponents = {spec.components}\n'
        f"answer_seconds = {spec.answer_seconds}\nschema = {{ dimension = {spec.schema.dimension} }}\n"
        f"budget = {{ epsilon = {spec.budget.epsilon}, delta = {spec.budget.delta} }}\noptions = {{ {options} }}\n"
    )
    assert here("plan", "job.toml", "--json").facts["queries"] == here("plan", "job.json", "--json").facts["queries"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_plan_shows_each_query_s_noise_and_the_total_epsilon(
    name: str, here: Callable[..., Ended], tmp_path: Path
) -> None:
    for spec in EXAMPLES[name].jobs.values():
        (tmp_path / "job.json").write_text(json.dumps(spec.to_dict()))
        facts = here("plan", "job.json", "--json").facts
        noises = {query["noise"] for query in facts["queries"]}
        assert noises <= {"gaussian", "laplace", "mechanism", "none"}
        assert all((each["noise_std"] > 0) == (each["noise"] in {"gaussian", "laplace"}) for each in facts["queries"])
        assert facts["total"]["mu_is_exact"] == compose(catalogue.plan(spec).events).is_gaussian
        assert not (facts["total"]["mu_is_exact"] and "laplace" in noises)
        assert facts["total"]["epsilon"] <= spec.budget.epsilon
        printed = here("plan", "job.json").out
        assert all(noise in printed for noise in noises)
        assert ("Total: mu = " in printed) == facts["total"]["mu_is_exact"]
        assert f"at delta = {spec.budget.delta:g}" in printed


def test_methods_lists_every_method_with_its_options(here: Callable[..., Ended]) -> None:
    listed = {each["name"]: each for each in here("methods", "--json").facts["methods"]}
    assert list(listed) == list(CATALOGUE)
    output = here("methods").out
    for name, entry in CATALOGUE.items():
        facts = listed[name]
        assert (facts["units"], facts["accounting"]) == ([*entry.units], [*entry.accounting])
        assert [each["name"] for each in facts["options"]] == [each.name for each in entry.options]
        assert entry.summary in output
        assert all(each.help in output for each in entry.options)
    sparsity: dict[str, Any] = listed["dps-pca"]["options"][0]
    assert (sparsity["name"], sparsity["kind"], sparsity["required"]) == ("sparsity", "a whole number or auto", True)


def test_the_help_of_plan_names_every_method(here: Callable[..., Ended]) -> None:
    output = " ".join(here("plan", "--help").out.replace("│", " ").split())
    assert all(name in output for name in CATALOGUE)
    assert "dpspca methods" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*JOB, *LOOP], "these flags are needed: --sparsity"),
        (
            [*JOB, "--method", "anlyze-gauss"],
            "Unknown --method 'anlyze-gauss'. Did you mean 'analyze-gauss'? Available: ",
        ),
        ([*JOB, "--method", "magic"], "Unknown --method 'magic'. Available: "),
        ([*JOB, "--method", "ppca", "--sparsity", "5"], "--sparsity is given, but ppca has no such"),
        ([*JOB, "--method", "analyze-gauss", "--rounds", "5"], "--rounds is given, but analyze-gauss has no such"),
        ([*JOB, "--option", "sparsity=2"], "--sparsity is 2 and --components is 3"),
        ([*JOB, "--option", "sparsity=many"], "--option sparsity is 'many', not a whole number or auto"),
        ([*JOB, "--option", "sparsity=5", "--sparsity", "5"], "The option sparsity is given twice"),
        ([*JOB, *LOOP, "--option", "pace=2"], "Unknown --option 'pace' of the method dps-pca. Available: "),
        ([*JOB, *LOOP, "--option", "start=warm"], "Unknown --option start 'warm'. Available: dense, publi"),
        ([*JOB, "--sparsity", "5", "--seed", "-1"], "the seed is -1"),
        (["job.json", "--option", "rounds=2"], "Both a job and flags are given: --option"),
        (["job.json", "--no-explained-variance"], "Both a job and flags are given: --no-explained-variance"),
    ],
)
def test_errors_about_a_method_name_the_flag(arguments: list[str], message: str, here: Callable[..., Ended]) -> None:
    assert message in here("plan", *arguments).error_line


def test_a_job_from_flags_has_the_defaults_of_a_job(here: Callable[..., Ended]) -> None:
    job = here("plan", *JOB, "--sparsity", "5", "--json").facts["job"]
    assert (job["method"], job["accounting"], job["seed"]) == ("auto", "exact", 0)
    assert job["explained_variance"] is True
    assert job["options"] == {"sparsity": 5}


# --- How many components ----------------------------------------------------------------------------------------------

AUTO_COUNT = [*("--components", "auto"), *JOB[:2], *JOB[4:]]


def job_of(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    return {name: ended.facts["job"][name] for name in ("components", "options")}


@pytest.mark.parametrize(
    ("flags", "components", "options"),
    [
        ([], 10, {"fewer": True}),
        (["--sparsity", "4"], 4, {"fewer": True, "sparsity": 4}),
        (["--dimension", "7"], 7, {"fewer": True}),
    ],
)
def test_components_auto_is_up_to_ten_of_which_the_method_keeps_some(
    flags: list[str], components: int, options: dict[str, Any], here: Callable[..., Ended]
) -> None:
    assert job_of(here("plan", *AUTO_COUNT, *flags, "--json")) == {"components": components, "options": options}


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--method", "dps-pca", "--sparsity", "9"], "--components is auto, but the method dps-pca cannot decide"),
        (["--option", "fewer=true"], "--components auto sets the option fewer, which is given too"),
        (["--components", "some"], "--components is 'some', neither a whole number nor auto"),
        (["--components", "0"], "--components is 0"),
    ],
)
def test_a_number_of_components_that_cannot_be_is_refused(
    flags: list[str], reason: str, here: Callable[..., Ended]
) -> None:
    ended = here("plan", *AUTO_COUNT, *flags)
    assert ended.code == 2
    assert reason in ended.err


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_job_file_may_say_components_auto(suffix: str, here: Callable[..., Ended], tmp_path: Path) -> None:
    job = here("plan", *JOB, "--json").facts["job"] | {"components": "auto"}
    file = tmp_path / f"job.{suffix}"

    def toml(values: dict[str, Any]) -> list[str]:
        return [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]

    def write(**changes: Any) -> None:
        content = job | changes
        if suffix == "json":
            file.write_text(json.dumps(content))
            return
        lines = [
            f"{name} = {json.dumps(value)}" for name, value in content.items() if not isinstance(value, dict | None)
        ]
        tables = {name: value for name, value in content.items() if isinstance(value, dict)}
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{key} = {json.dumps(each)}" for key, each in table.items() if each is not None)]
        file.write_text("\n".join(lines))

    write()
    assert job_of(here("plan", file, "--json")) == {"components": 10, "options": {"fewer": True}}
    write(method="dps-pca", options={"sparsity": 5})
    assert names_facts(here("plan", file).err, "components", "auto", "dps-pca")
    write(options={"fewer": False})
    assert names_facts(here("plan", file).err, "components", '"auto"', "fewer")
