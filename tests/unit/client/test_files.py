"""A model in a file is whole or not there."""

from pathlib import Path

import numpy as np
import pytest

from dpspca import DPSPCA, load_model, save_model
from dpspca.common.errors import CorruptModelError

ROWS = np.random.default_rng(0).standard_normal((100, 6))
MODEL = DPSPCA(n_components=2, norm_bound=5.0, adjacency="add-remove").fit(ROWS).model_


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
    with pytest.raises(OSError, match="no space"):
        save_model(MODEL, path)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.dpspca"
    path.write_bytes(b"something else")
    with pytest.raises(CorruptModelError):
        load_model(path)
