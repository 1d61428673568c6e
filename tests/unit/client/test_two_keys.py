"""Two keys that ask in one party's name through a coordinator's mailbox: both are seen, and neither is signed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from facts import names_facts
from local_federation import now
from timeouts import TIMEOUT

from dpspca.client.enrolment import Candidate, RequestKind, StudyOffice
from dpspca.common.errors import RefusedError
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import Address, Route
from dpspca.common.transport import (
    MAX_IN_SLOT,
    CertificateMail,
    Mail,
    MailboxAwayError,
    MailFolder,
    RemoteMailbox,
    SlotFullError,
)
from dpspca.common.trust import Identity, Invitation, identity, request_fingerprint
from dpspca.server import mailbox
from dpspca.server.mailbox import MailboxServer

NORTH = PartyName("town", Role.PROVIDER, "north")
STUDY = """
federation = "town"
coordinator = "hub"
address = "127.0.0.1:7443"
mailbox = "127.0.0.1:7444"
providers = ["north"]
analysts = []
"""


class Town:
    """An authority with a mailbox that listens, and whoever holds an invitation."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        (folder / "study.toml").write_text(STUDY)
        self.office = StudyOffice.found(folder / "study.toml", folder / "authority", now)
        self.folder = MailFolder(folder / "mailbox")
        authority = self.office.authority
        self.server = MailboxServer(self.folder, authority.mailbox_key(), authority.certificate_pem)

    def invite(self) -> Invitation:
        ((invitation, _),) = self.office.invite([NORTH])
        return invitation

    @property
    def remote(self) -> RemoteMailbox:
        return RemoteMailbox(Route(Address(self.server.address)), TIMEOUT)

    def holder(self, name: str, invitation: Invitation) -> tuple[CertificateMail, bytes]:
        """Return the mail and the request of somebody who holds the invitation."""
        home = self.path / name
        return CertificateMail(home, None, self.remote, invitation.slot), identity.join_request(home, invitation)

    def candidates(self) -> list[Candidate]:
        return self.office.candidates(self.remote)

    def sign(self) -> list[Candidate]:
        return self.office.sign(self.candidates(), self.remote)

    def receive(self, mail: CertificateMail) -> Identity | None:
        return mail.receive(self.office.authority.certificate_pem)[0]


