"""The authority certifies a name and a key and records every act; others cannot read or overwrite its files."""

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from facts import facts

from dpspca.common.errors import (
    DamagedFileError,
    DpspcaError,
    InvalidParameterError,
    InvalidTypeError,
    MalformedProofError,
    NotNowError,
    NotTrustedError,
    OccupiedFolderError,
    RevokedError,
    UnsafeFileError,
    WrongSignerError,
)
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role
from dpspca.common.storage import files
from dpspca.common.trust.authority import AUTHORITY_LIFE, Authority, Reason
from dpspca.common.trust.certificates import key_pem, new_key, read_key, read_request, write_request
from dpspca.common.trust.identity import install, renew_request, request
from dpspca.common.trust.requests import write_renewal
from dpspca.common.trust.revocations import RevocationList

OSLO = PartyName("north", Role.PROVIDER, "oslo")


def request_by_hand(*extensions: x509.ExtensionType, key: Any = None) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "oslo")])
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key or new_key(), SHA256()).public_bytes(Encoding.PEM)


def names(*texts: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(text) for text in texts])


def enrolled(entry: Any) -> str:
    """Return the pattern for a refusal because this certificate is the newest one of its name."""
    return facts(entry.name, entry.serial, "`dpspca identity renew`", f"`dpspca study revoke {entry.name}`")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_operator_can_read_the_folder_and_the_key(north: Any) -> None:
    folder = north.authority.folder
    assert mode(folder) == 0o700
    assert mode(folder / "authority-key.pem") == 0o600
    assert b"PRIVATE KEY" not in north.pem
    assert "PRIVATE" not in repr(north.authority)


def test_the_authority_s_certificate_only_signs_certificates_and_lists(north: Any) -> None:
    made = x509.load_pem_x509_certificate(north.pem)
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = made.extensions.get_extension_for_class(x509.KeyUsage)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (True, True, False)
    assert made.not_valid_after_utc - north.now == AUTHORITY_LIFE
    made.verify_directly_issued_by(made)


def test_an_authority_is_never_overwritten(north: Any) -> None:
    before = {path.name: path.read_bytes() for path in north.authority.folder.iterdir()}
    with pytest.raises(OccupiedFolderError, match=facts(north.authority.folder)):
        Authority.init(north.authority.folder, "north", lambda: north.now)
    assert {path.name: path.read_bytes() for path in north.authority.folder.iterdir()} == before


