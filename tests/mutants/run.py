"""Plant privacy bugs in copies of this project, one at a time, and report for each whether a test notices it.

``python tests/mutants/run.py`` runs all of them; names as arguments choose some, and ``--one-in N`` about one in N,
others with each commit. The checkout is never touched. Each mutant names a piece of code that must occur exactly once
in its file, so that none can rot unseen, and the tests that must fail. Code is compared word by word: comments,
docstrings, line breaks and indentation do not count, so rewording a comment or moving a function into a class breaks no
mutant. A mutant is killed when one of its tests fails; a mutant that cannot be run at all is broken.

The exit code is 1 when a mutant is broken, when one survives without an explanation in its file, or when fewer than
95 % are killed; 2 when a piece of code is not found once, a test is missing, or the tests fail without any mutant.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Final

from fork_server import ForkServers

ROOT: Final = Path(__file__).parents[2]
LISTS: Final = tuple(sorted(Path(__file__).parent.glob("*.toml")))
COPIED: Final = (
    "common", "provider", "server", "client", "cli", "protos", "src", "tests", "deploy", "docs", "bench",
    "pyproject.toml", "README.md", "Makefile",
)  # fmt: skip
PROBE: Final = "tests/mutants/probe.py"
LEAST_KILLED: Final = 0.95
TIMEOUT: Final = 900
"""Seconds for the tests of one mutant; a mutant that makes them hang is broken, not killed."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # tempfile makes a folder in it that is ours alone
LEAST_FREE: Final = 4 * 2**30
"""Bytes that have to be free there for copies of the project: writing them to a disk takes longer than most tests."""

PASSED, FAILED = 0, 1  # exit codes of pytest

WORD: Final = re.compile(
    r"""(?P<ignored>\s+|\\\n|\#[^\n]*)"""
    r"""|[rbfRBF]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|\d[\w.]*|\w+|.""",
    re.DOTALL,
)
"""One word of Python: a string, a name, a number or a sign. White space and comments are ignored."""


class UnusableError(Exception):
    """The mutants, or the tests without any, are not as they should be."""


@dataclass(frozen=True)
class Mutant:
    """A bug, and the tests that should notice it. ``survives`` explains why none can."""

    name: str
    gives_away: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    survives: str = ""

    def planted_in(self, text: str) -> str:
        """Return a file's text with the bug in it."""
        found = places(text, self.find)
        if len(found) != 1:
            raise UnusableError(f"{self.name}: its code occurs {len(found)} times in {self.file}.")
        start, end = found[0]
        columns = _indent(self.find.lstrip("\n"), 0)
        code = _moved(self.replace, _indent(text, start) - columns if columns else 0)
        return text[:start] + code + text[end:]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    name: str
    outcome: str
    seconds: float
    file: str
    gives_away: str
    survives: str
    said: str = ""


def words(text: str) -> list[tuple[str, int, int]]:
    """Split Python into words, each with its start and its end, without comments and docstrings."""
    found = [(each.group(), *each.span()) for each in WORD.finditer(text) if each["ignored"] is None]
    return [each for each in found if not _is_docstring(text, *each)]


def places(text: str, piece: str) -> list[tuple[int, int]]:
    """Return where a piece of code occurs in a text."""
    there, wanted = words(text), [word for word, _, _ in words(piece)]
    if not wanted:
        return []
    names, count = [word for word, _, _ in there], len(wanted)
    starts = (at for at, name in enumerate(names) if name == wanted[0] and names[at : at + count] == wanted)
    return [(there[at][1], there[at + count - 1][2]) for at in starts]


def _is_docstring(text: str, word: str, start: int, end: int) -> bool:
    line = text[text.rfind("\n", 0, start) + 1 : start] + text[end : text.find("\n", end) % (len(text) + 1)]
    return '"""' in word and not line.strip()


def _indent(text: str, at: int) -> int:
    line = text[text.rfind("\n", 0, at) + 1 :]
    return len(line) - len(line.lstrip(" "))


def _moved(code: str, columns: int) -> str:
    """Return code that takes the place of a first word: its first line begins there, the others are moved along."""
    first, *others = code.lstrip().split("\n")
    return "\n".join([first, *(" " * (_indent(each, 0) + columns) + each.lstrip(" ") for each in others)])


def read(lists: Iterable[Path] = LISTS) -> list[Mutant]:
    """Read mutants from lists."""
    tables = [table for path in lists for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutants"]]
    mutants = [Mutant(**{**table, "tests": tuple(table["tests"])}) for table in tables]
    if len({mutant.name for mutant in mutants}) != len(mutants):
        raise UnusableError("Two mutants bear one name.")
    return mutants


def check(mutants: Iterable[Mutant]) -> None:
    """Refuse mutants whose text does not occur once, changes nothing, or whose tests are not there."""
    for mutant in mutants:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        if mutant.planted_in(text) == text:
            raise UnusableError(f"{mutant.name} changes nothing.")
        if not mutant.tests:
            raise UnusableError(f"{mutant.name} names no tests.")
        for test in mutant.tests:
            _require_test(mutant.name, test)


def _require_test(name: str, test: str) -> None:
    path, _, function = test.partition("::")
    if not (ROOT / path).is_file():
        raise UnusableError(f"{name}: there is no file {path}.")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    if function and function not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
        raise UnusableError(f"{name}: there is no test {test}.")


@contextmanager
def copied() -> Iterator[Path]:
    """Copy the project; the package in the copy is the copy's own. What was compiled saves a second where it is."""
    has_room = MEMORY.is_mount() and shutil.disk_usage(MEMORY).free > LEAST_FREE
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=MEMORY if has_room else None) as folder:
        copy = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, symlinks=True)
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, copy / name)
        yield copy


