"""A daemon renews its certificate by itself, fetches revocation lists, and warns before either ends."""

import errno
import logging
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from facts import names_facts

from dpspca.common.names import PartyName, Role
from dpspca.common.storage import Address
from dpspca.common.transport import (
    CertificateMail,
    CertificateRenewer,
    Mail,
    MailFolder,
    RemoteMailbox,
    catch_up,
    ends,
)
from dpspca.common.trust import Identity, read_certificate
from dpspca.common.trust import identity as identities
from dpspca.common.trust.identity import CurrentIdentity, CurrentRevocations
from dpspca.common.trust.invitations import slot_of
from dpspca.common.trust.replies import Reply
from dpspca.provider.events import EVENTS as PROVIDER_EVENTS
from dpspca.server.events import EVENTS as COORDINATOR_EVENTS

OSLO = PartyName("north", Role.PROVIDER, "oslo")
LEAD = timedelta(minutes=5)
"""How much earlier a certificate begins than it was signed."""


class Site:
    """A provider with a mailbox, and its authority. The clock is the federation's."""

    def __init__(self, north: Any, folder: Path, days: int = 30) -> None:
        self.north, self.authority = north, north.authority
        self.before = north.enrol("provider", "oslo", days)
        self.home = north.folder("provider", "oslo")
        self.list = folder / "revoked.pem"
        self.list.write_bytes(self.authority.revocation_list())
        self.mailbox = MailFolder(folder / "mailbox")
        self.slot = slot_of(self.authority.mailbox_key(), OSLO)
        self.mail = CertificateMail(self.home, self.list, self.mailbox, self.slot)
        self.identity = CurrentIdentity(self.home)
        self.revoked = CurrentRevocations(self.list, north.pem)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.keeper = CertificateRenewer(
            self.mail, self.identity.get, self.revoked.get, lambda: north.now, self.note_event
        )

    def note_event(self, event: str, /, **fields: Any) -> None:
        assert tuple(fields) == PROVIDER_EVENTS[event] == COORDINATOR_EVENTS[event]
        self.events.append((event, fields))

    def look(self, later: timedelta = timedelta()) -> None:
        self.north.now += later
        self.keeper.look()

    @property
    def request(self) -> bytes:
        return self.mailbox.get(self.slot, Mail.REQUEST)

    def sign(self) -> None:
        reply = Reply(self.authority.admit(self.request), self.north.pem, self.authority.revocation_list())
        self.mailbox.put(self.slot, Mail.CERTIFICATE, reply.to_bytes())


@pytest.fixture
def site(north: Any, tmp_path: Path) -> Site:
    return Site(north, tmp_path)


