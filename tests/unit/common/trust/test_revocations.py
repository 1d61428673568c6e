"""A party is trusted only with a certificate in the authority's form that is valid now and not revoked."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from facts import facts

from dpspca.common.errors import (
    MalformedProofError,
    NotNowError,
    NotTrustedError,
    RevokedError,
    UnsafeFileError,
    WrongRoleError,
    WrongSignerError,
)
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role
from dpspca.common.trust import certificates, revocations
from dpspca.common.trust import identity as module
from dpspca.common.trust.certificates import Issuer, new_key
from dpspca.common.trust.identity import (
    CurrentRevocations,
    install,
    install_revocations,
    load_revocations,
    renew_request,
)
from dpspca.common.trust.revocations import MAX_LIST_BYTES, RevocationList, peer_of, require_role, write_revocations

OSLO = PartyName("north", Role.PROVIDER, "oslo")
URI = x509.UniformResourceIdentifier
HOST = x509.DNSName(COORDINATOR_HOST)
COORDINATOR = URI("dpspca://north/coordinator/hub")
BOTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])


@pytest.mark.parametrize("role", Role)
def test_a_certificate_identifies_its_party(north: Any, role: Role) -> None:
    made = north.enrol(role, "x")
    assert peer_of(made.certificate_pem, north.pem, north.now, north.revocations()) == PartyName("north", role, "x")


def test_a_correct_certificate_made_by_the_helper_is_accepted(north: Any) -> None:
    revoked = north.revocations()
    assert peer_of(north.forge([URI(OSLO.uri)]), north.pem, north.now, revoked) == OSLO
    hub = north.forge([COORDINATOR, HOST], purposes=BOTH)
    assert peer_of(hub, north.pem, north.now, revoked).role is Role.COORDINATOR


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (None, {}),
        ([x509.DNSName("oslo")], {}),
        ([x509.RFC822Name("oslo@north.example")], {}),
        ([URI(OSLO.uri), URI(OSLO.uri)], {}),
        ([URI(OSLO.uri), URI("dpspca://north/analyst/ada")], {}),
        ([URI("dpspca://north/analyst/ada"), URI(OSLO.uri)], {}),
        ([URI(OSLO.uri), URI("https://example.org/")], {}),
        ([URI("dpspca://south/provider/oslo")], {}),
        ([URI("https://north/provider/oslo")], {}),
        ([URI("dpspca://north/provider/%6fslo")], {}),
        ([URI("dpspca://north/Provider/oslo")], {}),
        ([URI(OSLO.uri), x509.DNSName("oslo")], {}),
        ([URI(OSLO.uri), HOST], {}),
        ([URI(OSLO.uri), HOST], {"purposes": BOTH}),
        ([URI(OSLO.uri), x509.RFC822Name("oslo@north.example")], {}),
        ([COORDINATOR], {"purposes": BOTH}),
        ([COORDINATOR, HOST], {}),
        ([HOST, COORDINATOR], {"purposes": BOTH}),
        ([COORDINATOR, HOST, HOST], {"purposes": BOTH}),
        ([COORDINATOR, x509.DNSName("localhost")], {"purposes": BOTH}),
        ([URI(OSLO.uri)], {"purposes": None}),
        ([URI(OSLO.uri)], {"purposes": BOTH}),
        ([URI(OSLO.uri)], {"purposes": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])}),
        ([URI(OSLO.uri)], {"usage": None}),
        ([URI(OSLO.uri)], {"basic": None}),
        ([URI(OSLO.uri)], {"basic": x509.BasicConstraints(ca=True, path_length=None)}),
        ([URI(OSLO.uri)], {"more": x509.OCSPNoCheck()}),
        ([URI(OSLO.uri)], {"more": x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")}),
        ([URI(OSLO.uri)], {"key": ec.generate_private_key(ec.SECP384R1())}),
        ([URI(OSLO.uri)], {"digest": SHA384()}),
        ([URI(OSLO.uri)], {"until": datetime(2031, 9, 1, tzinfo=UTC)}),
    ],
)
def test_t33_a_signed_certificate_in_any_other_form_is_refused(north: Any, names: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(NotTrustedError):
        peer_of(north.forge(names, **changes), north.pem, north.now, north.revocations())


def test_t32_t33_only_the_authority_can_certify_parties(north: Any, south: Any) -> None:
    oslo = north.enrol("provider", "oslo")
    revoked = north.revocations()
    by_oslo = Issuer(x509.load_pem_x509_certificate(oslo.certificate_pem), module.read_key(oslo.key_pem))
    pretender = Issuer.new("north", north.now, timedelta(days=100))
    for pem in (
        south.forge([URI(OSLO.uri)]),
        north.forge([URI(OSLO.uri)], by=by_oslo),
        north.forge([URI(OSLO.uri)], by=pretender),
        north.pem,
        *(b"", b"garbage", oslo.key_pem, oslo.certificate_pem * 2, oslo.certificate_pem + north.pem, b"x" * 100_000),
    ):
        with pytest.raises(NotTrustedError):
            peer_of(pem, north.pem, north.now, revoked)
    for authority in (south.pem, oslo.certificate_pem, b"", north.pem + south.pem):
        with pytest.raises(NotTrustedError):
            peer_of(oslo.certificate_pem, authority, north.now, revoked)


def test_an_authority_s_certificate_in_any_other_form_is_refused(north: Any) -> None:
    key, other = new_key(), new_key()
    public, name = key.public_key(), certificates._common_name("north")
    draft = certificates._draft(name, public, north.now, timedelta(days=9)).issuer_name(name)
    proper = certificates._authority_extensions(public)
    certificates.read_authority(certificates._sign(draft, proper, key).public_bytes(Encoding.PEM))
    deep = [(x509.BasicConstraints(ca=True, path_length=1), True), *proper[1:]]
    for extensions, signer in ((proper, other), ([], key), (proper[1:], key), (proper[:1], key), (deep, key)):
        with pytest.raises(NotTrustedError):
            certificates.read_authority(certificates._sign(draft, extensions, signer).public_bytes(Encoding.PEM))


def test_certificates_and_lists_beyond_the_limit_are_not_parsed(north: Any) -> None:
    with pytest.raises(NotTrustedError, match=facts(certificates.MAX_PEM_BYTES)):
        peer_of(bytes(certificates.MAX_PEM_BYTES + 1), north.pem, north.now, north.revocations())
    with pytest.raises(NotTrustedError, match=facts(MAX_LIST_BYTES)):
        RevocationList.read(bytes(MAX_LIST_BYTES + 1), north.pem)


def test_a_certificate_is_valid_from_its_first_second_to_its_last(north: Any) -> None:
    made = north.enrol("provider", "oslo", days=1)
    revoked = north.revocations()
    second = timedelta(seconds=1)
    start, end = north.now - timedelta(minutes=5), north.now + timedelta(days=1)
    for now in (start, end - second, end - timedelta(microseconds=1)):
        assert peer_of(made.certificate_pem, north.pem, now, revoked) == OSLO
    for now in (start - second, end, end + timedelta(days=3650), start - timedelta(days=3650)):
        with pytest.raises(NotNowError):
            peer_of(made.certificate_pem, north.pem, now, revoked)


def test_an_expired_authority_is_not_trusted(north: Any) -> None:
    late = north.now + timedelta(days=3653)
    pem = north.forge([URI(OSLO.uri)], since=late - timedelta(days=1), until=late + timedelta(days=1))
    ends = x509.load_pem_x509_certificate(north.pem).not_valid_after_utc
    with pytest.raises(NotNowError, match=facts(str(ends))):
        peer_of(pem, north.pem, late, north.revocations())


def test_a_certificate_with_any_changed_byte_is_refused(north: Any) -> None:
    good = x509.load_pem_x509_certificate(north.enrol("provider", "oslo").certificate_pem).public_bytes(Encoding.DER)
    revoked = north.revocations()
    for place in range(len(good)):
        flipped = bytearray(good)
        flipped[place] ^= 1 << place % 8
        pem = ssl.DER_cert_to_PEM_cert(bytes(flipped)).encode()
        with pytest.raises((NotTrustedError, NotNowError)):
            peer_of(pem, north.pem, north.now, revoked)


def test_require_role_accepts_only_the_listed_roles() -> None:
    require_role(OSLO, Role.PROVIDER, Role.ANALYST)
    for allowed in ((), (Role.ANALYST,), (Role.ANALYST, Role.COORDINATOR)):
        with pytest.raises(WrongRoleError):
            require_role(OSLO, *allowed)


# Revocation.


def test_a_revoked_party_is_refused_and_its_renewed_certificate_is_not(north: Any) -> None:
    made = north.enrol("provider", "oslo")
    before = north.revocations()
    north.authority.revoke(OSLO)
    after = north.revocations()
    assert peer_of(made.certificate_pem, north.pem, north.now, before) == OSLO
    with pytest.raises(RevokedError, match=facts(OSLO)):
        peer_of(made.certificate_pem, north.pem, north.now, after)
    folder = north.folder("provider", "oslo")
    again = install(folder, north.authority.sign(renew_request(folder)), north.pem)
    assert peer_of(again.certificate_pem, north.pem, north.now, after) == OSLO


def test_no_party_is_trusted_with_an_expired_or_foreign_list(north: Any, south: Any) -> None:
    made = north.enrol("provider", "oslo", days=60)
    revoked = north.revocations()
    with pytest.raises(NotNowError, match=facts(str(revoked.next_update))):
        peer_of(made.certificate_pem, north.pem, north.now + timedelta(days=30), revoked)
    with pytest.raises(WrongSignerError):
        peer_of(made.certificate_pem, north.pem, north.now, south.revocations())
    north.now += timedelta(days=1)
    later = north.revocations()
    with pytest.raises(NotNowError, match=facts(str(later.issued_at))):
        peer_of(made.certificate_pem, north.pem, north.now - timedelta(days=1), later)


def test_a_list_that_the_authority_did_not_sign_is_refused(north: Any, south: Any) -> None:
    oslo = north.enrol("provider", "oslo")
    by_oslo = Issuer(x509.load_pem_x509_certificate(north.pem), module.read_key(oslo.key_pem))
    for pem in (
        south.authority.revocation_list(),
        write_revocations(by_oslo, [], 99, north.now, timedelta(days=30)),
        *(b"", b"garbage", north.pem),
    ):
        with pytest.raises(NotTrustedError):
            RevocationList.read(pem, north.pem)


def test_a_signed_list_in_another_form_is_refused(north: Any) -> None:
    draft = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(north.issuer.certificate.subject)
        .last_update(north.now)
        .next_update(north.now + timedelta(days=1))
    )
    proper = revocations._list_extensions(5, north.issuer.key.public_key())
    only_some = x509.IssuingDistributionPoint(None, None, True, False, None, False, False)
    for extensions in (
        [],
        proper[:1],
        proper[1:],
        [*proper, (only_some, True)],
        [*proper, (x509.DeltaCRLIndicator(4), True)],
    ):
        built = draft
        for extension, critical in extensions:
            built = built.add_extension(extension, critical=critical)
        pem = built.sign(north.issuer.key, SHA256()).public_bytes(Encoding.PEM)
        with pytest.raises(MalformedProofError):
            RevocationList.read(pem, north.pem)


def test_a_list_with_any_changed_byte_is_refused(north: Any) -> None:
    north.enrol("provider", "oslo")
    north.authority.revoke(OSLO)
    good = x509.load_pem_x509_crl(north.authority.revocation_list()).public_bytes(Encoding.DER)
    for place in range(len(good)):
        flipped = bytearray(good)
        flipped[place] ^= 1 << place % 8
        pem = ssl.DER_cert_to_PEM_cert(bytes(flipped)).replace("CERTIFICATE", "X509 CRL").encode()
        with pytest.raises(NotTrustedError):
            RevocationList.read(pem, north.pem)


def test_an_older_list_never_replaces_a_newer_one(north: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "revoked.pem"
    north.enrol("provider", "oslo")
    old = north.authority.revocation_list()
    install_revocations(path, old, north.pem)
    current = CurrentRevocations(path, north.pem)
    assert current.get() is current.get()
    assert current.get().serials == frozenset()
    north.authority.revoke(OSLO)
    new = north.authority.revocation_list()
    install_revocations(path, new, north.pem)
    seen = current.get()
    assert len(seen.serials) == 1
    with pytest.raises(NotTrustedError, match=facts(2, 4)):
        install_revocations(path, old, north.pem)
    assert path.read_bytes() == new
    install_revocations(path, new, north.pem)
    assert current.get() == seen
    path.write_bytes(old)
    for _ in range(2):
        with pytest.raises(NotTrustedError, match=facts(2, 4)):
            current.get()
    path.write_bytes(new)
    assert current.get() == seen


def test_different_lists_with_one_number_do_not_succeed_each_other(north: Any) -> None:
    first, second = (
        RevocationList.read(write_revocations(north.issuer, [], 7, north.now, timedelta(days=days)), north.pem)
        for days in (1, 2)
    )
    assert not second.newer_than(first)
    with pytest.raises(NotTrustedError):
        second.require_succession(first)
    second.require_succession(second)


def test_a_missing_or_damaged_list_is_an_error_each_time(north: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsafeFileError):
        CurrentRevocations(tmp_path / "revoked.pem", north.pem)
    path = north.authority.folder / "revoked.pem"
    assert load_revocations(path, north.pem).number == 1
    current = CurrentRevocations(path, north.pem)
    good = path.read_bytes()
    path.write_bytes(good[:-40])
    for _ in range(2):
        with pytest.raises(NotTrustedError):
            current.get()
    path.unlink()
    for _ in range(2):
        with pytest.raises(UnsafeFileError):
            current.get()
    path.write_bytes(good)
    assert current.get().number == 1


# The same certificates in TLS.


def context(folder: Path, authority_pem: bytes, *, server: bool) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=authority_pem.decode())
    made.load_cert_chain(folder / "identity.pem")
    return made


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes:
    """Run a handshake in memory; return the certificate that the server was shown."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(down, up, server_hostname=COORDINATOR_HOST)
    far = server.wrap_bio(up, down, server_side=True)
    waiting = [near, far]
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    shown = far.getpeercert(binary_form=True)
    assert shown is not None
    assert far.version() == "TLSv1.3"
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def test_in_mutual_tls_only_a_coordinator_can_be_the_server(found: Any) -> None:
    real = datetime.now(UTC)  # the TLS library asks the real clock
    east, west = found("east", real), found("west", real)
    for federation in (east, west):
        for role in Role:
            federation.enrol(role, "x")
    hub = context(east.folder("coordinator", "x"), east.pem, server=True)
    for role in Role:
        shown = shake_hands(context(east.folder(role, "x"), east.pem, server=False), hub)
        assert peer_of(shown, east.pem, real, east.revocations()) == east.party(role, "x")
    client = context(east.folder("provider", "x"), east.pem, server=False)
    for impostor in ("provider", "analyst"):
        with pytest.raises(ssl.SSLError):
            shake_hands(client, context(east.folder(impostor, "x"), east.pem, server=True))
    with pytest.raises(ssl.SSLError):
        shake_hands(client, context(west.folder("coordinator", "x"), east.pem, server=True))
    with pytest.raises(ssl.SSLError):
        shake_hands(context(west.folder("provider", "x"), east.pem, server=False), hub)
