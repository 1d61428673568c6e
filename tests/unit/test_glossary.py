"""The words of docs/glossary.md are those of the code and of the command line, and their rivals are nowhere."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from dpspca.cli.app import whole_program

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("common", "provider", "server", "client", "cli")
SPELLED: Final = sorted(
    {
        spelling
        for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
        if (row := re.match(r"\| \*\*[^|]+\| ", line))
        for spelling in re.findall(r"`([^`]+)`", row[0])
    }
)
"""How terms are spelled in code and on the command line: in the first column of the page's tables."""
RIVALS: Final = re.compile(r"adjacen|n_iter|dataset|question_|patience|(^|_)(tell|told|said|say)(_|$)")
OTHERS: Final = {"datasets"}
"""A command's name."""


@cache
def names() -> frozenset[str]:
    """Return every name in the product's code that is ours to choose, with its words divided by underscores."""
    found = set[str]()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name):
                found.add(node.id)
    return frozenset(found)


def words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def commands(command: object, path: str = "dpspca") -> Iterator[str]:
    """Yield the names of a command and of its subcommands, and all their flags."""
    yield path
    for parameter in getattr(command, "params", ()):
        yield from (*parameter.opts, *parameter.secondary_opts)
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{path} {name}")


def test_no_name_uses_a_word_that_the_glossary_has_another_for() -> None:
    assert {name for name in names() if RIVALS.search(words(name))} == OTHERS


def test_the_spellings_in_the_glossary_are_those_of_the_code() -> None:
    samples = [path.read_text(encoding="utf-8") for path in (ROOT / "deploy" / "samples").glob("*.toml")]
    known = {*names(), *commands(whole_program()), *re.findall(r"\w+", "".join(samples)), "dpspca"}
    written = [part for each in SPELLED for part in ([each] if each[:2] == "--" or " " in each else each.split("."))]
    assert len(written) >= 20
    assert set(written) <= known
