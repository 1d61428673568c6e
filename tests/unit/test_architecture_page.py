"""The tree in ARCHITECTURE.md names every package, and every module beside the packages of the daemons."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREE = re.findall(r"```\n(.*?)```", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.DOTALL)[0]
PARTS = dict(re.findall(r"^(\w+)/ (.*?)(?=^\w|\Z)", TREE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("folder", ["common", "provider", "server", "client", "cli"])
def test_every_package_is_in_the_tree(folder: str) -> None:
    packages = {f"{path.parent.name}/" for path in (ROOT / folder).glob("*/__init__.py")}
    assert packages - {*re.findall(r"\w+/", PARTS[folder])} == set()


@pytest.mark.parametrize("folder", ["common", "provider", "server"])
def test_every_module_beside_them_is_in_the_tree(folder: str) -> None:
    modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert modules - {*re.findall(r"\w+\.py", PARTS[folder])} == set()
