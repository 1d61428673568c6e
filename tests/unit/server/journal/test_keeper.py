"""The keeper of the journal: work in order, off the event loop, and none after a failure."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE

from dpspca.server.journal.contract import Journal, JournalError
from dpspca.server.journal.keeper import Keeper
from dpspca.server.journal.sqlite import PassingJournal


def keeping(scenario: Callable[[Keeper], Any]) -> None:
    async def run() -> None:
        keeper = Keeper(PassingJournal())
        await scenario(keeper)
        await keeper.close()

    asyncio.run(run())


def fail(_: Journal) -> None:
    raise JournalError("The disk is full.", "Make room.")


def test_work_is_done_in_order_in_one_thread_that_is_not_the_event_loop_s() -> None:
    async def scenario(keeper: Keeper) -> None:
        done: list[int] = []
        threads = await asyncio.gather(*(keeper.do(lambda _, n=n: _note(done, n)) for n in range(50)))  # type: ignore[misc]
        assert done == list(range(50))
        assert len(set(threads)) == 1
        assert threading.get_ident() not in threads

    keeping(scenario)


def _note(done: list[int], number: int) -> int:
    done.append(number)
    return threading.get_ident()


def test_after_a_failure_nothing_is_done_that_was_waiting_or_comes_later() -> None:
    async def scenario(keeper: Keeper) -> None:
        done: list[int] = []
        hold = threading.Event()
        waiting = [asyncio.ensure_future(keeper.do(lambda _: hold.wait()))]
        waiting += [asyncio.ensure_future(keeper.do(work)) for work in (fail, lambda _: done.append(1))]
        await asyncio.sleep(0)
        hold.set()
        first, second, third = await asyncio.gather(*waiting, return_exceptions=True)
        assert first is True
        assert second is third
        with pytest.raises(JournalError, match="The disk is full"):
            await keeper.do(lambda _: done.append(2))
        await asyncio.wait_for(keeper.failed.wait(), PATIENCE)
        assert done == []

    keeping(scenario)


def test_a_failure_is_noticed_when_nobody_waits_for_the_work_any_more() -> None:
    async def scenario(keeper: Keeper) -> None:
        begun, hold = threading.Event(), threading.Event()

        def fail_later(journal: Journal) -> None:
            begun.set()
            hold.wait()
            fail(journal)

        abandoned = asyncio.ensure_future(keeper.do(fail_later))
        await asyncio.to_thread(begun.wait)
        abandoned.cancel()
        hold.set()
        await asyncio.wait_for(keeper.failed.wait(), PATIENCE)
        with pytest.raises(JournalError):
            await keeper.do(lambda _: None)

    keeping(scenario)


def test_what_was_begun_is_finished_before_the_journal_is_let_go_and_nothing_is_begun_after() -> None:
    async def scenario(keeper: Keeper) -> None:
        done: list[int] = []
        hold = threading.Event()
        begun = asyncio.ensure_future(keeper.do(lambda _: (hold.wait(), done.append(1))))
        await asyncio.sleep(0)
        threading.Timer(0.05, hold.set).start()
        await keeper.close()
        assert done == [1]
        await begun
        with pytest.raises(JournalError, match="stops"):
            await keeper.do(lambda _: done.append(2))

    keeping(scenario)
