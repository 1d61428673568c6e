"""gRPC with mutual TLS: credentials, limits, and the identification of callers. Opens sockets.

Both sides show a certificate of the federation's authority. TLS checks the chain: gRPC's TLS at a client, and Python's
TLS at the coordinator, which terminates TLS in front of gRPC (``server.rpc.tls_frontend``). ``CallerCheck`` then reads
the name and role from the certificate, checks that it is valid now and not revoked, and allows only the methods that
are listed for the role. A method that is not listed is refused.
"""

import asyncio
import logging
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn, TypeVar, cast

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
    is_code,
)
from dpspca.common.log_context import OURSELVES, STRANGERS, about
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role
from dpspca.common.storage import Address, Route
from dpspca.common.trust import Identity, RevocationList, holder_of, peer_of

from .wire import FRAME

MAX_MESSAGE: Final = 3 * FRAME
"""Room for a frame with its envelope, or a signed job. Nothing larger is ever read into memory."""

MAX_CALLS: Final = 2048
"""Calls that a server has open at once. It refuses the next with a status that allows a retry."""
MAX_PENDING: Final = 2**14
"""Calls that may wait until a server accepts them."""
MAX_CONNECTIONS: Final = 1024
"""Connections of all parties together."""

_COMMON: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 8192),
    ("grpc.absolute_max_metadata_size", 16_384),  # between the two, gRPC refuses at random; above this, always
)
_SERVER: Final = (
    *_COMMON,
    ("grpc.so_reuseport", 0),  # else two coordinators on one port would share its callers at random
    ("grpc.max_concurrent_streams", 64),
    # With bdp_probe, a fast sender may have 4 MiB per call unread. Without it, the window is 64 KiB plus the rest of
    # the message that is being read, so a large answer from far away arrives at one megabyte per round trip.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server.max_pending_requests", MAX_PENDING),  # above this, gRPC rejects calls at random, of any caller
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.max_connection_idle_ms", 60_000),  # close an unused connection; the client reconnects when needed
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.http2.max_ping_strikes", 3),
    ("grpc.server_handshake_timeout_ms", 10_000),  # close a socket on which nothing is sent
    ("grpc.keepalive_time_ms", 30_000),  # notice a peer whose machine is gone
    ("grpc.keepalive_timeout_ms", 10_000),
)
_CLIENT: Final = (
    *_COMMON,
    ("grpc.ssl_target_name_override", COORDINATOR_HOST),
    ("grpc.enable_http_proxy", 0),  # an environment variable must not redirect connections
    ("grpc.enable_retries", 0),  # our own code decides what may be retried, and how
    (
        "grpc.max_reconnect_backoff_ms",
        5000,
    ),  # else a server that was away for long would be dialled minutes after its return
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

CODE_KEY: Final = "dpspca-code"

MAX_REASON: Final = 2000
"""Characters of the other side's reason that are passed on."""

CONNECTED: Final = "dpspca.v1.ProviderService/"
"""Followed by a provider's name: the service whose health says whether that provider is connected."""

SETTINGS: Final = "dpspca.v1.settings"
"""The service whose health says, to the coordinator's operator alone, whether its last reload failed and why."""

_Read = TypeVar("_Read")

_log = logging.getLogger(__name__)


def server(*interceptors: "grpc.aio.ServerInterceptor[Any, Any]") -> grpc.aio.Server:
    """Make a server with these limits."""
    return grpc.aio.server(interceptors=interceptors, options=_SERVER, maximum_concurrent_rpcs=MAX_CALLS)


def dial(where: str | Route, identity: Identity) -> grpc.aio.Channel:
    """Connect to a coordinator. Only a coordinator's certificate holds the host name that TLS checks.

    A proxy is used only if ``where`` names one. It is asked to connect to the coordinator, and passes on the bytes of
    TLS, so it can read nothing and pretend nothing. What the environment says about proxies is ignored.
    """
    credentials = grpc.ssl_channel_credentials(identity.authority_pem, identity.key_pem, identity.certificate_pem)
    route = where if isinstance(where, Route) else Route(Address(where))
    target = route.address if route.proxy is None else route.proxy
    return grpc.aio.secure_channel(target, credentials, options=(*_CLIENT, *_through_proxy(route)))


def _through_proxy(route: Route) -> tuple[tuple[str, str], ...]:
    """Return the options with which gRPC asks the proxy, at whose address it dials, for a connection."""
    if route.proxy is None:
        return ()
    connect = (("grpc.http_connect_server", str(route.address)), ("grpc.default_authority", COORDINATOR_HOST))
    if route.credentials is None:
        return connect
    basic = b64encode(route.credentials.encode()).decode()
    return (*connect, ("grpc.http_connect_headers", f"Proxy-Authorization:Basic {basic}"))


@dataclass(frozen=True, slots=True)
class CallerCheck:
    """Identifies callers, and refuses those whose role may not call a method."""

    authority_pem: bytes
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    allowed: Mapping[str, frozenset[Role]]
    certificate_of: Callable[[str], bytes | None] = lambda _: None
    """Returns the certificate of a caller, given gRPC's name for its connection."""

    async def admit(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> PartyName:
        """Return the caller, or end the call."""
        try:
            return self.identify(context, method)
        except DpspcaError as problem:
            if certificate := self.certificate_of(context.peer()):  # else the caller has disconnected
                who = about(self.name_for_log(certificate))
                _log.warning("A call of %s was refused: %s", method, problem, extra=who)
            await abort(context, problem)

    def identify(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> PartyName:
        """Return the caller, or refuse it. A long call repeats this check while it lasts."""
        caller = self.party_of(self.certificate_of(context.peer()))
        allowed = self.allowed.get(method, frozenset())
        if caller.role not in allowed:
            raise WrongRoleError(
                f"The role {caller.role} may not call {method}.",
                f"Allowed roles: {', '.join(sorted(allowed)) or 'none'}.",
            )
        return caller

    def certificate(self, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """Return the certificate that a caller showed, or nothing if it has disconnected."""
        return self.certificate_of(context.peer()) or b""

    def party_of(self, certificate: bytes | None) -> PartyName:
        """Return the party of a certificate, or refuse it."""
        if not certificate:
            raise NotTrustedError("The caller's connection has ended.", "Connect again.")
        return peer_of(certificate, self.authority_pem, self.clock(), read_own(self.revocations))

    def name_for_log(self, certificate: bytes) -> str:
        """Return the name of a certificate's party for the log, even if it is no longer valid."""
        try:
            return str(holder_of(certificate, self.authority_pem)[0])
        except DpspcaError:
            return STRANGERS


def read_own(read: Callable[[], _Read]) -> _Read:
    """Read one of this program's own files. Log errors, and hide their details and paths from callers."""
    try:
        return read()
    except DpspcaError as problem:
        _log.error("%s", problem, extra=about(OURSELVES))
    except Exception:  # noqa: BLE001  # whatever it is
        _log.exception("An unexpected error in this program.", extra=about(OURSELVES))
    raise FaultError


class CallLimit:
    """Limits the calls of one kind that each party may have open at once, and refuses more."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open: Counter[PartyName] = Counter()

    @asynccontextmanager
    async def counted(self, caller: PartyName, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Count the caller's call while it lasts, or end it."""
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


class ConnectionLimit:
    """Limits the connections on which each party may have open calls: gRPC buffers megabytes of each before we read."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open: defaultdict[PartyName, Counter[str]] = defaultdict(Counter)

    @asynccontextmanager
    async def counted(self, caller: PartyName, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Count the caller's connection while the call lasts, or end the call."""
        calls, connection = self._open[caller], context.peer()
        if connection not in calls and len(calls) >= self._most:
            await abort(context, RefusedError(self._what, "Close some of your connections."))
        calls[connection] += 1
        try:
            yield
        finally:
            calls[connection] -= 1
            if not calls[connection]:
                del calls[connection]


class ConcurrencyLimit:
    """Limits the calls of one kind that are served at a time for each party. Its other calls wait."""

    def __init__(self, most: int) -> None:
        self._permits: defaultdict[PartyName, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(most))

    def permits(self, caller: PartyName) -> asyncio.Semaphore:
        """Return the semaphore that a call of this caller must hold."""
        return self._permits[caller]


on_refusal: ContextVar[Callable[[str], None]] = ContextVar("on_refusal", default=lambda _: None)
"""Called with the code of every refusal, within the call that is refused."""


async def abort(context: grpc.aio.ServicerContext[Any, Any], problem: DpspcaError) -> NoReturn:
    """End a call with an error: a code for programs, sentences for people. Internal errors are logged, not sent."""
    status = status_of(problem)
    if status is grpc.StatusCode.INTERNAL and not isinstance(problem, FaultError):
        _log.error("%s", problem, extra=about(OURSELVES))
        problem = FaultError()
    on_refusal.get()(problem.code)
    await context.abort(status, str(problem), ((CODE_KEY, problem.code),))
    raise AssertionError  # abort does not return


def reason_of(problem: grpc.aio.AioRpcError) -> str:
    """Return the other side's reason, shortened and with control characters escaped, because it is not trusted.

    gRPC limits its size too, by the limit on metadata.
    """
    reason = (problem.details() or "")[:MAX_REASON]
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in reason)


def code_of(problem: grpc.aio.AioRpcError) -> str:
    """Return the code of the error with which the other side ended a call, or nothing if it sent none."""
    metadata = dict(cast("Iterable[tuple[str, str | bytes]]", problem.trailing_metadata() or ()))
    code = metadata.get(CODE_KEY, "")
    return code if isinstance(code, str) and is_code(code) else ""


def status_of(problem: DpspcaError) -> grpc.StatusCode:
    """Return the gRPC status that says whose fault an error was."""
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
