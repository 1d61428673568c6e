"""Serves the mailbox over the network, at an address of its own, also to parties that have no certificate yet.

It supports a small part of HTTP over TLS: PUT and GET of ``/SLOT/request`` and ``/SLOT/certificate``, and of
``/SLOT/revocations``, which is the same for all. ``/SLOT/request/2`` is the second request in a slot. A caller shows no
certificate, but must name a slot. The coordinator recognises the slots that the authority made, and nobody can guess
one. Nobody trusts what a caller stores (``common.transport.mailbox``), so the limits here only protect this machine,
except for the rule about requests, which protects a party whose invitation was stolen:

- The server keeps nothing of a connection that is closed, and nothing at all of a caller without a slot.
- A slot holds a few requests and one certificate of bounded size, so the disk holds at most that for each invited
  party.
- A request stays until the authority has signed one of its slot: nobody can clear away another's request.
- A revocation list is stored only if the authority signed it and it is newer than the one before.
- Few connections are open at once, each for seconds. Others wait in the system's queue, where they use none of the
  files that the coordinator may open. They are accepted at a limited rate, so that strangers cannot keep the processor
  busy.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.log_context import STRANGERS, about
from dpspca.common.storage import Address
from dpspca.common.transport import MAX_BYTES, MAX_IN_SLOT, Mail, MailFolder, SlotFullError
from dpspca.common.trust import (
    PublicKey,
    Reply,
    RevocationList,
    federation_of,
    holder_of,
    owner_of,
    read_authority,
    read_request,
    same_key,
)

from .rpc import listen, unproven_tls

MAX_CALLERS: Final = 32
"""Connections that are open at once."""
CALL_SECONDS: Final = 10.0
"""Time limit for a connection, from its first byte to its last."""
PAUSE_SECONDS: Final = 0.02
"""Between two accepted connections."""
WRITE_SECONDS: Final = 1.0
"""Between two changes of one slot, which wait for the disk, or after a revocation list that was refused."""
BACKLOG: Final = 128
MAX_HEADING: Final = 2**12
_PATH_PARTS: Final = 3
_NUMBERS: Final = tuple(str(number) for number in range(2, MAX_IN_SLOT + 1))

_log = logging.getLogger(__name__)


class Refusal(Exception):  # noqa: N818  # it is a reply
    """A reply that ends a call."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Call(NamedTuple):
    """The request of a caller."""

    method: str
    slot: str
    mail: Mail
    size: int
    number: int = 1
    """Which of the requests of a slot."""


