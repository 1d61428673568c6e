"""Sums of a cluster have the bits of local ones, about the rows of the start alone, and rows stay with the workers."""

import errno
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import Here, folder_of, rows_of
from facts import facts, names_facts
from row_queries import BOUND, KINDS, make_query

from dpspca import __version__
from dpspca.common.errors import InvalidDataError, InvalidQueryError
from dpspca.common.queries.groups import GroupedScores
from dpspca.common.queries.picks import SignPairs, TiedColumns
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.queries.views import View
from dpspca.provider.data import streamed_rows
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.cluster_rows import ClusterRows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.engines import worker
from dpspca.provider.engines.cluster_sums import ClusterSums
from dpspca.provider.engines.messages import read_reply
from dpspca.provider.engines.task_sender import ClusterProblemError, EngineError
from dpspca.provider.evaluate.row_sums import LocalSums
from dpspca.provider.evaluate.shard import Shard, Strategy

SHAPE = (203, 7)


@pytest.fixture
def table() -> np.ndarray:
    rows = np.random.default_rng(0).standard_normal(SHAPE)
    rows[17, 3], rows[91] = np.nan, 0.0
    return rows


@pytest.fixture
def folder(table: np.ndarray, tmp_path: Path) -> Path:
    return folder_of(table, tmp_path / "cohort")


def shards(
    local: CheckedRows, remote: ClusterRows, strategy: Strategy = Strategy.STREAM, mean_bound: float | None = 2.0
) -> list[Shard]:
    sums = ClusterSums(remote, BOUND, mean_bound)
    return [
        Shard(local, BOUND, mean_bound=mean_bound, strategy=strategy),
        Shard(remote, BOUND, mean_bound=mean_bound, strategy=strategy, sums=sums),
    ]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("kind", [*KINDS, "scores-in-groups"])
def test_answers_have_the_bits_of_local_ones(
    kind: str, strategy: Strategy, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_rows, "CELLS", 100)
    query = make_query(kind, np.random.default_rng(1), SHAPE[1])
    for centred in (query, around_a_center(query)):
        here, there = (each.evaluate(centred) for each in shards(read_offered(folder), rows_of(folder), strategy))
        assert here.dtype == there.dtype
        assert (here == there).all()


def around_a_center(query: Any) -> Any:
    """Return a query around a centre, if it can have one."""
    if "center" not in type(query).__dataclass_fields__:
        return query
    basis = {"given": query.kept} if hasattr(query, "kept") else {}
    return replace(query, center=np.linspace(-1, 1, 7), **basis)


def test_scores_of_choices_and_groups_have_the_bits_of_local_ones(folder: Path) -> None:
    axes = np.linalg.qr(np.random.default_rng(2).standard_normal((3, 2)))[0]
    local, remote = read_offered(folder), rows_of(folder)
    wide = np.linalg.qr(np.random.default_rng(3).standard_normal((7, 2)))[0]
    groups = View(7, np.arange(7), 1.0, np.hstack([wide, np.eye(7)[:, 4:]]))
    pairs = SignPairs(7), SignPairs(7, among=[1, 2, 5])
    for query in (*pairs, TiedColumns(View(7, [0, 2, 5], 1.0, axes)), GroupedScores(groups)):
        (here,), (there,) = LocalSums(local, BOUND).of(query), ClusterSums(remote, BOUND).of(query)
        assert (here == there).all()


@pytest.mark.parametrize("limit", [None, 100])
def test_blocks_of_rows_have_the_bits_of_local_ones(limit: int | None, folder: Path) -> None:
    """A block may begin and end within a file. Only the files with its rows are read."""
    cluster = Here()
    here, there = shards(read_offered(folder).first(limit), rows_of(folder, cluster).first(limit))
    basis = np.eye(7)[:, :2]
    for block in range(1, 6):
        query = CovarianceProduct(basis, block=block, blocks=5)
        assert (here.evaluate(query) == there.evaluate(query)).all()
    asked = len(cluster.sent)
    there.evaluate(CovarianceProduct(basis, block=1, blocks=203))
    assert len(cluster.sent) == asked + 1


