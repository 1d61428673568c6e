"""`dpspca policy check` explains what a policy allows, and exits with 1 if the policy is wrong or refuses a job."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from facts import a_line_names, names_facts

from dpspca.cli.main import main

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
SAMPLE = (SAMPLES / "policy.toml").read_text(encoding="utf-8")
Ended = subprocess.CompletedProcess[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command in this process, in a folder that holds the samples."""
    for name in ("policy.toml", "job.toml"):
        shutil.copy(SAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # typer puts another in its place

    def run_here(*words: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["dpspca", "policy", "check", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), written.out, written.err)

    return run_here


def job(folder: Path, *, name: str = "asked.toml", **changes: str) -> str:
    """Write the sample job with some lines changed, and return the file's name."""
    lines = (folder / "job.toml").read_text(encoding="utf-8").splitlines()
    for key, value in changes.items():
        lines = [f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in lines]
    (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return name


def changed(folder: Path, old: str, new: str) -> str:
    """Write the sample policy with one change, and return the file's name."""
    assert old in SAMPLE
    (folder / "changed.toml").write_text(SAMPLE.replace(old, new), encoding="utf-8")
    return "changed.toml"


def test_the_sample_policy_allows_the_sample_job() -> None:
    command = [sys.executable, "-m", "dpspca", "policy", "check", "policy.toml", "--job", "job.toml"]
    ended = subprocess.run(command, cwd=SAMPLES, capture_output=True, text=True, check=False)  # noqa: S603  # our own program
    assert (ended.returncode, ended.stderr) == (0, "")
    assert a_line_names(ended.stdout, "allowed", "mu 0.2368", "epsilon 1", "delta 1e-06")


@pytest.mark.parametrize(
    "words",
    [
        "Who may ask: ada, grace, and nobody else.",
        "rows as they are or .*noisy mean",
        "variance",
        "Accounting: exact",
        "Columns: .*40",
        r"4\.0 and 20\.0.*mean.*4\.0 and 20\.0",
        "2 or more providers",
        "Who is protected: .*one row",
        r"^ *One job .*epsilon 1 at delta 1e-06 \(mu 0\.2368\)",
        r"one analyst .*epsilon 4 at delta 1e-05 \(mu 0\.925\)",
        r"all analysts .*epsilon 8 at delta 1e-05 \(mu 1\.667\)",
        "49 jobs.*15 for each analyst",
        # Phi(mu / 2): 0.5471 at mu = 0.2367, 0.7976 at mu = 1.6660.
        r"50\.0%.*one job.*54\.8%.*all jobs.*79\.8%",
        "2,981 times as likely.*probability of 1e-05",
        "do not cover: other data sets",
    ],
)
def test_policy_check_explains_a_policy(here: Callable[..., Ended], words: str) -> None:
    output = here("policy.toml")
    assert output.returncode == 0
    assert re.search(words, output.stdout, flags=re.MULTILINE)


def test_the_explanation_follows_the_rules(here: Callable[..., Ended], tmp_path: Path) -> None:
    text = SAMPLE
    for old, new in (
        ('unit = "row-add-remove"', 'unit = "row-replace-one"'),
        ('centering = ["none", "private"]', 'centering = ["public"]'),
        ("explained_variance = true", "explained_variance = false"),
        ("columns = 40\n", 'columns = ["age", "weight"]\n'),
        ("mean_bound = ", "# mean_bound = "),
        ("per_analyst = ", "# per_analyst = "),
        ("epsilon = 8.0", "epsilon = 2.0"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "changed.toml").write_text(text, encoding="utf-8")
    output = here("changed.toml").stdout
    for words in (
        "components of the rows minus a public mean. Methods:",
        "only age, weight.",
        "chooses, between 4.0 and 20.0.",
        "which of two given contents a row of the data has",
        "at most 7.39 times as likely",
        "jobs of the largest size, or",
    ):
        assert words in output
    assert "one analyst" not in output
    assert "each analyst, or" not in output


def test_the_explanation_says_how_many_rows_a_person_may_have(here: Callable[..., Ended], tmp_path: Path) -> None:
    name = changed(tmp_path, "rows_per_person = 1", "rows_per_person = 4")
    output = here(name)
    assert a_line_names(output.stdout, "4 rows", "rows_per_person = 4")
    assert a_line_names(output.stdout, "One person", "4 rows")
    assert here(name, "--job", "job.toml").returncode == 1
    text = (tmp_path / "job.toml").read_text(encoding="utf-8")
    (tmp_path / "whole.toml").write_text(f"rows_per_person = 4\n{text}", encoding="utf-8")
    assert here(name, "--job", "whole.toml").returncode == 0


def test_the_explanation_covers_noise_that_is_not_gaussian(here: Callable[..., Ended], tmp_path: Path) -> None:
    """With a pure mechanism of epsilon 1, a guess may be right in e / (1 + e) of cases, 73.11 %."""
    output = here(changed(tmp_path, 'methods = ["auto", "dps-pca"]', 'methods = ["dps-pca", "ppca"]')).stdout
    assert re.search(r"one job, it is right in at most 73\.2%.*all jobs", output)
    assert a_line_names(output, "not Gaussian", "epsilon", "delta")
    assert a_line_names(output, "49 jobs", "Gaussian")


def test_a_policy_with_unusable_methods_gives_a_warning_or_an_error(here: Callable[..., Ended], tmp_path: Path) -> None:
    listed = 'methods = ["auto", "dps-pca"]'
    some = here(changed(tmp_path, listed, 'methods = ["dps-pca", "streaming-power"]'))
    assert some.returncode == 0
    assert a_line_names(some.stdout, "WARNING", "streaming-power", "blocks", "row-replace-one")
    assert "WARNING" not in here("policy.toml").stdout
    wrong = here(changed(tmp_path, listed, 'methods = ["streaming-power"]'))
    assert wrong.returncode == 1
    assert "listed methods" in wrong.stdout


def test_policy_check_json_has_the_same_facts(here: Callable[..., Ended]) -> None:
    ended = here("policy.toml", "--job", "job.toml", "--analyst", "grace", "--json")
    output: dict[str, Any] = json.loads(ended.stdout)
    rules, tried = output["data_sets"][0], output["job"]
    assert (ended.returncode, output["passed"], output["problems"]) == (0, True, [])
    assert (rules["data_set"], rules["unit"], rules["norm_bound"]) == (
        "cohort",
        "row-add-remove",
        {"least": 4.0, "most": 20.0},
    )
    assert rules["lifetime"] == pytest.approx({"epsilon": 8, "delta": 1e-5, "mu": 1.66603053, "guess_at_most": 0.798})
    assert rules["largest_jobs"] == {"lifetime": 49, "per_analyst": 15}
    assert (tried["allowed"], tried["analyst"], tried["refusals"]) == (True, "grace", [])
    assert tried["price"]["mu"] == pytest.approx(0.236704, rel=1e-5)
    assert tried["such_jobs"] == {"lifetime": 49, "per_analyst": 15}
    assert sum(each["share"] for each in tried["queries"]) == pytest.approx(1)
    shown = here("policy.toml", "--job", "job.toml").stdout
    assert all(word in shown for each in tried["queries"] for word in each["name"].split())  # cells break lines


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"norm_bound": "30"}, ["norm_bound"]),
        ({"epsilon": "1.1"}, ["per_job"]),
        ({"minimum_providers": "1"}, ["minimum_providers"]),
        ({"dimension": "41"}, ["columns"]),
        ({}, []),
        ({"unit": '"row-replace-one"', "norm_bound": "1"}, ["unit", "norm_bound"]),
        ({"data_set": '"cohort"\nproviders = ["north"]'}, ["minimum_providers"]),
    ],
)
def test_a_refused_job_lists_every_rule_that_it_breaks(
    here: Callable[..., Ended], tmp_path: Path, changes: dict[str, str], rules: list[str]
) -> None:
    name = job(tmp_path, **changes)
    ended = here("policy.toml", "--job", name)
    assert (ended.returncode, "REFUSED" in ended.stdout) == ((1, True) if rules else (0, False))
    refusals = json.loads(here("policy.toml", "--job", name, "--json").stdout)["job"]["refusals"]
    assert len(refusals) == len(rules)
    for rule, refusal in zip(rules, refusals, strict=True):
        assert f"its rule '{rule}'." in refusal["what"]
        assert f"its rule '{rule}'." in ended.stdout


