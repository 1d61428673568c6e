"""In front of gRPC: ends TLS, judges every caller by its certificate, and lets no party begin more than its share.

gRPC keeps memory for every call before it can be asked whose call it is, serves calls in the order in which they come,
and turns calls away by chance, whosever they are, when too many wait. It cannot close one connection either. So
whoever floods it, be it with a certificate that was revoked, takes it from everybody. Here a caller is judged when its
connection is set up. One that is refused is told why, and nothing that it sends reaches gRPC.

What goes on to gRPC goes over sockets in a folder that only this user can enter. Each bears a name, by which gRPC
tells its caller; the front knows the certificate that goes with it.
"""

import asyncio
import logging
import os
import shutil
import socket
import ssl
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from dpspca.common.errors import BusyError, DpspcaError, InvalidParameterError
from dpspca.common.log_context import about
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity

from .call_rates import CONNECTION_COST, Rations
from .connections import Buffers, Caller, Inner

MAX_OF_ONE: Final = 48
"""Of these, one party's."""
MAX_GREETING: Final = 512
"""Connections that are being set up; one more, and the oldest of them is ended."""
MAX_REFUSED: Final = 64
"""Connections that are kept for a moment to say why they are refused, likewise."""
REST_SECONDS: Final = 0.01
"""For which no connection is taken after one that came to nothing: to set one up takes a processor a millisecond."""
LONGEST_REST: Final = 1.0
PATROL_SECONDS: Final = 10.0
"""Between two looks at the certificates of all callers."""
BACKLOG: Final = 1024
OPEN_FILES: Final = Path("/proc/self/fd")
"""Where a system shows the files that a process has open, also those that lie in memory alone."""

_log = logging.getLogger(__name__)

_TOO_MANY: Final = (f"The coordinator has its {rpc.MAX_CONNECTIONS} connections already.", "Try again later.")
_TOO_MANY_OF_ONE: Final = (f"You have {MAX_OF_ONE} connections to the coordinator already.", "Close some of them.")
_TOO_FAST: Final = ("You make too many calls.", "Try again in some seconds.")


