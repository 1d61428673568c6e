"""What the pages show can be typed: the tutorial runs as it stands, and every command has the flags shown."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import typer
from commands import Ended, commands_in

from dpspca.cli.app import app

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*/README.md"))]
TUTORIAL: Final = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Give every ``dpspca`` command in a block of shell, with the page that shows it."""
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines() if language == "sh" else ():
                words = shlex.split(line, comments=True)
                if words and words[0] == "dpspca":
                    yield page.relative_to(ROOT).as_posix(), words[1:]


COMMANDS: Final = list(shown_commands())


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[f"{page}: {' '.join(words)[:60]}" for page, words in COMMANDS]
)
def test_a_command_on_a_page_exists_and_has_the_flags_shown(page: str, words: list[str]) -> None:
    command = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands"):
        assert words, page
        command = command.commands[words.pop(0)]
    flags = {spelled for parameter in command.params for spelled in [*parameter.opts, *parameter.secondary_opts]}
    used = {word.split("=")[0] for word in words if word.startswith("--")}
    assert used <= flags | {"--help"}, page


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def test_the_tutorial_runs_from_its_first_command_to_its_last(here: Callable[..., Ended], tmp_path: Path) -> None:
    """In one folder, one block after the other. `pip` is left to the tests of the wheel."""
    names: dict[str, object] = {}
    for language, block in BLOCK.findall(TUTORIAL):
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), names)  # noqa: S102  # our own text
            continue
        for line in block.splitlines():
            _, *words = shlex.split(line)
            words, out = (words[:-2], tmp_path / words[-1]) if ">" in words else (words, None)
            ended = here(*words)
            assert ended.code == 0, ended.err
            if out:
                out.write_text(ended.out, encoding="utf-8")
    made = {path.name for path in tmp_path.iterdir()}
    assert {"demo", "job.json", "policy.toml", "model.dpspca", "loadings.csv"} <= made
