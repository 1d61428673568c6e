"""The `dpspca` command as people run it: real processes, their files, their exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpspca import __version__
from dpspca.common.model import Model
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema

Ended = subprocess.CompletedProcess[str]
SMALL = ["demo", "--rows", "8000", "--dimension", "40", "--components", "2", "--sparsity", "12", "--epsilon", "4"]


def run(folder: Path, *arguments: str) -> Ended:
    return python(folder, "-m", "dpspca.cli.main", *arguments)


def python(folder: Path, *arguments: str) -> Ended:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)  # noqa: S603  # our own code


def object_of(ended: Ended) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    read: dict[str, Any] = json.loads(ended.stdout)
    return read


def refusal_of(ended: Ended) -> str:
    """Check that an error is told in a line for people, and give it back."""
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    return ended.stderr


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("seeded")
    return folder, run(folder, *SMALL, "--seed", "7", "--json")


def test_a_demo_says_that_its_rows_are_made_up_draws_fresh_noise_and_leaves_its_files(tmp_path: Path) -> None:
    ended = run(tmp_path, *SMALL)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("MADE-UP ROWS")
    assert "NOT FOR RELEASE" not in ended.stdout
    assert "is (4, 1e-06)-differentially private" in ended.stdout
    folder = tmp_path / "out" / "demo"
    paths = ended.stdout.partition("Written:\n")[2].split()
    assert [tmp_path / path for path in paths] == [
        folder / name for name in ("model.dpspca", "scree.png", "loadings.png", "result.json")
    ]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in ("scree.png", "loadings.png"))
    assert Model.from_bytes((folder / "model.dpspca").read_bytes()).statement.releasable


def test_a_demo_finds_the_truth(seeded: tuple[Path, Ended]) -> None:
    """Deterministic (fixed seed). Over 150 runs without one the mean was 0.038, the largest 0.054; chance gives 1.4."""
    result = object_of(seeded[1])
    assert result["subspace_distance"] < 0.1
    assert result["true_features_found"] >= 9
    assert result["true_features"] == 10


def test_progress_goes_to_standard_error_a_plain_line_for_every_answer(seeded: tuple[Path, Ended]) -> None:
    _, ended = seeded
    questions = object_of(ended)["questions"]
    lines = ended.stderr.splitlines()
    assert len(lines) == len(questions) == questions[0]["total"]
    assert "round 1 of" in lines[1]
    assert "4 answers" in lines[1]
    assert "\x1b" not in ended.stderr


def test_json_is_one_object_on_standard_output_and_equal_to_the_stored_one(seeded: tuple[Path, Ended]) -> None:
    folder, ended = seeded
    result = object_of(ended)
    assert result == json.loads((folder / result["files"]["result"]).read_text(encoding="utf-8"))
    assert result["made_up_rows"] is True
    assert sum(result["shard_sizes"]) == 8000
    assert len(set(result["shard_sizes"])) == 4
    assert len(result["model"]["components"]) == 2


def test_the_privacy_spent_grows_with_every_priced_answer_up_to_what_the_statement_says(
    seeded: tuple[Path, Ended],
) -> None:
    result = object_of(seeded[1])
    spent = [question["epsilon"] for question in result["questions"]]
    assert spent == sorted(spent)
    assert spent[-1] == result["model"]["statement"]["exact_epsilon"] <= 4
    assert result["questions"][-1]["mu"] == result["model"]["statement"]["mu"]


def test_the_bytes_counted_are_those_of_the_questions_and_answers(seeded: tuple[Path, Ended]) -> None:
    moved = [question["bytes_moved"] for question in object_of(seeded[1])["questions"]]
    assert moved[0] == 4 * 8  # a count from each of four providers
    assert moved[1] - moved[0] == 4 * 8 * (40 * 2 + 40 * 2)  # a basis to each, a product back
    assert moved[-1] - moved[-2] == 4 * 8 * (40 * 2 + 2 * 2 + 1)  # a basis to each, a small square and a rest back


def test_a_seed_repeats_the_model_to_the_last_byte_and_forbids_its_release(
    seeded: tuple[Path, Ended], tmp_path: Path
) -> None:
    folder, ended = seeded
    first = (folder / object_of(ended)["files"]["model"]).read_bytes()
    again = run(tmp_path, *SMALL, "--seed", "7", "--quiet", "--out", "elsewhere")
    assert again.stderr == ""
    assert again.stdout.split() == [
        str(Path("elsewhere") / name) for name in ("model.dpspca", "scree.png", "loadings.png", "result.json")
    ]
    assert (tmp_path / "elsewhere" / "model.dpspca").read_bytes() == first
    assert object_of(ended)["model"]["statement"]["releasable"] is False
    assert object_of(ended)["model"]["statement"]["text"].startswith("NOT FOR RELEASE")


def test_a_stored_model_is_shown_in_words_and_in_numbers(seeded: tuple[Path, Ended]) -> None:
    folder, ended = seeded
    stored = object_of(ended)["files"]["model"]
    words, numbers = run(folder, "show", stored), run(folder, "show", stored, "--json")
    assert object_of(numbers) == object_of(ended)["model"]
    assert words.stdout.startswith("2 components; 12 of 40 features take part.")
    assert "NOT FOR RELEASE" in words.stdout


def test_a_plan_lists_every_question_and_its_shares_make_up_the_total(tmp_path: Path) -> None:
    flags = (
        "--dimension 400 --components 3 --sparsity 20 --norm-bound 50 --unit row-replace-one --epsilon 1 --delta 1e-6"
    )
    from_flags = object_of(run(tmp_path, "plan", *flags.split(), "--json"))
    assert from_flags["questions"][0] == {
        "name": "count",
        "kind": "count",
        "numbers": 1,
        "noise_std": 0,
        "mu": 0,
        "share": 0,
    }
    assert sum(question["share"] for question in from_flags["questions"]) == pytest.approx(1)
    assert from_flags["total"]["epsilon"] == pytest.approx(1, abs=1e-6)
    assert from_flags["total"]["epsilon"] <= 1
    (tmp_path / "job.json").write_text(json.dumps(from_flags["job"]))
    assert object_of(run(tmp_path, "plan", "job.json", "--json")) == from_flags


def test_a_plan_is_printed_as_a_table_with_its_total(tmp_path: Path) -> None:
    spec = JobSpec(
        schema=Schema(50),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(2.0, 1e-5),
        norm_bound=1.0,
        components=2,
        options={"sparsity": 9, "rounds": 3},
    )
    (tmp_path / "job.json").write_text(spec.to_json())
    ended = run(tmp_path, "plan", "job.json")
    assert ended.returncode == 0, ended.stderr
    assert "round 3 of 3" in ended.stdout
    assert "covariance-product" in ended.stdout
    assert "the budget is epsilon = 2" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--epsilon", "-1"], "epsilon is -1.0; it must be above 0"),
        (["demo", "--rows", "2000000000"], "more than a demonstration holds"),
        (["plan", "--dimension", "5"], "these flags are needed: --components"),
        (["plan", "job.json", "--epsilon", "1"], "Both a job and flags are given: --epsilon"),
        (["show", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_a_mistake_is_told_in_a_line_without_a_traceback_and_exits_with_2(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    assert said in refusal_of(run(tmp_path, *arguments))


def test_a_folder_that_cannot_be_made_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refusal_of(run(tmp_path, *SMALL, "--out", "file/demo"))


def test_bytes_that_are_no_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"\x80\x04no model")
    assert "do not hold a model" in refusal_of(run(tmp_path, "show", "model"))


def test_an_unknown_flag_exits_with_2(tmp_path: Path) -> None:
    ended = run(tmp_path, "demo", "--sede", "1")
    assert ended.returncode == 2
    assert "--sede" in ended.stderr


def test_the_version_and_the_exit_codes_are_told(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout == f"dpspca {__version__}\n"
    assert "Exit codes" in run(tmp_path, "--help").stdout


WITHOUT = "import sys; sys.modules[{!r}] = None; sys.argv = {!r}; from dpspca.cli.main import main; main()"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(package: str, tmp_path: Path) -> None:
    ended = python(tmp_path, "-c", WITHOUT.format(package, ["dpspca", "--version"]))
    assert "pip install 'dpspca[cli]'" in refusal_of(ended)


def test_without_matplotlib_a_demo_has_no_plots_and_says_why(tmp_path: Path) -> None:
    result = object_of(python(tmp_path, "-c", WITHOUT.format("matplotlib", ["dpspca", *SMALL, "--json"])))
    assert sorted(result["files"]) == ["model", "result"]
    assert "pip install 'dpspca[plots]'" in result["notes"][0]
    assert sorted(path.name for path in (tmp_path / "out" / "demo").iterdir()) == ["model.dpspca", "result.json"]
