"""One connection of a caller: TLS to the caller on the outside, a socket to gRPC on the inside.

All connections share their buffers, so that a silent one costs little more than its TLS state. A caller's bytes are
passed on as fast as gRPC reads them and its party may begin calls; at most one buffer of them waits.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Final, Protocol, cast

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc

from . import http2_frames
from .call_rates import CallRates

BUFFER_BYTES: Final = 2**17
HANDSHAKE_SECONDS: Final = 10.0
"""Time limit for setting up a connection."""
REFUSAL_SECONDS: Final = 2.0
"""Time limit for a refused caller to make a call and be sent the reason."""
CLOSING_SECONDS: Final = 10.0
"""Time limit for a caller to receive what was sent before the connection closes."""


class Buffers:
    """The buffers that all connections of one event loop use in turn."""

    def __init__(self) -> None:
        self.sealed = memoryview(bytearray(BUFFER_BYTES))
        self.plain = memoryview(bytearray(BUFFER_BYTES))


class Traffic:
    """Bytes on the wire, of all connections together."""

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class ConnectionOwner(Protocol):
    """The part of the front end that its connections use."""

    buffers: Buffers
    call_rates: CallRates
    traffic: Traffic

    def party_for(self, caller: "OuterConnection", certificate: bytes) -> PartyName:
        """Return a certificate's party, or refuse the connection."""
        ...

    def keep_refused(self, caller: "OuterConnection", problem: DpspcaError) -> None:
        """Keep a refused connection for a moment."""
        ...

    def forget(self, caller: "OuterConnection") -> None:
        """Forget a connection."""
        ...

    def connect_to_grpc(self, caller: "OuterConnection") -> None:
        """Connect a caller to gRPC."""
        ...


