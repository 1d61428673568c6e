"""Saving and loading of models: a file is written completely or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca import DPSPCA, load_model, save_model
from dpspca.common.errors import CorruptModelError, InvalidDataError, InvalidTypeError

ROWS = np.random.default_rng(0).standard_normal((100, 6))
MODEL = DPSPCA(n_components=2, norm_bound=5.0, unit="row-add-remove").fit(ROWS).model_


def test_a_saved_model_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "model.dpspca"
    for _ in range(2):
        save_model(MODEL, path)
    assert load_model(path).to_bytes() == MODEL.to_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["model.dpspca"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.dpspca"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=facts("no space")):
        save_model(MODEL, path)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.dpspca"
    path.write_bytes(b"something else")
    with pytest.raises(CorruptModelError):
        load_model(path)


@pytest.fixture(params=[0o022, 0o027, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_file_gets_the_permissions_of_the_umask(umask: int, tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "model.dpspca")
    assert mode_of(tmp_path / "model.dpspca") == 0o666 & ~umask


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_permissions(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "model.dpspca"
    path.write_bytes(b"old")
    path.chmod(mode)
    save_model(MODEL, path)
    assert mode_of(path) == mode
    assert load_model(path).to_bytes() == MODEL.to_bytes()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in ("missing", "file"):
        with pytest.raises(InvalidDataError) as refused:
            save_model(MODEL, tmp_path / folder / "model.dpspca")
        assert "model.dpspca" in refused.value.what
        assert f"there is no folder {tmp_path / folder}." in refused.value.what
        assert "Create" in refused.value.remedy


def test_a_failure_to_open_names_the_target_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError(13, "Permission denied", "some draft")

    monkeypatch.setattr("os.open", forbidden)
    with pytest.raises(PermissionError) as refused:
        save_model(MODEL, tmp_path / "model.dpspca")
    assert refused.value.filename == str(tmp_path / "model.dpspca")


def test_saving_an_estimator_is_refused_and_points_to_its_model(tmp_path: Path) -> None:
    estimator: Any = DPSPCA(n_components=2, norm_bound=5.0, unit="row-add-remove")
    with pytest.raises(InvalidTypeError, match=facts("DPSPCA", "Model", "model_")):
        save_model(estimator, tmp_path / "model.dpspca")
    assert list(tmp_path.iterdir()) == []


def test_a_model_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for kind in (InvalidDataError, FileNotFoundError):
        with pytest.raises(kind, match=facts("nope", "save_model", "`dpspca run`")):
            load_model(tmp_path / "nope")
