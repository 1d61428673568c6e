"""The coordinator: its services on one address. It decides about liveness only; providers protect privacy.

It serves while it holds its journal. Until then it is a standby: it listens, reports that it is not serving, and waits
for the journal. When the journal fails, the coordinator stops all work, and its operator must restart it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpspca.common.errors import DpspcaError
from dpspca.common.metrics import CERTIFICATE, REVOCATIONS, Family
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import Emit, ignore
from dpspca.common.transport import days_until, provider_stream, rpc
from dpspca.common.trust import Identity, RevocationList, holder_of
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .jobs import PresenceLog, Roster
from .journal import Journal, JournalError, JournalThread, TemporaryJournal
from .metrics import BYTES, CONNECTIONS, ENDED, PROVIDERS, RELOAD_FAILED, RUNNING, SERVING, CoordinatorMetrics, by_label
from .refusal_events import RefusalEvents
from .rpc import (
    HEARTBEAT_SECONDS,
    RESULT_BYTES,
    AnalystService,
    CallInterceptor,
    Health,
    PartyService,
    ProviderService,
    TlsFrontend,
    TlsSettings,
)

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
        "Statements": _ANALYST,
        "Parties": _ANALYST | {Role.COORDINATOR},
        "Health.Check": frozenset(Role),
        "Health.Watch": frozenset(Role),
    }
)
"""Which roles may call which method. A method that is not listed is refused to everybody."""

_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

RETRY_SECONDS: Final = 1.0
"""Between a standby's attempts to take over the journal."""

_log = logging.getLogger(__name__)


