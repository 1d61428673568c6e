"""Commands that errors, help and pages of the dashboard name in backticks exist, with the flags that are shown."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dpspca.cli.app import whole_program

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("common", "provider", "server", "client", "cli")
COMMAND: Final = re.compile(r"`dpspca ([^`]*)`")
OF_A_JOB: Final = "evidence JOB"
"""A name of a job stands in the place of a command."""


def texts() -> Iterator[str]:
    """Yield all texts in the code, and all sample files."""
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
    yield from (path.read_text(encoding="utf-8") for path in (ROOT / "deploy").rglob("*.toml"))
    yield from (path.read_text(encoding="utf-8") for path in (ROOT / "cli").rglob("*.html"))


def is_known(command: str) -> bool:
    found: Any = whole_program()
    words = command.split()
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        if words[0] not in found.commands:
            return False
        found = found.commands[words.pop(0)]
    flags = {spelled for each in found.params for spelled in (*each.opts, *each.secondary_opts)} | {"--help"}
    return {word.split("=")[0] for word in words if word.startswith("--")} <= flags


def test_hints_name_commands_and_flags_that_exist() -> None:
    named = {command for text in texts() for command in COMMAND.findall(text)} - {OF_A_JOB}
    assert len(named) >= 40
    assert [command for command in sorted(named) if not is_known(command)] == []
