"""A provider with a row that cannot be used starts, offers, answers and refuses as one whose rows all can be."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from daemons import daemons
from hubs import free_port
from numpy.typing import NDArray
from town import lax_policy

from dpspca.client.federation import AsyncFederation, JobFailedError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema

ROWS = np.random.default_rng(0).standard_normal((6, 4))
SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=1,
    options={"sparsity": 4, "rounds": 2},
)
OTHER = replace(SPEC, unit=PrivacyUnit.ROW_REPLACE_ONE)


def constant(log: str, *names: str) -> list[str]:
    """Take out of a log what differs from one run to the next whatever the rows are."""
    for name in names:
        log = log.replace(name[:12], "JOB")
    lines = (re.sub(r"^\S+ |127\.0\.0\.1:\d+|[0-9.]+ ?s\b", "", line) for line in log.splitlines())
    return sorted(line for line in lines if "stopped" not in line)


async def observed(folder: Path, rows: NDArray[np.float64]) -> tuple[object, list[str], list[str]]:
    """Have a job answered and another refused; give all that others see, and the two logs."""
    town = daemons(folder, f"127.0.0.1:{free_port()}", lax_policy("row-add-remove"), {"north": {"cohort": rows}})
    async with town as running, AsyncFederation.connect(folder / "ada.toml") as federation:
        offers = await federation.data_sets()
        done = await federation.submit(SPEC)
        model = await done.result()
        refused = await federation.submit(OTHER)
        with pytest.raises(JobFailedError) as caught:
            await refused.result()
        seen = (offers, model.components.shape, model.statement.text, str(caught.value))
        names = (done.name, refused.name)
        return seen, constant(running.hub.said, *names), constant(running.providers["north"].said, *names)


def test_an_unusable_row_is_invisible_to_other_parties(tmp_path: Path) -> None:
    odd = ROWS.copy()
    odd[3, 2] = np.nan
    seen, hub, north = asyncio.run(observed(tmp_path / "usual", ROWS))
    for number, rows in enumerate((odd, ROWS[:1], ROWS[:0])):
        folder = tmp_path / str(number)
        other = asyncio.run(observed(folder, rows))
        assert (other[0], other[1]) == (seen, hub)
        own = [line for line in other[2] if "counts as a row of zeros" not in line]
        assert own == north  # nothing but a warning, which is for the steward alone
        assert (len(own) < len(other[2])) == (rows is odd)
