"""In front of gRPC: ends TLS, checks every certificate, and limits what each party may begin.

gRPC holds memory for every call before it knows whose call it is. It serves calls in the order of arrival, and when too
many wait, it rejects calls of any party at random. It cannot close one connection. So a flood of calls, even with a
revoked certificate, would block everybody. Here, the certificate is checked when a connection is set up. A refused
caller is sent the reason, and nothing that it sends reaches gRPC.

Bytes are passed on to gRPC over Unix sockets in a folder that only this user can enter. Each socket has a name, which
gRPC reports as the peer's address; the front end knows the certificate that belongs to it.
"""

import asyncio
import logging
import shutil
import socket
import ssl
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from dpspca.common.errors import BusyError, DpspcaError
from dpspca.common.log_context import about
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity

from .call_rates import CALLS_A_SECOND, CONNECTION_COST, CallRates
from .connections import Buffers, InnerConnection, OuterConnection, Traffic
from .listening import listen
from .tls_keys import load_key

MAX_PARTY_CONNECTIONS: Final = 48
"""Connections of one party."""
MAX_HANDSHAKES: Final = 512
"""Connections that are being set up; one more closes the oldest of them."""
MAX_REFUSED: Final = 64
"""Refused connections that are kept for a moment to send the reason; one more closes the oldest of them."""
PAUSE_SECONDS: Final = 0.01
"""Pause in accepting connections after one that failed: setting one up takes a millisecond of processor time."""
MAX_PAUSE: Final = 1.0
CHECK_SECONDS: Final = 10.0
"""Between two checks of all certificates."""
BACKLOG: Final = 1024

_log = logging.getLogger(__name__)

_TOO_MANY: Final = (f"The coordinator already has {rpc.MAX_CONNECTIONS} connections.", "Try again later.")
_TOO_MANY_OF_ONE: Final = (
    f"You already have {MAX_PARTY_CONNECTIONS} connections to the coordinator.",
    "Close some of them.",
)
_TOO_FAST: Final = (f"You make more than {CALLS_A_SECOND} calls a second.", "Try again in a few seconds.")


