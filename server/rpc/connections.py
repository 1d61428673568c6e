"""One connection of a caller: TLS on the outside, gRPC on the inside, and in between what may go on.

All connections share their buffers, so one that says nothing costs little more than its TLS. What a caller sends goes
on as fast as gRPC takes it and as its party may begin calls, and no more than one buffer of it waits.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Final, Protocol, cast

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc

from . import http2_frames
from .call_rates import Rations

BUFFER_BYTES: Final = 2**17
HANDSHAKE_SECONDS: Final = 10.0
"""After which a connection that is not set up is ended."""
REFUSAL_SECONDS: Final = 2.0
"""For a caller who is refused to ask, and be told why."""
CLOSING_SECONDS: Final = 10.0
"""For a caller to take what was sent before the end."""


class Buffers:
    """What all connections of one event loop read into, one after the other."""

    def __init__(self) -> None:
        self.sealed = memoryview(bytearray(BUFFER_BYTES))
        self.plain = memoryview(bytearray(BUFFER_BYTES))


class House(Protocol):
    """What a connection needs of the front that it belongs to."""

    buffers: Buffers
    rations: Rations

    def shown(self, caller: "Caller", certificate: bytes) -> PartyName:
        """Judge a certificate, and count the connection as its party's; or refuse."""
        ...

    def refused(self, caller: "Caller", problem: DpspcaError) -> None:
        """Take note of a connection that was refused."""
        ...

    def gone(self, caller: "Caller") -> None:
        """Forget a connection."""
        ...

    def lead_in(self, caller: "Caller") -> None:
        """Connect a caller to gRPC."""
        ...


class Caller(asyncio.BufferedProtocol):
    """The outside of a connection."""

    def __init__(self, house: House, context: ssl.SSLContext, address: str) -> None:
        self.address = address
        self.party: PartyName | None = None
        self.certificate = b""
        self.inside = ""
        """What gRPC calls this caller."""
        self.warned = False
        """Whether the certificate was refused already when it was last looked at."""
        self._house = house
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._cutter = http2_frames.Cutter()
        self._refusal: tuple[http2_frames.Calls, DpspcaError] | None = None
        self._outer: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._inner: asyncio.Transport | None = None
        self._held = b""
        self._waiting: asyncio.TimerHandle | None = None
        self._inner_is_full = False
        self._over = False

    # --- What the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outer = cast("asyncio.Transport", transport)
        self._end_within(HANDSHAKE_SECONDS)

    def get_buffer(self, sizehint: int) -> memoryview:  # its signature
        return self._house.buffers.sealed

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._house.buffers.sealed[:nbytes])
        try:
            if self.is_greeting:
                self._tls.do_handshake()
                self._flush()
                self._enter()
            self._read()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, OSError):  # a certificate of nobody's, or an end in the middle
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

    # --- What its inside and its front call ---

    @property
    def is_greeting(self) -> bool:
        """Tell whether the connection is still being set up."""
        return self.party is None and self._refusal is None

    def led_in(self, inner: asyncio.Transport) -> None:
        """Go on to gRPC with what was sent meanwhile."""
        self._inner = inner
        if self._over:
            inner.abort()
            return
        self._pass_on(b"")

    def write(self, content: memoryview) -> None:
        """Send what gRPC says."""
        while content:
            content = content[self._tls.write(content) :]
        self._flush()

    def take_no_more(self, *, inner_is_full: bool) -> None:
        """Read no more while gRPC has more than it takes, and go on when it has not."""
        self._inner_is_full = inner_is_full
        self._keep_pace()

    def close(self) -> None:
        """End the connection once everything was sent, if that is taken in time."""
        if self._over or not self._outer or self._outer.is_closing():
            return
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._outer.close()
        self._end_within(CLOSING_SECONDS)

    def abort(self) -> None:
        """End the connection now."""
        if self._outer:
            self._outer.abort()
        self._end()

    # --- Its own ---

    def _enter(self) -> None:
        """Judge who is there, before anything that it sends is looked at."""
        try:
            shown = self._tls.getpeercert(binary_form=True) or b""
            self.certificate = ssl.DER_cert_to_PEM_cert(shown).encode()
            self.party = self._house.shown(self, self.certificate)
        except DpspcaError as problem:
            self._refuse(problem.with_traceback(None))
        else:
            self._end_within(None)
            self._house.lead_in(self)

    def _refuse(self, problem: DpspcaError) -> None:
        self._refusal = http2_frames.Calls(), problem
        self._end_within(REFUSAL_SECONDS)
        self._house.refused(self, problem)
        self.write(memoryview(http2_frames.GREETING))

    def _read(self) -> None:
        """Take all that has arrived."""
        plain = self._house.buffers.plain
        while size := cast("int", self._tls.read(len(plain), cast("bytearray", plain))):
            if self._refusal:
                self._tell_why(bytes(plain[:size]))
            else:
                self._pass_on(bytes(plain[:size]))
        self.abort()  # it said that it says no more

    def _tell_why(self, content: bytes) -> None:
        assert self._refusal
        calls, problem = self._refusal
        for stream in calls.opened(content):
            reply = http2_frames.refusal(
                stream, rpc.status_of(problem).value[0], str(problem), dpspca_code=problem.code
            )
            self.write(memoryview(http2_frames.ACKNOWLEDGEMENT + reply))
            self.close()
            raise ssl.SSLWantReadError  # nothing more is read

    def _pass_on(self, content: bytes) -> None:
        """Give gRPC as much as may go on, and hold the rest."""
        self._held += content
        if self._inner and not self._waiting:
            size = self._cutter.most(self._held, self._may_begin)
            if size:
                self._inner.write(self._held[:size])
                self._held = self._held[size:]
        self._keep_pace()

    def _may_begin(self) -> bool:
        assert self.party
        if self._house.rations.take(self.party):
            return True
        delay = self._house.rations.wait(self.party)
        self._waiting = asyncio.get_running_loop().call_later(delay, self._go_on)
        return False

    def _go_on(self) -> None:
        self._waiting = None
        self._pass_on(b"")

    def _keep_pace(self) -> None:
        if self._over or not self._outer or self._outer.is_closing():
            return
        if self._waiting or self._inner_is_full or not self._inner:
            self._outer.pause_reading()
        else:
            self._outer.resume_reading()

    def _flush(self) -> None:
        sealed = self._outgoing.read()
        if sealed and self._outer:
            self._outer.write(sealed)

    def _end_within(self, seconds: float | None) -> None:
        """End the connection after so many seconds, or leave it."""
        if self._limit:
            self._limit.cancel()
        self._limit = asyncio.get_running_loop().call_later(seconds, self.abort) if seconds is not None else None

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._held = b""
        self._end_within(None)
        if self._waiting:
            self._waiting.cancel()
        if self._inner:
            self._inner.close()
        self._house.gone(self)


class Inner(asyncio.BufferedProtocol):
    """The inside of a connection: what gRPC takes and gives."""

    def __init__(self, caller: Caller, buffers: Buffers) -> None:
        self._caller = caller
        self._buffers = buffers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._caller.led_in(cast("asyncio.Transport", transport))

    def get_buffer(self, sizehint: int) -> memoryview:  # its signature
        return self._buffers.plain

    def buffer_updated(self, nbytes: int) -> None:
        self._caller.write(self._buffers.plain[:nbytes])

    def pause_writing(self) -> None:
        self._caller.take_no_more(inner_is_full=True)

    def resume_writing(self) -> None:
        self._caller.take_no_more(inner_is_full=False)

    def connection_lost(self, exc: Exception | None) -> None:  # its signature
        self._caller.close()
