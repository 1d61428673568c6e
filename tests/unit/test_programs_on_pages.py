"""The programs, targets of make, extras and paths that pages name are there, with the flags that the pages show."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest
from pages import PAGES, ROOT

CODE: Final = re.compile(r"```\w*\n.*?```|`[^`]+`", re.DOTALL)
COMMAND: Final = re.compile(r"(?:^|[`\s$])((?:\S*/)?(?:python3?|bash) [\w/.-]+\.(?:py|sh)[^`\n]*|make [a-z][^`\n]*)")
FOLDERS: Final = "common|provider|server|client|cli|protos|deploy|tests|bench|docs|examples"
FILE: Final = re.compile(r"`([a-z_]+\.py)`")
"""A file without its folder."""
PATH: Final = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
EXTRA: Final = re.compile(r"pip install '(?:\.|dpspca)\[([^\]]+)\]'")


def named(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield what matches a pattern in the code of all pages, with the page."""
    for page in PAGES:
        for code in CODE.findall(page.read_text(encoding="utf-8")):
            for found in pattern.findall(code.replace("\\\n", " ")):
                yield page.relative_to(ROOT).as_posix(), found


COMMANDS: Final = sorted(set(named(COMMAND)))


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page}: {text}"[:80] for page, text in COMMANDS])
def test_a_program_on_a_page_is_there_and_knows_its_flags(page: str, command: str) -> None:
    del page
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets
        return
    text = (ROOT / words[1]).read_text(encoding="utf-8")
    flags = {word.split("=")[0].removeprefix("--") for word in words[2:] if word.startswith("--")}
    assert {flag for flag in flags if not re.search(rf'"(--)?{flag}"', text)} == set()


def test_pages_name_programs() -> None:
    assert len({command.split()[1] for _, command in COMMANDS}) >= 20


def test_every_extra_on_a_page_is_one_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked = {extra for _, found in named(EXTRA) for extra in found.split(",")}
    assert asked
    assert asked <= set(extras)


def test_every_path_on_a_page_is_there() -> None:
    paths = set(named(PATH))
    assert len(paths) >= 40
    assert [(page, path) for page, path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_file_that_a_page_names_is_in_some_folder() -> None:
    there = {path.name for folder in FOLDERS.split("|") for path in (ROOT / folder).rglob("*.py")}
    named_files = set(named(FILE))
    assert named_files
    assert [(page, name) for page, name in sorted(named_files) if name not in there] == []
