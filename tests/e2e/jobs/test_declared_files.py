"""Providers whose steward declared how files are read answer jobs, and an odd row in these files shows to nobody."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from coordinator_processes import free_port
from daemons import Daemons, Process, daemons
from local_federation import permissive_policy
from numpy.typing import NDArray
from plink import write_bed

from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

COLUMNS = ("bmi", "age", "height")
ROWS = np.random.default_rng(0).standard_normal((12, 3)).round(4)
SPEC = JobSpec(
    schema=Schema(3, COLUMNS),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=1,
    options={"sparsity": 3, "rounds": 2},
    method="dps-pca",
)


def text(folder: Path, rows: NDArray[np.float64], odd: str | None) -> str:
    """Write text as a spreadsheet with a decimal comma does."""
    lines = [";".join(("p1", *(f"{each}".replace(".", ",") for each in row))) for row in rows.tolist()]
    if odd is not None:
        lines[4] = odd
    content = "\r\n".join(("Patient;bmi;age;height", *lines)) + "\r\n"
    (folder / "rows.CSV").write_text(content, encoding="cp1252", newline="")
    return 'cohort = "rows.CSV"\n[reading.cohort]\nleave_out = ["Patient"]\ndecimal = ","\nencoding = "cp1252"\n'


def parquet(folder: Path, rows: NDArray[np.float64], odd: str | None) -> str:
    """Write a folder of Parquet files, as a data lake does."""
    (folder / "lake").mkdir()
    frame = pd.DataFrame(rows[:, ::-1], columns=COLUMNS[::-1]).assign(patient="p1")
    if odd is not None:
        frame.loc[4, "age"] = np.inf
    frame[:5].to_parquet(folder / "lake" / "part-0.parquet")
    frame[5:].to_parquet(folder / "lake" / "part-1.parquet")
    return f'cohort = "lake/part-*.parquet"\n[reading.cohort]\ncolumns = {list(COLUMNS)}\nmissing = {{ age = 0.5 }}\n'


def genotypes(folder: Path, rows: NDArray[np.float64], odd: str | None) -> str:
    """Write genotypes as PLINK does. An odd one is missing."""
    counts = (np.abs(rows) * 2).astype(np.int8) % 3
    if odd is not None:
        counts[4, 1] = -1
    path = write_bed(folder / "panel", counts)
    text = path.with_suffix(".bim").read_text(encoding="utf-8")
    for place, name in enumerate(COLUMNS):
        text = text.replace(f"rs{place}", name)
    path.with_suffix(".bim").write_text(text, encoding="utf-8")
    return 'cohort = "panel"\n'


def triplets(folder: Path, rows: NDArray[np.float64], odd: str | None) -> str:
    """Write a long table, as an extract of events is."""
    lines = [f"p{row},{name},{rows[row, place]}" for row in range(len(rows)) for place, name in enumerate(COLUMNS)]
    if odd is not None:
        lines[7] = "p2,age,tall"
    (folder / "long.csv").write_text("\n".join(["person,concept,value", *lines]), encoding="utf-8")
    (folder / "persons.txt").write_text("".join(f"p{row}\n" for row in range(len(rows))), encoding="utf-8")
    keys = 'row = "person", column = "concept", value = "value", rows = "persons.txt"'
    return f'cohort = "long.csv"\n[reading.cohort]\ncolumns = {list(COLUMNS)}\ntriplets = {{ {keys} }}\n'


Write = Callable[[Path, NDArray[np.float64], str | None], str]


async def restart_with(north: Process, running: Daemons, declared: str) -> None:
    """Give the provider other files, as its steward does."""
    await north.end()
    path = running.enrolment.folder / "north.toml"
    path.write_text(path.read_text(encoding="utf-8").partition("[data_sets]")[0] + "[data_sets]\n" + declared)
    await north.start()
    await north.says("Connected")


async def observe(folder: Path, write: Write, odd: str | None) -> object:
    """Run a job on the files, and return everything that others see."""
    enrolment = daemons(
        folder, f"127.0.0.1:{free_port()}", permissive_policy("row-add-remove"), {"north": {"cohort": ROWS}}
    )
    async with enrolment as running:
        await restart_with(running.providers["north"], running, write(folder, ROWS, odd))
        async with AsyncFederation.connect(folder / "ada.toml") as federation:
            offers = await federation.data_sets()
            model = await (await federation.submit(SPEC)).result()
            assert ("zeros" in running.providers["north"].said) == (odd is not None)
            return offers, model.feature_names, model.components.shape, model.statement.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "write", [text, genotypes, *(pytest.param(each, marks=pytest.mark.nightly) for each in (parquet, triplets))]
)
def test_declared_files_answer_and_an_odd_row_is_not_visible(write: Write, tmp_path: Path) -> None:
    usual = asyncio.run(observe(tmp_path / "usual", write, None))
    assert "bmi" in str(usual)
    assert asyncio.run(observe(tmp_path / "odd", write, 'p1;"1;2')) == usual