class OuterConnection(asyncio.BufferedProtocol):
    """The connection to the caller, over TLS."""

    def __init__(self, owner: ConnectionOwner, context: ssl.SSLContext, address: str) -> None:
        self.address = address
        self.party: PartyName | None = None
        self.certificate = b""
        self.grpc_name = ""
        """The name that gRPC has for this caller."""
        self.refused_before = False
        """Whether the last check refused the certificate."""
        self._owner = owner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._call_cutter = http2_frames.CallCutter()
        self._refusal: tuple[http2_frames.OpenedStreams, DpspcaError] | None = None
        self._outer: asyncio.Transport | None = None
        self._time_limit: asyncio.TimerHandle | None = None
        self._inner: asyncio.Transport | None = None
        self._unsent = b""
        self._waiting: asyncio.TimerHandle | None = None
        self._grpc_is_full = False
        self._is_closed = False

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outer = cast("asyncio.Transport", transport)
        self._end_within(HANDSHAKE_SECONDS)

    def get_buffer(self, sizehint: int) -> memoryview:  # its signature
        return self._owner.buffers.sealed

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.traffic.received += nbytes
        self._incoming.write(self._owner.buffers.sealed[:nbytes])
        try:
            if self.in_handshake:
                self._tls.do_handshake()
                self._flush()
                self._admit()
            self._read()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, OSError):  # an unknown certificate, or a connection that broke off
            self._flush()
            self.abort()

    def eof_received(self) -> None:
        self.abort()

    def pause_writing(self) -> None:
        if self._inner:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        if self._inner:
            self._inner.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # its signature
        self._end()

    # --- Called by the inner connection and the front end ---

    @property
    def in_handshake(self) -> bool:
        """Whether the connection is still being set up."""
        return self.party is None and self._refusal is None

    def grpc_connected(self, inner: asyncio.Transport) -> None:
        """Pass on to gRPC what has arrived so far."""
        self._inner = inner
        if self._is_closed:
            inner.abort()
            return
        self._pass_on(b"")

    def write(self, content: memoryview) -> None:
        """Send gRPC's bytes to the caller."""
        while content:
            content = content[self._tls.write(content) :]
        self._flush()

    def set_grpc_full(self, *, inner_is_full: bool) -> None:
        """Stop reading while gRPC's buffer is full, and continue when it is not."""
        self._grpc_is_full = inner_is_full
        self._update_reading()

    def close(self) -> None:
        """Close the connection when everything was sent, or after a time limit."""
        if self._is_closed or not self._outer or self._outer.is_closing():
            return
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._outer.close()
        self._end_within(CLOSING_SECONDS)

    def abort(self) -> None:
        """Close the connection now."""
        if self._outer:
            self._outer.abort()
        self._end()

    # --- Private ---

    def _admit(self) -> None:
        """Check the caller's certificate before anything that it sends is read."""
        try:
            encoded = self._tls.getpeercert(binary_form=True) or b""
            self.certificate = ssl.DER_cert_to_PEM_cert(encoded).encode()
            self.party = self._owner.party_for(self, self.certificate)
        except DpspcaError as problem:
            self._refuse(problem.with_traceback(None))
        else:
            self._end_within(None)
            self._owner.connect_to_grpc(self)

    def _refuse(self, problem: DpspcaError) -> None:
        self._refusal = http2_frames.OpenedStreams(), problem
        self._end_within(REFUSAL_SECONDS)
        self._owner.keep_refused(self, problem)
        self.write(memoryview(http2_frames.SERVER_SETTINGS))

    def _read(self) -> None:
        """Read everything that has arrived."""
        plain = self._owner.buffers.plain
        while size := cast("int", self._tls.read(len(plain), cast("bytearray", plain))):
            if self._refusal:
                self._send_reason(bytes(plain[:size]))
            else:
                self._pass_on(bytes(plain[:size]))
        self.abort()  # the caller has closed its side

    def _send_reason(self, content: bytes) -> None:
        assert self._refusal
        calls, problem = self._refusal
        for stream in calls.read(content):
            reply = http2_frames.refusal(
                stream, rpc.status_of(problem).value[0], str(problem), dpspca_code=problem.code
            )
            self.write(memoryview(http2_frames.SETTINGS_ACK + reply))
            self.close()
            raise ssl.SSLWantReadError  # nothing more is read

    def _pass_on(self, content: bytes) -> None:
        """Write as much to gRPC as may pass, and hold the rest."""
        self._unsent += content
        if self._inner and not self._waiting:
            size = self._call_cutter.allowed_bytes(self._unsent, self._may_begin)
            if size:
                self._inner.write(self._unsent[:size])
                self._unsent = self._unsent[size:]
        self._update_reading()

    def _may_begin(self) -> bool:
        assert self.party
        if self._owner.call_rates.take(self.party):
            return True
        delay = self._owner.call_rates.seconds_until(self.party)
        self._waiting = asyncio.get_running_loop().call_later(delay, self._resume)
        return False

    def _resume(self) -> None:
        self._waiting = None
        self._pass_on(b"")

    def _update_reading(self) -> None:
        if self._is_closed or not self._outer or self._outer.is_closing():
            return
        if self._waiting or self._grpc_is_full or not self._inner:
            self._outer.pause_reading()
        else:
            self._outer.resume_reading()

    def _flush(self) -> None:
        sealed = self._outgoing.read()
        if sealed and self._outer:
            self._owner.traffic.sent += len(sealed)
            self._outer.write(sealed)

    def _end_within(self, seconds: float | None) -> None:
        """Close the connection after this number of seconds. With None, remove the time limit."""
        if self._time_limit:
            self._time_limit.cancel()
        self._time_limit = asyncio.get_running_loop().call_later(seconds, self.abort) if seconds is not None else None

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._unsent = b""
        self._end_within(None)
        if self._waiting:
            self._waiting.cancel()
        if self._inner:
            self._inner.close()
        self._owner.forget(self)


class InnerConnection(asyncio.BufferedProtocol):
    """The socket to gRPC for one caller."""

    def __init__(self, caller: OuterConnection, buffers: Buffers) -> None:
        self._caller = caller
        self._buffers = buffers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._caller.grpc_connected(cast("asyncio.Transport", transport))

    def get_buffer(self, sizehint: int) -> memoryview:  # its signature
        return self._buffers.plain

    def buffer_updated(self, nbytes: int) -> None:
        self._caller.write(self._buffers.plain[:nbytes])

    def pause_writing(self) -> None:
        self._caller.set_grpc_full(inner_is_full=True)

    def resume_writing(self) -> None:
        self._caller.set_grpc_full(inner_is_full=False)

    def connection_lost(self, exc: Exception | None) -> None:  # its signature
        self._caller.close()