def test_an_authority_needs_a_private_folder_and_a_valid_name(north: Any, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    file = tmp_path / "file"
    file.touch()
    for folder in (shared, file, file / "below"):
        with pytest.raises(UnsafeFileError):
            Authority.init(folder, "north", lambda: north.now)
    with pytest.raises(InvalidParameterError):
        Authority.init(tmp_path / "new", "North Sea", lambda: north.now)
    assert not (tmp_path / "new").exists()


def test_a_clock_without_a_time_zone_is_refused(tmp_path: Path, north: Any) -> None:
    with pytest.raises(InvalidTypeError):
        Authority.init(tmp_path / "new", "north", lambda: north.now.replace(tzinfo=None))


def test_a_reopened_authority_continues_its_index_and_numbers(north: Any) -> None:
    north.enrol("provider", "oslo")
    again = Authority.open(north.authority.folder, lambda: north.now)
    assert again.federation == "north"
    assert again.certificate_pem == north.pem
    assert again.list() == north.authority.list()
    assert RevocationList.read(again.revocation_list(), north.pem).number == 2


def test_a_key_that_others_can_read_or_a_link_to_one_is_refused(north: Any, tmp_path: Path) -> None:
    key = north.authority.folder / "authority-key.pem"
    key.chmod(0o640)
    with pytest.raises(UnsafeFileError, match=facts(f"`chmod 600 {key}`")):
        Authority.open(north.authority.folder, lambda: north.now)
    key.chmod(0o600)
    north.authority.folder.chmod(0o755)
    with pytest.raises(UnsafeFileError, match=facts(f"`chmod 700 {north.authority.folder}`")):
        Authority.open(north.authority.folder, lambda: north.now)
    north.authority.folder.chmod(0o700)
    key.rename(tmp_path / "key")
    key.symlink_to(tmp_path / "key")
    with pytest.raises(UnsafeFileError):
        Authority.open(north.authority.folder, lambda: north.now)
    with pytest.raises(UnsafeFileError):
        Authority.open(tmp_path / "nowhere", lambda: north.now)


def test_a_key_of_another_authority_is_refused(north: Any, south: Any) -> None:
    north_key, south_key = (each.authority.folder / "authority-key.pem" for each in (north, south))
    north_key.write_bytes(south_key.read_bytes())
    with pytest.raises(WrongSignerError):
        Authority.open(north.authority.folder, lambda: north.now)


def test_t33_only_the_name_and_the_key_of_a_request_are_certified(north: Any) -> None:
    key = new_key()
    pem = north.authority.sign(write_request(key, OSLO))
    made = x509.load_pem_x509_certificate(pem)
    found = {type(each.value): each.value for each in made.extensions}
    assert made.public_key() == key.public_key()
    assert list(found[x509.SubjectAlternativeName]) == [x509.UniformResourceIdentifier(OSLO.uri)]  # type: ignore[call-overload]
    assert found[x509.BasicConstraints] == x509.BasicConstraints(ca=False, path_length=None)
    assert found[x509.ExtendedKeyUsage] == x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    assert north.now - made.not_valid_before_utc == timedelta(minutes=5)
    assert made.not_valid_after_utc - north.now == timedelta(days=30)


def test_only_a_coordinator_s_certificate_is_valid_for_a_server(north: Any) -> None:
    for role in Role:
        pem = north.authority.sign(write_request(new_key(), PartyName("north", role, "x")))
        found = {type(each.value): each.value for each in x509.load_pem_x509_certificate(pem).extensions}
        purposes = set(found[x509.ExtendedKeyUsage])  # type: ignore[call-overload]
        hosts = found[x509.SubjectAlternativeName].get_values_for_type(x509.DNSName)  # type: ignore[attr-defined]
        assert (ExtendedKeyUsageOID.SERVER_AUTH in purposes) == (role is Role.COORDINATOR)
        assert hosts == ([COORDINATOR_HOST] if role is Role.COORDINATOR else [])


@pytest.mark.parametrize(
    ("request_pem", "kind", "reason"),
    [
        (b"", MalformedProofError, None),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", MalformedProofError, None),
        (b"x" * 100_000, NotTrustedError, facts(100_000, 65_536)),
        (request_by_hand(), MalformedProofError, None),
        (request_by_hand(names()), NotTrustedError, facts("0 names")),
        (request_by_hand(names(OSLO.uri, OSLO.uri)), NotTrustedError, facts("2 names")),
        (
            request_by_hand(x509.SubjectAlternativeName([x509.DNSName(COORDINATOR_HOST)])),
            NotTrustedError,
            facts("0 URIs"),
        ),
        (request_by_hand(names(uri := "https://north/provider/oslo")), NotTrustedError, facts(f"'{uri}'")),
        (request_by_hand(names(uri := "dpspca://north/admin/oslo")), NotTrustedError, facts(f"'{uri}'")),
        (request_by_hand(names(uri := "dpspca://south/provider/oslo")), NotTrustedError, facts(uri, "north")),
        (
            request_by_hand(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(OSLO.uri), x509.DNSName(COORDINATOR_HOST)])
            ),
            NotTrustedError,
            facts("2 names"),
        ),
        (request_by_hand(names(OSLO.uri), x509.BasicConstraints(ca=True, path_length=None)), MalformedProofError, None),
        (
            request_by_hand(names(OSLO.uri), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])),
            MalformedProofError,
            None,
        ),
        (request_by_hand(names(OSLO.uri), key=ec.generate_private_key(ec.SECP384R1())), NotTrustedError, "P-256"),
        (request_by_hand(names(OSLO.uri), key=rsa.generate_private_key(65537, 2048)), NotTrustedError, "P-256"),
    ],
)
def test_t33_a_request_for_anything_else_is_refused(
    north: Any, request_pem: bytes, kind: type[NotTrustedError], reason: str | None
) -> None:
    with pytest.raises(kind, match=reason):
        north.authority.sign(request_pem)
    assert north.authority.list() == ()


