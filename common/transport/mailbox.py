"""The mailbox: how requests, certificates and revocation lists travel between the authority and the parties.

It is a folder: at the coordinator, which offers it over the network, or anywhere where people carry files. Each party
has a slot with room for one certificate and for the requests of a few keys. There is one revocation list for all.

Whoever has a stolen invitation has the slot too. So no request takes the place of another key's: the authority and the
party both see that two keys ask, and the authority signs neither. When a slot is full, further requests are refused.

Nobody trusts a mailbox. It may lose, delay, swap or invent what it holds: requests prove who wrote them, certificates
and lists are signed by the authority, and every receiver checks that. So the connection to it need not prove anything
either. This is why a party that has no certificate yet can use it, and a coordinator that has none can offer it. TLS
only hides from onlookers which parties enrol.
"""

import asyncio
import re
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator
from enum import StrEnum
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Protocol

from dpspca.common.errors import DpspcaError, RefusedError, UnsafeFileError
from dpspca.common.names import COORDINATOR_HOST, shortened
from dpspca.common.storage import Address, Route, files
from dpspca.common.trust import MAX_PEM_BYTES, MAX_REPLY_BYTES, is_slot, read_request, request_fingerprint

CALL_SECONDS: Final = 20.0
"""Time limit for one exchange with a mailbox, even if the other side is slow."""
MAX_REQUESTS: Final = 1024
"""Requests that are read from a folder at once."""
MAX_IN_SLOT: Final = 4
"""Requests in one slot. Normally there is one."""
LIST_FILE: Final = "revoked.pem"
_NUMBERED: Final = re.compile(rf"\.[2-{MAX_IN_SLOT}]$")
_SHOWN: Final = 200
"""Bytes of a refusal that are shown."""


class Mail(StrEnum):
    """The kinds of content of a mailbox."""

    REQUEST = "request"
    CERTIFICATE = "certificate"
    REVOCATIONS = "revocations"


MAX_BYTES: Final = {
    Mail.REQUEST: MAX_PEM_BYTES,
    Mail.CERTIFICATE: MAX_REPLY_BYTES,
    Mail.REVOCATIONS: MAX_REPLY_BYTES,
}
"""The most bytes of each. Larger ones are neither sent nor read."""


class MailboxAwayError(DpspcaError):
    """The mailbox cannot be reached now. The same call may be repeated later."""

    code = "mailbox-away"


class SlotFullError(DpspcaError):
    """A slot holds the requests of as many keys as it may."""

    code = "slot-full"


