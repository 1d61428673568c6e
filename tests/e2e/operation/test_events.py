"""A real provider's stream of events: what a job, a refusal, a change of the policy and a reload put into it."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_processes import free_port
from daemons import daemons
from files_in_use import put
from local_federation import permissive_policy, spec
from timeouts import TIMEOUT

from dpspca.client.connection import JobFailedError
from dpspca.client.federation import AsyncFederation
from dpspca.common.algorithms import catalogue

ROWS = {"north": {"cohort": np.random.default_rng(3).standard_normal((300, 30))}}
SPEC = spec(explained_variance=False)


@pytest.mark.slow
def test_events_of_a_provider_are_written_in_order(tmp_path: Path) -> None:
    path, settings, policy = tmp_path / "events.jsonl", tmp_path / "north.toml", tmp_path / "policy.toml"
    read = path.with_name("rotated")

    def events() -> list[dict[str, Any]]:
        lines = [line for each in (read, path) if each.exists() for line in each.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    async def until(event: str, count: int = 1) -> None:
        async with asyncio.timeout(TIMEOUT):
            while [each["event"] for each in events()].count(event) < count:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.05)

    async def scene() -> None:
        async with (
            daemons(tmp_path, f"127.0.0.1:{free_port()}", permissive_policy(), ROWS) as town,
            AsyncFederation(town.address, town.ada) as analyst,
        ):
            north = town.providers["north"]
            text = await asyncio.to_thread(settings.read_text)
            await asyncio.to_thread(settings.write_text, text + '[events]\nfile = "events.jsonl"\n')
            await north.end()
            await north.start()
            await north.says("Connected")
            job = await analyst.submit(SPEC, "cohort", ["north"])
            await job.result()
            await until("ended")
            path.rename(read)
            north.send(signal.SIGHUP)
            await until("settings", 2)
            kept = await asyncio.to_thread(policy.read_text)
            await asyncio.to_thread(put, policy, kept.replace('"ada", ', ""))
            refused = await analyst.submit(SPEC, "cohort", ["north"])
            with pytest.raises(JobFailedError):
                await refused.result()
            await until("refused")
            await north.end()
        told = events()
        assert [each["number"] for each in told] == list(range(1, len(told) + 1))
        assert {each["provider"] for each in told} == {"dpspca://town/provider/north"}
        of_job = [each["event"] for each in told if each.get("job") == job.name]
        assert of_job == ["admitted", *["reserved", "released"] * len(catalogue.plan(SPEC)), "ended"]
        last = [each["event"] for each in told][-4:]
        assert last[0] == "settings"
        assert sorted(last[1:3]) == ["policy", "refused"]
        assert last[3] == "stopped"
        (refusal,) = [each for each in told if each["event"] == "refused"]
        assert (refusal["job"], refusal["code"], refusal["query"]) == (refused.name, "refused", None)

    asyncio.run(scene())