def test_a_request_with_a_changed_name_is_refused(north: Any) -> None:
    good = x509.load_pem_x509_csr(write_request(new_key(), OSLO)).public_bytes(Encoding.DER)
    changed = good.replace(b"provider/oslo", b"provider/oslp")
    pem = x509.load_der_x509_csr(changed).public_bytes(Encoding.PEM)
    with pytest.raises(WrongSignerError):
        north.authority.sign(pem)


def test_a_request_for_a_name_that_the_operator_did_not_expect_is_refused(north: Any) -> None:
    pem = write_request(new_key(), OSLO)
    other = PartyName("north", Role.PROVIDER, "bergen")
    with pytest.raises(NotTrustedError, match=facts(OSLO, other)):
        north.authority.sign(pem, expected=other)
    north.authority.sign(pem, expected=OSLO)
    assert [entry.name for entry in north.authority.list()] == [OSLO]


# One certificate per key, one party per name.


def test_t32_a_key_has_one_certificate_whatever_name_it_asks_for(north: Any) -> None:
    key = new_key()
    pem = north.authority.sign(write_request(key, OSLO))
    (entry,) = north.authority.list()
    for name in (PartyName("north", Role.PROVIDER, "bergen"), PartyName("north", Role.ANALYST, "oslo")):
        with pytest.raises(NotTrustedError, match=facts(OSLO, entry.serial, f"`dpspca study invite {name}`")):
            north.authority.sign(write_request(key, name))
    north.now += timedelta(days=29)
    assert north.authority.sign(write_request(key, OSLO), days=90) == pem
    north.authority.revoke(OSLO)
    with pytest.raises(RevokedError, match=facts(OSLO, entry.serial)):
        north.authority.sign(write_request(key, OSLO))
    assert [each.serial for each in north.authority.list()] == [entry.serial]


def test_t32_a_request_whose_certificate_has_expired_gets_no_other(north: Any, tmp_path: Path) -> None:
    """A party that never received it enrols again with a new key, after the operator has revoked the name."""
    key = new_key()
    pem = north.authority.sign(write_request(key, OSLO), days=10)
    (entry,) = north.authority.list()
    index = (north.authority.folder / "index.jsonl").read_bytes()
    north.now = entry.until - timedelta(seconds=1)
    assert north.authority.sign(write_request(key, OSLO)) == pem
    ended = facts(OSLO, entry.serial, f"{entry.until:%Y-%m-%d %H:%M} UTC")
    for north.now in (entry.until, entry.until + timedelta(days=365)):
        with pytest.raises(NotNowError, match=ended) as caught:
            north.authority.sign(write_request(key, OSLO), days=90)
        assert "`dpspca identity renew`" in caught.value.remedy
        assert f"`dpspca study revoke {OSLO}`" in caught.value.remedy
    bergen = PartyName("north", Role.PROVIDER, "bergen")
    with pytest.raises(NotTrustedError, match=facts(OSLO, f"`dpspca study invite {bergen}`")):  # before its expiry
        north.authority.sign(write_request(key, bergen))
    assert (north.authority.folder / "index.jsonl").read_bytes() == index
    north.authority.revoke(OSLO)
    with pytest.raises(RevokedError, match=facts(OSLO, entry.serial)):
        north.authority.sign(write_request(key, OSLO))
    anew = north.authority.sign(request(tmp_path / "anew", OSLO))
    assert install(tmp_path / "anew", anew, north.pem).not_after > north.now


def test_t32_an_expired_certificate_can_be_renewed_but_not_requested_again(north: Any, tmp_path: Path) -> None:
    """The first request, sent again a year later, is refused; the renewal is signed."""
    home = tmp_path / "oslo"
    first = request(home, OSLO)
    install(home, north.authority.sign(first), north.pem)
    north.now += timedelta(days=365)
    renewal = renew_request(home)
    with pytest.raises(NotNowError, match=facts("`dpspca identity renew`")):
        north.authority.sign(first)
    assert install(home, north.authority.sign(renewal), north.pem).not_after > north.now
    with pytest.raises(NotNowError, match=facts("`dpspca identity renew`")):
        north.authority.sign(first)
    assert len(north.authority.list()) == 2
    north.now += timedelta(days=365)
    with pytest.raises(NotNowError, match=facts(north.authority.list()[-1].serial)):
        north.authority.sign(renewal)  # the certificate for this renewal has expired too


