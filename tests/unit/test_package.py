"""The installed package is complete: it has every module and every other file of the folders."""

from importlib import import_module
from pathlib import Path

import pytest

import dpspca

ROOT = Path(__file__).parents[2]
FOLDERS = ("common", "provider", "server", "client", "cli", "protos")
MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_installed_and_can_be_loaded(module: str) -> None:
    import_module(f"dpspca.{module}")


FILES = sorted(
    str(path.relative_to(ROOT))
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"
)


@pytest.mark.parametrize("file", FILES)
def test_every_other_file_is_installed(file: str) -> None:
    assert (Path(dpspca.__file__).parent / file).read_bytes() == (ROOT / file).read_bytes()


def test_the_package_declares_its_types() -> None:
    assert Path(dpspca.__file__).with_name("py.typed").is_file()