def test_an_unlisted_analyst_or_data_set_is_refused(here: Callable[..., Ended], tmp_path: Path) -> None:
    stranger = here("policy.toml", "--job", "job.toml", "--analyst", "eve")
    assert stranger.returncode == 1
    assert a_line_names(stranger.stdout, "eve", "REFUSED")
    assert a_line_names(stranger.stdout, "Asked", "eve")
    elsewhere = here("policy.toml", "--job", job(tmp_path, data_set='"trial"'))
    assert elsewhere.returncode == 1
    assert "Data set " not in elsewhere.stdout
    assert a_line_names(elsewhere.stdout, "'trial'")


def test_one_of_several_data_sets_can_be_chosen(here: Callable[..., Ended], tmp_path: Path) -> None:
    second = SAMPLE.replace("[data_sets.cohort]", "[data_sets.trial]").replace("epsilon = 1.0", "epsilon = 0.5")
    (tmp_path / "two.toml").write_text(SAMPLE + second, encoding="utf-8")
    (tmp_path / "bare.toml").write_text(
        (tmp_path / "job.toml").read_text(encoding="utf-8").replace("data_set = ", "# data_set = "), encoding="utf-8"
    )
    assert [line for line in here("two.toml").stdout.splitlines() if line.startswith("Data set")] == [
        "Data set cohort",
        "Data set trial",
    ]
    for ended in (
        here("two.toml", "--data-set", "trial"),
        here("two.toml", "--job", "bare.toml", "--data-set", "trial"),
    ):
        assert "Data set trial" in ended.stdout
        assert "Data set cohort" not in ended.stdout
    assert here("two.toml", "--job", "bare.toml", "--data-set", "cohort").returncode == 0
    assert here("two.toml", "--job", "bare.toml", "--data-set", "trial").returncode == 1