class Coordinator:
    """A coordinator that listens on ``address`` and keeps up to ``result_bytes`` of results.

    Without a ``journal``, it forgets everything when its process ends.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # a coordinator's settings
        self,
        identity: Callable[[], Identity],
        revocations: Callable[[], RevocationList],
        clock: Callable[[], datetime],
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
        result_bytes: int = RESULT_BYTES,
        journal: Journal | None = None,
        events: Emit = ignore,
    ) -> None:
        self._identity = identity
        self._revocations = revocations
        self._clock = clock
        self.metrics = CoordinatorMetrics()
        self.metrics.collect_from(self._collect)
        self.reload_problem: Callable[[], str | None] = lambda: None
        """Says why the last reload of the settings failed, if it did."""
        self._serving = asyncio.Event()
        self._journal = JournalThread(journal or TemporaryJournal())
        judge = rpc.CallerCheck(identity().authority_pem, revocations, clock, ALLOWED)
        self.roster = Roster(self.metrics, events, PresenceLog(clock))
        self._refusals = RefusalEvents(events)
        self._frontend = TlsFrontend(judge, TlsSettings(identity).current, self._note_refused_connection)
        everybody = (judge.authority_pem, revocations, clock, ALLOWED, self._frontend.certificate_of)
        door = _Door(*everybody, self._serving)
        self._analysts = AnalystService(door, self.roster, self._journal, identity, result_bytes)
        self._health = Health(rpc.CallerCheck(*everybody), self.roster, self._reload_problem)
        self._journal_task: asyncio.Task[None] | None = None
        caller_check = rpc.CallerCheck(*everybody)
        self._server = rpc.server(
            CallInterceptor(caller_check, _name_of, metrics=self.metrics, on_refused=self._note_refused_call)
        )
        providers = ProviderService(door, self.roster, identity, heartbeat_seconds, self._analysts.final_state)
        provider_stream.serve(providers, self._server)
        pb_grpc.add_AnalystServiceServicer_to_server(self._analysts, self._server)
        parties = PartyService(door, self.roster, lambda: self._frontend.connections)
        pb_grpc.add_PartyServiceServicer_to_server(parties, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen on an address; port 0 picks a free port."""
        self.address = await self._frontend.listen(address)
        try:
            await self._try_to_serve()
        except JournalError:
            await self._frontend.stop()
            await self._journal.close()
            raise
        self._server.add_insecure_port(self._frontend.grpc_address)
        await self._server.start()
        self._frontend.start()
        self._journal_task = asyncio.create_task(self._watch())

    def note_certificate(self, certificate: bytes, owner: PartyName | None = None) -> None:
        """Note a certificate that was refused, or that lies in the mailbox for its ``owner``.

        If it is a provider's, the operator and analysts can learn why the provider is missing.
        """
        with suppress(DpspcaError):  # a certificate of another authority belongs to no known party
            party, _ = holder_of(certificate, self._identity().authority_pem)
            if party.role is Role.PROVIDER and owner in {None, party}:
                self.roster.presence.note_certificate(party.name, certificate)

    def _reload_problem(self) -> str | None:
        """Ask whoever reads the settings: the daemon says who, after this was made."""
        return self.reload_problem()

    def _note_refused_connection(self, certificate: bytes, problem: DpspcaError) -> None:
        self.note_certificate(certificate)
        self._refusals.note(self._party_of(certificate), None, problem.code)

    def _note_refused_call(self, connection: str, method: str, code: str) -> None:
        self._refusals.note(self._party_of(self._frontend.certificate_of(connection) or b""), method, code)

    def _party_of(self, certificate: bytes) -> PartyName | None:
        """Return the party of a certificate of the authority, also of one that is no longer valid."""
        try:
            return holder_of(certificate, self._identity().authority_pem)[0]
        except DpspcaError:
            return None

    def _collect(self) -> dict[Family, dict[tuple[str, ...], float]]:
        """Return the numbers that are read when somebody looks."""
        wire, now = self._frontend.traffic, self._clock()
        ends = {CERTIFICATE: self._identity().not_after}
        with suppress(DpspcaError):  # an unreadable list has no end
            ends[REVOCATIONS] = self._revocations().next_update
        days: dict[Family, dict[tuple[str, ...], float]] = {
            each: {(): days_until(end, now)} for each, end in ends.items()
        }
        return days | {
            CONNECTIONS: by_label(Counter(party.role.value for party in self._frontend.parties)),
            PROVIDERS: {(): float(len(self.roster.links))},
            SERVING: {(): float(self._serving.is_set())},
            RELOAD_FAILED: {(): float(self.reload_problem() is not None)},
            RUNNING: by_label(self._analysts.running_states()),
            ENDED: by_label(self._analysts.ended),
            BYTES: {("received",): float(wire.received), ("sent",): float(wire.sent)},
        }

    def limit_results(self, result_bytes: int) -> None:
        """Keep at most ``result_bytes`` of results from now on. If there are more, the next result makes room."""
        self._analysts.results.max_bytes = result_bytes

    async def run(self) -> None:
        """Wait until the journal fails, and raise its error."""
        assert self._journal_task
        await asyncio.shield(self._journal_task)

    async def stop(self, grace: float = 5.0) -> None:
        """Close all connections, and leave jobs as the journal has them."""
        self._serving.clear()
        if self._journal_task:
            self._journal_task.cancel()
            await asyncio.gather(self._journal_task, return_exceptions=True)
        self._health.set_serving(serving=False)
        await self._stop_work()
        await self._frontend.stop_listening()
        await self._server.stop(grace)
        await self._frontend.stop()
        await self._journal.close()

    async def _try_to_serve(self) -> None:
        """Start to serve if the journal can be held."""
        if await self._journal.run(lambda journal: journal.hold()):
            resuming = asyncio.ensure_future(self._analysts.resume())
            while not (await asyncio.wait({resuming}, timeout=self._journal.heartbeat_seconds))[0]:
                await self._journal.run(lambda journal: journal.check())
            await resuming
            self._serving.set()
            self._health.set_serving(serving=True)

    async def _watch(self) -> None:
        """Wait for the journal, then check regularly that it is still held; when it is lost, stop all work."""
        try:
            if not self._serving.is_set():
                _log.info("Another coordinator holds the journal. Waiting for it as a standby.")
            while not self._serving.is_set():
                await asyncio.sleep(min(RETRY_SECONDS, self._journal.heartbeat_seconds))
                await self._try_to_serve()
            _log.info("Serving.")
            self.roster.events("serving")
            while True:
                await self._journal.run(lambda journal: journal.check())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._journal.failed.wait(), self._journal.heartbeat_seconds)
        except JournalError:
            self._serving.clear()
            self._health.set_serving(serving=False)
            await self._stop_work()
            raise

    async def _stop_work(self) -> None:
        await self._analysts.stop()
        await self.roster.close_all()


def _name_of(path: str) -> str:
    """Return a method's name in ``ALLOWED``."""
    service, _, method = path.lstrip("/").partition("/")
    return f"Health.{method}" if service == _HEALTH else method


@dataclass(frozen=True)
class _Door(rpc.CallerCheck):
    """Refuses every call while this coordinator is not serving."""

    serving: asyncio.Event = field(default_factory=asyncio.Event)

    async def admit(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> PartyName:
        caller = await super().admit(context, method)
        if not self.serving.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "This coordinator is a standby and does not serve yet.")
        return caller
