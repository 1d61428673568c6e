"""The mailbox over the network: whoever has a slot may use it, within bounds; nobody else leaves anything behind."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from facts import facts
from ipv6 import needs_ipv6
from local_federation import Enrolment
from timeouts import TIMEOUT

from dpspca.common.errors import RefusedError
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import Address
from dpspca.common.transport import MAX_BYTES, Mail, MailboxAwayError, MailFolder, RemoteMailbox
from dpspca.common.trust import Reply, identity
from dpspca.common.trust.invitations import slot_of
from dpspca.server import mailbox
from dpspca.server.mailbox import MailboxServer

NORTH = PartyName("town", Role.PROVIDER, "north")


class Site:
    """A mailbox that listens, and a party with a slot."""

    def __init__(self, folder: Path) -> None:
        self.authority = Enrolment.create(folder).authority
        self.folder = MailFolder(folder / "mailbox")
        key = self.authority.mailbox_key()
        self.slot = slot_of(key, NORTH)
        self.server = MailboxServer(self.folder, key, self.authority.certificate_pem)

    @property
    def remote(self) -> RemoteMailbox:
        return RemoteMailbox(Address(self.server.address), TIMEOUT)

    async def put(self, mail: Mail, content: bytes, slot: str | None = None) -> None:
        await asyncio.to_thread(self.remote.put, slot or self.slot, mail, content)

    async def get(self, mail: Mail, slot: str | None = None) -> bytes:
        return await asyncio.to_thread(self.remote.get, slot or self.slot, mail)

    async def raw(self, content: bytes) -> bytes:
        """Send bytes as they are, and return everything that comes back."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        where = Address(self.server.address)
        reader, writer = await asyncio.open_connection(where.host, where.port, ssl=tls)
        writer.write(content)
        try:
            return await asyncio.wait_for(reader.read(), TIMEOUT)
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()


@asynccontextmanager
async def site(folder: Path, address: str = "127.0.0.1:0") -> AsyncIterator[Site]:
    made = Site(folder)
    await made.server.start(Address(address))
    try:
        yield made
    finally:
        await made.server.stop()


def test_what_was_left_in_a_slot_is_fetched_and_taken_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path) as here:
            assert await here.get(Mail.REQUEST) == b""
            await here.put(Mail.REQUEST, b"please")
            assert await here.get(Mail.REQUEST) == b"please"
            assert list(here.folder.requests([])) == [(f"{here.slot}.request", b"please")]
            await here.put(Mail.CERTIFICATE, b"c" * MAX_BYTES[Mail.CERTIFICATE])
            assert len(await here.get(Mail.CERTIFICATE)) == MAX_BYTES[Mail.CERTIFICATE]
            assert here.folder.unconfirmed == {here.slot}
            with pytest.raises(RefusedError, match=facts(409)):
                await here.put(Mail.REQUEST, b"")
            home = tmp_path / "north"
            await asyncio.sleep(mailbox.WRITE_SECONDS)
            await here.put(Mail.REQUEST, identity.request(home, NORTH))
            _, asked = here.folder.requests_of(here.slot)
            reply = Reply(here.authority.sign(asked), here.authority.certificate_pem, here.authority.revocation_list())
            await here.put(Mail.CERTIFICATE, reply.to_bytes())
            await here.put(Mail.REQUEST, b"")
            with pytest.raises(MailboxAwayError):
                await here.put(Mail.REQUEST, b"again")
            assert here.folder.unconfirmed == set()
            assert await here.get(Mail.REQUEST) == b""

    asyncio.run(main())


@needs_ipv6
@pytest.mark.parametrize("address", ["[::1]:0", "[::]:0", "localhost:0"])
def test_a_mailbox_listens_on_addresses_of_ipv6(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path, address) as here:
            assert here.server.address.startswith(address.removesuffix("0"))
            await here.put(Mail.REQUEST, b"please")
            assert await here.get(Mail.REQUEST) == b"please"

    asyncio.run(main())


