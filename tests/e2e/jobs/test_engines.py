"""A private job over rows that only the workers of a cluster can read, with a worker killed while it runs."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_clusters
from clusters import folder_of
from coordinator_processes import free_port
from daemons import Daemons, daemons
from dask_clusters import dask_cluster
from local_federation import permissive_policy
from spark_clusters import spark_cluster

from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model

COLUMNS = 300
PATIENCE = 600
FEW = np.random.default_rng(0).standard_normal((50, COLUMNS))
ROWS = np.random.default_rng(1).standard_normal((6000, COLUMNS)) * np.r_[5.0, 4.0, np.full(COLUMNS - 2, 0.2)]
SOURCE = "/proc/self/cwd/rows"
"""Where workers of Dask find the rows: in the folder in which they run. The provider runs in another one."""

Cluster = Iterator[tuple[str, Callable[[], None]]]


@contextmanager
def dask(folder: Path) -> Cluster:
    with dask_cluster(folder) as started:
        yield started.settings, lambda: started.workers[0].send_signal(signal.SIGKILL)


@contextmanager
def spark(folder: Path) -> Cluster:
    with spark_cluster(folder) as started:
        yield started.settings, lambda: os.kill(started.executors()[0], signal.SIGKILL)


async def job(running: Daemons, settings: str, source: str, kill: Callable[[], None]) -> Model:
    north = running.providers["north"]
    await north.end()
    path = running.enrolment.folder / "north.toml"
    head = path.read_text(encoding="utf-8").partition("[data_sets]")[0]
    path.write_text(f'{head}[data_sets]\ncohort = "{source}"\n[engines.cohort]\n{settings}', encoding="utf-8")
    await north.start()
    await north.says("stay with the", PATIENCE)
    await north.says("Connected", PATIENCE)
    spec = JobSpec(
        schema=Schema(COLUMNS),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(8.0, 1e-6),
        norm_bound=12.0,
        components=2,
        method="dps-pca",
        answer_seconds=PATIENCE,
        options={"sparsity": 2, "rounds": 4},
    )
    async with AsyncFederation.connect(running.enrolment.folder / "ada.toml") as federation, asyncio.timeout(PATIENCE):
        submitted = await federation.submit(spec)
        await north.says("Opened job", PATIENCE)
        kill()
        model: Model = await submitted.result()
    return model


@pytest.mark.parametrize(
    ("cluster", "source"),
    [
        pytest.param(dask, SOURCE, marks=pytest.mark.slow, id="dask"),
        pytest.param(
            spark,
            "",
            marks=[
                pytest.mark.nightly,
                pytest.mark.skipif(bool(spark_clusters.MISSING), reason=spark_clusters.MISSING),
            ],
            id="spark",
        ),
    ],
)
def test_a_job_survives_a_killed_worker_and_the_provider_sees_no_row(cluster: Any, source: str, tmp_path: Path) -> None:
    async def scenario(settings: str, rows: str, kill: Callable[[], None]) -> tuple[Model, str]:
        policy = permissive_policy("row-replace-one")
        (tmp_path / "federation").mkdir()
        address = f"127.0.0.1:{free_port()}"
        async with daemons(tmp_path / "federation", address, policy, {"north": {"cohort": FEW}}) as running:
            model = await job(running, settings, rows, kill)
            return model, running.providers["north"].said

    folder = tmp_path / "cluster"
    folder.mkdir()
    rows = folder_of(ROWS, folder / "rows", files=9)
    with cluster(folder) as (settings, kill):
        model, said = asyncio.run(scenario(settings, source or str(rows), kill))
    assert set(np.flatnonzero(np.abs(model.components).max(axis=0) > 0.5)) == {0, 1}
    assert "failed" not in said
