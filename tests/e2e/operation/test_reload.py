"""Daemons take up new settings on SIGHUP without a restart, and keep what was in force if there is a mistake."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_processes import free_port, wait_for_answers
from daemons import Daemons, Process, daemons
from facts import names_facts
from local_federation import Enrolment, federation, now, permissive_policy, spec
from notify_socket import notify_socket
from timeouts import TIMEOUT

from dpspca.client.connection import probe
from dpspca.client.federation import AsyncFederation
from dpspca.common.job import JobSpec
from dpspca.common.names import Role
from dpspca.common.storage import Address
from dpspca.common.trust import identity as identities
from dpspca.provider.ledger.sqlite import read_ledger_state

DRAW = np.random.default_rng(5)
ROWS = {
    site: {"cohort": DRAW.standard_normal((300, 30)), "labs": DRAW.standard_normal((200, 30))}
    for site in ("north", "south")
}
LONG = spec(
    options={"sparsity": 6, "rounds": 24}, minimum_providers=1, explained_variance=False, answer_seconds=10 * TIMEOUT
)
"""A provider that is waited for would be waited for longer than any test runs."""
SHORT = spec(explained_variance=False)
AGAIN = "were read again"
KEPT = "everything stays as it was"


def play(folder: Path, scene: Callable[[Daemons, AsyncFederation], Awaitable[None]]) -> None:
    async def perform() -> None:
        policy = permissive_policy("row-replace-one", "cohort", "labs", "more")
        async with (
            daemons(folder, f"127.0.0.1:{free_port()}", policy, ROWS) as town,
            AsyncFederation(town.address, town.ada) as analyst,
        ):
            await scene(town, analyst)

    asyncio.run(perform())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await holds():  # noqa: ASYNC110  # other processes tell nobody
            await asyncio.sleep(0.05)


async def reload(daemon: Process, settings: Path, text: str, words: str = AGAIN) -> None:
    """Change the settings, and wait until the log has these words once more."""
    await asyncio.to_thread(settings.write_text, text)
    before = daemon.said.count(words)

    async def said() -> bool:
        return daemon.said.count(words) > before

    daemon.send(signal.SIGHUP)
    await until(said)


async def offered(analyst: AsyncFederation, data_set: str, *providers: str) -> None:
    """Wait until exactly these providers offer a data set."""

    async def are_offering() -> bool:
        return {each.provider for each in await analyst.data_sets() if each.data_set == data_set} == set(providers)

    await until(are_offering)


def health(folder: Path, name: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "dpspca", "health", "--config", f"{name}.toml", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # our own
    return done.returncode, json.loads(done.stdout)["details"]


def examined(folder: Path, name: str) -> tuple[int, list[str], list[str]]:
    """Return whether `health` succeeds, its warnings, and the checks of `doctor` that fail."""
    command = [sys.executable, "-m", "dpspca"]
    settings = ["--config", f"{name}.toml", "--json"]
    healthy = subprocess.run([*command, "health", *settings], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # our own
    doctor = subprocess.run([*command, "doctor", *settings], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # our own
    failed = [each["name"] for each in json.loads(doctor.stdout)["checks"] if each["passed"] is False]
    return healthy.returncode, json.loads(healthy.stdout)["warnings"], failed


async def begin(town: Daemons, analyst: AsyncFederation, what: JobSpec, data_set: str) -> Any:
    """Submit a job to both providers and wait until it has some answers."""
    signed = town.enrolment.job(what, town.ada, ("north", "south"), data_set)
    job = await analyst.submit_signed(signed, what)
    await wait_for_answers(job, 2)
    return job


def state_of(town: Daemons, job: Any, provider: str = "north") -> str | None:
    return read_ledger_state(town.ledger(provider)).jobs[job.name].state


@pytest.mark.slow
def test_new_data_sets_appear_while_jobs_on_others_go_on(tmp_path: Path) -> None:
    async def scene(town: Daemons, analyst: AsyncFederation) -> None:
        np.save(tmp_path / "more.npy", DRAW.standard_normal((100, 30)))
        settings, north = tmp_path / "north.toml", town.providers["north"]
        job = await begin(town, analyst, LONG, "cohort")
        await reload(north, settings, settings.read_text() + 'more = "more.npy"\n')
        await offered(analyst, "more", "north")
        model = await job.result()
        assert model.statement.parties == 2
        assert (await (await analyst.submit(SHORT, "more", ["north"])).result()).statement.parties == 1
        assert "ends here" not in north.said

    play(tmp_path, scene)


@pytest.mark.slow
def test_a_job_ends_if_its_data_set_is_gone_or_changed_and_others_go_on(tmp_path: Path) -> None:
    async def scene(town: Daemons, analyst: AsyncFederation) -> None:
        settings, north = tmp_path / "north.toml", town.providers["north"]
        gone = await begin(town, analyst, LONG, "labs")
        kept = await begin(town, analyst, LONG, "cohort")
        text = settings.read_text()
        await reload(north, settings, "".join(line for line in text.splitlines(True) if not line.startswith("labs")))
        await offered(analyst, "labs", "south")
        async with asyncio.timeout(TIMEOUT):
            assert (await gone.result()).statement.parties == 1
        assert (await kept.result()).statement.parties == 2
        state = read_ledger_state(town.ledger("north"))
        assert (state.jobs[gone.name].state, state.jobs[kept.name].state) == ("withdrawn", "done")
        account = state.data_sets["labs"]
        assert account.spent.units > account.reserved.units == 0

        changed = await begin(town, analyst, LONG, "cohort")
        np.save(tmp_path / "north-cohort.npy", ROWS["north"]["cohort"][:-1])
        await reload(north, settings, text)
        async with asyncio.timeout(TIMEOUT):
            assert (await changed.result()).statement.parties == 1
        assert state_of(town, changed) == "withdrawn"
        await offered(analyst, "labs", "north", "south")  # north has dialled again with all that it offers
        assert (await (await analyst.submit(SHORT, "cohort")).result()).statement.parties == 2

    play(tmp_path, scene)


@pytest.mark.slow
def test_a_coordinator_tells_other_programs_what_happens(tmp_path: Path) -> None:
    async def scene(town: Daemons, analyst: AsyncFederation) -> None:
        hub = tmp_path / "hub.toml"
        await reload(town.hub, hub, hub.read_text() + '[events]\nfile = "events.jsonl"\n')
        job = await analyst.submit(
            replace(SHORT, minimum_providers=1, answer_seconds=TIMEOUT), "cohort", ["north", "south"]
        )
        model = await job.result()
        assert model.statement.parties == 2
        await town.providers["south"].end()
        await offered(analyst, "cohort", "north")
        await town.hub.end()
        told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
        assert {each.pop("coordinator") for each in told} == {"dpspca://town/coordinator/hub"}
        assert [each.pop("number") for each in told] == [*range(1, len(told) + 1)]
        kinds = [each["event"] for each in told]
        assert kinds[:4] == ["settings", "submitted", "ended", "disconnected"]
        assert kinds[-1] == "stopped"
        assert told[1]["job"] == told[2]["job"] == job.name
        assert told[1]["providers"] == ["north", "south"]
        assert (told[2]["state"], told[2]["reason"]) == ("done", None)
        assert told[3]["party"] == "dpspca://town/provider/south"

    play(tmp_path, scene)


MISTAKES = {
    "not TOML": lambda text: text + "= 1\n",
    "an unknown key": lambda text: "colour = 'red'\n" + text,
    "no such rows": lambda text: text + 'more = "nowhere.npy"\n',
    "no such policy": lambda text: text.replace('"policy.toml"', '"nowhere.toml"'),
    "no such list": lambda text: text.replace('"revoked.pem"', '"nowhere.pem"'),
    "rows under a second name": lambda text: text.replace('labs = "north-labs', 'more = "north-labs'),
}


@pytest.mark.slow
def test_a_mistake_changes_nothing_and_is_shown_until_corrected(tmp_path: Path) -> None:
    async def scene(town: Daemons, analyst: AsyncFederation) -> None:
        settings, north = tmp_path / "north.toml", town.providers["north"]
        text = settings.read_text()
        await (await analyst.submit(SHORT, "labs")).result()  # the ledger knows these rows
        job = await begin(town, analyst, LONG, "cohort")
        for what, mistake in MISTAKES.items():
            assert mistake(text) != text, what
            await reload(north, settings, mistake(text), words=KEPT)
        settings.write_text(text)
        code, details = await asyncio.to_thread(health, tmp_path, "north")
        assert code == 1
        assert names_facts(details, "reloaded", "'more'", "'labs'")
        assert (await asyncio.to_thread(examined, tmp_path, "north"))[2] == ["reload"]
        await offered(analyst, "labs", "north", "south")
        await offered(analyst, "more")
        assert (await job.result()).statement.parties == 2
        await reload(north, settings, text)
        assert await asyncio.to_thread(health, tmp_path, "north") == (0, "connected")

    play(tmp_path, scene)


@pytest.mark.slow
def test_a_change_that_needs_a_restart_is_named_and_the_rest_is_taken_up(tmp_path: Path) -> None:
    async def scene(town: Daemons, analyst: AsyncFederation) -> None:
        np.save(tmp_path / "more.npy", DRAW.standard_normal((100, 30)))
        settings, north = tmp_path / "north.toml", town.providers["north"]
        text = settings.read_text().replace("north-ledger/", "other-ledger/") + 'more = "more.npy"\n'
        await reload(north, settings, text)
        await offered(analyst, "more", "north")
        assert "'ledger' changed" in north.said
        assert not (tmp_path / "other-ledger").exists()
        hub = tmp_path / "hub.toml"
        text = hub.read_text()
        await reload(town.hub, hub, text.replace("127.0.0.1", "localhost") + "result_mebibytes = 7\n")
        assert "'listen' changed" in town.hub.said
        await reload(town.hub, hub, text + "result_mebibytes = 0\n", words=KEPT)
        hub.write_text(text)
        code, warnings, failed = await asyncio.to_thread(examined, tmp_path, "hub")
        assert code == 0
        assert names_facts(" ".join(warnings), "result_mebibytes", "0")
        assert failed == ["reload"]
        await reload(town.hub, hub, text)
        assert await asyncio.to_thread(examined, tmp_path, "hub") == (0, [], [])
        await offered(analyst, "cohort", "north", "south")

    play(tmp_path, scene)


def test_only_a_coordinator_s_own_identity_learns_why_its_reload_failed(tmp_path: Path) -> None:
    async def scene() -> None:
        enrolment = Enrolment.create(tmp_path)
        async with federation(enrolment, ()) as running:
            hub, address = identities.Identity.load(tmp_path / "coordinator-hub"), Address(running.coordinator.address)
            others = [enrolment.identity(role, "bob") for role in (Role.ANALYST, Role.PROVIDER)]
            assert await probe.ask_reload_problem(address, hub) is None
            running.coordinator.reload_problem = lambda: "x" * 9999
            assert await probe.ask_reload_problem(address, hub) == "x" * 2000
            for other in others:
                assert await probe.ask_reload_problem(address, other) is None

    asyncio.run(scene())


@pytest.mark.slow
def test_a_renewed_certificate_is_shown_after_a_reload(tmp_path: Path) -> None:
    async def scene(town: Daemons, analyst: AsyncFederation) -> None:
        folder, settings, north = tmp_path / "provider-north", tmp_path / "north.toml", town.providers["north"]
        authority = town.enrolment.authority
        certificate = authority.sign(identities.renew_request(folder), days=9)
        identities.install(folder, certificate, authority.certificate_pem)
        await reload(north, settings, settings.read_text(), words="Connected")
        assert (await (await analyst.submit(SHORT, "cohort")).result()).statement.parties == 2
        assert (identities.Identity.load(folder).not_after - now()).days in {8, 9}

    play(tmp_path, scene)


@pytest.mark.slow
def test_a_service_manager_is_notified_of_a_daemons_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(town: Daemons, _: AsyncFederation) -> None:
        hub, settings = town.hub, tmp_path / "hub.toml"
        await hub.end()
        settings.write_text(settings.read_text() + 'metrics = "127.0.0.1:0"\n')
        with notify_socket(tmp_path) as manager:
            monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
            monkeypatch.setenv("WATCHDOG_USEC", "400000")
            await hub.start()
            try:
                assert town.address in await asyncio.to_thread(manager.until, "READY=1")
                for _ in range(3):
                    await asyncio.to_thread(manager.until, "WATCHDOG=1")
                page = re.findall(r"http://\S+", hub.said)[0]
                for text, failed in (("= 1\n", 1), ("", 0)):
                    good = settings.read_text().removesuffix("= 1\n")
                    settings.write_text(good + text)
                    hub.send(signal.SIGHUP)
                    assert "MONOTONIC_USEC" in await asyncio.to_thread(manager.until, "RELOADING=1")
                    said = await asyncio.to_thread(manager.until, "READY=1")
                    assert names_facts(said, "hub.toml", 1) is bool(failed)
                    assert town.address in said
                    with await asyncio.to_thread(urllib.request.urlopen, page) as reply:
                        assert f"dpspca_coordinator_reload_failed {failed}" in reply.read().decode()
                hub.send(signal.SIGTERM)
                await asyncio.to_thread(manager.until, "STOPPING=1")
            finally:
                await hub.away_with_it()

    play(tmp_path, scene)
