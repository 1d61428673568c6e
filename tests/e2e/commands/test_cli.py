"""The `dpspca` command as people run it: real processes, their files, their exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import names_facts

from dpspca import __version__, load_model, save_model
from dpspca.cli.main import main
from dpspca.client.findings import WITHIN_NOISE
from dpspca.common.linalg import subspace_distance
from dpspca.common.queries import BINS
from dpspca.common.results import Model
from dpspca.common.results.statement import TRUST

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
    """Check that an error is one line for people, and return it."""
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    return ended.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command in this process, because starting one takes most of a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # typer puts another in its place

    def run_here(*arguments: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["dpspca", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return Ended(arguments, int(ended.value.code or 0), written.out, written.err)

    return run_here


def unwrapped(ended: Ended) -> str:
    return " ".join(ended.stdout.split())


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("seeded")
    return folder, run(folder, *SMALL, "--seed", "7", "--json")


@pytest.mark.slow
def test_a_demo_says_its_rows_are_made_up_and_writes_its_files(tmp_path: Path) -> None:
    ended = run(tmp_path, *SMALL)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("MADE-UP ROWS")
    assert TRUST in unwrapped(ended)
    assert "is (4, 1e-06)-differentially private" in ended.stdout
    folder = tmp_path / "out" / "demo"
    paths = ended.stdout.partition("Written:\n")[2].split()
    assert [tmp_path / path for path in paths] == [
        folder / name for name in ("model.dpspca", "scree.png", "loadings.png", "biplot.png", "result.json")
    ]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in ("scree.png", "loadings.png"))
    assert Model.from_bytes((folder / "model.dpspca").read_bytes()).statement.releasable


@pytest.mark.slow
def test_a_demo_finds_the_truth(seeded: tuple[Path, Ended]) -> None:
    """In 150 runs with fresh rows and noise the mean distance was 0.038, the largest 0.054. Chance gives 1.4."""
    result = object_of(seeded[1])
    assert result["subspace_distance"] < 0.1
    assert result["true_features_found"] >= 9
    assert result["true_features"] == 10


def test_progress_goes_to_standard_error_as_lines(seeded: tuple[Path, Ended]) -> None:
    _, ended = seeded
    total = object_of(ended)["queries"][-1]["total"]
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"{total} of {total}  explained variance: site-1, site-2, site-3, site-4 answered; so far ")
    assert "\x1b" not in ended.stderr


def test_demo_json_is_one_object_equal_to_the_stored_one(seeded: tuple[Path, Ended]) -> None:
    folder, ended = seeded
    result = object_of(ended)
    assert result == json.loads((folder / result["files"]["result"]).read_text(encoding="utf-8"))
    assert result["made_up_rows"] is True
    sizes = [each["rows"] for each in result["participants"]]
    assert sum(sizes) == 8000
    assert len(set(sizes)) == 4
    assert len(result["model"]["components"]) == 2


def test_spent_privacy_grows_up_to_what_the_statement_says(
    seeded: tuple[Path, Ended],
) -> None:
    result = object_of(seeded[1])
    spent = [query["epsilon"] for query in result["queries"]]
    assert spent == sorted(spent)
    assert spent[-1] == result["model"]["statement"]["exact_epsilon"] <= 4


def test_counted_bytes_cover_all_numbers_sent_and_received(
    seeded: tuple[Path, Ended],
) -> None:
    result = object_of(seeded[1])
    numbers = 1 + BINS + 40 * 40  # a count, a histogram of norms, and the whole matrix
    assert 4 * 8 * numbers < result["bytes_moved"] < 2 * 4 * 8 * numbers + 4 * result["queries"][-1]["total"] * 3000
    assert result["queries"][-1]["bytes_moved"] == result["bytes_moved"]


@pytest.mark.slow
def test_a_seed_repeats_the_rows_and_never_the_noise(seeded: tuple[Path, Ended], tmp_path: Path) -> None:
    folder, ended = seeded
    first = load_model(folder / object_of(ended)["files"]["model"])
    again = run(tmp_path, *SMALL, "--seed", "7", "--quiet", "--out", "elsewhere")
    assert again.stderr == ""
    assert again.stdout.split() == [
        str(Path("elsewhere") / name)
        for name in ("model.dpspca", "scree.png", "loadings.png", "biplot.png", "result.json")
    ]
    second = load_model(tmp_path / "elsewhere" / "model.dpspca")
    same = {"decision": "", "weights": ""}  # these follow from noisy answers
    assert replace(second.statement, **same) == replace(first.statement, **same)
    assert second.statement.releasable
    assert 0 < subspace_distance(first.components.T, second.components.T) < 0.2


def test_a_stored_model_is_shown_in_words_and_in_numbers(seeded: tuple[Path, Ended]) -> None:
    folder, ended = seeded
    stored = object_of(ended)["files"]["model"]
    words, numbers = run(folder, "model", "show", stored), run(folder, "model", "show", stored, "--json")
    assert object_of(numbers) == object_of(ended)["model"]
    assert words.stdout.startswith(f"2 components; {object_of(numbers)['support_size']} of 40 features in the support.")
    decision = object_of(numbers)["statement"]["decision"]
    assert names_facts(decision, "covariance matrix", 40)
    assert decision in unwrapped(words)
    assert TRUST in unwrapped(words)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--epsilon", "-1"], ("epsilon", "-1.0", 48)),
        (["demo", "--rows", "2000000000"], ("--rows",)),
        (["demo", "--rows", "100", "--dimension", "4001"], (4001, 4000)),
        (["demo", "--panel", "nowhere.whl"], ("nowhere.whl",)),
        (["demo", "--panel", "nowhere.whl", "--seed", "1", "--rows", "5"], ("--rows, --seed", "--panel")),
        (["demo", "--components", "4", "--sparsity", "3"], ("--sparsity", 4)),
        (["model", "show", "nowhere"], ("nowhere", "`dpspca run`")),
        (["model", "show", "nowhere", "--top", "0"], ("--top", 0, 1)),
    ],
)
def test_an_error_is_one_line_without_traceback_and_exits_with_2(
    arguments: list[str], named: tuple[object, ...], here: Callable[..., Ended]
) -> None:
    assert names_facts(refusal_of(here(*arguments)), *named)


def test_a_folder_that_cannot_be_made_is_reported_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refusal_of(run(tmp_path, *SMALL, "--out", "file/demo"))


@pytest.mark.parametrize("name", ["model.dpspca", "loadings.png", "result.json"])
def test_a_file_that_cannot_be_written_is_reported_before_any_work(
    name: str, tmp_path: Path, here: Callable[..., Ended]
) -> None:
    (tmp_path / "there" / name).mkdir(parents=True)
    assert f"{name} cannot be written" in refusal_of(here(*SMALL, "--out", "there"))


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that not even root can write to")
def test_a_read_only_folder_is_reported_before_any_work(here: Callable[..., Ended]) -> None:
    assert names_facts(refusal_of(here(*SMALL, "--out", "/proc")), "/proc")


@pytest.mark.parametrize(
    "stored",
    [
        b"\x80\x04no model",
        b"[" * 200_000,
        b'{"format": {}}\n',
        b'{"format": "dpspca-model-2", "feature_names": 3, "shapes": []}\n',
        b"9" * 5000,
        b"",
    ],
)
def test_model_show_refuses_bytes_that_are_not_a_model(
    stored: bytes, tmp_path: Path, here: Callable[..., Ended]
) -> None:
    (tmp_path / "model").write_bytes(stored)
    assert "model" in refusal_of(here("model", "show", "model"))


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b'"mu": ', b'"mu": "x", "old_mu": '),
        (b'"mu": ', b'"mu": 1e999, "fresh_noise": '),
        (b'"parties": 4', b'"parties": "four"'),
        (b'"explained_variance_std": ', b'"explained_variance_std": "little", "more": '),
        (b'"explained_variance_std": ', b'"explained_variance_std": 1e999, "more": '),
        (b'"centering": "none"', b'"centering": []'),
        (b'"shapes": {', b'"shapes": {"components": "2, 40", "more": {}}, "old": {'),
    ],
)
def test_model_show_refuses_an_altered_model(
    was: bytes, becomes: bytes, seeded: tuple[Path, Ended], tmp_path: Path, here: Callable[..., Ended]
) -> None:
    folder, ended = seeded
    whole = (folder / object_of(ended)["files"]["model"]).read_bytes()
    assert was in whole
    (tmp_path / "model").write_bytes(whole.replace(was, becomes, 1))
    refusal_of(here("model", "show", "model", "--json"))


def test_a_variance_within_the_noise_is_marked(
    seeded: tuple[Path, Ended], tmp_path: Path, here: Callable[..., Ended]
) -> None:
    folder, ended = seeded
    model = load_model(folder / object_of(ended)["files"]["model"])
    noisy = replace(
        model, decision=None, loading_std=None, explained_variance=np.array([9.0, 2.9]), explained_variance_std=1.0
    )
    save_model(noisy, tmp_path / "model")
    words, numbers = here("model", "show", "model").stdout, object_of(here("model", "show", "model", "--json"))
    assert words.count(", within the noise\n") == 1
    assert [component["within_noise"] for component in numbers["components"]] == [False, True]


@pytest.mark.slow
def test_a_demo_with_overwhelming_noise_says_so(here: Callable[..., Ended]) -> None:
    """With a hundred rows at epsilon 0.01 the result is only noise."""
    flags = ["--rows", "100", "--epsilon", "0.01", "--components", "1"]
    ended = here(*SMALL, *flags)
    assert ended.returncode == 0, ended.stderr
    table = ended.stdout.partition("of the total")[2].partition("Distance")[0]
    assert "within the noise" in table
    assert "%" not in table
    assert WITHIN_NOISE.capitalize() in table


INTERRUPTED = {
    "while typer is imported": """
