"""The journal thread runs work in order, off the event loop, and runs nothing after a failure."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from facts import facts
from timeouts import TIMEOUT

from dpspca.server.journal.contract import Journal, JournalError, StoppingError
from dpspca.server.journal.journal_thread import JournalThread
from dpspca.server.journal.sqlite import TemporaryJournal


def run_with_journal(scenario: Callable[[JournalThread], Any]) -> None:
    async def run() -> None:
        journal = JournalThread(TemporaryJournal())
        await scenario(journal)
        await journal.close()

    asyncio.run(run())


def fail(_: Journal) -> None:
    raise JournalError("The disk is full.", "Make room.")


def test_work_runs_in_order_in_one_thread_beside_the_event_loop() -> None:
    async def scenario(journal: JournalThread) -> None:
        done: list[int] = []
        threads = await asyncio.gather(*(journal.run(lambda _, n=n: _append(done, n)) for n in range(50)))  # type: ignore[misc]
        assert done == list(range(50))
        assert len(set(threads)) == 1
        assert threading.get_ident() not in threads

    run_with_journal(scenario)


def _append(done: list[int], number: int) -> int:
    done.append(number)
    return threading.get_ident()


def test_after_a_failure_neither_queued_nor_new_work_runs() -> None:
    async def scenario(journal: JournalThread) -> None:
        done: list[int] = []
        hold = threading.Event()
        waiting = [asyncio.ensure_future(journal.run(lambda _: hold.wait()))]
        waiting += [asyncio.ensure_future(journal.run(work)) for work in (fail, lambda _: done.append(1))]
        await asyncio.sleep(0)
        hold.set()
        first, second, third = await asyncio.gather(*waiting, return_exceptions=True)
        assert first is True
        assert second is third
        with pytest.raises(JournalError, match=facts("disk")):
            await journal.run(lambda _: done.append(2))
        await asyncio.wait_for(journal.failed.wait(), TIMEOUT)
        assert done == []

    run_with_journal(scenario)


def test_a_failure_is_noticed_when_the_caller_was_cancelled() -> None:
    async def scenario(journal: JournalThread) -> None:
        begun, hold = threading.Event(), threading.Event()

        def fail_later(journal: Journal) -> None:
            begun.set()
            hold.wait()
            fail(journal)

        abandoned = asyncio.ensure_future(journal.run(fail_later))
        await asyncio.to_thread(begun.wait)
        abandoned.cancel()
        hold.set()
        await asyncio.wait_for(journal.failed.wait(), TIMEOUT)
        with pytest.raises(JournalError):
            await journal.run(lambda _: None)

    run_with_journal(scenario)


def test_closing_finishes_work_that_has_begun_and_refuses_new_work() -> None:
    async def scenario(journal: JournalThread) -> None:
        done: list[int] = []
        hold = threading.Event()
        begun = asyncio.ensure_future(journal.run(lambda _: (hold.wait(), done.append(1))))
        await asyncio.sleep(0)
        threading.Timer(0.05, hold.set).start()
        await journal.close()
        assert done == [1]
        await begun
        with pytest.raises(StoppingError):
            await journal.run(lambda _: done.append(2))

    run_with_journal(scenario)