def test_t32_no_other_party_is_enrolled_under_an_enrolled_name(north: Any) -> None:
    north.enrol("provider", "oslo")
    before = north.authority.list()
    with pytest.raises(NotTrustedError, match=enrolled(before[-1])):
        north.authority.sign(write_request(new_key(), OSLO))
    north.now += timedelta(days=365)
    with pytest.raises(NotTrustedError, match=enrolled(before[-1])):
        north.authority.sign(write_request(new_key(), OSLO))
    assert north.authority.list() == before
    north.authority.revoke(OSLO)
    north.authority.sign(write_request(new_key(), OSLO))


def test_a_party_can_renew_its_certificate_again_and_again(north: Any) -> None:
    north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    for days in (20, 20, 365):
        north.now += timedelta(days=days)
        install(folder, north.authority.sign(renew_request(folder).replace(b"\n", b"\r\n")), north.pem)
    assert [entry.name for entry in north.authority.list()] == [OSLO] * 4
    assert len({entry.certificate for entry in north.authority.list()}) == 4


def test_t32_a_replaced_key_cannot_renew(north: Any) -> None:
    old = north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    install(folder, north.authority.sign(renew_request(folder)), north.pem)
    stolen = write_renewal(write_request(new_key(), OSLO), old.certificate_pem, old.key_pem)
    newest = north.authority.list()[-1]
    with pytest.raises(NotTrustedError, match=enrolled(newest)):
        north.authority.sign(stolen)
    north.authority.revoke(
        newest.serial
    )  # for example one that the party never received; now the one before is the newest
    north.authority.sign(stolen)


def test_text_around_a_renewal_is_ignored_and_a_damaged_one_is_refused(north: Any) -> None:
    north.enrol("provider", "oslo")
    good = renew_request(north.folder("provider", "oslo"))
    pems = [good[:-1], good + b"\n\r\n \n", b"Dear operator,\n" + good, good.replace(b"\n", b"\r\n")]
    assert len({north.authority.sign(pem) for pem in pems}) == 1
    for damaged in (good + b"Best wishes", good[:-40], good.replace(b"-----BEGIN CERTIFICATE-----\n", b"")):
        with pytest.raises(MalformedProofError):
            north.authority.sign(damaged)
    with pytest.raises(MalformedProofError, match=facts("2 requests")):
        north.authority.sign(write_request(new_key(), OSLO) + good)


def test_t32_no_other_party_renews_a_partys_certificate(north: Any, south: Any, tmp_path: Path) -> None:
    made, other, stranger = (
        north.enrol("provider", "oslo"),
        north.enrol("provider", "bergen"),
        south.enrol("provider", "oslo"),
    )
    asked, before = write_request(new_key(), OSLO), north.authority.list()
    good = write_renewal(asked, made.certificate_pem, made.key_pem)
    forged = north.forge(
        names(OSLO.uri), by=south.issuer, key=read_key(stranger.key_pem), serial=int(before[0].serial, 16)
    )
    swapped = write_renewal(write_request(new_key(), OSLO), made.certificate_pem, made.key_pem)
    signature = swapped[swapped.index(b"-----BEGIN DPSPCA") :]
    taken, unsigned = enrolled(before[0]), facts("`dpspca identity renew`")
    for pem, kind, reason in (
        (write_renewal(asked, made.certificate_pem, other.key_pem), WrongSignerError, unsigned),
        (write_renewal(asked, other.certificate_pem, other.key_pem), NotTrustedError, taken),
        (write_renewal(asked, stranger.certificate_pem, stranger.key_pem), WrongSignerError, None),
        (write_renewal(asked, forged, stranger.key_pem), WrongSignerError, None),
        (good[: good.index(b"-----BEGIN DPSPCA")] + signature, WrongSignerError, unsigned),
        (good.replace(asked, write_request(new_key(), OSLO)), WrongSignerError, unsigned),
        (asked + made.certificate_pem, NotTrustedError, taken),
        (b"x" * 100_000, NotTrustedError, facts(100_000, 65_536)),
    ):
        with pytest.raises(kind, match=reason):
            north.authority.sign(pem)
    assert north.authority.list() == before
    north.authority.revoke(before[0].serial)
    north.authority.sign(request(tmp_path / "anew", OSLO))
    with pytest.raises(NotTrustedError, match=enrolled(north.authority.list()[-1])):
        north.authority.sign(good)


