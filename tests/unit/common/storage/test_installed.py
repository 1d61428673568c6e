"""The digest of the installed software changes with any of its files, and can be computed by other programs."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpspca
from dpspca.common.storage import installed, installed_digest

PACKAGE = Path(dpspca.__file__).parent
LISTED = (
    "find -L * -name __pycache__ -prune -o -type f -not -path '*/.*' -print | LC_ALL=C sort | "
    "xargs sha256sum | sha256sum"
)
"""As docs/evidence.md gives it."""


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("common", "protos"):
        shutil.copytree(PACKAGE / name, tmp_path / name)
    monkeypatch.setattr(installed, "files", lambda _: tmp_path)
    installed_digest.cache_clear()
    yield tmp_path
    installed_digest.cache_clear()


def digest() -> str:
    installed_digest.cache_clear()
    return installed_digest()


def listed_digest(folder: Path) -> str:
    listed = subprocess.run(LISTED, cwd=folder, shell=True, capture_output=True, text=True, check=True)  # noqa: S602  # a fixed command
    return listed.stdout.split()[0]


def test_the_digest_is_what_other_programs_compute() -> None:
    assert listed_digest(PACKAGE) == installed_digest()
    page = Path(__file__).parents[4] / "docs" / "evidence.md"
    assert LISTED in page.read_text(encoding="utf-8")


def test_the_digest_changes_with_the_content_and_name_of_every_file(copy: Path) -> None:
    before = digest()
    kept = copy / "protos" / "kept.css"
    kept.write_text("a")
    added = digest()
    kept.write_text("b")
    changed = digest()
    kept.rename(copy / "common" / "kept.css")
    assert len({before, added, changed, digest()}) == 4


def test_what_python_compiled_and_hidden_files_do_not_count(copy: Path) -> None:
    before = digest()
    for name in ("__pycache__", "common/__pycache__", ".hidden"):
        (copy / name).mkdir(exist_ok=True)
        (copy / name / "a.pyc").write_bytes(b"a")
    (copy / "protos" / ".swap").write_text("a")
    assert digest() == listed_digest(copy) == before
