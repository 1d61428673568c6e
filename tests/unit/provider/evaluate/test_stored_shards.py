"""Rows in scratch give the same bits as rows in memory, whatever is asked and however large blocks are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_queries import BOUND, KINDS, make_query

from dpspca.common.queries.sketch import Projection
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.memory import stored_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.memory.stored_rows import RowWriter
from dpspca.provider.evaluate import moments
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.evaluate.sketches import add_sketch, project
from dpspca.provider.evaluate.views import sign_scores, tied_scores

pytestmark = pytest.mark.usefixtures("compiled_or_not")

SHAPES = [(0, 5), (1, 1), (503, 7)]


def both(shape: tuple[int, int], folder: Path) -> tuple[CheckedRows, CheckedRows]:
    """Return the same rows in memory and in scratch."""
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    blank = np.random.default_rng(1).random(shape[0]) < 0.2
    writer = RowWriter(Scratch(folder / "scratch"), shape[1], np.dtype(np.float32))
    for start in range(0, shape[0], 100):
        writer.add(numbers[start : start + 100], blank[start : start + 100])
    held = np.where(blank[:, None], 0.0, numbers.astype(np.float64))
    return CheckedRows(held), CheckedRows(writer.rows())


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_answers_have_the_same_bits(  # pytest's
    shape: tuple[int, int], kind: str, strategy: Strategy, keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "BLOCK_CELLS", 64)
    query = make_query(kind, np.random.default_rng(1), shape[1])
    shards = [
        Shard(each, BOUND, mean_bound=2.0, strategy=strategy, keeps=keeps, threads=2) for each in both(shape, tmp_path)
    ]
    answers = [shard.evaluate(query) for shard in shards]
    assert (answers[0] == answers[1]).all()
    assert answers[0].dtype == answers[1].dtype


@pytest.mark.parametrize("cells", [8, 100, 10**6])
@pytest.mark.parametrize("kind", ["product", "covariance", "compressed", "norms-in-ranges", "norms"])
def test_centred_answers_have_the_same_bits_for_any_block(
    kind: str, cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query: Any = make_query(kind, np.random.default_rng(1), 7)
    basis = {"given": query.kept} if kind in {"product", "compressed"} else {}
    centred = replace(query, center=np.linspace(-1, 1, 7), **basis)
    held, stored = both((503, 7), tmp_path)
    expected = Shard(held, BOUND).evaluate(centred)
    monkeypatch.setattr(moments, "CACHED", cells)
    monkeypatch.setattr(moments.DenseBlocks, "most_at_once", cells)
    for threads in (1, 3):
        shard = Shard(stored, BOUND, keeps=True, threads=threads)
        assert (shard.evaluate(centred) == expected).all()
        assert (shard.evaluate(centred) == expected).all()


def test_signs_and_sketches_have_the_same_bits(tmp_path: Path) -> None:
    view = make_query("view-axes", np.random.default_rng(1), 7).view  # type: ignore[attr-defined]
    integers = [Shard(each, BOUND)._sums.integers(BOUND) for each in both((503, 7), tmp_path)]
    assert (sign_scores(integers[0]) == sign_scores(integers[1])).all()
    assert (tied_scores(integers[0], view) == tied_scores(integers[1], view)).all()
    omega = np.random.default_rng(2).integers(-9, 9, (7, 3)).astype(float)
    noises = [np.zeros((503, 3), dtype=np.int64) for _ in integers]
    for noise, each in zip(noises, integers, strict=True):
        add_sketch(noise, each, omega)
    assert (noises[0] == noises[1]).all()
    sketch = np.random.default_rng(3).integers(-(2**16), 2**16, (503, 3)).astype(np.int32)
    asked = Projection(np.random.default_rng(4).standard_normal((3, 3)) * 1e-5, 7, 1.0)
    assert (project(integers[0], sketch, asked) == project(integers[1], sketch, asked)).all()


def test_integers_are_kept_only_if_asked_for(tmp_path: Path) -> None:
    _, stored = both((503, 7), tmp_path)
    query = make_query("product", np.random.default_rng(1), 7)
    kinds = []
    for keeps in (False, True):
        shard = Shard(stored, BOUND, keeps=keeps)
        shard.evaluate(query)
        assert shard._ready is not None
        kinds.append(str(shard._ready.moments._rows._rows.kind))  # type: ignore[attr-defined]
    assert kinds == ["float32", "int32"]
