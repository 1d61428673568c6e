"""If the coordinator restarts while an analyst waits, jobs continue, and nothing happens twice."""

import asyncio
import json
import math
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from coordinator_processes import (
    CRASHING_PROGRAM,
    Barrier,
    CoordinatorProcess,
    StableEnrolment,
    ada,
    assert_same_as_undisturbed,
    free_port,
    signed,
    wait_for_answers,
    with_providers,
)
from facts import a_line_names, facts
from local_federation import SHARDS, Enrolment, RunningFederation, now, server_credentials, spec
from timeouts import TIMEOUT

from dpspca import Federation, load_model, simulate
from dpspca.client.blocking import progress_of
from dpspca.client.connection import FederationError
from dpspca.client.connection.errors import AwayError
from dpspca.client.connection.jobs import JobStatus
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, NotNowError
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

"""Seconds that an answer takes, so that a job is met half-way."""
JOB = spec(answer_seconds=120)
"""With time for whoever lost the coordinator to find it again."""
AWAY = "The coordinator does not respond. Retrying for up to 600 seconds."
BACK = "The coordinator responds again."


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


@asynccontextmanager
async def federation_at_barrier(
    enrolment: Enrolment, barrier: Barrier
) -> AsyncIterator[tuple[CoordinatorProcess, RunningFederation]]:
    """Run a coordinator process, and providers whose answers wait at a barrier."""
    hub = CoordinatorProcess(enrolment)
    await hub.start()
    try:
        async with with_providers(enrolment, hub, barrier=barrier) as running:
            yield hub, running
    finally:
        await hub.stop()


@asynccontextmanager
async def connect_and_listen(
    hub: CoordinatorProcess, seconds: float = 600
) -> AsyncIterator[tuple[AsyncFederation, list[str]]]:
    """Connect as ada, and collect the messages for people."""
    output: list[str] = []
    async with AsyncFederation(hub.address, ada(hub.enrolment), retry_seconds=seconds, notify=output.append) as analyst:
        yield analyst, output


async def restart_hub(
    hub: CoordinatorProcess,
    barrier: Barrier,
    number: signal.Signals = signal.SIGKILL,
    then: float = math.inf,
    noticed: Awaitable[object] | None = None,
) -> None:
    """End the coordinator while a job waits at the barrier, move the barrier, and restart the coordinator.

    ``noticed`` delays the restart until a client has noticed the absence.
    """
    await hub.kill(number)
    await barrier.move(then)
    if noticed:
        await noticed
    await hub.start()


async def wait_for_message(output: list[str], words: str) -> None:
    """Wait for a message."""
    async with asyncio.timeout(TIMEOUT):
        while words not in output:  # noqa: ASYNC110  # a list has no event
            await asyncio.sleep(0.02)


async def states_of(job: AsyncJob) -> list[JobStatus]:
    return [state async for state in job.watch()]


# --- Watching ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_watching_continues_after_a_restart_without_repeated_states(
    enrolment: Enrolment, number: signal.Signals
) -> None:
    async def scenario() -> None:
        barrier = Barrier(3)
        async with federation_at_barrier(enrolment, barrier) as (hub, _), connect_and_listen(hub) as (analyst, output):
            job = await analyst.submit_signed(signed(enrolment, answer_seconds=120), JOB)
            watching = asyncio.create_task(states_of(job))
            await wait_for_answers(job, 2)
            await restart_hub(hub, barrier, number, noticed=wait_for_message(output, AWAY))
            states = await watching
            assert output == [AWAY, BACK]
            assert [state.is_final for state in states] == [False] * (len(states) - 1) + [True]
            assert all(later.is_news_after(earlier) for earlier, later in pairwise(states))
            assert [state.answered for state in states] == sorted(state.answered for state in states)
            assert_same_as_undisturbed(await job.result())
            assert [each.job for each in await analyst.jobs()] == [job.name]

    asyncio.run(scenario())