def test_all_errors_of_a_policy_are_listed_and_no_job_is_checked(here: Callable[..., Ended], tmp_path: Path) -> None:
    name = changed(tmp_path, "columns = 40\n", "columns = 0\ncolour = 3\n")
    for words in ((name,), (name, "--job", "job.toml")):
        ended = here(*words)
        assert ended.returncode == 1
        first, second = ended.stdout.splitlines()
        assert "'cohort': columns is 0" in first
        assert names_facts(second, "'cohort'", "'colour'", "'columns'")
    output = json.loads(here(name, "--json").stdout)
    assert (output["passed"], len(output["problems"]), output["data_sets"], output["job"]) == (False, 2, [], None)


def test_a_policy_without_data_sets_is_valid_and_allows_nothing(here: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("data_sets = {}\n", encoding="utf-8")
    ended = here("none.toml")
    (line,) = ended.stdout.splitlines()
    assert (ended.returncode, line.startswith("No data set")) == (0, True)
    assert "refused" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.toml"], "gone.toml cannot be read: No such file or directory. Give the path of a policy in TOML."),
        (["latin.toml"], "latin.toml is not a policy in TOML."),
        (["policy.toml", "--job", "gone.toml"], "gone.toml cannot be read"),
        (["policy.toml", "--job", "odd.toml"], "unknown key 'colour'"),
        (["policy.toml", "--analyst", "ada"], "--analyst is given without --job."),
        (["policy.toml", "--job", "job.toml", "--analyst", "Ada"], "the party's name is 'Ada'."),
        (
            ["policy.toml", "--job", "job.toml", "--data-set", "trial"],
            "'trial', but the job's file already names 'cohort'",
        ),
        (["policy.toml", "--job", "bare.toml"], "The job names no data set."),
        (["policy.toml", "--data-set", "trial"], "policy has no table for the data set 'trial'"),
    ],
)
def test_invalid_arguments_exit_with_2_in_one_line(
    here: Callable[..., Ended], tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    job(tmp_path, name="bare.toml", data_set='"cohort"')
    bare = (tmp_path / "bare.toml").read_text(encoding="utf-8").replace("data_set = ", "# data_set = ")
    (tmp_path / "bare.toml").write_text(bare, encoding="utf-8")
    (tmp_path / "odd.toml").write_text("colour = 3\n" + bare, encoding="utf-8")
    ended = here(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert message in ended.stderr


def test_text_in_a_policy_cannot_control_the_terminal(here: Callable[..., Ended], tmp_path: Path) -> None:
    name = changed(tmp_path, "columns = 40\n", 'columns = ["age\\u001b[2J"]\n')
    assert "age\\x1b[2J" in here(name).stdout