def fork_servers() -> ForkServers:
    """Return what runs tests."""
    return ForkServers(variables())


def variables() -> dict[str, str]:
    """Return the variables that tests run with, but for where the package is."""
    others = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))}
    return {**others, "PYTHONDONTWRITEBYTECODE": "1"}


def ended(copy: Path, tests: Sequence[str], servers: ForkServers) -> tuple[int | None, str]:
    """Run tests in a copy: how pytest ended, None if it did not, and the last of what it said."""
    words = ["-x", "-q", "-p", "no:cacheprovider", *tests]
    code, said = servers.run(copy, words, {**variables(), "PYTHONPATH": str(copy / "src")}, TIMEOUT)
    if code is None:
        return None, f"no end within {TIMEOUT} seconds"
    return code, "\n".join(said.strip().splitlines()[-12:])


def require_clean(mutants: Iterable[Mutant], servers: ForkServers) -> None:
    """Refuse to judge by tests that fail without any mutant, or that run against another copy of the package."""
    with copied() as copy:
        if ended(copy, [PROBE], servers)[0] != PASSED:
            raise UnusableError("The package in a copy is not the one that its tests import.")
        code, said = ended(copy, sorted({test for mutant in mutants for test in mutant.tests}), servers)
    if code != PASSED:
        raise UnusableError(f"The tests fail without any mutant:\n{said}")


def tried(mutant: Mutant, servers: ForkServers) -> Outcome:
    """Plant a bug in a copy, and see whether its tests notice."""
    start = time.monotonic()
    with copied() as copy:
        path = copy / mutant.file
        path.write_text(mutant.planted_in(path.read_text(encoding="utf-8")), encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()  # of the same second and size it would be taken for what was written now
        code, said = ended(copy, mutant.tests, servers)
    outcome = {PASSED: "survived", FAILED: "killed"}.get(code if code is not None else -1, "broken")
    seconds = round(time.monotonic() - start, 1)
    told = "" if outcome == "killed" else said
    return Outcome(mutant.name, outcome, seconds, mutant.file, mutant.gives_away, mutant.survives, told)


def all_tried(mutants: Sequence[Mutant], workers: int, servers: ForkServers) -> Iterator[Outcome]:
    """Try every mutant, and report progress on standard error."""
    with ThreadPoolExecutor(workers) as pool:
        for count, outcome in enumerate(pool.map(tried, mutants, repeat(servers)), start=1):
            sys.stderr.write(f"{count} of {len(mutants)}: {outcome.name} {outcome.outcome}\n")
            yield outcome


def is_good(outcomes: Sequence[Outcome]) -> bool:
    """Tell whether enough was killed, nothing is broken, and every survivor, and none else, is explained."""
    killed = sum(each.outcome == "killed" for each in outcomes)
    as_said = all(each.outcome == ("survived" if each.survives else "killed") for each in outcomes)
    return as_said and killed >= LEAST_KILLED * len(outcomes)


def table(outcomes: Sequence[Outcome]) -> str:
    """Write a line for each mutant, and the sum."""
    width = max(len(each.name) for each in outcomes)
    lines = [f"{each.outcome:9} {each.seconds:6.1f} s  {each.name:{width}}  {each.file}" for each in outcomes]
    told = [f"\n{each.name}: {each.survives or each.said}" for each in outcomes if each.outcome != "killed"]
    killed = sum(each.outcome == "killed" for each in outcomes)
    share = 100 * killed / len(outcomes)
    return "\n".join([*lines, *told, f"\n{killed} of {len(outcomes)} killed ({share:.1f} %)."])


def asked(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutants to try; left out: all")
    parser.add_argument("--lists", nargs="+", type=Path, default=LISTS, help="files of mutants")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--one-in", type=int, default=1, help="try about one in so many, which the commit decides")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--check", action="store_true", help="only check that every piece of code and every test exists"
    )
    parser.add_argument("--assume-clean", action="store_true", help="do not run the tests without a mutant first")
    return parser.parse_args(words)


def chosen(mutants: Sequence[Mutant], names: Sequence[str], one_in: int = 1, commit: str = "") -> list[Mutant]:
    """Give the mutants of these names; all, where none is given. Of these, the commit chooses about one in so many."""
    if missing := set(names) - {mutant.name for mutant in mutants}:
        raise UnusableError(f"There is no mutant {', '.join(sorted(missing))}.")
    named = [mutant for mutant in mutants if not names or mutant.name in names]
    return [each for each in named if _turn(each.name, commit) % one_in == 0] or named[:1]


def _turn(name: str, commit: str) -> int:
    return int.from_bytes(sha256(f"{commit} {name}".encode()).digest())


def _commit() -> str:
    """Return the checkout's commit; without git always the same."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    return done.stdout.strip()


def main(words: Sequence[str] | None = None) -> int:
    """Do what is asked on the command line."""
    with fork_servers() as servers:
        return _done(asked(words), servers)


def _done(flags: argparse.Namespace, servers: ForkServers) -> int:
    try:
        mutants = chosen(read(flags.lists), flags.names, flags.one_in, _commit())
        check(mutants)
        if not (flags.check or flags.assume_clean):
            require_clean(mutants, servers)
    except UnusableError as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    if flags.check:
        sys.stdout.write(f"{len(mutants)} mutants: every piece of code occurs once, and every test exists.\n")
        return 0
    outcomes = list(all_tried(mutants, flags.workers, servers))
    told = json.dumps([asdict(each) for each in outcomes], indent=2) if flags.json else table(outcomes)
    sys.stdout.write(f"{told}\n")
    return 0 if is_good(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
