"""The daemon beside the data: dials out to the coordinator and holds one connection, again and again.

A lost connection is dialled again, with growing, random pauses; the same query then gets the same bytes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from secrets import randbelow
from typing import Final, TypeAlias, cast

import grpc
import grpc.aio

from dpspca.common.errors import DpspcaError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.transport import provider_stream, rpc
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.jobs import Docket, ProviderSetup

from .conversation import Conversation

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
LONGEST_WELCOME_PAUSE: Final = 5.0
"""Where the coordinator did welcome us."""
_CUT_SHORT: Final = "Internal error from Core"
"""What gRPC says in the place of the other side's reason where that came in the middle of a message of ours."""

Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.FromProvider, pb.ToProvider]"

_ITS_DOING: Final = about(THE_COORDINATOR)

_log = logging.getLogger(__name__)


class Daemon:
    """One provider."""

    def __init__(self, settings: ProviderSetup) -> None:
        self._settings = settings
        self._docket = Docket(settings)
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while True:
            begun = clock()
            try:
                await self._serve()
            except* grpc.aio.AioRpcError as problems:
                _log.warning("The connection ended: %s", _told(problems), extra=_ITS_DOING)
            except* TimeoutError:
                _log.warning("The connection ended: the coordinator has fallen silent.", extra=_ITS_DOING)
            except* DpspcaError as problems:
                _log.error("No connection: %s", _told(problems), extra=_ITS_DOING)
            except* OSError as problems:  # of a disk, say: it may be well again, and whoever stopped would not see it
                _log.error("The connection ended for a fault of this machine: %s", _told(problems))
            # A connection that did not last is not dialled again at once: two daemons of one identity would take
            # turns in displacing each other as fast as they can.
            longest = LONGEST_WELCOME_PAUSE if self.connected.is_set() else LONGEST_PAUSE
            pause = FIRST_PAUSE if clock() - begun > LONGEST_PAUSE else min(2 * pause, longest)
            self.connected.clear()
            # All providers lose a coordinator at once; they should not all come back at once.
            await asyncio.sleep(pause * (0.5 + randbelow(1000) / 1000))

    async def _serve(self) -> None:
        """Hold one connection to its end."""
        conversation = Conversation(self._settings, self._docket, self.connected)
        async with rpc.dial(self._settings.address, self._settings.identity()) as channel:
            call = provider_stream.connect(channel)
            sending = asyncio.create_task(_send(conversation.outbound(), call))
            try:
                # gRPC leaves its iterator open, and that keeps the call, and a call its connection.
                async with aclosing(cast("AsyncGenerator[pb.ToProvider]", aiter(call))) as messages:
                    await conversation.hear(messages)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


async def _send(messages: AsyncGenerator[pb.FromProvider], call: Call) -> None:
    async with aclosing(messages):
        async for message in messages:
            await call.write(message)


def _leaves(problems: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """List what a group, and the groups in it, hold."""
    for each in problems.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _told(problems: BaseExceptionGroup[Exception]) -> str:
    """Say in a line all that went wrong."""
    return "; ".join(map(_ending, _leaves(problems)))


def _ending(problem: BaseException) -> str:
    """Say in a line how a call ended."""
    if not isinstance(problem, grpc.aio.AioRpcError):
        return str(problem)
    if problem.code() is grpc.StatusCode.INTERNAL and problem.details() == _CUT_SHORT:
        return "the coordinator ended it while something was being sent, and so its reason is lost"
    return f"{problem.code().name}, {rpc.reason_of(problem)}"
