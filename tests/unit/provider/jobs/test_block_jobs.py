"""A job that says how many rows it is about is answered over these, and refused at no cost where there are fewer."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from busy_threads import busy_places
from facts import facts
from local_federation import AllowEverything, Enrolment, now
from timeouts import TIMEOUT

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import (
    BusyError,
    DpspcaError,
    InvalidDataError,
    NotNowError,
    RefusedError,
    RevokedError,
    RowsNotReadyError,
)
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import Count
from dpspca.common.transport import wire
from dpspca.provider.data.arrivals import Arrivals
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.jobs.open_job import OpenJob
from dpspca.provider.jobs.registry import MAX_OPEN_JOBS, MAX_WAITING_BYTES, JobRegistry, ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.schedule import READ_SECONDS

ROWS = np.random.default_rng(1).standard_normal((20, 4))


def spec(**options: int) -> JobSpec:
    return JobSpec(
        schema=Schema(4),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(1.0, 1e-6),
        norm_bound=4.0,
        components=2,
        method="streaming-power",
        options={"rounds": 2} | options,
    )


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@pytest.fixture
def told(enrolment: Enrolment, tmp_path: Path) -> ProviderSetup:
    me = enrolment.identity(Role.PROVIDER, "north")
    folder = tmp_path / "arriving"
    folder.mkdir()
    np.save(folder / "a.npy", ROWS[:3])
    data_sets = {"there": check_rows(ROWS), "arriving": Arrivals("arriving", folder, pause=0.01)}
    return ProviderSetup("", lambda: me, enrolment.revocations, now, data_sets, AllowEverything)


def test_each_job_uses_its_own_rows_after_another_job(told: ProviderSetup) -> None:
    registry = JobRegistry(told)
    for options, rows in (
        ({}, 20),
        ({"block_rows": 4}, 8),
        ({"block_rows": 5}, 10),
        ({}, 20),
        ({"block_rows": 10}, 20),
    ):
        assert registry.rows.of(registry.offer, "there", catalogue.plan(spec(**options))).evaluate(
            Count()
        ).tolist() == [rows]


def test_arriving_rows_count_as_many_as_the_job_states(told: ProviderSetup) -> None:
    registry = JobRegistry(told)
    for block_rows in (4, 500, 4):
        shard = registry.rows.of(registry.offer, "arriving", catalogue.plan(spec(block_rows=block_rows)))
        assert isinstance(shard, Shard)
        assert shard.evaluate(Count()).tolist() == [2 * block_rows]


def test_the_interval_counts_that_files_are_read_again(told: ProviderSetup, enrolment: Enrolment) -> None:
    """Only the file that was read last stays in memory, and a longer number in text takes longer to read."""
    ada, registry = enrolment.identity(Role.ANALYST, "ada"), JobRegistry(told)
    here, arriving = (
        registry.open(enrolment.job(spec(block_rows=4), ada, ["north"], name)) for name in ("there", "arriving")
    )
    assert arriving.schedule._moved - here.schedule._moved == pytest.approx(READ_SECONDS * ROWS.shape[1])


def test_too_few_rows_are_refused_free_of_charge_without_their_number(
    told: ProviderSetup, enrolment: Enrolment
) -> None:
    registry, ada = JobRegistry(told), enrolment.identity(Role.ANALYST, "ada")
    with pytest.raises(InvalidDataError, match=facts(22)) as caught:
        registry.open(enrolment.job(spec(block_rows=11), ada, ["north"], "there"))
    assert "20" not in str(caught.value)
    with pytest.raises(RefusedError, match=facts("streaming-power", "block_rows")):
        registry.open(enrolment.job(spec(), ada, ["north"], "arriving"))
    assert isinstance(told.ledger, MemoryLedger)
    assert [entry.number for entry in told.ledger.entries] == [1]  # its founding


ENDS: dict[str, tuple[type[DpspcaError], str]] = {
    "the job runs out": (NotNowError, facts("clock")),
    "its analyst is revoked": (RevokedError, facts("dpspca://town/analyst/ada")),
    "the time for an answer is over": (RowsNotReadyError, facts("'round 1 of 2'", "1 seconds", "answer_seconds")),
}


@pytest.mark.parametrize("end", ENDS)
def test_rows_are_waited_for_no_longer_when(end: str, told: ProviderSetup, enrolment: Enrolment) -> None:
    """Nothing was reserved by then, nor is it later: the wait comes before the query's turn."""
    late, ada = [timedelta()], enrolment.identity(Role.ANALYST, "ada")
    registry = JobRegistry(replace(told, clock=lambda: now() + late[0]))
    seconds = 1 if end == "the time for an answer is over" else 600
    opened = registry.open(
        enrolment.job(replace(spec(block_rows=4), answer_seconds=seconds), ada, ["north"], "arriving")
    )

    async def scene() -> None:
        await opened.wait_for_rows(opened.plan[0], 0)  # how many rows there are is the job's to say
        waiting = asyncio.create_task(opened.wait_for_rows(opened.plan[1], 64))
        await asyncio.sleep(0)
        assert not waiting.done()
        if end == "the job runs out":
            late[0] = timedelta(hours=2)
        elif end == "its analyst is revoked":
            enrolment.authority.revoke(ada.name)
        kind, said = ENDS[end]
        with pytest.raises(kind, match=said):
            await asyncio.wait_for(waiting, 120)

    asyncio.run(scene())
    assert told.ledger.standing(opened.name) is None


