"""gRPC with mutual TLS: credentials, limits, and who is calling. Edge: sockets live below this line.

Both sides show a certificate of the federation's authority. TLS checks the chain: gRPC's at a client, and Python's
at the coordinator, which ends TLS in front of gRPC (``dpspca.server.rpc.front``). ``Doorkeeper`` then reads the name
and role from the certificate itself, checks that it is in force and not revoked, and lets a method through only for
the role that it belongs to. A method that nobody listed is refused.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio

from dpspca.common.errors import (
    BusyError,
    DpspcaError,
    FaultError,
    InvalidDataError,
    InvalidParameterError,
    InvalidTypeError,
    NotTrustedError,
    RefusedError,
    WrongRoleError,
)
from dpspca.common.log_context import OURSELVES, STRANGERS, about
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role
from dpspca.common.trust import Identity, RevocationList, holder_of, peer_of

from .wire import FRAME

MAX_MESSAGE: Final = 3 * FRAME
"""A frame with its envelope, or a signed job: nothing larger is ever read into memory."""

MAX_CALLS: Final = 2048
"""Calls that a server has open at once; the next is told to come back."""
MAX_PENDING: Final = 2**14
"""Calls that wait until a server takes them up."""
MAX_CONNECTIONS: Final = 1024
"""Of all parties together."""

_COMMON: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 8192),
    ("grpc.absolute_max_metadata_size", 16_384),  # beyond the first gRPC refuses at random, beyond this always
)
_SERVER: Final = (
    *_COMMON,
    ("grpc.so_reuseport", 0),  # two coordinators on one port would share its callers by chance
    ("grpc.max_concurrent_streams", 64),
    # Else gRPC lets whoever pours fast send 4 MiB of each call unread. Without, it is 64 KiB, and what a message that
    # is being read still lacks: a large answer from far away comes at a megabyte for each time there and back.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server.max_pending_requests", MAX_PENDING),  # beyond, gRPC turns calls away by chance, whosever they are
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.max_connection_idle_ms", 60_000),  # a connection on which nothing is asked; it is made anew when needed
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.http2.max_ping_strikes", 3),
    ("grpc.server_handshake_timeout_ms", 10_000),  # who opens a socket and says nothing does not keep it
    ("grpc.keepalive_time_ms", 30_000),  # a peer whose machine is gone is noticed
    ("grpc.keepalive_timeout_ms", 10_000),
)
_CLIENT: Final = (
    *_COMMON,
    ("grpc.ssl_target_name_override", COORDINATOR_HOST),
    ("grpc.enable_retries", 0),  # what may be repeated, and how, is decided above
    ("grpc.max_reconnect_backoff_ms", 5000),  # or one that was away for long would be dialled minutes after its return
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

CODE_KEY: Final = "dpspca-code"

LONGEST_SAID: Final = 2000
"""Letters of the other side's reason that are passed on."""

CONNECTED: Final = "dpspca.v1.ProviderService/"
"""With a provider's name after it, the name under which the health service tells whether that one is connected."""

_Read = TypeVar("_Read")

_log = logging.getLogger(__name__)


def server(*interceptors: "grpc.aio.ServerInterceptor[Any, Any]") -> grpc.aio.Server:
    """Make a server with our limits."""
    return grpc.aio.server(interceptors=interceptors, options=_SERVER, maximum_concurrent_rpcs=MAX_CALLS)


def dial(address: str, identity: Identity) -> grpc.aio.Channel:
    """Connect to a coordinator: only a certificate issued for one bears the name that is checked.

    Where the environment names a proxy it is taken, but not to this very machine.
    """
    credentials = grpc.ssl_channel_credentials(identity.authority_pem, identity.key_pem, identity.certificate_pem)
    direct = (("grpc.enable_http_proxy", 0),) if _is_here(address) else ()
    return grpc.aio.secure_channel(address, credentials, options=(*_CLIENT, *direct))


