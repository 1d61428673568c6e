"""The coordinator: its services behind one door. Everything decided here is liveness; privacy is the providers'.

It acts while it holds its journal. Until then it stands by: it listens, says that it does not serve, and waits for the
journal. When the journal fails it does nothing more; whoever runs it starts it anew.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpspca.common.names import PartyName, Role
from dpspca.common.transport import provider_stream, rpc
from dpspca.common.trust import Identity, RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .jobs import Roster
from .journal import Journal, JournalError, Keeper, PassingJournal
from .rpc import HEARTBEAT_SECONDS, RESULT_BYTES, AnalystService, Front, Health, ProviderService, Receiving, Secrets

_ANALYST: Final = frozenset({Role.ANALYST})

ALLOWED: Final = MappingProxyType(
    {
        "Connect": frozenset({Role.PROVIDER}),
        "Submit": _ANALYST,
        "Watch": _ANALYST,
        "List": _ANALYST,
        "Get": _ANALYST,
        "Cancel": _ANALYST,
        "Result": _ANALYST,
        "DataSets": _ANALYST,
        "Health.Check": frozenset(Role),
        "Health.Watch": frozenset(Role),
    }
)
"""Who may call what. What is not listed is refused to everybody."""

_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

RETRY_SECONDS: Final = 1.0
"""Between two attempts of a standby to take the journal over."""

_log = logging.getLogger(__name__)


class Coordinator:
    """A running coordinator; ``address`` says where it listens, ``result_bytes`` how much of results it keeps.

    Without a journal of its own, it remembers for as long as it lives.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # all that a coordinator is told
        self,
        identity: Callable[[], Identity],
        revocations: Callable[[], RevocationList],
        clock: Callable[[], datetime],
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
        result_bytes: int = RESULT_BYTES,
        journal: Journal | None = None,
    ) -> None:
        self._identity = identity
        self._acting = asyncio.Event()
        self._keeper = Keeper(journal or PassingJournal())
        judge = rpc.CallerCheck(identity().authority_pem, revocations, clock, ALLOWED)
        self._front = Front(judge, Secrets(identity).current)
        everybody = (judge.authority_pem, revocations, clock, ALLOWED, self._front.certificate_of)
        door = _Door(*everybody, self._acting)
        self.roster = Roster()
        self._analysts = AnalystService(door, self.roster, self._keeper, identity, result_bytes)
        self._health = Health(rpc.CallerCheck(*everybody), self.roster)
        self._watching: asyncio.Task[None] | None = None
        self._server = rpc.server(Receiving(rpc.CallerCheck(*everybody), _name_of))
        providers = ProviderService(door, self.roster, identity, heartbeat_seconds, self._analysts.ended)
        provider_stream.serve(providers, self._server)
        pb_grpc.add_AnalystServiceServicer_to_server(self._analysts, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen; port 0 takes a free one."""
        self.address = await self._front.listen(address)
        try:
            await self._take_up()
        except JournalError:
            await self._front.stop()
            await self._keeper.close()
            raise
        self._server.add_insecure_port(self._front.inside)
        await self._server.start()
        self._front.start()
        self._watching = asyncio.create_task(self._watch())

    async def run(self) -> None:
        """Wait as long as the journal lasts, and raise what was wrong with it."""
        assert self._watching
        await asyncio.shield(self._watching)

    async def stop(self, grace: float = 5.0) -> None:
        """End connections, and leave jobs as they are."""
        self._acting.clear()
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._health.say(serving=False)
        await self._rest()
        await self._front.stop_listening()
        await self._server.stop(grace)
        await self._front.stop()
        await self._keeper.close()

    async def _take_up(self) -> None:
        """Act from now on, if the journal can be had."""
        if await self._keeper.do(lambda journal: journal.hold()):
            resuming = asyncio.ensure_future(self._analysts.resume())
            while not (await asyncio.wait({resuming}, timeout=self._keeper.heartbeat_seconds))[0]:
                await self._keeper.do(lambda journal: journal.check())
            await resuming
            self._acting.set()
            self._health.say(serving=True)

    async def _watch(self) -> None:
        """Wait for the journal, then see to it that it is still ours; without it, do nothing more."""
        try:
            if not self._acting.is_set():
                _log.info("Another coordinator holds the journal; standing by.")
            while not self._acting.is_set():
                await asyncio.sleep(min(RETRY_SECONDS, self._keeper.heartbeat_seconds))
                await self._take_up()
            _log.info("Serving.")
            while True:
                await self._keeper.do(lambda journal: journal.check())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._keeper.failed.wait(), self._keeper.heartbeat_seconds)
        except JournalError:
            self._acting.clear()
            self._health.say(serving=False)
            await self._rest()
            raise

    async def _rest(self) -> None:
        await self._analysts.stop()
        await self.roster.dismiss()


def _name_of(path: str) -> str:
    """Give a method its name in the list of who may call what."""
    service, _, method = path.lstrip("/").partition("/")
    return f"Health.{method}" if service == _HEALTH else method


@dataclass(frozen=True)
class _Door(rpc.CallerCheck):
    """Lets nobody in while this coordinator does not act."""

    acting: asyncio.Event = field(default_factory=asyncio.Event)

    async def admit(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> PartyName:
        caller = await super().admit(context, method)
        if not self.acting.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "This coordinator stands by, and does not serve.")
        return caller
