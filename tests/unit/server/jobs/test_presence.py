"""PresenceLog: since when a provider is here or not, and the newest certificate that it showed, of bounded size."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from local_federation import Enrolment

from dpspca.common.names import PartyName, Role
from dpspca.common.trust import EXPIRED, REVOKED, Identity, certificate_status, identity, newest_certificate
from dpspca.server.jobs import presence
from dpspca.server.jobs.presence import PresenceLog


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, seconds: float) -> float:
        self.now += timedelta(seconds=seconds)
        return self.now.timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def renewed(clock: Clock, folder: Path) -> tuple[Enrolment, Identity, Identity]:
    """Return a provider before and after it renewed its certificate."""
    enrolment = Enrolment.create(folder, clock=clock)
    before = enrolment.identity(Role.PROVIDER, "north")
    clock.pass_by(60)
    home = folder / "provider-north"
    signed = enrolment.authority.sign(identity.renew_request(home))
    return enrolment, before, identity.install(home, signed, enrolment.authority.certificate_pem)


def test_a_provider_is_here_since_it_came_and_away_since_it_left(clock: Clock) -> None:
    kept = PresenceLog(clock)
    assert kept.of("north") is None
    kept.note_disconnected("north")  # nobody knows it
    assert not kept.names
    came = clock.pass_by(5)
    kept.note_connected("north", b"")
    clock.pass_by(5)
    known = kept.of("north")
    assert known
    assert (known.is_connected, known.since) == (True, came)
    left = clock.pass_by(5)
    kept.note_disconnected("north")
    known = kept.of("north")
    assert known
    assert (known.is_connected, known.since) == (False, left)


def test_a_refused_party_does_not_count_as_seen(clock: Clock, tmp_path: Path) -> None:
    _, before, after = renewed(clock, tmp_path)
    kept = PresenceLog(clock)
    kept.note_certificate("north", after.certificate_pem)
    kept.note_certificate("north", before.certificate_pem)
    known = kept.of("north")
    assert known
    assert (known.is_connected, known.since, known.certificate) == (False, None, after.certificate_pem)


def test_an_old_certificate_changes_nothing_about_a_connected_party(clock: Clock, tmp_path: Path) -> None:
    _, before, after = renewed(clock, tmp_path)
    kept = PresenceLog(clock)
    kept.note_connected("north", after.certificate_pem)
    came = kept.of("north")
    clock.pass_by(5)
    kept.note_certificate("north", before.certificate_pem)
    assert kept.of("north") == came


def test_of_very_many_providers_those_that_are_not_here_are_forgotten(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "MOST_REMEMBERED", 3)
    kept = PresenceLog(clock)
    kept.note_connected("here", b"")
    for number in range(5):
        kept.note_certificate(f"gone-{number}", b"")
    assert kept.names == {"here", "gone-3", "gone-4"}


def test_the_standing_of_a_certificate_is_that_of_its_serial_and_its_end(clock: Clock, tmp_path: Path) -> None:
    enrolment, before, after = renewed(clock, tmp_path)
    pem = enrolment.authority.certificate_pem

    def problem_of(me: Identity, days: float = 0) -> str | None:
        return certificate_status(
            me.certificate_pem, pem, clock.now + timedelta(days=days), enrolment.revocations()
        ).problem

    assert (problem_of(before), problem_of(after)) == (None, None)
    assert problem_of(before, days=400) == EXPIRED
    enrolment.authority.revoke(PartyName("town", Role.PROVIDER, "north"))
    assert {problem_of(before), problem_of(after)} == {REVOKED}
    assert certificate_status(after.certificate_pem, pem, clock.now, enrolment.revocations()).until == after.not_after


def test_the_newest_certificate_is_the_one_that_was_issued_last(clock: Clock, tmp_path: Path) -> None:
    _, before, after = renewed(clock, tmp_path)
    for given in ((before, after), (after, before)):
        assert newest_certificate([each.certificate_pem for each in given]) == after.certificate_pem
    assert newest_certificate([b"", before.certificate_pem]) == before.certificate_pem
    assert newest_certificate([b"", b""]) == b""
