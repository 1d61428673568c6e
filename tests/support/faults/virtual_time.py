"""A deterministic event loop: its clock jumps to the next event, and work for threads runs in the loop itself.

Equal seeds give equal runs, down to the order of steps, and simulated years take no time.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

Result = TypeVar("Result")

THINKING = 0.02
"""The most simulated seconds that work in a thread takes."""


class DeadlockError(Exception):
    """A deadlock: everything waits, and no event will ever come."""


class _Selector(selectors.SelectSelector):
    """Moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits. It does the work of threads itself, after a random simulated delay."""

    def __init__(self, chance: Random) -> None:
        self._waiting = _Selector()
        self._chance = chance
        self._free_at: dict[object, float] = {}
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.now

    def run_in_executor(  # type: ignore[override]  # a future of this loop, as the real one gives
        self, executor: object, func: Callable[..., Result], *args: Any
    ) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self.create_future()
        in_order = getattr(executor, "_max_workers", None) == 1  # a single thread keeps the order of its work
        begin = max(self.time(), self._free_at.get(executor, 0.0)) if in_order else self.time()
        end = begin + self._chance.uniform(0, THINKING)
        if in_order:
            self._free_at[executor] = end

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as problem:  # noqa: BLE001  # as a thread would hand it over
                if not future.done():
                    future.set_exception(problem)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_at(end, work)
        return future


def run(scene: Coroutine[Any, Any, Result], chance: Random) -> Result:
    """Run a coroutine to its end. An equal ``chance`` gives an equal run."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(chance)) as runner:
        return runner.run(scene)
