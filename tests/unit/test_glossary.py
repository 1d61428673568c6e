"""The words of docs/glossary.md are those of the code and of the command line, and their rivals are nowhere."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Final

from dpspca import DPSPCA
from dpspca.cli.app import whole_program
from dpspca.cli.arguments.job_flags import Flags
from dpspca.common.job import JobSpec

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
RIVALS: Final = re.compile(
    r"adjacen|n_iter|dataset|question_|patience|minimum_part|data_steward|unit_flag|(^|_)(tell|told|said|say)(_|$)"
)
OTHERS: Final = {"datasets"}
"""A command's name."""
RIVAL_KEYS: Final = {"algorithm", "algorithms", "minimum_parties", "center", "scale", "spec"}
"""What flags, parameters and keys of files were called before. Inside the code, some mean other things."""
RIVAL_WORDS: Final = re.compile(
    r"data steward|--(center|scale|spec|algorithm|minimum-parties)\b"
    r"|unit\W{1,6}(replace-one|add-remove)\b|\bcenter ?= ?[\"']"
    r"|[Rr]eleas(e|es|ed|ing)\s(it\s(with|and\scount)|(the|a)\s(ledger|quarantine))\b|ledger\srelease"
    r"|[Aa] release (needs|cannot)|quarantine[sd]?\s(and|or)\srelease|(next|later|this) release (names|counts)"
)
"""What pages, samples, examples and messages called things before."""
CALLED_BEFORE: Final = {("README.md", "data steward"), ("operations.md", "ledger release")}
"""The stewards of other tools, and the command of 0.1.0 on the page about going back to it."""
WRITTEN: Final = (*FOLDERS, "docs", "deploy", "examples", "bench")


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


def test_flags_parameters_and_keys_are_not_called_as_before() -> None:
    flags = {each.removeprefix("--").replace("-", "_") for each in commands(whole_program()) if each[:2] == "--"}
    keys = {each.name for kind in (Flags, JobSpec) for each in fields(kind)}
    assert not RIVAL_KEYS & {*flags, *keys, *inspect.signature(DPSPCA).parameters}
    for sample in (ROOT / "deploy" / "samples").glob("*.toml"):
        found = {*keys_of(tomllib.loads(sample.read_text(encoding="utf-8")))}
        allowed = {"scale"} if sample.stem == "dictionary" else set()
        assert not {key for key in found if RIVALS.search(key) or key in RIVAL_KEYS - allowed}, sample.name


def keys_of(table: object) -> Iterator[str]:
    """Yield the keys of a table and of the tables in it."""
    for key, value in table.items() if isinstance(table, dict) else ():
        yield key
        yield from keys_of(value)


def test_pages_examples_and_messages_use_no_word_of_before() -> None:
    written = [*ROOT.glob("*.md"), *(path for name in WRITTEN for path in (ROOT / name).rglob("*"))]
    kinds = {".md", ".py", ".ipynb", ".sh", ".toml", ".json", ".html"}
    read = {path: path.read_text(encoding="utf-8") for path in written if path.suffix in kinds and path.is_file()}
    used = {(path.name, word[0]) for path, text in read.items() for word in RIVAL_WORDS.finditer(text)}
    assert {each for each in used if each[0] != "CHANGELOG.md"} == CALLED_BEFORE


def test_the_spellings_in_the_glossary_are_those_of_the_code() -> None:
    samples = [path.read_text(encoding="utf-8") for path in (ROOT / "deploy" / "samples").glob("*.toml")]
    known = {*names(), *commands(whole_program()), *re.findall(r"\w+", "".join(samples)), "dpspca"}
    written = [part for each in SPELLED for part in ([each] if each[:2] == "--" or " " in each else each.split("."))]
    assert len(written) >= 20
    assert set(written) <= known
