"""One suite over real clusters: several processes on this machine, protected as in production."""

import errno
import logging
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import loopback
import numpy as np
import pytest
import spark_clusters
from clusters import folder_of
from coordinator_processes import free_port
from dask_clusters import dask_cluster
from facts import facts
from row_queries import BOUND, make_query
from spark_clusters import spark_cluster

from dpspca.common.decoding import Source, decode
from dpspca.common.storage.engine_settings import EngineSettings
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.cluster_rows import Cluster
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.engines.cluster_sums import ClusterSums
from dpspca.provider.engines.clusters import open_cluster
from dpspca.provider.engines.counting import count_rows, task_fields
from dpspca.provider.engines.task_sender import ClusterProblemError
from dpspca.provider.evaluate.shard import Shard

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries of clusters

ROWS = np.random.default_rng(0).standard_normal((60_000, 40))
PASSWORD = "correct-horse-battery-staple"  # noqa: S105  # of no database
KINDS = ["product", "covariance", "compressed", "norms", "column-sizes"]


@dataclass(frozen=True)
class Running:
    """A cluster that runs, and what tests do to it."""

    cluster: Cluster
    kill: Callable[[], None]
    """Kills a process that reads rows."""
    secrets: tuple[bytes, ...]
    """What must never be seen on the way."""
    ports: frozenset[int]
    """Where the provider and the cluster talk."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            "dask",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed"),
            ],
        ),
        pytest.param(
            "spark",
            marks=[
                pytest.mark.nightly,
                pytest.mark.skipif(bool(spark_clusters.MISSING), reason=spark_clusters.MISSING),
            ],
        ),
    ],
)
def running(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PGPASSWORD", PASSWORD)
        yield from (_dask if request.param == "dask" else _spark)(folder)


def _settings(text: str) -> EngineSettings:
    read: EngineSettings = decode(EngineSettings, tomllib.loads(text), Source("the settings", Path))
    return read


def _dask(folder: Path) -> Iterator[Running]:
    with dask_cluster(folder / "cluster") as started:
        cluster: Any = open_cluster(_settings(started.settings))
        key = (started.folder / "provider-key.pem").read_bytes().splitlines()[1:-1]

        def kill() -> None:
            started.workers[0].send_signal(signal.SIGKILL)
            started.start_worker()

        yield Running(cluster, kill, (PASSWORD.encode(), *key), frozenset({started.port}))
        cluster._client.close()


def _spark(folder: Path) -> Iterator[Running]:
    with spark_cluster(folder / "cluster") as started:
        ports = {"spark.driver.port": free_port(), "spark.driver.blockManager.port": free_port()}
        told = tomllib.loads(started.settings)
        told["conf"] |= {key: str(port) for key, port in ports.items()}
        settings: EngineSettings = decode(EngineSettings, told, Source("the settings", Path))
        cluster: Any = open_cluster(settings)
        secrets = (PASSWORD.encode(), started.secret.read_bytes())
        heard = frozenset({started.port, *ports.values()})
        yield Running(cluster, lambda: os.kill(started.executors()[0], signal.SIGKILL), secrets, heard)
        cluster._session.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(ROWS, tmp_path_factory.mktemp("rows") / "cohort", files=12)


@pytest.mark.nightly
def test_t46_a_killed_worker_changes_no_bit_and_nothing_goes_in_the_clear(running: Running, folder: Path) -> None:
    """Counting, fingerprints and sums are those of a provider that reads the rows itself, whatever happens to workers.

    Listening between provider and cluster shows neither what they say nor any credential of the provider.
    """
    if loopback.MISSING:
        pytest.skip(loopback.MISSING)
    with loopback.listening(running.ports) as heard:
        rows = count_rows(running.cluster, task_fields(folder, Reading(), None, None))
        local = read_offered(folder)
        assert (rows.count, rows.prints) == (local.count, local.fingerprints())
        here, there = Shard(local, BOUND), Shard(rows, BOUND, sums=ClusterSums(rows, BOUND))
        for place, kind in enumerate(KINDS):
            query = make_query(kind, np.random.default_rng(1), ROWS.shape[1])
            if place == 1:
                threading.Timer(0.2, running.kill).start()
            assert (here.evaluate(query) == there.evaluate(query)).all()
    assert len(heard.content) > 10_000
    for shown in (*running.secrets, b"dpspca engine 1", b"norm_bound", str(folder).encode()):
        assert shown not in heard.content


def test_a_file_that_a_worker_cannot_read_is_named_to_the_steward(
    running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(ClusterProblemError, match=facts("away.npy", os.strerror(errno.ENOENT))),
    ):
        count_rows(running.cluster, task_fields(tmp_path / "away.npy", Reading(), None, None))


@pytest.mark.slow
def test_a_scheduler_that_is_away_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpspca.provider.engines.dask_cluster.CONNECT_SECONDS", 1.0)
    settings = _settings(f'engine = "dask"\nscheduler = "tcp://127.0.0.1:{free_port()}"')
    with pytest.raises(ClusterProblemError, match=facts("tcp://127.0.0.1")):
        count_rows(open_cluster(settings), task_fields(Path("/rows"), Reading(), None, None))
