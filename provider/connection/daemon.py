"""The daemon beside the data: it dials out to the coordinator, serves the connection, and dials again when it ends.

The pauses between attempts grow and are random. The same query on a new connection gets the same bytes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from secrets import randbelow
from typing import Final, TypeAlias, cast

import grpc
import grpc.aio

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import DpspcaError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.storage import Route
from dpspca.common.transport import provider_stream, rpc
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import DataSet
from dpspca.provider.jobs import JobRegistry, OfferedData, PolicyLike, ProviderSetup

from .conversation import Conversation

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
APPROVAL_SECONDS: Final = 1.0
"""Seconds between two looks at what persons decided about waiting jobs."""
LONGEST_WELCOME_PAUSE: Final = 5.0
"""The longest pause after a connection on which the coordinator had proved its identity."""
_CUT_SHORT: Final = "Internal error from Core"
"""gRPC's own text instead of the other side's reason, if the connection ended in the middle of a message of ours."""

Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.FromProvider, pb.ToProvider]"

_BY_COORDINATOR: Final = about(THE_COORDINATOR)

_log = logging.getLogger(__name__)


class Daemon:
    """One provider."""

    def __init__(self, settings: ProviderSetup) -> None:
        self._settings = settings
        self._registry = JobRegistry(settings)
        self._redial = asyncio.Event()
        self._dialled_as = b""
        self.connected = asyncio.Event()

    @property
    def offer(self) -> OfferedData:
        """The data sets on offer."""
        return self._registry.offer

    def check(
        self,
        data_sets: Mapping[str, DataSet],
        dictionaries: Mapping[str, Preparation],
        policy: Callable[[], PolicyLike],
    ) -> OfferedData:
        """Check data sets that are to be offered under a policy. Nothing changes yet."""
        return self._registry.make_offer(data_sets, dictionaries, policy)

    async def reload(self, address: Route, offer: OfferedData) -> None:
        """Offer these data sets from now on, to this coordinator. Dial again if it would not know otherwise."""
        before, dialled = self._registry.offer, (self._settings.address, self._dialled_as)
        await asyncio.to_thread(self._registry.take_offer, offer)
        self._settings.address = address
        if offer.differs_from(before) or dialled != (address, self._settings.identity().certificate_pem):
            _log.info("Connecting again, because the settings or the certificate changed.")
            self._redial.set()

    async def run(self) -> None:
        """Stay connected until cancelled, and take up what persons decide about jobs, connected or not."""
        deciding = asyncio.create_task(self._take_decisions())
        try:
            await self._stay_connected()
        finally:
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)

    async def _take_decisions(self) -> None:
        while approvals := self._settings.approvals:
            try:
                await asyncio.to_thread(approvals.work)
            except Exception:  # noqa: BLE001  # the daemon goes on without decisions
                _log.exception("Handling decisions failed because of a bug.")
            await asyncio.sleep(APPROVAL_SECONDS)

    async def _stay_connected(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while True:
            begun = clock()
            try:
                await self._serve_until_reload()
            except* grpc.aio.AioRpcError as problems:
                _log.warning("The connection ended: %s", _describe_all(problems), extra=_BY_COORDINATOR)
            except* TimeoutError:
                _log.warning("The connection ended: the coordinator stopped sending messages.", extra=_BY_COORDINATOR)
            except* DpspcaError as problems:
                _log.error("No connection: %s", _describe_all(problems), extra=_BY_COORDINATOR)
            except* OSError as problems:  # a disk error, for example: it may pass, so the daemon goes on trying
                _log.error("The connection ended because of a fault of this machine: %s", _describe_all(problems))
            # Wait after a short connection: otherwise two daemons with one identity would displace each other as fast
            # as they can.
            longest = LONGEST_WELCOME_PAUSE if self.connected.is_set() else LONGEST_PAUSE
            pause = FIRST_PAUSE if clock() - begun > LONGEST_PAUSE else min(2 * pause, longest)
            self.connected.clear()
            # All providers lose the coordinator at the same time. They should not all reconnect at the same time.
            await asyncio.sleep(pause * (0.5 + randbelow(1000) / 1000))

    async def _serve_until_reload(self) -> None:
        """Serve one connection until it ends, or until other settings need another one."""
        self._redial.clear()
        serving, redial = asyncio.create_task(self._serve()), asyncio.create_task(self._redial.wait())
        try:
            await asyncio.wait({serving, redial}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            for task in (serving, redial):
                task.cancel()
            await asyncio.gather(serving, redial, return_exceptions=True)

    async def _serve(self) -> None:
        """Serve one connection until it ends."""
        conversation = Conversation(self._settings, self._registry, self.connected)
        me = self._settings.identity()
        self._dialled_as = me.certificate_pem
        async with rpc.dial(self._settings.address, me) as channel:
            call = provider_stream.connect(channel)
            sending = asyncio.create_task(_send(conversation.outbound(), call))
            try:
                # Close the iterator: gRPC leaves it open, which keeps the call and its connection alive.
                async with aclosing(cast("AsyncGenerator[pb.ToProvider]", aiter(call))) as messages:
                    await conversation.handle(messages)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


async def _send(messages: AsyncGenerator[pb.FromProvider], call: Call) -> None:
    async with aclosing(messages):
        async for message in messages:
            await call.write(message)


def _flatten(problems: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """List the errors of a group and of the groups in it."""
    for each in problems.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _flatten(each)
        else:
            yield each


def _describe_all(problems: BaseExceptionGroup[Exception]) -> str:
    """Describe all errors in one line."""
    return "; ".join(map(_describe, _flatten(problems)))


def _describe(problem: BaseException) -> str:
    """Describe in one line how a call ended."""
    if not isinstance(problem, grpc.aio.AioRpcError):
        return str(problem)
    if problem.code() is grpc.StatusCode.INTERNAL and problem.details() == _CUT_SHORT:
        return "the coordinator ended it while a message was being sent, so its reason is lost"
    return f"{problem.code().name}, {rpc.reason_of(problem)}"