class Mailbox(Protocol):
    """A mailbox, as a party or the authority uses it."""

    def put(self, slot: str, mail: Mail, content: bytes) -> None:
        """Write content to a slot, and replace what was there. Empty content empties the slot.

        A request is added to those that are there. Only a renewal replaces a renewal, if both have the same key.
        """
        ...

    def get(self, slot: str, mail: Mail) -> bytes:
        """Return the content of a slot, or no bytes if it is empty. Of several requests, return the first."""
        ...

    def requests_of(self, slot: str) -> list[bytes]:
        """Return the requests in a slot, in the order in which they came."""
        ...

    def requests(self, slots: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield where each request was found, and the request. ``slots`` are those of all parties."""
        ...


class MailFolder:
    """A mailbox that is a folder of files. Each file is replaced in one step.

    The first request of a slot is in ``SLOT.request``, further ones are in ``SLOT.2.request`` and so on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._adding = threading.Lock()

    def put(self, slot: str, mail: Mail, content: bytes) -> None:
        with self._adding:
            paths = self._files(slot, mail)
            if not content:
                for path in paths:
                    path.unlink(missing_ok=True)
                return
            place = (
                paths[0] if len(paths) == 1 else _place_of(content, {path: self._read(path, mail) for path in paths})
            )
            self.path.mkdir(parents=True, exist_ok=True)
            files.replace(place, content, files.PUBLIC)

    def get(self, slot: str, mail: Mail) -> bytes:
        return next((found for path in self._files(slot, mail) if (found := self._read(path, mail))), b"")

    def requests_of(self, slot: str) -> list[bytes]:
        return [found for path in self._files(slot, Mail.REQUEST) if (found := self._read(path, Mail.REQUEST))]

    def requests(self, slots: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield every request in the folder, also under other names: people rename files."""
        found = sorted(self.path.glob(f"*.{Mail.REQUEST}"))
        if len(found) > MAX_REQUESTS:
            raise UnsafeFileError(f"{self.path} holds more than {MAX_REQUESTS} requests.", "Sign a part of them.")
        for path in found:
            yield path.name, _bounded(files.read(path), Mail.REQUEST)

    def replies(self) -> Iterator[tuple[str, bytes]]:
        """Yield each slot with what the authority sent to its party. It stays there when the party has fetched it."""
        for path in sorted(self.path.glob(f"*.{Mail.CERTIFICATE}")):
            yield path.stem, _bounded(files.read(path), Mail.CERTIFICATE)

    @property
    def unconfirmed(self) -> set[str]:
        """The slots with a certificate whose party has not taken its request away, which it does when it is done."""
        return {
            path.stem
            for path in self.path.glob(f"*.{Mail.REQUEST}")
            if path.with_suffix(f".{Mail.CERTIFICATE}").exists()
        }

    def _files(self, slot: str, mail: Mail) -> list[Path]:
        """Return the files that a slot may have of this kind."""
        if mail is Mail.REVOCATIONS:
            return [self.path / LIST_FILE]
        if not is_slot(slot):
            raise RefusedError(f"{shortened(slot)} is not a slot of a mailbox.", "Use the slot of an invitation.")
        more = range(2, MAX_IN_SLOT + 1) if mail is Mail.REQUEST else ()
        return [self.path / f"{slot}.{mail}", *(self.path / f"{slot}.{number}.{mail}" for number in more)]

    @staticmethod
    def _read(path: Path, mail: Mail) -> bytes:
        return _bounded(files.read(path), mail) if files.stamp(path) is not None else b""


class RemoteMailbox:
    """The mailbox of a coordinator. A proxy is used only if ``where`` names one, as for the other connections.

    Its methods block, for ``seconds`` at most. Where an event loop runs, call them in a thread.
    """

    def __init__(self, where: Address | Route, seconds: float = CALL_SECONDS) -> None:
        self._route = where if isinstance(where, Route) else Route(where)
        self.address = self._route.address
        self._seconds = seconds

    def put(self, slot: str, mail: Mail, content: bytes) -> None:
        self._call("PUT", slot, mail, content)

    def get(self, slot: str, mail: Mail) -> bytes:
        return self._call("GET", slot, mail, b"")

    def requests_of(self, slot: str) -> list[bytes]:
        found = list[bytes]()
        while len(found) < MAX_IN_SLOT:
            content = self._call("GET", slot, Mail.REQUEST, b"", number=len(found) + 1)
            if not content:
                break
            found.append(content)
        return found

    def requests(self, slots: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for slot in slots:
            for content in self.requests_of(slot):
                yield slot, content

    def _call(self, method: str, slot: str, mail: Mail, content: bytes, *, number: int = 1) -> bytes:
        which = f"/{number}" if number > 1 else ""
        heading = (
            f"{method} /{slot}/{mail}{which} HTTP/1.1\r\nHost: {self.address}\r\nContent-Length: {len(content)}\r\n"
            "Connection: close\r\n\r\n"
        )
        try:
            status, body = asyncio.run(self._within_time(heading.encode("ascii") + content, MAX_BYTES[mail]))
        except TimeoutError:
            raise self._away("it did not answer in time") from None
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as problem:
            raise self._away(getattr(problem, "strerror", None) or str(problem)) from None
        if status == HTTPStatus.NOT_FOUND and method == "GET":
            return b""
        if status != HTTPStatus.OK:
            raise self._refused(status, body)
        return body

    async def _within_time(self, request: bytes, most: int) -> tuple[int, bytes]:
        async with asyncio.timeout(self._seconds):
            reader, writer = await self._connect()
            try:
                writer.write(request)
                await writer.drain()
                return await _read_reply(reader, most)
            finally:
                writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect with TLS, through the proxy if there is one. TLS goes through it and shows it nothing."""
        host, port, tls, proxy = self.address.host, self.address.port, _hidden_but_unproven(), self._route.proxy
        if proxy is None:
            return await asyncio.open_connection(host, port, ssl=tls, server_hostname=COORDINATOR_HOST)
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        try:
            writer.write(self._connect_request())
            _require_connected(proxy, await reader.readuntil(b"\r\n\r\n"))
            await writer.start_tls(tls, server_hostname=COORDINATOR_HOST)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def _connect_request(self) -> bytes:
        """Return what asks the proxy for a connection."""
        lines = [f"CONNECT {self.address} HTTP/1.1", f"Host: {self.address}"]
        if self._route.credentials is not None:
            lines.append(f"Proxy-Authorization: Basic {b64encode(self._route.credentials.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    def _away(self, reason: str) -> "MailboxAwayError":
        return MailboxAwayError(
            f"The mailbox {self._route} cannot be reached: {shortened(reason)}.",
            "Check the address, and that the coordinator runs `dpspca join` or `dpspca coordinator start`.",
        )

    def _refused(self, status: int, body: bytes) -> DpspcaError:
        reason = shortened(body[:_SHOWN].decode("ascii", errors="replace").strip())
        if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            return MailboxAwayError(f"The mailbox {self.address} is busy: {reason}.", "Try again later.")
        if status == HTTPStatus.INSUFFICIENT_STORAGE:
            return _full()
        return RefusedError(
            f"The mailbox {self.address} refused the request ({status}): {reason}.",
            "Check that the invitation is for the federation of this coordinator.",
        )


def _require_connected(proxy: Address, heading: bytes) -> None:
    status, _ = _read_heading(heading)
    if status != HTTPStatus.OK:
        raise ValueError(f"the proxy {proxy} answered {status}")


async def _read_reply(reader: asyncio.StreamReader, most: int) -> tuple[int, bytes]:
    """Read a status and at most ``most`` bytes."""
    status, size = _read_heading(await reader.readuntil(b"\r\n\r\n"))
    if size > most:
        raise ValueError(f"it offers {size} bytes where at most {most} are allowed")
    return status, await reader.readexactly(size)


def _read_heading(heading: bytes) -> tuple[int, int]:
    """Return the status and the length of the body."""
    first, *lines = heading.decode("ascii", errors="replace").splitlines()
    words = first.split()
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        return int(words[1]), int(fields.get("content-length", "0"))
    except (IndexError, ValueError):
        raise ValueError("it does not speak HTTP") from None


def slot_in(source: str) -> str:
    """Return the slot in which a request was found, or the name of its file if it had a name of its own."""
    return _NUMBERED.sub("", source.removesuffix(f".{Mail.REQUEST}"))


def has_same_key(one: bytes, other: bytes) -> bool:
    """Whether two requests are for the same key. What cannot be read has no key, and equals itself alone."""
    try:
        return one == other or request_fingerprint(one) == request_fingerprint(other)
    except DpspcaError:
        return False


def _replaces(request: bytes, held: bytes) -> bool:
    """Whether a request may take the place of another one: if it is a renewal that was signed again.

    Anybody can add a false proof of an invitation to another's request, so a first request is never replaced.
    """
    try:
        return held == request or (read_request(request).former is not None and has_same_key(held, request))
    except DpspcaError:
        return False


def _place_of(request: bytes, held: dict[Path, bytes]) -> Path:
    """Return the file of the request that this one replaces, or else the first that is free."""
    same = (path for path, content in held.items() if content and _replaces(request, content))
    free = (path for path, content in held.items() if not content)
    place = next(same, None) or next(free, None)
    if place is None:
        raise _full()
    return place


def _full() -> SlotFullError:
    return SlotFullError(
        f"The mailbox already holds {MAX_IN_SLOT} other requests for this party.",
        "Tell the authority's operator. The coordinator's operator then deletes this party's *.request from the "
        "folder of the mailbox, and the authority's sends you a new invitation.",
    )


def _bounded(content: bytes, mail: Mail) -> bytes:
    if len(content) > MAX_BYTES[mail]:
        raise UnsafeFileError(f"There is a {mail} of {len(content)} bytes.", f"At most {MAX_BYTES[mail]} are allowed.")
    return content


def _hidden_but_unproven() -> ssl.SSLContext:
    """Return TLS that accepts every server: see the top of this file for why that is enough here."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, by its address or as `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
