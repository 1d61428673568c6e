"""An invitation enrols one party, once; nobody without it can ask in that name, whatever carries the request."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidParameterError, NotNowError, NotTrustedError
from dpspca.common.names import PartyName, Role
from dpspca.common.trust import requests
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.authority_index import IndexState
from dpspca.common.trust.certificates import new_key, write_request
from dpspca.common.trust.identity import Identity, install, join_request, renew_request, request
from dpspca.common.trust.invitations import Invitation, is_slot, owner_of, slot_of
from dpspca.common.trust.replies import Reply

OSLO = PartyName("north", Role.PROVIDER, "oslo")
HUB = PartyName("north", Role.COORDINATOR, "hub")
ADDRESS, MAILBOX = "hub.example:7443", "hub.example:7444"


def invited(north: Any, party: PartyName = OSLO, days: int = 14) -> Invitation:
    return north.authority.invite(party, ADDRESS, MAILBOX, days=days)  # type: ignore[no-any-return]


@pytest.mark.parametrize("party", [OSLO, HUB])
def test_an_invitation_is_read_as_it_was_written(north: Any, party: PartyName) -> None:
    made = invited(north, party)
    assert Invitation.from_text(b"Dear Oslo,\r\n" + made.to_text().replace(b"\n", b"\r\n") + b"\r\n-- \r\n") == made
    assert (made.until - north.now, made.authority_pem) == (timedelta(days=14), north.pem)
    assert bool(made.mailbox_key) == (party is HUB), "only the coordinator can recognise slots"
    assert made.secret.hex() not in repr(made)


def test_a_damaged_invitation_is_refused(north: Any) -> None:
    text = invited(north).to_text()
    begin = text.index(b"-----\n") + 6
    for place in range(begin, text.rindex(b"-----END") - 2, 37):
        changed = text[:place] + (b"A" if text[place : place + 1] != b"A" else b"B") + text[place + 1 :]
        try:
            read = Invitation.from_text(changed)
        except NotTrustedError:
            continue
        assert read != Invitation.from_text(text), "a changed secret or address is another invitation"
    for wrong in (
        b"",
        text + text,
        text.replace(b"BEGIN", b"BEGUN"),
        text[:begin] + b"-----END DPSPCA INVITATION-----",
    ):
        with pytest.raises(NotTrustedError):
            Invitation.from_text(wrong)


def test_an_invited_party_enrols_and_renews_with_its_key(north: Any, tmp_path: Path) -> None:
    asked = join_request(tmp_path / "oslo", invited(north))
    north.authority.examine(asked)
    pem = north.authority.admit(asked)
    assert install(tmp_path / "oslo", pem, north.pem).name == OSLO
    renewal = renew_request(tmp_path / "oslo")
    assert install(tmp_path / "oslo", north.authority.admit(renewal), north.pem).name == OSLO
    assert [each.used for each in north.authority.invited()] == [f"{north.authority.list()[0].serial}"]


def test_t44_a_first_request_without_a_fitting_invitation_is_refused(north: Any, south: Any, tmp_path: Path) -> None:
    bergen = PartyName("north", Role.PROVIDER, "bergen")
    own, other = invited(north), invited(north, bergen)
    foreign = south.authority.invite(PartyName("south", Role.PROVIDER, "oslo"), ADDRESS)
    plain = request(tmp_path / "plain", OSLO)
    of_another = requests.write_enrolment(write_request(new_key(), OSLO), other)
    in_anothers_name = requests.write_enrolment(write_request(new_key(), OSLO), replace(other, party=OSLO))
    of_elsewhere = requests.write_enrolment(plain, foreign)
    code = requests.write_enrolment(plain, own)[len(plain) :]
    moved = write_request(new_key(), OSLO) + code
    for wrong in (plain, of_another, in_anothers_name, of_elsewhere, moved):
        with pytest.raises(NotTrustedError):
            north.authority.examine(wrong)
        with pytest.raises(NotTrustedError):
            north.authority.admit(wrong)
    assert not north.authority.list()


def test_t44_an_invitation_leads_to_one_certificate(north: Any, tmp_path: Path) -> None:
    invitation = invited(north)
    first, second = (join_request(tmp_path / name, invitation) for name in ("first", "second"))
    pem = north.authority.admit(first)
    with pytest.raises(NotTrustedError, match=facts(OSLO, north.authority.list()[-1].serial)):
        north.authority.admit(second)
    assert north.authority.admit(first) == pem, "the same request gets the same certificate"
    north.authority.revoke(OSLO)
    for again in (first, second):
        with pytest.raises(NotTrustedError):
            north.authority.admit(again)
    assert len(north.authority.list()) == 1


def test_t44_an_expired_or_withdrawn_invitation_is_refused(north: Any, tmp_path: Path) -> None:
    first = invited(north, days=1)
    late = join_request(tmp_path / "late", first)
    north.now = first.until
    with pytest.raises(NotNowError):
        north.authority.admit(late)
    north.now -= timedelta(seconds=1)
    north.authority.examine(late)
    second = invited(north)
    with pytest.raises(NotTrustedError, match=facts(f"`dpspca study invite {OSLO}`")):
        north.authority.admit(late)
    assert north.authority.admit(join_request(tmp_path / "new", second))


def test_an_enrolled_party_is_invited_only_after_it_was_revoked(north: Any, tmp_path: Path) -> None:
    north.enrol("provider", "oslo")
    with pytest.raises(InvalidParameterError, match=facts(OSLO, north.authority.list()[-1].serial)):
        invited(north)
    north.authority.revoke(OSLO)
    assert north.authority.admit(join_request(tmp_path / "again", invited(north)))


@pytest.mark.parametrize("days", [0, -1, 91])
def test_an_invitation_has_a_bounded_life(north: Any, days: int) -> None:
    with pytest.raises(InvalidParameterError):
        invited(north, days=days)


def test_t44_a_revoked_party_does_not_renew(north: Any) -> None:
    oslo = north.enrol("provider", "oslo")
    renewal = renew_request(north.folder("provider", "oslo"))
    assert isinstance(oslo, Identity)
    north.authority.revoke(OSLO)
    with pytest.raises(NotTrustedError, match=facts(f"`dpspca study invite {OSLO}`")):
        north.authority.admit(renewal)


def test_t44_no_changed_byte_of_a_request_makes_it_another_s(north: Any, tmp_path: Path) -> None:
    asked = join_request(tmp_path / "oslo", invited(north))
    for place in range(0, len(asked), 11):
        changed = asked[:place] + bytes([asked[place] ^ 1]) + asked[place + 1 :]
        try:
            north.authority.examine(changed)
        except DpspcaError:
            continue
        same = requests.read(changed)
        assert (same.party, same.key) == (OSLO, requests.read(asked).key), "only a line break is written otherwise"


def test_the_authority_s_index_does_not_hold_the_secret(north: Any) -> None:
    made = invited(north)
    index = (north.authority.folder / "index.jsonl").read_bytes()
    assert made.secret.hex().encode() not in index
    assert made.id.encode() in index
    again = Authority.open(north.authority.folder, lambda: north.now)
    assert again.invited() == north.authority.invited()


def test_slots_are_recognised_with_the_key_alone(north: Any) -> None:
    key = north.authority.mailbox_key()
    slot = slot_of(key, OSLO)
    assert invited(north).slot == slot
    assert owner_of(slot, key, "north") == OSLO
    changed = slot[:-1] + ("0" if slot[-1] != "0" else "1")
    for wrong in (
        changed,
        slot.upper(),
        slot.replace("oslo", "rome"),
        slot.replace("provider", "analyst"),
        "",
        "a-b-c",
    ):
        assert owner_of(wrong, key, "north") is None, wrong
    assert owner_of(slot, bytes(32), "north") is None
    for unsafe in ("../x", "provider-../../x-" + "0" * 32, f"{slot}/x", f"{slot}\n", "provider--" + "0" * 32):
        assert not is_slot(unsafe), unsafe


def test_an_index_of_an_earlier_version_gets_a_mailbox_key(north: Any) -> None:
    (north.authority.folder / "mailbox-key").unlink()
    assert north.authority.mailbox_key() == north.authority.mailbox_key()
    assert IndexState.replay([]).list_number == 0


@pytest.mark.parametrize("change", [lambda each: each[:-1], lambda each: each * 2, lambda each: b"x" + each])
def test_a_reply_has_three_parts_and_nothing_else(north: Any, change: Any) -> None:
    whole = Reply(north.authority.sign(write_request(new_key(), OSLO)), north.pem, north.authority.revocation_list())
    assert Reply.from_bytes(whole.to_bytes()) == whole
    with pytest.raises(NotTrustedError):
        Reply.from_bytes(change(whole.to_bytes()))
