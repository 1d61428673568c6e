"""A provider with an unusable row behaves toward others like one without."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coordinator_processes import free_port
from daemons import daemons
from local_federation import permissive_policy
from numpy.typing import NDArray

from dpspca.client.connection import JobFailedError
from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

ROWS = np.random.default_rng(0).standard_normal((6, 4))
SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=1,
    options={"sparsity": 4, "rounds": 2},
    method="dps-pca",
)
OTHER = replace(SPEC, unit=PrivacyUnit.ROW_REPLACE_ONE)


def without_variable_parts(log: str, *names: str) -> list[str]:
    """Remove from a log what differs between any two runs."""
    for name in names:
        log = log.replace(name[:12], "JOB")
    lines = (re.sub(r"^\S+ |127\.0\.0\.1:\d+|[0-9.]+ ?s\b", "", line) for line in log.splitlines())
    return sorted(line for line in lines if "stopped" not in line)


async def observe(folder: Path, rows: NDArray[np.float64]) -> tuple[object, list[str], list[str]]:
    """Run a job and have another refused. Return everything that others see, and both logs."""
    enrolment = daemons(
        folder, f"127.0.0.1:{free_port()}", permissive_policy("row-add-remove"), {"north": {"cohort": rows}}
    )
    async with enrolment as running, AsyncFederation.connect(folder / "ada.toml") as federation:
        offers = await federation.data_sets()
        done = await federation.submit(SPEC)
        model = await done.result()
        refused = await federation.submit(OTHER)
        with pytest.raises(JobFailedError) as caught:
            await refused.result()
        seen = (offers, model.components.shape, model.statement.text, str(caught.value))
        names = (done.name, refused.name)
        return (
            seen,
            without_variable_parts(running.hub.said, *names),
            without_variable_parts(running.providers["north"].said, *names),
        )


@pytest.mark.slow
def test_an_unusable_row_is_invisible_to_other_parties(tmp_path: Path) -> None:
    odd = ROWS.copy()
    odd[3, 2] = np.nan
    seen, hub, north = asyncio.run(observe(tmp_path / "usual", ROWS))
    for number, rows in enumerate((odd, ROWS[:1], ROWS[:0])):
        folder = tmp_path / str(number)
        other = asyncio.run(observe(folder, rows))
        assert (other[0], other[1]) == (seen, hub)
        own = [line for line in other[2] if "zeros" not in line]
        assert own == north  # only a warning for the steward differs
        assert (len(own) < len(other[2])) == (rows is odd)