class MailboxServer:
    """A mailbox that listens."""

    def __init__(self, folder: MailFolder, key: bytes, authority_pem: bytes) -> None:
        """Serve this folder. ``key`` recognises slots."""
        self._folder = folder
        self._key = key
        self._federation = federation_of(read_authority(authority_pem))
        self._authority_pem = authority_pem
        self._tls = unproven_tls()
        self._free = asyncio.Semaphore(MAX_CALLERS)
        self._written: dict[tuple[str, Mail], float] = {}
        """When each slot was changed last. Only slots that the authority made are here."""
        self._listening: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self, address: Address) -> None:
        """Listen on an address; port 0 picks a free port."""
        loop = asyncio.get_running_loop()
        try:
            self._listening = await asyncio.to_thread(listen, address, BACKLOG)
        except InvalidParameterError as problem:
            raise InvalidParameterError(f"The mailbox: {problem.what}", problem.remedy) from None
        self.address = f"{address.rpartition(':')[0]}:{self._listening[0].getsockname()[1]}"
        for each in self._listening:
            self._start_task(loop, self._accept(each))

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listening:
            each.close()

    def _start_task(self, loop: asyncio.AbstractEventLoop, work: "asyncio._CoroutineLike[None]") -> None:
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept a connection when there is a place for it, and not too fast."""
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # no file descriptor is free, or the caller is gone
                self._free.release()
                await asyncio.sleep(1)
                continue
            self._start_task(loop, self._serve(connection))
            await asyncio.sleep(PAUSE_SECONDS * len(self._listening))  # as many a second on all addresses together

    async def _serve(self, connection: socket.socket) -> None:
        """Serve one call and forget it."""
        transport: asyncio.Transport | None = None
        try:
            with suppress(TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(CALL_SECONDS):
                    reader = asyncio.StreamReader(limit=MAX_HEADING)
                    protocol = asyncio.StreamReaderProtocol(reader)
                    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                        lambda: protocol, connection, ssl=self._tls
                    )
                    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
                    writer.write(await self._reply(reader))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            if transport:
                transport.abort()
            connection.close()
            self._free.release()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        try:
            call = _read_call(await reader.readuntil(b"\r\n\r\n"))
            owner = self._owner_of(call.slot)
            body = await reader.readexactly(call.size)
            return _response(HTTPStatus.OK, await self._serve_call(call, body, owner))
        except Refusal as refusal:
            return _response(refusal.status, str(refusal).encode())
        except DpspcaError as problem:  # the folder of this mailbox cannot be used: its owner reads why
            _log.error("The mailbox cannot be used: %s", problem, extra=about(STRANGERS))
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, b"The mailbox cannot be used now.")

    def _owner_of(self, slot: str) -> str:
        owner = owner_of(slot, self._key, self._federation)
        if owner is None:
            raise Refusal(HTTPStatus.FORBIDDEN, "There is no such slot.")
        return str(owner)

    async def _serve_call(self, call: Call, body: bytes, owner: str) -> bytes:
        held = await asyncio.to_thread(self._held, call)
        if call.method == "GET":
            if len(held) < call.number:
                raise Refusal(HTTPStatus.NOT_FOUND, "There is nothing.")
            return held[call.number - 1]
        if body in held or not (body or held):
            return b""
        if call.mail is Mail.REVOCATIONS:
            await self._require_newer(call, body)
        elif body:
            self._require_pause(call)
            self._start_pause(call)
        elif call.mail is Mail.REQUEST:  # without a pause: it can be filled again only after one
            await asyncio.to_thread(self._require_answered, call.slot, held)
        try:
            await asyncio.to_thread(self._folder.put, call.slot, call.mail, body)
        except SlotFullError as problem:
            raise Refusal(HTTPStatus.INSUFFICIENT_STORAGE, problem.what) from None
        _log.info("The mailbox has a new %s: %d bytes for %s.", call.mail, len(body), owner, extra=about(owner))
        return b""

    def _held(self, call: Call) -> list[bytes]:
        """Return what a slot holds of this kind."""
        if call.mail is Mail.REQUEST:
            return self._folder.requests_of(call.slot)
        found = self._folder.get(call.slot, call.mail)
        return [found] if found else []

    def _require_answered(self, slot: str, requests: list[bytes]) -> None:
        """Refuse to empty a slot unless the certificate in it is the authority's for one of the requests."""
        try:
            reply = Reply.from_bytes(self._folder.get(slot, Mail.CERTIFICATE))
            _, signed = holder_of(reply.certificate_pem, self._authority_pem)
        except DpspcaError:
            raise Refusal(HTTPStatus.CONFLICT, "No certificate of the authority is here.") from None
        if not any(_is_for(each, signed) for each in requests):
            raise Refusal(HTTPStatus.CONFLICT, "The certificate here is for none of the requests.")

    def _require_pause(self, call: Call) -> None:
        since = asyncio.get_running_loop().time() - self._written.get((call.slot, call.mail), -WRITE_SECONDS)
        if since < WRITE_SECONDS:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "This slot was changed a moment ago.")

    def _start_pause(self, call: Call) -> None:
        self._written[call.slot, call.mail] = asyncio.get_running_loop().time()

    async def _require_newer(self, call: Call, body: bytes) -> None:
        """Refuse a list that is not newer than the one here, or not the authority's.

        There is a pause after a refusal only. A revocation is urgent, and only the authority can make newer lists.
        """
        self._require_pause(call)
        before = await asyncio.to_thread(self._folder.get, call.slot, Mail.REVOCATIONS)
        try:
            await asyncio.to_thread(self._check_newer, body, before)
        except DpspcaError as problem:
            self._start_pause(call)
            raise Refusal(HTTPStatus.CONFLICT, problem.what) from None

    def _check_newer(self, body: bytes, before: bytes) -> None:
        listed = RevocationList.read(body, self._authority_pem)
        if before:
            listed.require_succession(RevocationList.read(before, self._authority_pem))


def _read_call(heading: bytes) -> Call:
    """Read what a caller asks for."""
    first, *lines = heading.decode("ascii", errors="replace").splitlines()
    words = first.split()
    path = words[1].split("/") if len(words) == _PATH_PARTS else []
    method = words[0] if words else ""
    numbered = len(path) == _PATH_PARTS + 1 and [method, path[2]] == ["GET", Mail.REQUEST] and path[3] in _NUMBERS
    if method not in {"GET", "PUT"} or not (numbered or len(path) == _PATH_PARTS) or path[2] not in set(Mail):
        raise Refusal(
            HTTPStatus.BAD_REQUEST, "Use GET or PUT of /SLOT/request, /SLOT/certificate or /SLOT/revocations."
        )
    mail = Mail(path[2])
    sizes = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("content-length:")]
    if len(sizes) > 1 or not all(each.isascii() and each.isdigit() for each in sizes):
        raise Refusal(HTTPStatus.BAD_REQUEST, "State one length.")
    size = int(sizes[0][:20]) if sizes else 0
    if size > (MAX_BYTES[mail] if method == "PUT" else 0):
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {MAX_BYTES[mail]} bytes are allowed.")
    return Call(method, path[1], mail, size, int(path[3]) if numbered else 1)


def _is_for(request: bytes, key: PublicKey) -> bool:
    """Whether a request is for this key."""
    with suppress(DpspcaError):
        return same_key(read_request(request).key, key)
    return False


def _response(status: HTTPStatus, body: bytes) -> bytes:
    heading = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return heading.encode("ascii") + body