def anybody() -> None:
    """Whoever asks may ask."""


def how_many_rows(opened: OpenJob) -> wire.QueryReader:
    return wire.QueryReader(Count().announcement, opened.plan[0])


def test_t33_a_requester_that_lost_its_authority_gets_no_answer_at_its_turn(
    told: ProviderSetup, enrolment: Enrolment
) -> None:
    opened = JobRegistry(told).open(enrolment.job(spec(), enrolment.identity(Role.ANALYST, "ada"), ["north"], "there"))

    def nobody() -> None:
        raise RefusedError("Nobody may ask.", "Ask why.")

    async def scene() -> None:
        with pytest.raises(RefusedError, match=facts("Nobody")):
            await opened.answer(0, how_many_rows(opened), nobody)

    asyncio.run(scene())
    assert told.ledger.standing(opened.name) is None


def test_t22_a_repeat_about_arriving_rows_waits_for_no_work_on_rows(told: ProviderSetup, enrolment: Enrolment) -> None:
    """It costs nothing. If the check of the files waited for a thread for rows, it would show when one is free."""
    registry = JobRegistry(told)
    opened = registry.open(
        enrolment.job(spec(block_rows=1), enrolment.identity(Role.ANALYST, "ada"), ["north"], "arriving")
    )

    async def scene() -> None:
        first = await opened.answer(0, how_many_rows(opened), anybody)
        async with busy_places(registry.places):
            again = await asyncio.wait_for(opened.answer(0, how_many_rows(opened), anybody), TIMEOUT / 2)
            await asyncio.wait_for(opened.wait_for_rows(opened.plan[1], 64), TIMEOUT / 2)
        assert bytes(again[0]) == bytes(first[0])

    asyncio.run(scene())


def test_a_job_that_expired_during_its_wait_is_refused(told: ProviderSetup, enrolment: Enrolment) -> None:
    late = [timedelta()]
    registry = JobRegistry(replace(told, clock=lambda: now() + late[0]))
    opened = registry.open(
        enrolment.job(spec(block_rows=4), enrolment.identity(Role.ANALYST, "ada"), ["north"], "there")
    )

    async def scene() -> None:
        await opened.answer(0, how_many_rows(opened), anybody)
        await opened._turn.acquire()
        waiting = asyncio.create_task(opened.answer(0, how_many_rows(opened), anybody))
        await asyncio.sleep(0)
        late[0] = timedelta(hours=2)
        opened._turn.release()
        with pytest.raises(NotNowError):
            await asyncio.wait_for(waiting, 120)

    asyncio.run(scene())


@pytest.mark.parametrize(("waiting", "size"), [(MAX_OPEN_JOBS, 0), (2, MAX_WAITING_BYTES // 2)])
def test_too_many_waiting_queries_are_refused_free_of_charge(
    waiting: int, size: int, told: ProviderSetup, enrolment: Enrolment
) -> None:
    """Of all jobs together; a query about rows that are there is answered nonetheless."""
    registry, ada = JobRegistry(told), enrolment.identity(Role.ANALYST, "ada")
    jobs = [registry.open(enrolment.job(spec(block_rows=rows), ada, ["north"], "arriving")) for rows in (4, 5)]

    async def scene() -> None:
        waits = [asyncio.create_task(jobs[0].wait_for_rows(jobs[0].plan[1], size)) for _ in range(waiting)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await jobs[1].wait_for_rows(jobs[1].plan[1], 1)
        await asyncio.wait_for(jobs[1].answer(0, how_many_rows(jobs[1]), anybody), 120)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        again = asyncio.create_task(jobs[1].wait_for_rows(jobs[1].plan[1], 1))
        await asyncio.sleep(0)
        assert not again.done()
        again.cancel()

    asyncio.run(scene())
    for job in jobs:
        standing = told.ledger.standing(job.name)
        assert standing is None or standing.reached <= 1
