"""The tree in ARCHITECTURE.md names every package and every module beside packages, and nothing else."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TREE = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)[0]
PARTS = dict(re.findall(r"^(\w+)/ (.*?)(?=^\w|\Z)", TREE, re.DOTALL | re.MULTILINE))


FOLDERS = ["common", "provider", "server", "client", "cli"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_package_is_in_the_tree(folder: str) -> None:
    packages = {f"{path.parent.name}/" for path in (ROOT / folder).glob("*/__init__.py")}
    assert packages - {*re.findall(r"\w+/", PARTS[folder])} == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_beside_them_is_in_the_tree(folder: str) -> None:
    modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert modules - {*re.findall(r"\w+\.py", PARTS[folder])} == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_everything_in_the_tree_exists(folder: str) -> None:
    """A module is named beside packages only. A package may be one inside another."""
    modules, packages = re.findall(r"\w+\.py", PARTS[folder]), re.findall(r"\w+/", PARTS[folder])
    assert [name for name in modules if not (ROOT / folder / name).is_file()] == []
    assert {*packages} - {f"{path.parent.name}/" for path in (ROOT / folder).rglob("__init__.py")} == set()


def test_every_path_on_the_page_exists() -> None:
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)}|deploy|docs|tests)/[\w/.]+)`", PAGE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []
