"""The page on security and the tests agree: each threat has a row, and each row the tests that bear its number.

What the page says of faults names tests that are there.

``python tests/unit/test_security_page.py`` writes the tests' names into the page.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TESTS = ROOT / "tests"
THREATS = [f"T{number:02d}" for number in range(1, 39)]
WHO = {"a provider", "the coordinator", "a link", "a clock", "an identity", "an analyst", "software", "all"}
"""Whom faults happen to."""

_ROW = re.compile(r"^\| (T\d\d) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)
_NUMBERS = re.compile(r"(?<=_)t(\d\d)(?=_)")


def rows() -> dict[str, tuple[str, str, str]]:
    """Read the table: of each threat the attack, what stops it, and its tests."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == len({row[0] for row in found})
    return {number: (attack.strip(), stopped.strip(), tests.strip()) for number, attack, stopped, tests in found}


def by_threat() -> dict[str, list[str]]:
    """Find the tests that bear a threat's number, or several, and the files they stand in."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_t"):
                for number in _NUMBERS.findall(node.name):
                    found[f"T{number}"].append(f"`{path.stem}.{node.name.removeprefix('test_')}`")
    return {number: sorted(names) for number, names in found.items()}


def test_every_threat_has_a_row() -> None:
    assert list(rows()) == THREATS


def test_every_row_names_the_tests_that_exist_and_no_other() -> None:
    existing = by_threat()
    assert set(existing) <= set(THREATS)
    for number, (_, _, tests) in rows().items():
        assert tests == ", ".join(existing.get(number, [])), f"{number}: run this file to write the names anew"


def test_every_threat_has_a_test() -> None:
    for number, (_, _, tests) in rows().items():
        assert tests, number


def test_every_fault_names_tests_that_exist() -> None:
    faults = PAGE.read_text(encoding="utf-8").partition("## Faults")[2]
    cells = [line.split("|")[1:-1] for line in faults.splitlines() if line.startswith("|")][2:]
    existing = {
        f"`{path.stem}.{name}`"
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def test_(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {who.strip() for who, *_ in cells} == WHO
    for who, fault, _, tests in cells:
        named = set(tests.strip().split(", "))
        assert named <= existing, (who, fault, named - existing)


def write() -> None:
    """Write the names into the page."""
    existing = by_threat()
    page = PAGE.read_text(encoding="utf-8")
    for number, (attack, stopped, tests) in rows().items():
        names = ", ".join(existing.get(number, []))
        page = page.replace(
            f"| {number} | {attack} | {stopped} | {tests} |", f"| {number} | {attack} | {stopped} | {names} |"
        )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