@asynccontextmanager
async def town(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    monkeypatch.setattr(mailbox, "WRITE_SECONDS", 0.0)
    monkeypatch.setattr(mailbox, "PAUSE_SECONDS", 0.0)
    made = Town(folder)
    await made.server.start(Address("127.0.0.1:0"))
    try:
        yield made
    finally:
        await made.server.stop()


def kinds(found: list[Candidate]) -> list[RequestKind]:
    return [each.kind for each in found]


def two_keys(here: Town, party_first: bool) -> None:
    stolen = here.invite()
    (party, asked), (thief, forged) = here.holder("north", stolen), here.holder("thief", stolen)
    order = ((party, asked), (thief, forged)) if party_first else ((thief, forged), (party, asked))
    for mail, request in order:
        mail.send(request)
    shown = party.send(asked)
    assert names_facts(shown, request_fingerprint(forged))
    assert not names_facts(shown, request_fingerprint(asked))
    ended = here.sign()
    assert kinds(ended) == [RequestKind.REFUSED] * 2
    assert {each.key for each in ended} == {request_fingerprint(asked), request_fingerprint(forged)}
    remedies = {each.problem and each.problem.remedy for each in ended}
    assert all(names_facts(str(each), f"`dpspca study invite {NORTH}`") for each in remedies)
    assert not any(names_facts(str(each), "revoke") for each in remedies), "there is no certificate to revoke"
    assert here.office.authority.list() == ()
    anew, fresh = here.holder("anew", here.invite())
    assert names_facts(anew.send(fresh), request_fingerprint(forged))
    assert sorted(kinds(here.sign())) == [RequestKind.ENROLS, RequestKind.REFUSED, RequestKind.REFUSED]
    assert here.receive(thief) is None
    assert here.receive(anew) is not None
    assert here.candidates() == [], "the slot is empty again"


@pytest.mark.parametrize("party_first", [True, False])
def test_t44_a_stolen_invitation_used_twice_by_mailbox_signs_nobody(
    party_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with town(tmp_path, monkeypatch) as here:
            await asyncio.to_thread(two_keys, here, party_first)

    asyncio.run(main())


def cleared(here: Town) -> None:
    stolen = here.invite()
    (party, asked), (thief, forged) = here.holder("north", stolen), here.holder("thief", stolen)
    party.send(asked)
    for left in (b"", b"nonsense"):
        if left:
            here.remote.put(stolen.slot, Mail.CERTIFICATE, left)
        with pytest.raises(RefusedError):
            here.remote.put(stolen.slot, Mail.REQUEST, b"")
    here.remote.put(stolen.slot, Mail.REQUEST, asked.replace(b"ENROLMENT-----\n", b"ENROLMENT-----\nAAAA", 1))
    thief.send(forged)
    assert asked in here.remote.requests_of(stolen.slot)
    assert RequestKind.ENROLS not in kinds(here.candidates())


def test_t44_nobody_clears_or_changes_the_request_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with town(tmp_path, monkeypatch) as here:
            await asyncio.to_thread(cleared, here)

    asyncio.run(main())


def crowded(here: Town) -> None:
    stolen = here.invite()
    thief, forged = here.holder("thief", stolen)
    thief.send(forged)
    for number in range(1, MAX_IN_SLOT):
        here.remote.put(stolen.slot, Mail.REQUEST, b"nonsense %d" % number)
    party, asked = here.holder("north", stolen)
    with pytest.raises(SlotFullError):
        party.send(asked)
    assert len(list(here.folder.path.iterdir())) == MAX_IN_SLOT
    ended = here.sign()
    assert kinds(ended) == [RequestKind.REFUSED] * MAX_IN_SLOT
    assert here.office.authority.list() == ()


def test_t44_a_thief_who_crowds_the_party_out_is_not_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with town(tmp_path, monkeypatch) as here:
            await asyncio.to_thread(crowded, here)

    asyncio.run(main())


def renewed(here: Town) -> None:
    party, asked = here.holder("north", here.invite())
    party.send(asked)
    here.sign()
    assert here.receive(party)
    signed_twice = [identity.renew_request(party.folder) for _ in range(2)]
    for each in signed_twice:
        assert not party.send(each), "it is the same key"
    assert here.remote.requests_of(party.slot) == signed_twice[1:]
    assert kinds(here.sign()) == [RequestKind.RENEWS]
    assert here.receive(party)


def test_a_renewal_that_was_signed_again_replaces_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with town(tmp_path, monkeypatch) as here:
            await asyncio.to_thread(renewed, here)

    asyncio.run(main())


def test_a_request_stays_visible_when_the_file_before_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with town(tmp_path, monkeypatch) as here:
            slot = here.invite().slot
            for content in (b"one", b"two"):
                await asyncio.to_thread(here.remote.put, slot, Mail.REQUEST, content)
            (here.folder.path / f"{slot}.{Mail.REQUEST}").unlink()
            assert await asyncio.to_thread(here.remote.requests_of, slot) == [b"two"]
            assert await asyncio.to_thread(here.remote.get, slot, Mail.REQUEST) == b"two"

    asyncio.run(main())


def test_a_slot_changes_once_a_moment_also_for_further_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with town(tmp_path, monkeypatch) as here:
            monkeypatch.setattr(mailbox, "WRITE_SECONDS", TIMEOUT)
            slot = here.invite().slot
            await asyncio.to_thread(here.remote.put, slot, Mail.REQUEST, b"one")
            with pytest.raises(MailboxAwayError):
                await asyncio.to_thread(here.remote.put, slot, Mail.REQUEST, b"two")

    asyncio.run(main())