@pytest.mark.slow
def test_waiting_for_a_result_survives_repeated_coordinator_crashes(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        barrier = Barrier(2)
        async with federation_at_barrier(enrolment, barrier) as (hub, _), connect_and_listen(hub) as (analyst, output):
            job = await analyst.submit_signed(signed(enrolment, answer_seconds=120), JOB)
            waiting = asyncio.create_task(job.result())
            for least, then in ((1, 3), (2, 5), (4, math.inf)):
                await wait_for_answers(job, least)
                await restart_hub(hub, barrier, then=then)
            assert_same_as_undisturbed(await waiting)
            assert output == [AWAY, BACK] * (len(output) // 2)

    asyncio.run(scenario())


def test_states_older_than_those_already_seen_are_not_reported(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        barrier = Barrier(2)
        async with federation_at_barrier(enrolment, barrier) as (hub, _), connect_and_listen(hub) as (analyst, _):
            job = await analyst.submit_signed(signed(enrolment, answer_seconds=120), JOB)
            watching = asyncio.create_task(states_of(job))
            await wait_for_answers(job, 1)
            await hub.kill()
            old = [
                shutil.copy(file, enrolment.folder / f"copy-of-{file.name}")
                for file in enrolment.folder.glob("journal.db*")
            ]
            await barrier.move(5)
            await hub.start()
            await wait_for_answers(job, 4)
            await hub.kill()
            for file in enrolment.folder.glob("journal.db*"):
                file.unlink()
            for copy in old:
                shutil.move(copy, enrolment.folder / Path(copy).name.removeprefix("copy-of-"))
            await barrier.lift()
            await hub.start()
            counts = [state.answered for state in await watching]
            assert counts == sorted(counts)
            assert counts[-1] == 6
            assert_same_as_undisturbed(await job.result())

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_blocking_fit_survives_a_restart(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        barrier = Barrier(3)
        async with federation_at_barrier(enrolment, barrier) as (hub, running):
            with Federation.connect(hub.address, enrolment.folder / "analyst-ada") as fed:
                fitting = asyncio.create_task(asyncio.to_thread(fed.fit, JOB, "cohort"))
                await wait_for_answers(await only_job(running.analyst), 2)
                await restart_hub(hub, barrier)
                assert_same_as_undisturbed(await fitting)
                barrier.open(3)
                job = fed.submit(replace(JOB, seed=2), "cohort")
                counting = asyncio.create_task(asyncio.to_thread(lambda: [each.done for each in progress_of(job)]))
                await wait_for_answers(await running.analyst.job(job.name), 2)
                await restart_hub(hub, barrier)
                assert await counting == [1, 2, 3, 4, 5, 6]

    asyncio.run(scenario())


async def only_job(analyst: AsyncFederation) -> AsyncJob:
    """Wait until there is a job, and return it."""
    while not (jobs := await analyst.jobs()):  # noqa: ASYNC110  # another process submits it
        await asyncio.sleep(0.05)
    (found,) = jobs
    return await analyst.job(found.job)


# --- Commands ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def command(
    enrolment: Enrolment, hub: CoordinatorProcess, *words: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command of ada's as a process."""
    (enrolment.folder / "ada.toml").write_text(f'coordinator = "{hub.address}"\nidentity = "analyst-ada"\n')
    (enrolment.folder / "job.json").write_text(json.dumps(JOB.to_dict()))
    line, pipe = (sys.executable, "-m", "dpspca", *words, "--config", "ada.toml"), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*line, cwd=enrolment.folder, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def read_line(process: asyncio.subprocess.Process, words: str) -> str:
    """Wait for a line on a command's standard error, and return it."""
    assert process.stderr
    async for line in process.stderr:
        if words in (message := line.decode()):
            return message
    raise AssertionError(words)


@pytest.mark.slow
def test_run_with_json_output_survives_a_coordinator_kill(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        barrier = Barrier(3)
        async with federation_at_barrier(enrolment, barrier) as (hub, running):
            order = ("run", "job.json", "--json", "--data-set", "cohort")
            async with command(enrolment, hub, *order) as process:
                name = (await read_line(process, "job ")).split()[1]
                await wait_for_answers(await running.analyst.job(name), 2)
                await restart_hub(hub, barrier, noticed=read_line(process, AWAY))
                out, output = await process.communicate()
            assert process.returncode == 0, output
            assert output.decode().splitlines() == [BACK]
            facts = json.loads(out)
            assert facts["job"] == name
            assert [each["answered"] for each in facts["participants"]] == [6, 6, 6]
            assert_same_as_undisturbed(load_model(enrolment.folder / "model.dpspca"))
            assert [each.job for each in await running.analyst.jobs()] == [name]

    asyncio.run(scenario())


@pytest.mark.slow
def test_watch_prints_each_answer_once_and_the_coordinator_s_absence(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        barrier, order = Barrier(3), ("run", "job.json", "--data-set", "cohort")
        async with federation_at_barrier(enrolment, barrier) as (hub, _), command(enrolment, hub, *order) as process:
            await read_line(process, "2 of 6")
            await restart_hub(hub, barrier, noticed=read_line(process, AWAY))
            out, output = await process.communicate()
            assert process.returncode == 0, output
            message = output.decode().splitlines()
            assert [message.count(AWAY), message.count(BACK)] == [0, 1]
            numbers = [int(line.split()[0]) for line in message if " of 6 " in line]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == 6
            assert "model.dpspca" in out.decode()

    asyncio.run(scenario())


def test_an_interrupt_does_not_wait_for_an_absent_coordinator(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        order = ("run", "job.json", "--data-set", "cohort")
        async with federation_at_barrier(enrolment, Barrier(2)) as (hub, _), command(enrolment, hub, *order) as process:
            await read_line(process, "1 of 6")
            await hub.kill()
            await read_line(process, AWAY)
            interrupted = time.monotonic()
            process.send_signal(signal.SIGINT)
            output = (await process.communicate())[1].decode()
            assert process.returncode == 130, output
            assert time.monotonic() - interrupted < TIMEOUT
            assert a_line_names(output, "still running", "`dpspca jobs watch", "`dpspca jobs cancel")

    asyncio.run(scenario())


@pytest.mark.parametrize("seconds", ["0", "1.5"])
def test_a_command_retries_for_the_given_time(enrolment: Enrolment, seconds: str) -> None:
    async def scenario() -> None:
        order = ("run", "job.json", "--data-set", "cohort", "--retry-seconds", seconds)
        async with federation_at_barrier(enrolment, Barrier(2)) as (hub, _), command(enrolment, hub, *order) as process:
            await read_line(process, "1 of 6")
            gone = time.monotonic()  # before: the command may notice sooner than this process does
            await hub.kill()
            output = (await process.communicate())[1].decode()
            assert process.returncode == 2
            assert float(seconds) < time.monotonic() - gone < TIMEOUT
            assert (AWAY.replace("600", seconds) in output) is (seconds != "0")
            assert a_line_names(output, "may still", "`dpspca jobs watch", "`dpspca jobs cancel")

    asyncio.run(scenario())


# --- Submitting -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_resubmitted_without_confirmation_is_one_job(enrolment: Enrolment) -> None:
    """The coordinator dies when the job is in its journal but not confirmed."""

    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start(CRASHING_PROGRAM, 1, "after")
        async with with_providers(enrolment, hub) as running, connect_and_listen(hub) as (analyst, output):
            await analyst.jobs()
            submitting = asyncio.create_task(analyst.submit(JOB, "cohort"))
            assert await hub.ended() == 9
            await wait_for_message(output, AWAY)
            await hub.start()
            assert_same_as_undisturbed(await (await submitting).result())
            assert output == [AWAY, BACK]
            assert len(await running.analyst.jobs()) == 1

    asyncio.run(scenario())


# --- When waiting ends ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_when_retries_end_the_error_gives_cause_and_remedy(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        barrier = Barrier(2)
        async with (
            federation_at_barrier(enrolment, barrier) as (hub, _),
            connect_and_listen(hub, seconds=2) as (analyst, output),
        ):
            job = await analyst.submit_signed(signed(enrolment, answer_seconds=120), JOB)
            watching = asyncio.create_task(states_of(job))
            await wait_for_answers(job, 1)
            await hub.kill()
            await barrier.lift()
            begun = time.monotonic()
            with pytest.raises(AwayError, match=facts("UNAVAILABLE", "2 seconds")):
                await watching
            assert 1 < time.monotonic() - begun < TIMEOUT
            with pytest.raises(AwayError, match=facts("UNAVAILABLE")):
                await analyst.jobs()
            assert output == [AWAY.replace("600", "2")]
            await hub.start()
            assert [each.job for each in await list_with_retries(analyst)] == [job.name]
            assert output[1:] == [BACK]

    asyncio.run(scenario())


async def list_with_retries(analyst: AsyncFederation) -> list[JobStatus]:
    """List jobs, retrying as long as gRPC takes to connect again."""
    while True:
        try:
            return await analyst.jobs()
        except AwayError:
            await asyncio.sleep(0.1)


def test_a_coordinator_never_reached_is_not_waited_for(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        output: list[str] = []
        async with AsyncFederation(f"127.0.0.1:{free_port()}", ada(enrolment), notify=output.append) as analyst:
            job = AsyncJob("none", catalogue.plan(spec()), analyst.stub)
            for work in (analyst.jobs, analyst.data_sets, job.status, job.result, lambda: states_of(job)):
                begun = time.monotonic()
                with pytest.raises(AwayError, match=facts("UNAVAILABLE", "`dpspca doctor`")):
                    await work()
                assert time.monotonic() - begun < TIMEOUT
        assert output == []

    asyncio.run(scenario())


def test_a_certificate_that_expires_meanwhile_ends_the_waiting(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation_at_barrier(enrolment, Barrier()) as (hub, _):
            days = [0]
            async with AsyncFederation(hub.address, ada(enrolment), lambda: now() + timedelta(days=days[0])) as analyst:
                await analyst.jobs()
                await hub.kill()
                days[0] = 31
                with pytest.raises(NotNowError, match=facts("dpspca://town/analyst/ada", "`dpspca identity renew`")):
                    await analyst.jobs()

    asyncio.run(scenario())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_an_invalid_time_for_retries_is_refused(enrolment: Enrolment, seconds: float) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidParameterError, match=facts("retry_seconds")):
            AsyncFederation("127.0.0.1:1", ada(enrolment), retry_seconds=seconds)

    asyncio.run(scenario())


class InterruptingCoordinator(pb_grpc.AnalystServiceServicer):
    """A coordinator that interrupts each stream once, and accepts no job."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self.calls: list[str] = []

    async def Submit(self, request: pb.SubmitRequest, context: Any) -> pb.Job:  # noqa: N802  # the names of the rpcs
        self.calls.append("Submit")
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "Not this one.")
        raise AssertionError  # abort does not return

    async def Watch(self, request: pb.JobName, context: Any) -> AsyncIterator[pb.Job]:  # noqa: N802
        self.calls.append("Watch")
        yield pb.Job(job=request.job, state="running", answered=self.calls.count("Watch"), queries=2)
        if self.calls.count("Watch") > 1:
            yield pb.Job(job=request.job, state="done", answered=2, queries=2)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Gone after the last word.")

    async def Result(self, request: pb.JobName, context: Any) -> AsyncIterator[pb.Frame]:  # noqa: N802
        self.calls.append("Result")
        half = len(self._model) // 2
        yield pb.Frame(sequence=0, content=self._model[:half])
        if self.calls.count("Result") == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Gone half-way.")
        yield pb.Frame(sequence=1, content=self._model[half:])


@asynccontextmanager
async def interrupting_coordinator(
    enrolment: Enrolment, model: bytes
) -> AsyncIterator[tuple[InterruptingCoordinator, AsyncFederation]]:
    hub, service, server = enrolment.identity(Role.COORDINATOR, "hub"), InterruptingCoordinator(model), rpc.server()
    pb_grpc.add_AnalystServiceServicer_to_server(service, server)
    port = server.add_secure_port("127.0.0.1:0", server_credentials(hub))
    await server.start()
    try:
        async with AsyncFederation(f"127.0.0.1:{port}", ada(enrolment)) as analyst:
            yield service, analyst
    finally:
        await server.stop(0)


def test_a_model_interrupted_half_way_is_fetched_from_the_start(
    enrolment: Enrolment, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that the next attempt repairs is not reported, and neither is the end of a finished stream."""
    model = simulate([*SHARDS.values()], spec())

    async def scenario() -> None:
        async with interrupting_coordinator(enrolment, model.to_bytes()) as (service, analyst):
            job = AsyncJob("some", catalogue.plan(spec()), analyst.stub)
            assert [(each.state, each.answered) async for each in job.watch()] == [
                ("running", 1),
                ("running", 2),
                ("done", 2),
            ]
            assert (await job.result()).components.tobytes() == model.components.tobytes()
            assert service.calls == ["Watch"] * 3 + ["Result"] * 2

    asyncio.run(scenario())
    # Our own messages only: gRPC has one queue for all event loops of a process, and reports here when a call of
    # an earlier test, whose loop is closed by now, comes to its end.
    assert [each.getMessage() for each in caplog.records if each.name.startswith("dpspca")] == []


def test_a_refused_call_is_not_retried(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with interrupting_coordinator(enrolment, b"") as (service, analyst):
            with pytest.raises(FederationError, match=facts("FAILED_PRECONDITION", "Not this one")):
                await analyst.submit_signed(signed(enrolment, answer_seconds=120), JOB)
            assert service.calls == ["Submit"]

    asyncio.run(scenario())