def test_an_act_on_a_full_disk_leaves_the_index_unchanged(north: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = north.authority.folder / "index.jsonl"
    north.enrol("provider", "oslo")
    before, asked = index.read_bytes(), write_request(new_key(), PartyName("north", Role.PROVIDER, "bergen"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnsafeFileError, match=facts("index.jsonl", "No space left on device")):
            north.authority.sign(asked)
    assert index.read_bytes() == before
    index.write_bytes(before[:-1])
    with pytest.raises(DamagedFileError, match=facts("index.jsonl")):
        north.authority.sign(asked)
    assert index.read_bytes() == before[:-1]


def test_an_index_of_an_earlier_version_is_read_and_continued(north: Any) -> None:
    index = north.authority.folder / "index.jsonl"
    north.enrol("provider", "oslo")
    older = [json.loads(line) for line in index.read_text().splitlines()]
    for line in older:
        line.pop("certificate", None)
    index.write_text("".join(json.dumps(line) + "\n" for line in older))
    with pytest.raises(NotTrustedError, match=enrolled(north.authority.list()[-1])):
        north.authority.sign(write_request(new_key(), OSLO))
    north.authority.sign(renew_request(north.folder("provider", "oslo")))
    assert [bool(entry.certificate) for entry in north.authority.list()] == [False, True]


@pytest.mark.parametrize("one_key", [True, False], ids=["one request", "one name"])
def test_t32_a_hundred_concurrent_requests_for_one_name_enrol_one_key(north: Any, *, one_key: bool) -> None:
    key = new_key()
    asked = [write_request(key if one_key else new_key(), OSLO) for _ in range(100)]
    start = threading.Barrier(20)

    def sign(pem: bytes) -> bytes | None:
        opened = Authority.open(north.authority.folder, lambda: north.now)
        start.wait()
        try:
            return opened.sign(pem)
        except NotTrustedError:
            return None

    with ThreadPoolExecutor(start.parties) as pool:
        given = [pem for pem in pool.map(sign, asked) if pem]
    assert len(given) == (100 if one_key else 1)
    assert len(set(given)) == 1
    assert len(north.authority.list()) == 1


def test_t32_an_act_waits_for_the_lock_but_not_for_ever(north: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = north.authority.folder / "index.jsonl"
    with files.exclusive_lock(index):
        with pytest.raises(UnsafeFileError, match=facts(index, "0 seconds")), files.exclusive_lock(index, 0):
            pass
        monkeypatch.setattr(files, "exclusive_lock", partial(files.exclusive_lock, seconds=0.05))
        with pytest.raises(UnsafeFileError, match=facts(index, "0.05 seconds")):
            north.authority.sign(write_request(new_key(), OSLO))
    assert north.authority.list() == ()
    north.authority.sign(write_request(new_key(), OSLO))


@pytest.mark.parametrize("days", [-1, 0, 91, 10_000])
def test_no_certificate_is_valid_for_more_than_90_days(north: Any, days: int) -> None:
    with pytest.raises(InvalidParameterError, match=facts(days, "1 to 90")):
        north.authority.sign(write_request(new_key(), OSLO), days=days)


def test_no_certificate_outlives_its_authority(north: Any) -> None:
    north.now += AUTHORITY_LIFE - timedelta(days=10)
    north.authority.sign(write_request(new_key(), OSLO), days=10)
    north.authority.revoke(OSLO)
    ends = x509.load_pem_x509_certificate(north.pem).not_valid_after_utc
    with pytest.raises(InvalidParameterError, match=facts(str(ends))):
        north.authority.sign(write_request(new_key(), OSLO), days=11)


def test_a_serial_number_revokes_one_certificate_and_a_name_revokes_all(north: Any) -> None:
    north.enrol("provider", "oslo")
    north.authority.sign(renew_request(north.folder("provider", "oslo")))
    north.enrol("provider", "bergen")
    first, second, third = north.authority.list()
    revoked = north.authority.revoke(first.serial, Reason.SUPERSEDED)
    assert [(each.serial, each.revoked, each.reason) for each in revoked] == [
        (first.serial, north.now, Reason.SUPERSEDED)
    ]
    assert [each.serial for each in north.authority.revoke(OSLO)] == [second.serial]
    assert [bool(each.revoked) for each in north.authority.list()] == [True, True, False]
    assert north.authority.list()[2] == third
    listed = RevocationList.read((north.authority.folder / "revoked.pem").read_bytes(), north.pem)
    assert listed.serials == {int(first.serial, 16), int(second.serial, 16)}


@pytest.mark.parametrize("which", ["", "0", "provider", "dpspca://north/provider/bergen", "oslo"])
def test_revoking_an_unknown_serial_number_or_name_is_an_error(north: Any, which: str) -> None:
    north.enrol("provider", "oslo")
    with pytest.raises(InvalidParameterError, match=facts(repr(which), "`dpspca study show`")):
        north.authority.revoke(which)


def test_revoking_twice_is_an_error(north: Any) -> None:
    north.enrol("provider", "oslo")
    north.authority.revoke(OSLO)
    with pytest.raises(InvalidParameterError):
        north.authority.revoke(OSLO)


def test_each_list_has_the_next_number_and_the_requested_lifetime(north: Any) -> None:
    for number in (2, 3, 4):
        listed = RevocationList.read(north.authority.revocation_list(days=number), north.pem)
        assert listed.number == number
        assert listed.next_update - north.now == timedelta(days=number)
    with pytest.raises(InvalidParameterError):
        north.authority.revocation_list(days=0)


def test_the_index_is_only_appended_to(north: Any) -> None:
    index = north.authority.folder / "index.jsonl"
    acts: list[Any] = [
        lambda: north.enrol("provider", "oslo"),
        north.authority.revocation_list,
        lambda: north.authority.revoke(OSLO),
    ]
    for act in acts:
        before = index.read_bytes()
        act()
        assert index.read_bytes().startswith(before)
        assert len(index.read_bytes()) > len(before)
    assert mode(index) == 0o600
    assert [json.loads(line)["act"] for line in index.read_text().splitlines()] == [
        *("published", "issued", "published", "revoked", "published")
    ]


def test_an_act_that_cannot_be_recorded_is_not_done(north: Any, tmp_path: Path) -> None:
    index = north.authority.folder / "index.jsonl"
    north.enrol("provider", "bergen")
    index.rename(tmp_path / "elsewhere")
    index.symlink_to(tmp_path / "elsewhere")
    listed = (north.authority.folder / "revoked.pem").read_bytes()
    for act in (
        lambda: north.authority.sign(write_request(new_key(), OSLO)),
        lambda: north.authority.revoke(PartyName("north", Role.PROVIDER, "bergen")),
        north.authority.revocation_list,
    ):
        with pytest.raises(UnsafeFileError):
            act()
    assert (north.authority.folder / "revoked.pem").read_bytes() == listed


@pytest.mark.parametrize(
    "line",
    [
        b'{"act": "iss',
        b"[]",
        b'{"act": "erased", "serial": "1"}',
        b'{"act": "revoked", "serial": "1", "at": "2031-01-01T00:00:00+00:00", "reason": "superseded"}',
        b'{"act": "issued", "serial": "1", "name": "oslo", "since": "x", "until": "x"}',
        b"\xff",
    ],
)
def test_an_index_that_the_authority_did_not_write_is_refused(north: Any, line: bytes) -> None:
    with (north.authority.folder / "index.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(DamagedFileError, match=facts("index.jsonl")):
        north.authority.list()


def test_a_request_reads_back_as_its_name_and_key() -> None:
    key = new_key()
    party, public = read_request(write_request(key, OSLO))
    assert party == OSLO
    assert public == key.public_key()
    assert b"PRIVATE" in key_pem(key)


def test_a_refusal_has_a_code_and_a_remedy(north: Any) -> None:
    with pytest.raises(DpspcaError) as caught:
        north.authority.sign(b"")
    assert caught.value.code == "malformed-proof"
    assert caught.value.remedy
