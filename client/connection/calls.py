"""Calls to a coordinator, with retries while it cannot be reached.

Every call of an analyst may be repeated, because the same signed bytes are the same job. Nothing is signed again here:
that would be another job with its own price. A coordinator that never answered is not waited for, because its address
may be wrong. Any answer of the coordinator is final, also a refusal. If it is busy or drops a call, the call is
retried.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from secrets import randbelow
from time import monotonic
from typing import Final, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from dpspca.common.checks import check
from dpspca.common.errors import BusyError
from dpspca.common.transport import rpc

from .bounds import Bound, ReplyCount, Sized, message_of
from .errors import AwayError, FederationError

RETRY_SECONDS: Final = 600.0
"""Seconds for which calls are retried when a coordinator goes away. Its machine may restart in that time."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 5.0

_TOO_MANY_CALLS: Final = "Concurrent RPC limit exceeded!"
"""gRPC's message when a server has as many open calls as it allows."""

Reply = TypeVar("Reply")
Message = TypeVar("Message", bound=Sized)
Notify: TypeAlias = Callable[[str], None]
"""Reports a change of the connection, as one sentence."""

log_warning: Final[Notify] = logging.getLogger(__name__).warning


class CoordinatorLink:
    """The state of the connection to one coordinator: whether it ever responded, and since when it has been away.

    That the coordinator is away, or back, is reported once for all calls together.
    """

    def __init__(
        self,
        retry_seconds: float = RETRY_SECONDS,
        notify: Notify = log_warning,
        check_usable: Callable[[], None] = lambda: None,
    ) -> None:
        check(
            0 <= retry_seconds < math.inf,
            f"retry_seconds is {retry_seconds}.",
            "Give a finite number of seconds, or 0 for no retries.",
        )
        self.retry_seconds = retry_seconds
        self.check_usable = check_usable
        """Raises if another attempt would be useless."""
        self._notify = notify
        self._has_responded = False
        self._away_since: float | None = None
        self._reported_away = False

    async def ask(self, call: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the reply to a call, with retries."""

        async def once() -> Reply:
            try:
                reply = message_of(await call())
            except grpc.aio.AioRpcError as problem:
                raise self._problem(problem) from None
            self._note_response()
            return reply

        return await self.retry(once)

    async def stream(self, call: AsyncIterable[Message], most: Bound) -> AsyncIterator[Message]:
        """Yield the replies to a call as they arrive, within a bound. The call is not retried.

        gRPC leaves its iterator open, which keeps the call open, which keeps the connection open. So the iterator is
        closed together with this generator, and the call is cancelled, so that the coordinator sends no more.
        """
        count = ReplyCount(most)
        try:
            async with aclosing(cast("AsyncGenerator[Message, None]", aiter(call))) as replies:
                async for reply in replies:
                    self._note_response()
                    count.add(message_of(reply))
                    yield reply
        except grpc.aio.AioRpcError as problem:
            raise self._problem(problem) from None
        finally:
            if isinstance(call, grpc.aio.Call):
                call.cancel()
        self._note_response()

    async def retry(self, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """Do work that may be repeated. Retry it while the coordinator is away."""
        attempts = Attempts(self)
        while True:
            try:
                return await work()
            except AwayError as problem:
                await attempts.wait(problem)

    @property
    def is_away(self) -> bool:
        """Whether the coordinator has not responded since a call failed to reach it."""
        return self._away_since is not None

    def seconds_left(self) -> float:
        """Note that the coordinator is away. Return how many more seconds to retry; 0 means not at all."""
        if not self._has_responded:
            return 0.0
        if self._away_since is None:
            self._away_since = monotonic()
        return max(0.0, self._away_since + self.retry_seconds - monotonic())

    def report_away(self) -> None:
        """Report that the coordinator is away, unless that was reported already."""
        if not self._reported_away:
            self._reported_away = True
            self._notify(f"The coordinator does not respond. Retrying for up to {self.retry_seconds:g} seconds.")

    def _note_response(self) -> None:
        self._has_responded, self._away_since = True, None
        if self._reported_away:
            self._reported_away = False
            self._notify("The coordinator responds again.")

    def _problem(self, problem: grpc.aio.AioRpcError) -> FederationError:
        """Return the error for a failed call. It quotes the coordinator's message, which is not trusted."""
        reason = rpc.reason_of(problem)
        if _is_temporary(problem):
            self._has_responded = True  # the coordinator runs, but has a problem of its own
            return AwayError(
                f"The coordinator did not serve a call ({problem.code().name}: {reason}).",
                "Try again later.",
            )
        if problem.code() is grpc.StatusCode.UNAVAILABLE:
            return AwayError(
                f"The coordinator cannot be reached (UNAVAILABLE: {reason}).",
                "Check its address and that it is running. `dpspca doctor` checks the certificates.",
            )
        if problem.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return FederationError("The coordinator did not answer before the timeout.", "Try again later.")
        self._note_response()
        code = f", {rpc.code_of(problem)}" if rpc.code_of(problem) else ""
        return FederationError(
            f"The coordinator refused the call ({problem.code().name}{code}): {reason}",
            "If you cannot resolve this, ask the operator of the coordinator.",
        )


def _is_temporary(problem: grpc.aio.AioRpcError) -> bool:
    """Whether a call failed for a temporary reason: the coordinator is busy, or dropped the call.

    A call that this side cancels raises another error. RESOURCE_EXHAUSTED alone is not enough: it is also the code for
    a message that is too large, which stays so.
    """
    if problem.code() is grpc.StatusCode.CANCELLED:
        return True
    if problem.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return False
    return rpc.code_of(problem) == BusyError.code or problem.details() == _TOO_MANY_CALLS


class Attempts:
    """Repeated attempts at one piece of work, with growing, random pauses between them."""

    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link
        self._pause = FIRST_PAUSE
        self._begun = monotonic()
        self._failed = 0

    async def wait(self, problem: AwayError) -> None:
        """Wait before the next attempt, or raise the problem if there is none.

        A connection that was idle for long may turn out to be broken although the coordinator is running. Then the next
        attempt succeeds, and no report is needed. So only the second failure in a row is reported.
        """
        if not self._link.is_away:
            self._failed = 0
            if monotonic() - self._begun > LONGEST_PAUSE:  # it lasted, so the coordinator is not crashing in a loop
                self._pause = FIRST_PAUSE
        left = self._link.seconds_left()
        if not left:
            raise self._given_up(problem) from None
        self._link.check_usable()
        if self._failed:
            self._link.report_away()
        # All analysts lose a coordinator at the same moment. Random pauses keep them from returning at the same moment.
        await asyncio.sleep(min(left, self._pause * (0.5 + randbelow(1000) / 1000)))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._failed += 1
        self._begun = monotonic()

    def _given_up(self, problem: AwayError) -> AwayError:
        if not self._failed:
            return problem
        return AwayError(
            f"{problem.what} Calls were retried for {self._link.retry_seconds:g} seconds.",
            "When it is back, list your jobs and continue the one that it has: a new job would cost its price again.",
        )
