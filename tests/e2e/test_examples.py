"""Every file in examples/ runs as it stands, in an empty folder, with the installed program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpspca import load_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*words: str | Path) -> str:
    """Run a program with our `dpspca` and `python3` first on its path, and return its output."""
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(  # noqa: S603  # our own examples
        [*map(str, words)], capture_output=True, text=True, env=environ, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_every_example_is_tested_and_listed() -> None:
    here = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert here == {"analyst.py", "analyst.ipynb", "operator.sh", "researcher.py", "steward.sh"}
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}]({name})" in listed for name in here)


def test_analyst_py_writes_a_model_and_its_statement(tmp_path: Path) -> None:
    shown = run(sys.executable, EXAMPLES / "analyst.py", tmp_path)
    assert "(1, 1e-06)-differentially private" in shown
    # In 500 runs none missed one of these columns.
    assert {0, 1, 2, 3} <= set(load_model(tmp_path / "model.dpspca").support)
    assert "(1, 1e-06)" in (tmp_path / "statement.txt").read_text(encoding="utf-8")


def test_analyst_ipynb_runs_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((EXAMPLES / "analyst.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "outputs do not belong in the repository"
            exec(compile("".join(cell["source"]), "analyst.ipynb", "exec"), names)  # noqa: S102  # our own text
    assert "(1, 1e-06)-differentially private" in capsys.readouterr().out


def test_steward_sh_explains_a_policy_and_refuses_a_job(tmp_path: Path) -> None:
    shown = run("bash", EXAMPLES / "steward.sh", tmp_path)
    assert "REFUSED" in shown
    assert "per_job" in shown


@pytest.mark.slow
def test_operator_sh_runs_a_federation_with_sound_ledgers(tmp_path: Path) -> None:
    shown = run("bash", EXAMPLES / "operator.sh", tmp_path)
    assert {0, 1, 2, 3} <= set(load_model(tmp_path / "model.dpspca").support)
    assert shown.count("All is well up to entry") == 2


@pytest.mark.slow
def test_researcher_py_shows_the_gain_of_exact_noise() -> None:
    """With the paper's noise the error stays large at all these budgets. With exact noise it is small at epsilon 3."""
    table = {line[:28].strip(): [float(cell) for cell in line[28:].split()] for line in run(
        sys.executable, EXAMPLES / "researcher.py"
    ).splitlines()[1:]}  # fmt: skip
    assert table["dps-pca"][-1] < table["dps-pca, the paper's noise"][-1] / 2