class Key:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Key())
""",
    "while the job runs": """
import os, signal
import dpspca.cli.commands.demo
dpspca.cli.commands.demo.run = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", INTERRUPTED)
def test_an_interrupt_prints_one_line_and_exits_with_130(moment: str, tmp_path: Path) -> None:
    arguments = f"import sys\nsys.argv = {['dpspca', *SMALL, '--quiet']!r}\n"
    ended = python(tmp_path, "-c", arguments + INTERRUPTED[moment] + "from dpspca.cli.main import main\nmain()")
    assert (ended.returncode, ended.stderr) == (130, "Interrupted.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments", [["model", "show", "{}"], ["model", "show", "{}", "--json"], ["--version"], ["--help"]]
)
def test_output_to_a_full_disk_is_reported_and_exits_with_2(arguments: list[str], seeded: tuple[Path, Ended]) -> None:
    folder, ended = seeded
    stored = object_of(ended)["files"]["model"]
    command = [sys.executable, "-m", "dpspca", *(argument.format(stored) for argument in arguments)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder, check=False)  # noqa: S603  # our own code
    assert ended.returncode == 2
    assert ended.stderr.startswith("Reading or writing failed: No space left on device. Check")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_terminal_that_lacks_a_character_gets_the_rest(seeded: tuple[Path, Ended]) -> None:
    folder, ended = seeded
    command = [sys.executable, "-m", "dpspca", "model", "show", object_of(ended)["files"]["model"]]
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, env=plain)  # noqa: S603  # our own code
    assert (shown.returncode, shown.stderr) == (0, "")
    assert any(line.startswith("? ") for line in shown.stdout.splitlines())


def test_the_package_runs_as_the_command(tmp_path: Path) -> None:
    assert python(tmp_path, "-m", "dpspca", "--version").stdout == f"dpspca {__version__}\n"


def test_an_unknown_flag_exits_with_2(tmp_path: Path) -> None:
    ended = run(tmp_path, "demo", "--sede", "1")
    assert ended.returncode == 2
    assert "--sede" in ended.stderr


def test_the_version_and_the_exit_codes_are_printed(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout == f"dpspca {__version__}\n"
    assert "Exit codes" in run(tmp_path, "--help").stdout


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from dpspca.cli import main
main.main()
"""


@pytest.mark.slow
def test_without_matplotlib_a_demo_has_no_plots_and_says_why(tmp_path: Path) -> None:
    result = object_of(python(tmp_path, "-c", WITHOUT, *SMALL, "--json"))
    assert sorted(result["files"]) == ["model", "result"]
    assert "pip install matplotlib" in result["notes"][0]
    assert sorted(path.name for path in (tmp_path / "out" / "demo").iterdir()) == ["model.dpspca", "result.json"]
