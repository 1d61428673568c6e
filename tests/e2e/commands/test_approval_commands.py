"""A steward's commands beside real daemons: a waiting job survives kill -9, and is approved from the command line."""

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from approvals import BEN, MARIA, awaiting, human_policy
from coordinator_processes import free_port
from daemons import DPSPCA, daemons
from facts import names_facts
from local_federation import spec
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.job import Schema
from dpspca.provider.approval.notify import Notifier
from dpspca.provider.ledger.sqlite import read_ledger_state, verify

ROWS = {name: {"cohort": np.random.default_rng(0).standard_normal((300, 6))} for name in ("north",)}
SPEC = spec(schema=Schema(6), options={"sparsity": 6, "rounds": 2}, minimum_providers=1)
NOTE = """
import json, os, sys
told = json.load(sys.stdin)
with open(sys.argv[1], "w") as file:
    json.dump({"told": told, "env": {k: v for k, v in os.environ.items() if k.startswith("DPSPCA_")}}, file)
"""


async def command(folder: Path, *words: str, code: int = 0, **options: str) -> str:
    """Run a command as a program, and return its output. Each person has an account of their own."""
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    process = await asyncio.create_subprocess_exec(
        *DPSPCA, *words, *flags, "--config", str(folder / "north.toml"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env={**os.environ, "SUDO_USER": f"account-of-{options.get('person')}"},
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == code, (out + err).decode()
    return (out or err).decode()


async def submitted(federation: AsyncFederation) -> AsyncJob:
    job = await federation.submit(SPEC, "cohort", ["north"])
    await awaiting(job, "north")
    return job


@pytest.mark.slow
def test_a_waiting_job_survives_kills_and_runs_once_two_persons_approve(tmp_path: Path) -> None:
    policy = human_policy(MARIA, BEN, needed=2)

    async def scenario() -> None:
        async with daemons(tmp_path, f"127.0.0.1:{free_port()}", policy, ROWS, heartbeat_seconds=1) as running:
            async with AsyncFederation(running.address, running.ada, retry_seconds=TIMEOUT) as federation:
                job = await submitted(federation)
                north = running.providers["north"]
                for daemon in (north, running.hub, north):
                    await daemon.kill()
                    await daemon.start()
                    await daemon.until_ready()
                await north.says("Connected")
                await awaiting(job, "north")
                listed = json.loads(await command(tmp_path, "approval", "list", "--json"))
                assert [each["job"] for each in listed["requests"]] == [job.name]

                shown = await command(tmp_path, "approval", "show", job.name[:10])
                for said in (
                    "Who asks: dpspca://town/analyst/ada",
                    "What it costs: mu",
                    "What will be sent:",
                    "What is left:",
                ):
                    assert said in shown
                await command(tmp_path, "approval", "approve", job.name[:10], "--yes", person=MARIA)
                await north.kill()  # what was decided meanwhile counts when it starts again
                late = await command(tmp_path, "approval", "approve", job.name[:10], "--yes", person=BEN)
                assert "not recorded" in late
                await north.start()
                assert (await job.result()).statement.parties == 1
            assert await north.end() == 0
        state = read_ledger_state(running.ledger("north"))
        assert state.jobs[job.name].state == "done"
        assert verify(running.ledger("north"), running.head("north")) == []

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_steward_is_notified_and_rejects_from_the_command_line(tmp_path: Path) -> None:
    note = tmp_path / "note.json"
    argv = json.dumps([sys.executable, "-c", NOTE, str(note)])

    async def scenario() -> None:
        address = f"127.0.0.1:{free_port()}"
        async with daemons(tmp_path, address, human_policy(), ROWS, heartbeat_seconds=1) as running:
            north = running.providers["north"]
            await north.end()
            with (tmp_path / "north.toml").open("a") as file:
                file.write(f"[approval]\nnotify = {argv}\nexpires_hours = 2\n")
            await north.start()
            await north.says("Connected")
            async with AsyncFederation(running.address, running.ada, retry_seconds=TIMEOUT) as federation:
                job = await submitted(federation)
                async with asyncio.timeout(TIMEOUT):
                    while not (note.exists() and note.read_text()):  # noqa: ASYNC110  # a file, which tells nobody
                        await asyncio.sleep(0.05)
                told = json.loads(note.read_text())
                assert told["env"]["DPSPCA_JOB"] == told["told"]["job"] == job.name
                assert told["env"]["DPSPCA_DATA_SET"] == "cohort"
                assert told["told"]["answers"] == len(job.plan)
                refused = await command(
                    tmp_path, "approval", "reject", job.name, "--yes", code=2, reason="no", person="eve"
                )
                assert names_facts(refused, "'eve'", "--person", MARIA)
                await command(tmp_path, "approval", "reject", job.name, "--yes", reason="ask Ben first", person=MARIA)
                async for status in job.watch():
                    last = status
                assert last.state == "failed"
                assert names_facts(last.reason, MARIA, "ask Ben first")
                assert "No job waits" in await command(tmp_path, "approval", "list")
                every = json.loads(await command(tmp_path, "approval", "list", "--all", "--json"))
                assert [(each["state"], each["decisions"][0]["person"]) for each in every["requests"]] == [
                    ("rejected", MARIA)
                ]
                told = await command(tmp_path, "approval", "show", job.name)
                assert names_facts(told, "rejected", MARIA, "ask Ben first")
                checked = await command(tmp_path, "doctor")
                assert f"approval: 0 jobs wait. {sys.executable} is run for each." in checked
                settings = (tmp_path / "north.toml").read_text()
                (tmp_path / "north.toml").write_text(settings.replace(sys.executable, "/nowhere"))
                assert "notify names '/nowhere'" in await command(tmp_path, "doctor", code=1)

    asyncio.run(scenario())


# --- The steward's own command ----------------------------------------------------------------------------------------

SUMMARY = {"job": "a" * 64, "data_set": "cohort", "analyst": "dpspca://town/analyst/ada"}


def test_a_command_that_hangs_is_killed_with_everything_that_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = tmp_path / "child"
    script = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '600']); "
        f"open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    )
    begun = time.monotonic()
    Notifier([sys.executable, "-c", script], 2).run(SUMMARY)
    assert time.monotonic() - begun < TIMEOUT
    assert names_facts(caplog.text, SUMMARY["job"][:12], "2 seconds")
    number = int(child.read_text())
    for _ in range(100):
        state = Path(f"/proc/{number}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        os.kill(number, signal.SIGKILL)
        raise AssertionError("the command's child still runs")


def test_a_missing_or_failing_command_is_logged_and_gets_no_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret")
    Notifier([str(tmp_path / "nothing")], 5).run(SUMMARY)
    assert "No notification about" in caplog.text
    script = "import os, sys; sys.exit(f'{sys.argv[1:]} {os.environ.get(\"PGPASSWORD\")}')"
    Notifier([sys.executable, "-c", script, "$(touch x)", "a;b"], 30).run(SUMMARY)
    assert "ended with 1" in caplog.text
    assert "['$(touch x)', 'a;b'] None" in caplog.text


def test_notifying_never_waits_and_a_full_line_is_tried_again() -> None:
    slow, ended = Notifier(["sleep", "600"], 1), list[str]()
    slow._pending = queue.Queue(1)
    begun, taken = time.monotonic(), 0
    for _ in range(100):
        if not slow.is_full:
            slow.notify(SUMMARY, lambda: ended.append("slow"))
            taken += 1
    assert time.monotonic() - begun < 1
    assert taken in {1, 2}
    Notifier([], 1).notify(SUMMARY, lambda: ended.append("none"))
    assert ended == ["none"]
