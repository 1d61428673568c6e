"""Real daemons in network namespaces. The link between them is cut, slowed down, or loses what one side sends."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from daemons import DPSPCA, Daemons, daemons
from local_federation import permissive_policy
from networks import ADDRESSES, FAR, NEAR, Link, linked

from dpspca.provider.ledger.sqlite import verify

pytestmark = pytest.mark.nightly

COLUMNS = 8
HUB = f"{ADDRESSES[NEAR]}:7443"
SILENCE = 60.0
"""Seconds of silence after which either side considers the other lost: three heartbeats."""
HEARTBEAT = 2
"""A shorter heartbeat, in seconds, for tests that should not wait that long."""


@pytest.fixture(autouse=True, scope="module")
def _links_can_be_made() -> None:
    if missing := networks.missing():
        pytest.skip(f"Links cannot be made: {missing}.")


@dataclass(frozen=True)
class Scene:
    """The coordinator, the analyst and one provider on one side of a link, and a second provider on the other side."""

    link: Link
    daemons: Daemons

    async def command(self, *words: str) -> str:
        """Run a command of the analyst that must succeed."""
        command = (
            *self.link.within(NEAR),
            *DPSPCA,
            *words,
            "--config",
            str(self.daemons.enrolment.folder / "ada.toml"),
        )
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def submit(self, rounds: int, answer_seconds: int) -> str:
        """Submit a job that needs both providers, and return its name."""
        out = self.daemons.enrolment.folder / "model.npz"
        spec = {
            "method": "dps-pca",
            "components": 1,
            "sparsity": 3,
            "norm-bound": 6,
            "centering": "none",
            "unit": "row-add-remove",
            "epsilon": 1,
            "delta": 1e-6,
            "rounds": rounds,
            "minimum-providers": 2,
            "answer-seconds": answer_seconds,
            "data-set": "cohort",
            "out": out,
        }
        flags = [word for name, value in spec.items() for word in (f"--{name}", str(value))]
        told = await self.command("run", "--detach", "--json", *flags)
        name: str = json.loads(told)["job"]
        return name

    async def status(self, job: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(await self.command("jobs", "show", job, "--json"))
        return told

    async def answered(self, job: str, least: int) -> int:
        """Wait until this many queries are answered."""
        while (answered := int((await self.status(job))["answered"])) < least:  # noqa: ASYNC110  # others answer
            await asyncio.sleep(0.2)
        return answered

    async def require_done_by_both(self, job: str) -> None:
        await self.command("jobs", "watch", job)
        told = await self.status(job)
        assert told["state"] == "done"
        assert [each["answered"] for each in told["participants"]] == [told["queries"]] * 2
        for name in self.daemons.providers:
            assert verify(self.daemons.ledger(name), self.daemons.head(name)) == []


@asynccontextmanager
async def scene(folder: Path, heartbeat_seconds: int | None = None) -> AsyncIterator[Scene]:
    sides = {"hub": NEAR, "north": NEAR, "south": FAR}
    draw = np.random.default_rng(0)
    rows = {name: {"cohort": draw.standard_normal((200, COLUMNS))} for name in ("north", "south")}
    with linked() as link:

        def within(name: str) -> Sequence[str]:
            return link.within(sides[name])

        policy = permissive_policy("row-add-remove")
        async with daemons(folder, HUB, policy, rows, heartbeat_seconds, within) as settled:
            yield Scene(link, settled)


def test_a_job_continues_after_its_link_was_down_for_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path) as here:
            job = await here.submit(rounds=1000, answer_seconds=600)
            await here.answered(job, 5)
            here.link.cut()
            stuck = await here.answered(job, 5)
            await asyncio.sleep(SILENCE + 10)
            assert 0 <= await here.answered(job, 5) - stuck <= 1
            assert "The connection ended" in here.daemons.providers["south"].said
            here.link.mend()
            await here.require_done_by_both(job)

    asyncio.run(scenario())


@pytest.mark.parametrize("mute", [NEAR, FAR])
def test_a_job_continues_after_one_side_s_messages_were_lost(tmp_path: Path, mute: str) -> None:
    """Without acknowledgements TCP sends nothing new, so both sides soon receive nothing."""

    async def scenario() -> None:
        async with scene(tmp_path, HEARTBEAT) as here:
            job = await here.submit(rounds=1000, answer_seconds=600)
            await here.answered(job, 5)
            here.link.lose_all_from(mute)
            stuck = await here.answered(job, 5)
            await here.daemons.providers["south"].says("The connection ended: the coordinator stopped sending messages")
            assert 0 <= await here.answered(job, 5) - stuck <= 1
            here.link.mend()
            await here.require_done_by_both(job)

    asyncio.run(scenario())


def test_a_small_job_is_done_in_time_over_a_kilobyte_a_second(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path) as here:
            here.link.slow_down(1000)
            await here.daemons.providers["south"].kill()
            before, begun = [here.link.sent(side) for side in ADDRESSES], time.monotonic()
            await here.daemons.providers["south"].start()
            await here.daemons.providers["south"].says("Connected")
            job = await here.submit(rounds=3, answer_seconds=60)
            await here.require_done_by_both(job)
            lasted = time.monotonic() - begun
            for side, sent in zip(ADDRESSES, before, strict=True):
                assert 0 < here.link.sent(side) - sent <= 1000 * lasted + 2000

    asyncio.run(scenario())