def test_no_rows_at_all_give_the_zeros_of_local_ones(tmp_path: Path) -> None:
    folder = folder_of(np.empty((0, 7)), tmp_path / "none")
    for kind in KINDS:
        query = make_query(kind, np.random.default_rng(1), 7)
        here, there = (each.evaluate(query) for each in shards(read_offered(folder), rows_of(folder)))
        assert (here == there).all()


def test_chosen_columns_are_those_that_a_job_names(tmp_path: Path, table: np.ndarray) -> None:
    folder = folder_of(table, tmp_path / "named", ending=".csv")
    names = ("c5", "c0", "c3")
    here, there = shards(read_offered(folder).with_columns(names), rows_of(folder).with_columns(names))
    query = make_query("product", np.random.default_rng(1), 3)
    assert (here.evaluate(query) == there.evaluate(query)).all()


def test_rows_never_come_back(folder: Path, table: np.ndarray) -> None:
    """No reply has a number of a row, in any of the forms in which it is stored or computed with."""
    cluster = Here()
    rows = rows_of(folder, cluster)
    for kind in KINDS:
        shards(read_offered(folder), rows)[1].evaluate(make_query(kind, np.random.default_rng(1), 7))
    assert len(cluster.came) > len(KINDS)
    for value in table[np.isfinite(table) & (table != 0)]:
        assert not any(value.tobytes() in reply for reply in cluster.came)
    with pytest.raises(InvalidQueryError):
        rows.part(slice(0, 1))


def test_t16_a_file_that_changed_is_refused_and_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Here(tasks=1)
    rows = rows_of(folder, cluster)
    changed = folder / "001.npy"
    kept = np.load(changed)
    np.save(changed, np.where(kept == kept[3, 2], kept[3, 2] + 2.0**-40, kept))
    with caplog.at_level(logging.ERROR), pytest.raises(EngineError) as refused:
        ClusterSums(rows, BOUND).of(make_query("product", np.random.default_rng(1), 7))
    assert "001.npy" in caplog.text
    assert "001" not in str(refused.value)
    reply, numbers = read_reply(cluster.came[-1])
    assert reply.problem is not None
    assert (reply.problem.code, len(numbers)) == (worker.PART_CHANGED, 0)
    np.save(changed, kept)
    ClusterSums(rows, BOUND).of(make_query("product", np.random.default_rng(1), 7))
    changed.unlink()
    with pytest.raises(EngineError):
        ClusterSums(rows, BOUND).of(make_query("product", np.random.default_rng(1), 7))


def test_t46_another_version_is_refused_on_both_sides(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Here()
    rows = rows_of(folder, cluster)
    with monkeypatch.context() as patched:
        patched.setattr(worker, "__version__", "0.1.9")
        with pytest.raises(ClusterProblemError, match=facts("0.1.9")):
            rows_of(folder)
        with pytest.raises(EngineError):
            ClusterSums(rows, BOUND).of(make_query("product", np.random.default_rng(1), 7))
    assert names_facts(caplog.text, "0.1.9", __version__)
    reply, numbers = read_reply(cluster.came[-1])
    assert reply.problem is not None
    assert (reply.problem.code, len(numbers)) == (worker.OTHER_VERSION, 0)


def test_t46_a_worker_s_failure_names_its_kind_and_no_value(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError(1.2345)

    rows = rows_of(folder)
    monkeypatch.setattr(worker, "read_query", broken)
    cluster: Any = rows.cluster
    with pytest.raises(EngineError):
        ClusterSums(rows, BOUND).of(make_query("product", np.random.default_rng(1), 7))
    assert b"ValueError" in cluster.came[-1]
    assert b"1.2345" not in cluster.came[-1]


@pytest.mark.parametrize("name", ["rows.sqlite", "panel.bed", "rows.npz", "warehouse.postgresql"])
def test_other_kinds_of_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InvalidDataError, match=facts(tmp_path / name, ".parquet")):
        rows_of(tmp_path / name)


def test_files_that_do_not_fit_together_or_are_not_there_are_refused(folder: Path, tmp_path: Path) -> None:
    np.save(folder / "999.npy", np.zeros((3, 6)))
    with pytest.raises(InvalidDataError, match=facts("999.npy", "001.npy")):
        rows_of(folder)
    with pytest.raises(InvalidDataError, match=facts("elsewhere.csv", os.strerror(errno.ENOENT))):
        rows_of(tmp_path / "elsewhere.csv")
