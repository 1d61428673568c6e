"""docs/methods.md agrees with the catalogue and with plans, and its examples run."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from commands import Ended, commands_in

from dpspca import DPSPCA
from dpspca.cli.arguments.method_options import DEFAULT_METHOD
from dpspca.client.jobs import JobFile
from dpspca.client.simulation import simulate
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.algorithms.steps.options import Option

DOCS: Final = Path(__file__).parents[3] / "docs" / "methods.md"
TEXT: Final = DOCS.read_text(encoding="utf-8")
SECTIONS: Final = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", TEXT, flags=re.DOTALL | re.MULTILINE))
TABLE: Final = {
    cells[0]: cells[1:]
    for cells in (line.strip("| ").split(" | ") for line in TEXT.splitlines() if line.startswith("| [`"))
}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def example(name: str) -> list[str]:
    """Return the arguments of the section's only command."""
    (block,) = re.findall(r"```sh\n(.*?)```", SECTIONS[name], flags=re.DOTALL)
    program, *words = shlex.split(block)
    assert program == "dpspca"
    return words


def bullet(option: Option) -> str:
    """Return an option in the notation of its section."""
    default = "" if option.default is None else f" (default `{str(option.default).lower()}`)"
    return f"- `{option.name}`{' (required)' if option.required else default}: {option.help}"


def test_every_method_has_a_section_and_a_table_row_in_order() -> None:
    assert list(SECTIONS) == list(CATALOGUE)
    assert list(TABLE) == [f"[`{name}`](#{name})" for name in CATALOGUE]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_section_lists_all_options_of_its_method(name: str) -> None:
    unwrapped = re.sub(r"\n +", " ", SECTIONS[name])
    listed = [line for line in unwrapped.splitlines() if line.startswith("- `")]
    assert listed == [bullet(each) for each in CATALOGUE[name].options]


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_example_has_the_plan_in_the_table_and_runs(name: str, here: Callable[..., Ended]) -> None:
    facts = here(*example(name), "--centering", "none", "--write", "job.json", "--json").facts
    assert facts["job"]["method"] == name
    _, units, noise, accounting, numbers, _ = TABLE[f"[`{name}`](#{name})"]
    assert units == ", ".join(CATALOGUE[name].units)
    assert accounting == ", ".join(CATALOGUE[name].accounting)
    kinds = {query["noise"] for query in facts["queries"]} - {"none"}
    assert noise == ", ".join(sorted(kinds))
    assert numbers == f"{sum(query['numbers'] for query in facts['queries']):,}"
    spec = JobFile.read(Path("job.json")).spec
    rows = np.random.default_rng(0).standard_normal((300, spec.schema.dimension))
    assert simulate([rows], spec, noise_seed=0).components.shape == (spec.components, spec.schema.dimension)


def test_the_job_file_shown_is_valid(here: Callable[..., Ended], tmp_path: Path) -> None:
    (job,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    (tmp_path / "job.toml").write_text(job)
    facts = here("plan", "job.toml", "--json").facts
    assert facts["job"]["method"] != DEFAULT_METHOD
    assert facts["job"]["options"]


def test_the_python_shown_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(shown, str(DOCS), "exec"), names)  # noqa: S102  # our own text
    assert "(1, 1e-06)-differentially private" in capsys.readouterr().out
    pca = names["pca"]
    assert isinstance(pca, DPSPCA)
    assert pca.rounds_ == 3
