"""When answers leave: at moments that follow from a coin and public numbers."""

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Final, TypeVar

import numpy as np
import pytest
from busy_threads import busy_places
from facts import facts
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from timeouts import TIMEOUT
from virtual_time import run

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.stages.wide_release import PAIRED_COLUMNS
from dpspca.common.errors import RefusedError
from dpspca.common.job import Accounting, Budget, JobSpec, Schema
from dpspca.common.privacy.events import ChoiceEvent
from dpspca.common.privacy.picks import most_levels
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.picks import ColumnChoice, SignPairs, TiedColumns
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.threads import run_in_check_thread, run_in_opening_thread, run_in_reading_thread
from dpspca.provider.jobs.row_places import RowPlaces
from dpspca.provider.release.schedule import (
    CONVERT_SECONDS,
    COPY_SECONDS,
    ENTRY_SECONDS,
    LEAST_INTERVAL,
    LONGEST_INTERVAL,
    READ_ENTRY_SECONDS,
    READ_SECONDS,
    ROW_SECONDS,
    SPARSE_ENTRY_SECONDS,
    Schedule,
    delay_result,
    departure,
    system_coin,
)

INTERVAL: Final = 0.5
Given = TypeVar("Given")


def on_virtual_time(work: Coroutine[Any, Any, Given]) -> Given:
    """Run to the end without waiting: virtual time moves on only while every task waits."""
    return run(work, Random(0))


