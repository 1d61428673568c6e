"""The security page, its index and the tests agree: every threat and every fault is listed and has tests.

``python tests/unit/test_security_page.py`` writes the index, ``docs/tests.md``, anew.
"""

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

from dpspca.common.transport import MAX_BYTES, MAX_IN_SLOT, Mail

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
INDEX = ROOT / "docs" / "tests.md"
TESTS = ROOT / "tests"
FAULTS = tomllib.loads((TESTS / "faults" / "faults.toml").read_text(encoding="utf-8"))["fault"]
THREATS = [f"T{number:02d}" for number in range(1, 47)]
WHO = {"a provider", "the coordinator", "a link", "a clock", "an identity", "an analyst", "software", "all"}
"""Whom faults happen to."""
LONGEST_CELL = 100

_ROW = re.compile(r"^\| (T\d\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_NUMBERS = re.compile(r"(?<=_)t(\d\d)(?=_)")


def threats() -> dict[str, tuple[str, str]]:
    """Return the attack and the defence of each threat, from the table."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == len({row[0] for row in found})
    return {number: (attack, stopped) for number, attack, stopped in found}


def by_threat() -> dict[str, list[str]]:
    """Return the tests that have a threat's number in their names, each with its file."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_t"):
                for number in _NUMBERS.findall(node.name):
                    found[f"T{number}"].append(f"{path.stem}.{node.name.removeprefix('test_')}")
    return {number: sorted(names) for number, names in found.items()}


def index() -> str:
    """Return the index of tests: one list for each threat and each fault."""
    existing = by_threat()
    lines = [
        "# Index of tests\n",
        "`python tests/unit/test_security_page.py` writes this page, and a test checks it. Each entry is the",
        "file of a test and its name, without `test_`. [Security](security.md) says what the threats and faults are.\n",
        "## Threats\n",
    ]
    for number, (attack, _) in threats().items():
        lines += [f"### {number}: {attack}\n", *(f"- `{name}`" for name in existing.get(number, [])), ""]
    lines.append("## Faults\n")
    for fault in FAULTS:
        lines += [f"### {fault['who']}: {fault['what']}\n", f"When: {fault['when']}.\n"]
        lines += [*(f"- `{name}`" for name in fault["tests"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def test_every_threat_has_a_row() -> None:
    assert list(threats()) == THREATS


def test_every_threat_has_a_test_and_no_other_number_is_used() -> None:
    assert sorted(by_threat()) == THREATS


def test_the_index_is_current() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(), "run this file to write the index anew"


def test_every_fault_has_a_row_and_names_tests_that_exist() -> None:
    faults = PAGE.read_text(encoding="utf-8").partition("## Faults")[2]
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in faults.splitlines() if line[:2] == "| "]
    assert rows[1:] == [(fault["who"], fault["what"], fault["when"]) for fault in FAULTS]
    assert {fault["who"] for fault in FAULTS} == WHO
    existing = {
        f"{path.stem}.{name}"
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def test_(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    for fault in FAULTS:
        assert fault["tests"], fault
        assert set(fault["tests"]) <= existing, set(fault["tests"]) - existing


def test_the_page_states_how_much_a_slot_of_the_mailbox_holds() -> None:
    requests = f"up to {MAX_IN_SLOT} requests of {MAX_BYTES[Mail.REQUEST] >> 10} KiB each"
    certificate = f"one certificate of {MAX_BYTES[Mail.CERTIFICATE] >> 20} MiB"
    assert f"| a slot | {requests}, {certificate}, a change a second |" in PAGE.read_text(encoding="utf-8")


def test_table_cells_of_threats_and_faults_are_short() -> None:
    for line in PAGE.read_text(encoding="utf-8").partition("## Threats")[2].splitlines():
        if line.startswith("|"):
            assert max(len(cell.strip()) for cell in line.split("|")) <= LONGEST_CELL, line


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