class TlsFrontend:
    """Accepts connections, and passes those of admitted parties on to gRPC."""

    def __init__(
        self,
        door: rpc.CallerCheck,
        context: Callable[[], ssl.SSLContext],
        on_refused: Callable[[bytes, DpspcaError], None] = lambda *_: None,
    ) -> None:
        """``door`` names or refuses a certificate's party; ``context`` returns TLS settings for the next connection.

        ``on_refused`` gets the certificate of every refused connection, and why it was refused.
        """
        self._on_refused = on_refused
        self._door = door
        self._loop = asyncio.get_running_loop()
        self.call_rates = CallRates(self._loop.time)
        self._context = context
        self.buffers = Buffers()
        self.traffic = Traffic()
        self.grpc_address = ""
        """The address on which gRPC must listen."""
        self._numbers = count()
        self._callers: dict[str, OuterConnection] = {}
        self._parties: Counter[PartyName] = Counter()
        self._handshakes: dict[OuterConnection, None] = {}
        self._refused: dict[OuterConnection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._accept_after = 0.0

    async def listen(self, address: str) -> str:
        """Listen on an address without accepting yet, and return it; port 0 picks a free port."""
        self._listening = await asyncio.to_thread(listen, address, BACKLOG)
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dpspca-"))
        self.grpc_address = f"unix:{self._folder}/grpc"
        return f"{address.rpartition(':')[0]}:{self._listening[0].getsockname()[1]}"

    def start(self) -> None:
        """Accept connections."""
        for each in self._listening:
            self._start_task(self._accept(each))
        self._start_task(self._check_regularly())

    async def stop_listening(self) -> None:
        """Accept no more connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listening:
            each.close()

    async def stop(self) -> None:
        """Close all connections."""
        await self.stop_listening()
        for caller in [*self._handshakes, *self._refused, *self._callers.values()]:
            caller.abort()
        await asyncio.sleep(0)  # transports close their sockets in the loop's next iteration
        if self.grpc_address:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def parties(self) -> list[PartyName]:
        """The party of each open connection."""
        return list(self._parties.elements())

    @property
    def connections(self) -> list[tuple[PartyName, bytes]]:
        """The party and the certificate of each open connection."""
        return [(each.party, each.certificate) for each in self._callers.values() if each.party]

    def certificate_of(self, peer: str) -> bytes | None:
        """Return the certificate of the caller that gRPC names ``peer``."""
        caller = self._callers.get(peer)
        return caller.certificate if caller else None

    # --- What connections call ---

    def party_for(self, caller: OuterConnection, certificate: bytes) -> PartyName:
        """Return a certificate's party, or refuse the connection."""
        self._handshakes.pop(caller, None)
        party = self._door.party_of(certificate)
        if not self.call_rates.take(party, CONNECTION_COST):
            raise BusyError(*_TOO_FAST)
        if self._parties[party] >= MAX_PARTY_CONNECTIONS:
            raise BusyError(*_TOO_MANY_OF_ONE)
        if len(self._callers) >= rpc.MAX_CONNECTIONS:
            raise BusyError(*_TOO_MANY)
        return party

    def keep_refused(self, caller: OuterConnection, problem: DpspcaError) -> None:
        """Keep a refused connection for a moment, and pause accepting."""
        who = self._door.name_for_log(caller.certificate)
        self._on_refused(caller.certificate, problem)
        _log.warning("A connection from %s was refused: %s", caller.address, problem, extra=about(who))
        self._pause_accepting()
        while len(self._refused) >= MAX_REFUSED:
            next(iter(self._refused)).abort()
        self._refused[caller] = None

    def forget(self, caller: OuterConnection) -> None:
        """Forget a connection."""
        if caller in self._handshakes:
            del self._handshakes[caller]
            self._pause_accepting()
        self._refused.pop(caller, None)
        if self._callers.pop(caller.grpc_name, None) and caller.party:
            self._parties[caller.party] -= 1

    def connect_to_grpc(self, caller: OuterConnection) -> None:
        """Connect a caller to gRPC."""
        assert caller.party
        name = f"{self._folder}/{next(self._numbers)}"
        caller.grpc_name = f"unix:{name}"
        self._callers[caller.grpc_name] = caller
        self._parties[caller.party] += 1
        self._start_task(self._dial(name, caller))

    # --- Its own ---

    def _start_task(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections one by one, with a pause after each that failed."""
        while True:
            await asyncio.sleep(max(0.0, self._accept_after - self._loop.time()))
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError:  # no file descriptor is free, or the caller disconnected
                self._pause_accepting()
                continue
            while len(self._handshakes) >= MAX_HANDSHAKES:
                next(iter(self._handshakes)).abort()
            caller = OuterConnection(self, self._context(), f"{address[0]}:{address[1]}")
            self._handshakes[caller] = None
            try:
                await self._loop.connect_accepted_socket(lambda caller=caller: caller, connection)  # type: ignore[misc]
            except OSError:
                connection.close()
                self.forget(caller)

    def _pause_accepting(self) -> None:
        now = self._loop.time()
        self._accept_after = min(max(now, self._accept_after) + PAUSE_SECONDS, now + MAX_PAUSE)

    async def _dial(self, name: str, caller: OuterConnection) -> None:
        """Connect to gRPC from a socket name of the caller's own."""
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)  # its signature
            inner.bind(name)
            inner.connect(self.grpc_address.removeprefix("unix:"))
            Path(name).unlink()  # noqa: ASYNC240  # quick: it only removes a name
            await self._loop.create_unix_connection(lambda: InnerConnection(caller, self.buffers), sock=inner)
        except OSError:
            inner.close()
            caller.abort()

    async def _check_regularly(self) -> None:
        """Close connections whose certificate fails two checks in a row; after the first, streams send the reason."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for caller in list(self._callers.values()):
                try:
                    self._door.party_of(caller.certificate)
                    caller.refused_before = False
                except DpspcaError:
                    if caller.refused_before:
                        caller.abort()
                    caller.refused_before = True


class TlsSettings:
    """The TLS settings: the coordinator's current certificate, and callers' certificates from its authority only."""

    def __init__(self, identity: Callable[[], Identity]) -> None:
        self._identity = identity
        self._identity_in_use = identity()
        self._context = _context(self._identity_in_use)

    def current(self) -> ssl.SSLContext:
        """Return the settings for the next connection. While a renewal is half written, the old ones stay in use."""
        with suppress(DpspcaError):
            now = self._identity()
            if now != self._identity_in_use:
                self._context, self._identity_in_use = _context(now), now
        return self._context


def _context(identity: Identity) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=identity.authority_pem.decode("ascii"))
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an organisation's CA may have signed the authority
    made.set_alpn_protocols(["h2"])
    made.num_tickets = 0  # a resumed session would show no certificate to check
    load_key(made, identity.key_pem + identity.certificate_pem)
    return made
