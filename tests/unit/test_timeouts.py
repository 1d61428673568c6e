"""Deadlines of tests do not count time in which the machine stands still."""

import asyncio
import time
import zlib

import pytest
from timeouts import LONGEST_STEP, SteadyLoop


def test_a_deadline_ignores_time_in_which_the_process_is_stopped() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(1):
            time.sleep(1.5)  # noqa: ASYNC251  # as if the machine stood still
            await asyncio.sleep(0.3)

    asyncio.run(scenario())


def test_a_deadline_counts_time_in_which_the_process_waits() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteadyLoop)
        before, real = loop.time(), time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await asyncio.Event().wait()
        assert 0.4 <= loop.time() - before <= time.monotonic() - real + LONGEST_STEP

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_deadline_hardly_counts_the_work_of_a_thread() -> None:
    def work() -> None:
        content = bytes(1 << 20)
        begun = time.monotonic()
        while time.monotonic() < begun + 1.5:
            zlib.compress(content)  # outside the interpreter's lock

    async def scenario() -> None:
        async with asyncio.timeout(1):
            await asyncio.to_thread(work)

    asyncio.run(scenario())
