"""A provider answers about rows that are many times larger than the memory that its settings allow."""

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from coordinator_processes import free_port
from daemons import AS_DEPLOYED, Daemons, Process, daemons
from local_federation import permissive_policy

from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

MEBIBYTE = 2**20
SOURCE_MEBIBYTES = 300
MEMORY_MEBIBYTES = 64
SPARE = 1.2
COLUMNS = 100
PATIENCE = 1200
SMALL = np.random.default_rng(0).standard_normal((200, COLUMNS)).round(3)


def specs(schema: Schema) -> list[JobSpec]:
    """Return a job of products and a job of one square matrix."""
    common = {"schema": schema, "unit": PrivacyUnit.ROW_ADD_REMOVE, "budget": Budget(1.0, 1e-6), "norm_bound": 12.0}
    products = JobSpec(**common, components=2, method="dps-pca", options={"sparsity": 10, "rounds": 2})  # type: ignore[arg-type]
    return [products, JobSpec(**common, components=2, method="analyze-gauss")]  # type: ignore[arg-type]


def write(folder: Path, mebibytes: int) -> None:
    """Write a .npy file and a Parquet file of so many mebibytes of numbers, a block at a time."""
    block = np.random.default_rng(1).standard_normal((MEBIBYTE // COLUMNS // 8 * 10, COLUMNS))
    count = mebibytes * MEBIBYTE // block.nbytes
    with (folder / "large.npy").open("wb") as file:
        form = {"descr": "<f8", "fortran_order": False, "shape": (count * len(block), COLUMNS)}
        np.lib.format.write_array_header_1_0(file, form)  # type: ignore[arg-type]
        for place in range(count):
            file.write((block + place).data)
    schema = pa.schema([(f"c{place}", pa.float64()) for place in range(COLUMNS)])
    with pyarrow.parquet.ParquetWriter(folder / "large.parquet", schema) as parquet:
        for place in range(count):
            parquet.write_table(pa.table(list(np.ascontiguousarray((block + place).T)), schema=schema))


def peak(process: Process) -> float:
    """Return the most memory that a process had, in mebibytes."""
    status = Path(f"/proc/{process.number}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def after_jobs(running: Daemons, declared: str, named: bool) -> float:
    """Restart the provider with other files, run all jobs, and return the most memory that it had."""
    north = running.providers["north"]
    await north.end()
    path = running.enrolment.folder / "north.toml"
    head = path.read_text(encoding="utf-8").partition("[data_sets]")[0].partition("memory_mebibytes")[0]
    path.write_text(f'{head}memory_mebibytes = {MEMORY_MEBIBYTES}\nscratch = "scratch"\n[data_sets]\n{declared}')
    await north.start()
    async with asyncio.timeout(PATIENCE):
        while "Connected" not in north.said:
            assert north.alive, north.said
            await asyncio.sleep(0.5)
    schema = Schema(COLUMNS, tuple(f"c{place}" for place in range(COLUMNS))) if named else Schema(COLUMNS)
    async with AsyncFederation.connect(running.enrolment.folder / "ada.toml") as federation:
        for spec in specs(schema):
            await (await federation.submit(spec)).result()
    return peak(north)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_memory_stays_within_the_cap_whatever_the_size_of_the_rows(kind: str, tmp_path: Path) -> None:
    async def scenario() -> tuple[float, float]:
        policy, address = permissive_policy("row-add-remove"), f"127.0.0.1:{free_port()}"
        rows = {"north": {"cohort": SMALL}}
        async with daemons(tmp_path, address, policy, rows, within=lambda _: AS_DEPLOYED) as running:
            write(tmp_path, 1)
            (tmp_path / f"large.{kind}").rename(tmp_path / f"small.{kind}")
            few = await after_jobs(running, f'cohort = "small.{kind}"\n', kind == "parquet")
            write(tmp_path, SOURCE_MEBIBYTES)
            many = await after_jobs(running, f'cohort = "large.{kind}"\n', kind == "parquet")
            scratch = tmp_path / "scratch"
            assert list(scratch.iterdir()) == []
            await running.providers["north"].kill()
            assert list(scratch.iterdir()) == []
            return few, many

    few, many = asyncio.run(scenario())
    assert many - few <= SPARE * MEMORY_MEBIBYTES, f"{few:.0f} MiB for few rows, {many:.0f} MiB for many"
