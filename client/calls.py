"""Calls to a coordinator, which may go away for a while: they are made again until it is back.

Every call of an analyst's may be made twice: the same signed bytes are the same job. Nothing is signed anew here, for
that would be another job, with its own price. A coordinator that never answered is not waited for, as its address may
be wrong; and what one that is there says, be it no, holds. That it has no time now is no such word: the call is made
again a little later.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from secrets import randbelow
from time import monotonic
from typing import Final, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from dpspca.common.spec import check
from dpspca.common.transport import rpc
from dpspca.common.transport.errors import BusyError

from .bounds import Bound, Count, Sized, message_of
from .errors import AwayError, FederationError

PATIENCE: Final = 600.0
"""Seconds that a coordinator which was there may be away: its machine may be started anew meanwhile."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 5.0

_TOO_MANY_CALLS: Final = "Concurrent RPC limit exceeded!"
"""What gRPC says where a server has as many calls open as it may have."""

Reply = TypeVar("Reply")
Message = TypeVar("Message", bound=Sized)
Tell: TypeAlias = Callable[[str], None]
"""Tells a person a sentence."""

in_the_log: Final[Tell] = logging.getLogger(__name__).warning


class Line:
    """The way to one coordinator: knows whether it was ever there, and since when it is away.

    That it is away, and that it is back, is told once for all calls together.
    """

    def __init__(
        self,
        patience: float = PATIENCE,
        tell: Tell = in_the_log,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        check(0 <= patience < math.inf, f"The patience is {patience} seconds.", "Give seconds, or 0 for none.")
        self.patience = patience
        self.ready = ready
        """Raises what makes another attempt useless."""
        self._tell = tell
        self._was_there = False
        self._away_since: float | None = None
        self._told = False

    async def ask(self, call: Callable[[], Awaitable[Reply]]) -> Reply:
        """Give the reply to a call."""

        async def once() -> Reply:
            try:
                reply = message_of(await call())
            except grpc.aio.AioRpcError as problem:
                raise self._problem(problem) from None
            self._is_there()
            return reply

        return await self.persist(once)

    async def hear(self, call: AsyncIterable[Message], most: Bound) -> AsyncIterator[Message]:
        """Give the replies to a call as they come, no more of them than are allowed; it is made once.

        gRPC leaves its iterator open, and that keeps the call, and a call its connection: this one is closed with us,
        and the call is ended, so that the coordinator sends no more.
        """
        count = Count(most)
        try:
            async with aclosing(cast("AsyncGenerator[Message, None]", aiter(call))) as replies:
                async for reply in replies:
                    self._is_there()
                    count.add(message_of(reply))
                    yield reply
        except grpc.aio.AioRpcError as problem:
            raise self._problem(problem) from None
        finally:
            if isinstance(call, grpc.aio.Call):
                call.cancel()
        self._is_there()

    async def persist(self, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """Do work that may be done twice, again while the coordinator is away."""
        attempts = Attempts(self)
        while True:
            try:
                return await work()
            except AwayError as problem:
                await attempts.wait(problem)

    @property
    def is_away(self) -> bool:
        """Tell whether nothing was heard since a call found nobody there."""
        return self._away_since is not None

    def away(self) -> float:
        """Take note that nobody is there, and give the seconds for which that may go on: none if it may not."""
        if not self._was_there:
            return 0.0
        if self._away_since is None:
            self._away_since = monotonic()
        return max(0.0, self._away_since + self.patience - monotonic())

    def tell_away(self) -> None:
        """Say that the coordinator is away, unless that was said."""
        if not self._told:
            self._told = True
            self._tell(f"The coordinator is away; trying again for up to {self.patience:g} seconds.")

    def _is_there(self) -> None:
        self._was_there, self._away_since = True, None
        if self._told:
            self._told = False
            self._tell("The coordinator is back.")

    def _problem(self, problem: grpc.aio.AioRpcError) -> FederationError:
        """Pass on what the coordinator said; it is a stranger's word."""
        said = rpc.said(problem)
        if _is_passing(problem):
            self._was_there = True  # it is there, and has trouble of its own
            return AwayError(
                f"The coordinator did not serve a call ({problem.code().name}: {said}).",
                "Try again later.",
            )
        if problem.code() is grpc.StatusCode.UNAVAILABLE:
            return AwayError(
                f"The coordinator cannot be reached (UNAVAILABLE: {said}).",
                "Check the address and that it runs; `dpspca doctor` says what is wrong with a certificate.",
            )
        if problem.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return FederationError("The coordinator did not answer in the time that it has.", "Try again later.")
        self._is_there()
        return FederationError(
            f"The coordinator says no ({problem.code().name}): {said}",
            "Where that does not help, ask its operator.",
        )


def _is_passing(problem: grpc.aio.AioRpcError) -> bool:
    """Tell whether a call was turned away for what passes: a coordinator that is busy, or a call that it dropped.

    A call that we cancel ourselves raises something else. What is too large is RESOURCE_EXHAUSTED as well, always.
    """
    if problem.code() is grpc.StatusCode.CANCELLED:
        return True
    if problem.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return False
    told = dict(cast("Iterable[tuple[str, str]]", problem.trailing_metadata() or ()))
    return told.get(rpc.CODE_KEY) == BusyError.code or problem.details() == _TOO_MANY_CALLS


class Attempts:
    """Attempts at one piece of work, with growing, random pauses between them."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._pause = FIRST_PAUSE
        self._begun = monotonic()
        self._failed = 0

    async def wait(self, problem: AwayError) -> None:
        """Wait before the next attempt, or raise the problem if there is to be none.

        What was idle for long may turn out to be broken when the coordinator is there all along. Then the next attempt
        succeeds, and nobody need hear of it; so it is the second that fails which is told.
        """
        if not self._line.is_away:
            self._failed = 0
            if monotonic() - self._begun > LONGEST_PAUSE:  # it lasted: a coordinator that dies again and again does not
                self._pause = FIRST_PAUSE
        left = self._line.away()
        if not left:
            raise self._given_up(problem) from None
        self._line.ready()
        if self._failed:
            self._line.tell_away()
        # All analysts lose a coordinator at once; they should not all come back at once.
        await asyncio.sleep(min(left, self._pause * (0.5 + randbelow(1000) / 1000)))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._failed += 1
        self._begun = monotonic()

    def _given_up(self, problem: AwayError) -> AwayError:
        if not self._failed:
            return problem
        return AwayError(
            f"{problem.what} It was tried again for {self._line.patience:g} seconds.",
            "When it is back, take up the job that it has, by the list of your jobs: a new one would be paid for anew.",
        )