def test_certificates_and_lists_are_events_when_they_come_into_use(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that were installed by hand. They are told once."""
    caplog.set_level("INFO")
    site.look()
    site.look()
    assert "certificate is in use" not in caplog.text
    first, listed = site.events
    assert first == ("certificate", {"serial": serial_of(site.before), "until": site.before.not_after.isoformat()})
    assert (listed[0], listed[1]["list_number"], listed[1]["revoked"]) == (
        "revocation-list",
        site.revoked.get().number,
        0,
    )
    site.look(timedelta(days=25))
    site.sign()
    site.look()
    site.look()
    assert caplog.text.count(f"certificate is in use. It is valid until {site.identity.get().not_after:%F}") == 1
    renewed, newer = site.events[2:]
    assert renewed[1]["serial"] == serial_of(site.identity.get()) != serial_of(site.before)
    assert newer[1]["list_number"] == site.revoked.get().number > listed[1]["list_number"]
    site.north.enrol("provider", "rome")
    site.authority.revoke(PartyName("north", Role.PROVIDER, "rome"))
    site.list.write_bytes(site.authority.revocation_list())
    site.look()
    assert [(event, fields["revoked"]) for event, fields in site.events[4:]] == [("revocation-list", 1)]


def serial_of(me: Identity) -> str:
    return f"{read_certificate(me.certificate_pem).serial_number:x}"


def test_a_daemon_renews_when_a_third_is_left_and_keeps_the_old_until_then(site: Site) -> None:
    site.look(timedelta(days=20) - LEAD)
    assert not site.request
    site.look(LEAD)
    asked = site.request
    site.look(timedelta(days=1))
    assert site.request == asked, "it asks with the same bytes until it is answered"
    assert site.identity.get() == site.before
    site.sign()
    site.look()
    after = site.identity.get()
    assert after.not_after - site.before.not_after == timedelta(days=21)
    assert (after.name, after.key_pem != site.before.key_pem) == (OSLO, True)
    assert not site.request
    site.look(timedelta(days=1))
    assert not site.request


def test_a_daemon_that_was_off_past_its_end_renews_before_it_starts(site: Site) -> None:
    site.north.now += timedelta(days=40)
    catch_up(site.mail, site.identity.get(), site.north.now)
    site.sign()
    catch_up(site.mail, site.identity.get(), site.north.now)
    assert site.identity.get().not_after > site.north.now


@pytest.mark.parametrize("reply", ["old", "nonsense", "foreign"])
def test_t44_a_daemon_ignores_certificates_that_are_not_for_its_new_key(reply: str, site: Site, south: Any) -> None:
    site.look(timedelta(days=25))
    listed = site.authority.revocation_list()
    foreign = Reply(south.authority.sign(identities.request(site.home.parent / "x", OSLO_SOUTH)), south.pem, listed)
    told = {
        "old": Reply(site.before.certificate_pem, site.north.pem, listed).to_bytes(),
        "nonsense": b"nonsense",
        "foreign": foreign.to_bytes(),
    }
    site.mailbox.put(site.slot, Mail.CERTIFICATE, told[reply])
    site.look()
    assert site.identity.get() == site.before
    site.sign()
    site.look()
    assert site.identity.get() != site.before


OSLO_SOUTH = PartyName("south", Role.PROVIDER, "oslo")


def test_t44_a_newer_revocation_list_is_installed_and_no_other(site: Site, south: Any) -> None:
    old = site.list.read_bytes()
    site.authority.revoke(PartyName("north", Role.PROVIDER, site.north.enrol("provider", "rome").name.name))
    new = site.authority.revocation_list()
    site.mailbox.put(site.slot, Mail.REVOCATIONS, new)
    site.look()
    assert site.list.read_bytes() == new
    assert len(site.revoked.get().serials) == 1
    for wrong in (old, south.authority.revocation_list(), b"nonsense"):
        site.mailbox.put(site.slot, Mail.REVOCATIONS, wrong)
        site.look()
        assert site.list.read_bytes() == new


def test_lists_go_to_the_file_that_the_settings_name_now(site: Site) -> None:
    before, moved = site.list.read_bytes(), site.list.with_name("moved.pem")
    moved.write_bytes(before)
    site.keeper.follow(replace(site.mail, revocations=moved))
    newer = site.authority.revocation_list()
    site.mailbox.put(site.slot, Mail.REVOCATIONS, newer)
    site.look()
    assert (site.list.read_bytes(), moved.read_bytes()) == (before, newer)


def test_a_list_that_comes_with_a_certificate_does_not_go_back(site: Site) -> None:
    site.look(timedelta(days=25))
    site.sign()
    newer = site.authority.revocation_list()
    site.list.write_bytes(newer)
    site.look()
    assert site.identity.get() != site.before
    assert site.list.read_bytes() == newer


def test_warnings_begin_ten_days_before_an_end_and_come_once_a_day(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = CertificateRenewer(None, site.identity.get, site.revoked.get, lambda: site.north.now)
    heard: list[int] = []
    for days in range(29):
        site.north.now += timedelta(days=days > 0)
        for _ in range(3):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                keeper.look()
            if caplog.records:
                heard.append(days)
                assert {"ends in" in record.getMessage() for record in caplog.records} == {True}
                assert len(caplog.records) == 2, "the certificate and the list"
    assert heard == list(range(20, 29))


@pytest.mark.parametrize(("days", "hours"), [(1, 16), (90, 80 * 24)])
def test_short_lives_are_warned_of_when_a_third_is_left(days: int, hours: int, north: Any, tmp_path: Path) -> None:
    own = ends(Site(north, tmp_path, days).before, None)[0]
    begin = north.now + timedelta(hours=hours)
    assert not own.warning(begin - LEAD)
    assert own.warning(begin)
    assert "expired" in own.warning(north.now + timedelta(days=days))


def test_a_mailbox_that_is_away_stops_nothing(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = CertificateMail(site.home, site.list, RemoteMailbox(Address("127.0.0.1:1"), 1.0), site.slot)
    keeper = CertificateRenewer(nowhere, site.identity.get, site.revoked.get, lambda: site.north.now)
    site.north.now += timedelta(days=25)
    for _ in range(3):
        keeper.look()
    catch_up(nowhere, site.identity.get(), site.north.now)
    assert sum("cannot be reached" in record.getMessage() for record in caplog.records) == 2, "once, and at the start"
    assert site.identity.get() == site.before


def test_a_daemon_that_may_not_write_to_the_folder_of_its_key_warns(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a service manager keeps the key. Its rights are root's here, so the file system has to refuse."""
    opened = os.open

    def read_only(path: Any, flags: int, *mode: Any) -> int:
        if flags & os.O_CREAT and site.home in Path(path).parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    site.north.now += timedelta(days=25)
    catch_up(site.mail, site.identity.get(), site.north.now)
    for _ in range(3):
        site.keeper.look()
    warned = [
        record for record in caplog.records if names_facts(record.getMessage(), site.home, os.strerror(errno.EROFS))
    ]
    assert [record.levelno for record in warned] == [logging.WARNING] * 2, "at the start, and once"
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]