class Front:
    """Takes connections, and gives gRPC those of parties that are let in."""

    def __init__(self, door: rpc.CallerCheck, context: Callable[[], ssl.SSLContext]) -> None:
        """Take what says whose a certificate is, or refuses it, and the settings of TLS for the next connection."""
        self._door = door
        self._loop = asyncio.get_running_loop()
        self.rations = Rations(self._loop.time)
        self._context = context
        self.buffers = Buffers()
        self.inside = ""
        """The address at which gRPC has to listen."""
        self._numbers = count()
        self._callers: dict[str, Caller] = {}
        self._parties: Counter[PartyName] = Counter()
        self._greeting: dict[Caller, None] = {}
        self._refused: dict[Caller, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._rest_until = 0.0

    async def listen(self, address: str) -> str:
        """Listen at an address, and give it; port 0 takes a free one. Nobody is let in yet."""
        host, _, port = address.rpartition(":")
        self._listening = await asyncio.to_thread(_listen, host.strip("[]"), port, address)
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dpspca-"))
        self.inside = f"unix:{self._folder}/grpc"
        return f"{host}:{self._listening[0].getsockname()[1]}"

    def start(self) -> None:
        """Let callers in."""
        for each in self._listening:
            self._do(self._accept(each))
        self._do(self._patrol())

    async def stop_listening(self) -> None:
        """Take no more connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listening:
            each.close()

    async def stop(self) -> None:
        """End all connections."""
        await self.stop_listening()
        for caller in [*self._greeting, *self._refused, *self._callers.values()]:
            caller.abort()
        await asyncio.sleep(0)  # transports close their sockets at the next turn of the loop
        if self.inside:
            shutil.rmtree(self._folder, ignore_errors=True)

    def certificate_of(self, peer: str) -> bytes | None:
        """Give the certificate of a caller that gRPC calls ``peer``."""
        caller = self._callers.get(peer)
        return caller.certificate if caller else None

    # --- What connections call ---

    def shown(self, caller: Caller, certificate: bytes) -> PartyName:
        """Judge a certificate, and count the connection as its party's; or refuse."""
        self._greeting.pop(caller, None)
        party = self._door.party_of(certificate)
        if not self.rations.take(party, CONNECTION_COST):
            raise BusyError(*_TOO_FAST)
        if self._parties[party] >= MAX_OF_ONE:
            raise BusyError(*_TOO_MANY_OF_ONE)
        if len(self._callers) >= rpc.MAX_CONNECTIONS:
            raise BusyError(*_TOO_MANY)
        return party

    def refused(self, caller: Caller, problem: DpspcaError) -> None:
        """Keep a connection that is refused for a moment."""
        who = self._door.name_for_log(caller.certificate)
        _log.warning("A connection from %s was refused: %s", caller.address, problem, extra=about(who))
        self._rest()
        while len(self._refused) >= MAX_REFUSED:
            next(iter(self._refused)).abort()
        self._refused[caller] = None

    def gone(self, caller: Caller) -> None:
        """Forget a connection."""
        if caller in self._greeting:
            del self._greeting[caller]
            self._rest()
        self._refused.pop(caller, None)
        if self._callers.pop(caller.inside, None) and caller.party:
            self._parties[caller.party] -= 1

    def lead_in(self, caller: Caller) -> None:
        """Connect a caller to gRPC."""
        assert caller.party
        name = f"{self._folder}/{next(self._numbers)}"
        caller.inside = f"unix:{name}"
        self._callers[caller.inside] = caller
        self._parties[caller.party] += 1
        self._do(self._dial(name, caller))

    # --- Its own ---

    def _do(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        """Take connections one by one, and rest after those that come to nothing."""
        while True:
            await asyncio.sleep(max(0.0, self._rest_until - self._loop.time()))
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError:  # no descriptor is free, or the caller is gone again
                self._rest()
                continue
            while len(self._greeting) >= MAX_GREETING:
                next(iter(self._greeting)).abort()
            caller = Caller(self, self._context(), f"{address[0]}:{address[1]}")
            self._greeting[caller] = None
            try:
                await self._loop.connect_accepted_socket(lambda caller=caller: caller, connection)  # type: ignore[misc]
            except OSError:
                connection.close()
                self.gone(caller)

    def _rest(self) -> None:
        now = self._loop.time()
        self._rest_until = min(max(now, self._rest_until) + REST_SECONDS, now + LONGEST_REST)

    async def _dial(self, name: str, caller: Caller) -> None:
        """Connect to gRPC under a name of the caller's own."""
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)  # its signature
            inner.bind(name)
            inner.connect(self.inside.removeprefix("unix:"))
            Path(name).unlink()  # noqa: ASYNC240  # a name, and no disk
            await self._loop.create_unix_connection(lambda: Inner(caller, self.buffers), sock=inner)
        except OSError:
            inner.close()
            caller.abort()

    async def _patrol(self) -> None:
        """End connections whose certificate counts no longer; what serves their streams says why before."""
        while True:
            await asyncio.sleep(PATROL_SECONDS)
            for caller in list(self._callers.values()):
                try:
                    self._door.party_of(caller.certificate)
                    caller.warned = False
                except DpspcaError:
                    if caller.warned:
                        caller.abort()
                    caller.warned = True


def _listen(host: str, port: str, address: str) -> list[socket.socket]:
    """Listen at every address that a host has."""
    made: list[socket.socket] = []
    try:
        number = int(port)
        for family, *_, where in socket.getaddrinfo(
            host or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listening = socket.socket(family, socket.SOCK_STREAM)
            made.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(where[0] != "::")))
            listening.bind((where[0], made[0].getsockname()[1] if len(made) > 1 else number, *where[2:]))
            listening.listen(BACKLOG)
            listening.setblocking(False)  # its signature
    except (OSError, ValueError, OverflowError):
        for each in made:
            each.close()
        raise InvalidParameterError(
            f"Nobody can listen on {address}.", "Choose an address of this machine, and a port that is free."
        ) from None
    return made


class Secrets:
    """The settings of TLS: our certificate, the one in force at each connection, and none but our authority's."""

    def __init__(self, identity: Callable[[], Identity]) -> None:
        self._identity = identity
        self._shown = identity()
        self._context = _context(self._shown)

    def current(self) -> ssl.SSLContext:
        """Give the settings for the next connection; half a renewal must not end the service."""
        with suppress(DpspcaError):
            now = self._identity()
            if now != self._shown:
                self._context, self._shown = _context(now), now
        return self._context


def _context(identity: Identity) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=identity.authority_pem.decode("ascii"))
    made.set_alpn_protocols(["h2"])
    made.num_tickets = 0  # a session that goes on later would not be judged by a certificate that is shown
    _load_key(made, identity)
    return made


def _load_key(context: ssl.SSLContext, identity: Identity) -> None:
    """Give TLS our key, which Python reads from files alone.

    The file lies in memory where the system has such files. Elsewhere it is a temporary one that only this user reads.
    """
    with _file_in_memory() or tempfile.NamedTemporaryFile() as file:
        file.write(identity.key_pem + identity.certificate_pem)
        file.flush()
        context.load_cert_chain(OPEN_FILES / str(file.name) if isinstance(file.name, int) else file.name)


def _file_in_memory() -> BinaryIO | None:
    """Give a file without a name, where the system has such files and shows them."""
    try:
        return os.fdopen(os.memfd_create("key"), "wb") if OPEN_FILES.is_dir() else None
    except (AttributeError, OSError):  # no Linux, or one that was told not to
        return None