def test_t44_without_a_slot_nothing_can_be_written_or_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path) as here:
            await here.put(Mail.REQUEST, b"please")
            for wrong in (here.slot[:-1] + "!", here.slot[:-4] + "0000", "x", "../../authority/authority-key.pem"):
                with pytest.raises(RefusedError):
                    await here.put(Mail.REQUEST, b"mine", wrong)
                with pytest.raises(RefusedError):
                    await here.get(Mail.REQUEST, wrong)
            assert [path.name for path in here.folder.path.iterdir()] == [f"{here.slot}.request"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("heading", "status"),
    [
        ("PUT /{slot}/request HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", 413),
        ("PUT /{slot}/request HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413),
        ("PUT /{slot}/request HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        ("PUT /{slot}/request HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        ("GET /{slot}/request HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 413),
        ("GET /{slot}/key HTTP/1.1\r\n\r\n", 400),
        ("GET /{slot} HTTP/1.1\r\n\r\n", 400),
        ("DELETE /{slot}/request HTTP/1.1\r\n\r\n", 400),
        ("\r\n\r\n", 400),
        ("GET /nobody/request HTTP/1.1\r\n\r\n", 403),
    ],
)
def test_t35_a_wrong_or_oversized_call_is_refused_unread(heading: str, status: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path) as here:
            reply = await here.raw(heading.format(slot=here.slot).encode())
            assert reply.startswith(f"HTTP/1.1 {status} ".encode())
            assert not here.folder.path.exists()

    asyncio.run(main())


def test_t35_a_heading_without_end_or_a_silent_caller_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "CALL_SECONDS", 0.5)

    async def main() -> None:
        async with site(tmp_path) as here:
            for sent in (
                b"G" * 2**20,
                b"GET /",
                f"PUT /{here.slot}/request HTTP/1.1\r\nContent-Length: 9\r\n\r\n1".encode(),
            ):
                assert await here.raw(sent) == b""
            await here.put(Mail.REQUEST, b"please")

    asyncio.run(main())


@pytest.mark.slow
def test_t35_silent_strangers_keep_few_connections_and_only_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(mailbox, "MAX_CALLERS", 4)

    async def main() -> None:
        async with site(tmp_path) as here:
            where = Address(here.server.address)
            strangers = [await asyncio.open_connection(where.host, where.port) for _ in range(20)]
            await asyncio.sleep(0.3)
            assert sum("_serve" in repr(task) for task in asyncio.all_tasks()) <= 4
            await here.put(Mail.REQUEST, b"please")
            assert await here.get(Mail.REQUEST) == b"please"
            for _, writer in strangers:
                writer.transport.abort()

    asyncio.run(main())


def test_t35_two_addresses_accept_no_more_callers_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for each in two:
        each.setblocking(False)  # its signature
    monkeypatch.setattr(mailbox, "listen", lambda *_: two)
    pauses, sleep = [], asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(mailbox.asyncio, "sleep", noted)

    async def main() -> None:
        async with site(tmp_path) as here:
            await here.put(Mail.REQUEST, b"please")

    asyncio.run(main())
    assert pauses == [2 * mailbox.PAUSE_SECONDS]


def test_t35_a_slot_changes_once_a_second_and_its_log_lines_are_its_owner_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with site(tmp_path) as here:
            await here.put(Mail.REQUEST, b"one")
            with pytest.raises(MailboxAwayError):
                await here.put(Mail.REQUEST, b"two")
            await here.put(Mail.REQUEST, b"one")  # no change
            assert await here.get(Mail.REQUEST) == b"one"

    asyncio.run(main())
    ours = [record for record in caplog.records if record.name == "dpspca.server.mailbox"]
    assert [getattr(record, "about", None) for record in ours] == [str(NORTH)]


@pytest.mark.slow
def test_t44_a_revocation_list_is_stored_if_newer_and_the_authority_s(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path) as here:
            lists = [here.authority.revocation_list() for _ in range(2)]
            foreign = Enrolment.create(tmp_path / "other").authority.revocation_list()
            await here.put(Mail.REVOCATIONS, lists[1])
            for wrong in (lists[0], foreign, b"nonsense"):
                with pytest.raises(RefusedError, match=facts(409)):
                    await here.put(Mail.REVOCATIONS, wrong)
                await asyncio.sleep(mailbox.WRITE_SECONDS)
            assert await here.get(Mail.REVOCATIONS) == lists[1]

    asyncio.run(main())


def test_a_revocation_is_delivered_at_once_and_again_at_once(tmp_path: Path) -> None:
    """`study sign` leaves a list, and `study revoke` may follow in the same second."""

    async def main() -> None:
        async with site(tmp_path) as here:
            for _ in range(5):
                newest = here.authority.revocation_list()
                await here.put(Mail.REVOCATIONS, newest)
                assert await here.get(Mail.REVOCATIONS) == newest

    asyncio.run(main())


def test_t35_lists_that_are_refused_have_to_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path) as here:
            with pytest.raises(RefusedError, match=facts(409)):
                await here.put(Mail.REVOCATIONS, b"nonsense")
            with pytest.raises(MailboxAwayError):
                await here.put(Mail.REVOCATIONS, b"nonsense again")

    asyncio.run(main())


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1",
        b"",
        b"HTTP/1.1 200 OK\r\n" + bytes(2**17),
        b"HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ],
    ids=["much", "nonsense", "cut", "nothing", "a heading without end", "less than nothing", "a long length"],
)
def test_t35_a_lying_mailbox_is_read_within_bounds(reply: bytes) -> None:
    """It promises too much, speaks nonsense, stops in the middle, or says nothing."""

    async def main() -> None:
        async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
            await asyncio.sleep(2)
            writer.close()

        liar = await asyncio.start_server(lie, "127.0.0.1", 0, ssl=mailbox.unproven_tls())
        where = Address(f"127.0.0.1:{liar.sockets[0].getsockname()[1]}")
        with pytest.raises(MailboxAwayError):
            await asyncio.to_thread(RemoteMailbox(where, 1.0).get, slot_of(bytes(32), NORTH), Mail.REQUEST)
        liar.close()

    asyncio.run(main())