async def leaving(seconds: float, toss: float, interval: float = INTERVAL) -> float:
    """Return when an answer leaves, if making it took ``seconds``."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    await delay_result(asyncio.ensure_future(asyncio.sleep(seconds)), interval, lambda: toss)
    return clock() - begun


@given(seconds=st.floats(0, 20), toss=st.floats(0, 1, exclude_max=True))
@settings(max_examples=200, deadline=None)
def test_an_answer_leaves_after_a_whole_number_of_intervals(seconds: float, toss: float) -> None:
    left = on_virtual_time(leaving(seconds, toss))
    assert abs(left / INTERVAL - round(left / INTERVAL)) < 1e-6
    assert seconds - 1e-6 <= left <= max(2 * INTERVAL, seconds + 2 * INTERVAL) + 1e-6


@given(seconds=st.floats(0, INTERVAL), toss=st.floats(0, 1, exclude_max=True))
@settings(max_examples=50, deadline=None)
def test_an_answer_made_within_one_interval_leaves_after_two(seconds: float, toss: float) -> None:
    assert on_virtual_time(leaving(seconds, toss)) == pytest.approx(2 * INTERVAL)


@pytest.mark.parametrize("apart", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("work", [0.9, 1.0, 1.95, 2.0, 3.4, 40.0])
def test_times_a_tenth_of_an_interval_apart_have_a_roc_area_below_055(work: float, apart: float) -> None:
    """The area under the ROC curve, computed over a fine grid of coins instead of random ones."""
    tosses = (np.arange(1000) + 0.5) / 1000
    one, other = (
        np.array([departure(INTERVAL * each, INTERVAL, toss) for toss in tosses]) for each in (work, work + apart)
    )
    area = (other[:, None] > one).mean() + (other[:, None] == one).mean() / 2
    assert 0.5 <= area <= 0.5 + apart / 2 + 1e-3
    assert work + apart > 1 or area == 0.5


def test_a_refusal_leaves_on_the_schedule_too() -> None:
    async def refused() -> float:
        clock = asyncio.get_running_loop().time
        begun = clock()

        async def refuse() -> None:
            await asyncio.sleep(0.1)
            raise RefusedError("No.", "Ask something else.")

        with pytest.raises(RefusedError, match=facts("No")):
            await delay_result(asyncio.ensure_future(refuse()), INTERVAL, lambda: 0.25)
        return clock() - begun

    assert on_virtual_time(refused()) == pytest.approx(2 * INTERVAL)


def test_an_interval_of_zero_sends_answers_at_once() -> None:
    assert on_virtual_time(leaving(0.123, 0.9, interval=0.0)) == pytest.approx(0.123)


def test_a_cancelled_wait_ends_at_once() -> None:
    async def given_up() -> float:
        clock = asyncio.get_running_loop().time
        work = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(delay_result(work, 10.0, lambda: 0.5))
        await asyncio.sleep(0.1)
        begun = clock()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return clock() - begun

    assert on_virtual_time(given_up()) == pytest.approx(0.0)


def test_every_query_draws_its_own_coin_from_the_system() -> None:
    tosses = iter([0.1, 0.9])
    schedule = Schedule(plan(), interval=lambda: INTERVAL, toss=lambda: next(tosses))

    async def both() -> list[float]:
        return [await _left(schedule, at, 2.5 * INTERVAL) for at in (0, 1)]

    assert on_virtual_time(both()) == pytest.approx([3 * INTERVAL, 4 * INTERVAL])
    drawn = [system_coin() for _ in range(1000)]
    assert len(set(drawn)) == len(drawn)
    assert stats.kstest(drawn, "uniform").pvalue > 1e-9  # false alarm 1e-9


async def _left(schedule: Schedule, position: int, seconds: float) -> float:
    clock = asyncio.get_running_loop().time
    begun = clock()
    await schedule.delay_result(asyncio.ensure_future(asyncio.sleep(seconds)), position)
    return clock() - begun


# --- The interval -----------------------------------------------------------------------------------------------------


def job(dimension: int = 10, method: str = "dps-pca", **options: Any) -> JobSpec:
    return JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(1.0, 1e-6),
        norm_bound=10.0,
        components=4,
        method=method,
        accounting=Accounting.EXACT,
        explained_variance=False,
        options=options,
    )


def plan(dimension: int = 10) -> Any:
    return catalogue.plan(job(dimension, sparsity=dimension, rounds=3))


def test_the_page_about_policies_states_the_parts_of_the_default_interval() -> None:
    page = (Path(__file__).parents[4] / "docs" / "policy.md").read_text(encoding="utf-8")
    parts = [
        ("column of a dense row", CONVERT_SECONDS),
        ("number that a dense row adds to an answer", ENTRY_SECONDS),
        ("number that a dense row adds, if each answer reads the rows from their source", READ_ENTRY_SECONDS),
        ("number that a sparse row adds to an answer, and each of its columns", SPARSE_ENTRY_SECONDS),
        ("number of a row that is copied before an answer, or kept for later ones", COPY_SECONDS),
        ("number of a row that each answer reads from its source", READ_SECONDS),
    ]
    rows = [f"| {what} | {seconds * 1e9:,.0f} nanoseconds |" for what, seconds in parts]
    assert re.findall(r"^\| [^|]+ \| [\d,]+ nanoseconds \|$", page, re.MULTILINE) == rows
    words = " ".join(page.split())
    assert f"at least {LEAST_INTERVAL * 1e3:.0f} milliseconds." in words
    assert f"counts as at least {ROW_SECONDS * 1e6:.0f} microseconds." in words
    assert f"makes the interval at most {LONGEST_INTERVAL:.0f} seconds long" in words
    assert f"their answers leave after {2 * LEAST_INTERVAL * 1e3:.0f} milliseconds." in words


def test_the_interval_follows_from_the_plan_alone() -> None:
    wide = plan(200_000)
    schedule = Schedule(wide)
    asked = [at for at, step in enumerate(wide) if step.query is CovarianceProduct]
    usual = (4 * ENTRY_SECONDS + CONVERT_SECONDS) * 200_000
    assert [schedule.interval(at) for at in asked] == pytest.approx([usual] * 3)
    assert Schedule(plan()).interval(0) == LEAST_INTERVAL
    read = Schedule(wide, read_columns=3000)
    more = 4 * (READ_ENTRY_SECONDS - ENTRY_SECONDS) * 200_000 + 3000 * READ_SECONDS
    assert read.interval(asked[0]) == pytest.approx(schedule.interval(asked[0]) + more)
    for form in (False, True):
        copied = Schedule(wide, is_sparse=form, copied_columns=3000).interval(0)
        assert copied == pytest.approx(Schedule(wide, is_sparse=form).interval(0) + 3000 * COPY_SECONDS)
    sparse = Schedule(wide, is_sparse=True)
    assert sparse.interval(asked[0]) == pytest.approx(SPARSE_ENTRY_SECONDS * 200_000 * 5)


@pytest.mark.parametrize("sparse", [False, True])
def test_several_rows_that_are_protected_together_take_as_many_times_as_long(sparse: bool) -> None:
    wide, narrow = plan(20_000), plan()
    one = Schedule(wide, is_sparse=sparse, copied_columns=20_000)
    ten = Schedule(wide, is_sparse=sparse, copied_columns=20_000, rows_together=10)
    assert [ten.interval(at) for at in range(3)] == pytest.approx([10 * one.interval(at) for at in range(3)])
    assert Schedule(narrow, rows_together=10).interval(0) == LEAST_INTERVAL
    assert Schedule(narrow, rows_together=1000).interval(0) == pytest.approx(1000 * ROW_SECONDS)
    assert Schedule(wide, rows_together=2**31).interval(0) == LONGEST_INTERVAL


def test_the_query_that_computes_the_matrix_has_a_longer_interval() -> None:
    steps = plan(4000)
    first = next(at for at, step in enumerate(steps) if step.query is CovarianceProduct)
    assert Schedule(steps, makes_matrix=True).interval(first) == pytest.approx(
        ENTRY_SECONDS * 4000**2 + CONVERT_SECONDS * 4000
    )
    usual = pytest.approx((4 * ENTRY_SECONDS + CONVERT_SECONDS) * 4000)
    assert Schedule(steps, makes_matrix=True).interval(first + 1) == usual
    assert Schedule(steps).interval(first) == usual
    wide = plan(200_000)
    kept = [Schedule(wide, kept_columns=200_000).interval(at) - Schedule(wide).interval(at) for at in range(len(wide))]
    assert kept == pytest.approx([COPY_SECONDS * 200_000 if at == first else 0 for at in range(len(wide))])


def test_a_whole_matrix_and_a_subspace_have_longer_intervals() -> None:
    def longest(**changes: Any) -> float:
        steps = catalogue.plan(job(300, **changes))
        return max(Schedule(steps).interval(at) for at in range(len(steps)))

    assert longest(method="analyze-gauss") == pytest.approx(ENTRY_SECONDS * 300**2 + CONVERT_SECONDS * 300)
    assert longest(method="ppca") >= 1e-9 * 300**3 * 3


@pytest.mark.parametrize(
    ("dimension", "paired", "query"),
    [(400, 400, SignPairs), (20_000, PAIRED_COLUMNS, SignPairs), (20_000, 0, TiedColumns)],
)
def test_a_choice_has_an_interval_for_each_level_that_a_row_can_add(
    dimension: int, paired: int, query: type[ColumnChoice]
) -> None:
    """One row may move every score by one, and so have twice as many different ones."""
    steps = catalogue.plan(job(dimension, method="auto"))
    ((at, event),) = [(at, step.event) for at, step in enumerate(steps) if step.query is query]
    assert isinstance(event, ChoiceEvent)
    scores = dimension if query is TiedColumns else paired * (paired - 1) // 2
    levels = event.picks * min(scores, most_levels(event.scale))
    assert ENTRY_SECONDS * levels > LEAST_INTERVAL
    work = max(levels, paired**2)
    assert Schedule(steps).interval(at) == pytest.approx(ENTRY_SECONDS * work + CONVERT_SECONDS * dimension)


def test_a_steward_s_interval_applies_to_every_query() -> None:
    steps, chosen = plan(200_000), [0.02]
    schedule = Schedule(steps, interval=lambda: chosen[-1])
    assert {schedule.interval(at) for at in range(len(steps))} == {0.02}
    chosen.append(3.0)  # the policy has changed
    assert {schedule.interval(at) for at in range(len(steps))} == {3.0}


def test_t22_other_work_and_openings_never_wait_for_work_on_rows() -> None:
    """With more work on rows than there are threads for it, other work still goes on."""
    others = asyncio.to_thread, run_in_opening_thread, run_in_check_thread, run_in_reading_thread

    async def scene() -> None:
        async with busy_places(RowPlaces()):
            for start in others:
                assert await asyncio.wait_for(start(lambda: "done"), TIMEOUT / 2) == "done"

    asyncio.run(scene())


def test_t22_checks_of_files_never_wait_until_other_files_are_read() -> None:
    """A repeated query costs nothing, and its files are checked too."""
    let_go = Event()

    async def scene() -> None:
        works = [run_in_reading_thread(let_go.wait, TIMEOUT) for _ in range(200)]
        try:
            assert await asyncio.wait_for(run_in_check_thread(lambda: "done"), TIMEOUT / 2) == "done"
        finally:
            let_go.set()
        assert all(await asyncio.gather(*works))

    asyncio.run(scene())
