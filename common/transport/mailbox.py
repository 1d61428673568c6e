"""The mailbox: how requests, certificates and revocation lists travel between the authority and the parties.

It is a folder: at the coordinator, which offers it over the network, or anywhere where people carry files. Each party
has a slot with room for one request and one certificate. There is one revocation list for all.

Nobody trusts a mailbox. It may lose, delay, swap or invent what it holds: requests prove who wrote them, certificates
and lists are signed by the authority, and every receiver checks that. So the connection to it need not prove anything
either. This is why a party that has no certificate yet can use it, and a coordinator that has none can offer it. TLS
only hides from onlookers which parties enrol.
"""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from enum import StrEnum
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dpspca.common.errors import DpspcaError, RefusedError, UnsafeFileError
from dpspca.common.names import COORDINATOR_HOST, shortened
from dpspca.common.storage import Address, files
from dpspca.common.trust import MAX_PEM_BYTES, MAX_REPLY_BYTES, is_slot

CALL_SECONDS: Final = 20.0
"""Time limit for one exchange with a mailbox, even if the other side is slow."""
MAX_REQUESTS: Final = 1024
"""Requests that are read from a folder at once."""
LIST_FILE: Final = "revoked.pem"
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


class Mailbox(Protocol):
    """A mailbox, as a party or the authority uses it."""

    def put(self, slot: str, mail: Mail, content: bytes) -> None:
        """Write content to a slot, and replace what was there. Empty content empties the slot."""
        ...

    def get(self, slot: str, mail: Mail) -> bytes:
        """Return the content of a slot, or no bytes if it is empty."""
        ...

    def requests(self, slots: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield where each request was found, and the request. ``slots`` are those of all parties."""
        ...


class MailFolder:
    """A mailbox that is a folder of files. Each file is replaced in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, slot: str, mail: Mail, content: bytes) -> None:
        path = self._file(slot, mail)
        if content:
            self.path.mkdir(parents=True, exist_ok=True)
            files.replace(path, content, files.PUBLIC)
        else:
            path.unlink(missing_ok=True)

    def get(self, slot: str, mail: Mail) -> bytes:
        path = self._file(slot, mail)
        content = files.read(path) if files.stamp(path) is not None else b""
        return _bounded(content, mail)

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

    def _file(self, slot: str, mail: Mail) -> Path:
        if mail is Mail.REVOCATIONS:
            return self.path / LIST_FILE
        if not is_slot(slot):
            raise RefusedError(f"{shortened(slot)} is not a slot of a mailbox.", "Use the slot of an invitation.")
        return self.path / f"{slot}.{mail}"


class RemoteMailbox:
    """The mailbox of a coordinator. If the environment names a proxy, it is used, as for other connections.

    Its methods block, for ``seconds`` at most. Where an event loop runs, call them in a thread.
    """

    def __init__(self, address: Address, seconds: float = CALL_SECONDS) -> None:
        self.address = address
        self._seconds = seconds

    def put(self, slot: str, mail: Mail, content: bytes) -> None:
        self._call("PUT", slot, mail, content)

    def get(self, slot: str, mail: Mail) -> bytes:
        return self._call("GET", slot, mail, b"")

    def requests(self, slots: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for slot in slots:
            if content := self.get(slot, Mail.REQUEST):
                yield slot, content

    def _call(self, method: str, slot: str, mail: Mail, content: bytes) -> bytes:
        heading = (
            f"{method} /{slot}/{mail} HTTP/1.1\r\nHost: {self.address}\r\nContent-Length: {len(content)}\r\n"
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
        """Connect with TLS, through the proxy that the environment names, if it names one for this address."""
        host, port, tls = self.address.host, self.address.port, _hidden_but_unproven()
        proxy = None if is_loopback(host) or proxy_bypass(host) else urlsplit(getproxies().get("https", "")).netloc
        if not proxy:
            return await asyncio.open_connection(host, port, ssl=tls, server_hostname=COORDINATOR_HOST)
        where = Address.parse(proxy.rpartition("@")[2])
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(f"CONNECT {self.address} HTTP/1.1\r\nHost: {self.address}\r\n\r\n".encode("ascii"))
        status, _ = _read_heading(await reader.readuntil(b"\r\n\r\n"))
        if status != HTTPStatus.OK:
            raise ValueError(f"the proxy {where} refused the connection ({status})")
        await writer.start_tls(tls, server_hostname=COORDINATOR_HOST)
        return reader, writer

    def _away(self, reason: str) -> "MailboxAwayError":
        return MailboxAwayError(
            f"The mailbox {self.address} cannot be reached: {shortened(reason)}.",
            "Check the address, and that the coordinator runs `dpspca join` or `dpspca coordinator start`.",
        )

    def _refused(self, status: int, body: bytes) -> DpspcaError:
        reason = shortened(body[:_SHOWN].decode("ascii", errors="replace").strip())
        if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            return MailboxAwayError(f"The mailbox {self.address} is busy: {reason}.", "Try again later.")
        return RefusedError(
            f"The mailbox {self.address} refused the request ({status}): {reason}.",
            "Check that the invitation is for the federation of this coordinator.",
        )


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