def _is_here(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Says who is calling, and whether that role may."""

    authority_pem: bytes
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    allowed: Mapping[str, frozenset[Role]]
    certificate_of: Callable[[str], bytes | None] = lambda _: None
    """Which certificate a caller showed, by the name that gRPC has for its connection."""

    async def admit(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> PartyName:
        """Name the caller, or end the call."""
        try:
            return self.judge(context, method)
        except DpspcaError as problem:
            if certificate := self.certificate_of(context.peer()):  # else its caller has hung up
                who = about(self.name_in(certificate))
                _log.warning("A call of %s was refused: %s", method, problem, extra=who)
            await abort(context, problem)

    def judge(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> PartyName:
        """Name the caller, or refuse; a call that lasts is judged again while it does."""
        caller = self.party_of(self.certificate_of(context.peer()))
        if caller.role not in self.allowed.get(method, frozenset()):
            raise WrongRoleError(f"The role {caller.role} may not call {method}.", "Use the identity of another role.")
        return caller

    def party_of(self, certificate: bytes | None) -> PartyName:
        """Name the party that a certificate is of, or refuse."""
        if not certificate:
            raise NotTrustedError("The caller's connection has ended.", "Connect again.")
        return peer_of(certificate, self.authority_pem, self.clock(), ours(self.revocations))

    def name_in(self, certificate: bytes) -> str:
        """Say whose a certificate is, or was, for the log."""
        try:
            return str(holder_of(certificate, self.authority_pem)[0])
        except DpspcaError:
            return STRANGERS


def ours(read: Callable[[], _Read]) -> _Read:
    """Read something of our own, whose faults, and where it lies, are not for callers."""
    try:
        return read()
    except DpspcaError as problem:
        _log.error("%s", problem, extra=about(OURSELVES))
    except Exception:  # noqa: BLE001  # whatever it is
        _log.exception("A fault of this program's.", extra=about(OURSELVES))
    raise FaultError


class Quota:
    """So many calls of a kind may one party have open at once: none takes the places of the others."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open: Counter[PartyName] = Counter()

    @asynccontextmanager
    async def one_of(self, caller: PartyName, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Take one of the caller's places for a while, or end the call."""
        await self._take(caller, context)
        try:
            yield
        finally:
            self._give_back(caller)

    async def _take(self, caller: PartyName, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if self._open[caller] >= self._most:
            await abort(context, RefusedError(self._what, "Close some of your streams."))
        self._open[caller] += 1

    def _give_back(self, caller: PartyName) -> None:
        self._open[caller] -= 1


class Lines:
    """Over so many connections may one party have calls open at once: gRPC keeps megabytes of each before we read."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open: defaultdict[PartyName, Counter[str]] = defaultdict(Counter)

    @asynccontextmanager
    async def one_of(self, caller: PartyName, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Take a connection of the caller's into account for a while, or end the call."""
        calls, line = self._open[caller], context.peer()
        if line not in calls and len(calls) >= self._most:
            await abort(context, RefusedError(self._what, "Close some of your connections."))
        calls[line] += 1
        try:
            yield
        finally:
            calls[line] -= 1
            if not calls[line]:
                del calls[line]


class Turns:
    """So many calls of a kind are served of one party at a time; its others wait until one of these is over."""

    def __init__(self, most: int) -> None:
        self._places: defaultdict[PartyName, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(most))

    def of(self, caller: PartyName) -> asyncio.Semaphore:
        """Give what is to be held during one of the caller's turns."""
        return self._places[caller]


async def abort(context: grpc.aio.ServicerContext[Any, Any], problem: DpspcaError) -> NoReturn:
    """End a call with an error: a code for programs, sentences for people. What is no business of theirs is logged."""
    status = status_of(problem)
    if status is grpc.StatusCode.INTERNAL and not isinstance(problem, FaultError):
        _log.error("%s", problem, extra=about(OURSELVES))
        problem = FaultError()
    await context.abort(status, str(problem), ((CODE_KEY, problem.code),))
    raise AssertionError  # abort does not return


def said(problem: grpc.aio.AioRpcError) -> str:
    """Give the other side's reason: a stranger's words, so they are escaped where they would steer a terminal, and cut.

    gRPC bounds what it reads of them by the bytes of metadata.
    """
    reason = (problem.details() or "")[:LONGEST_SAID]
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in reason)


def status_of(problem: DpspcaError) -> grpc.StatusCode:
    """Give the gRPC status that says whose fault it was."""
    for kind, status in _STATUSES:
        if isinstance(problem, kind):
            return status
    return grpc.StatusCode.INTERNAL


_STATUSES: Final = (
    (NotTrustedError, grpc.StatusCode.UNAUTHENTICATED),
    (WrongRoleError, grpc.StatusCode.PERMISSION_DENIED),
    (BusyError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    ((InvalidParameterError, InvalidTypeError, InvalidDataError, ValueError), grpc.StatusCode.INVALID_ARGUMENT),
)
