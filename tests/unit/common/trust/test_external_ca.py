"""An organisation's CA signs the authority: parties trust that authority, and nothing else that the CA signs."""

import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from facts import facts
from organisations import Organisation, ca_usage

from dpspca.common.errors import DpspcaError, InvalidParameterError, NotTrustedError, WrongSignerError
from dpspca.common.names import PartyName, Role
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.certificates import new_key, read_authority, write_request
from dpspca.common.trust.external_ca import require_root
from dpspca.common.trust.identity import install, request
from dpspca.common.trust.revocations import RevocationList, peer_of

OSLO = PartyName("north", Role.PROVIDER, "oslo")


@pytest.mark.parametrize("levels", [1, 3])
def test_an_authority_that_a_ca_signed_certifies_and_revokes_parties(north: Any, levels: int, tmp_path: Path) -> None:
    organisation = Organisation(north.now, levels=levels)
    authority = organisation.authority(tmp_path / "authority", "north")
    again = Authority.open(tmp_path / "authority", lambda: north.now)
    assert again.certificate_pem == authority.certificate_pem
    pem = authority.sign(request(tmp_path / "oslo", OSLO))
    me = install(tmp_path / "oslo", pem, authority.certificate_pem)
    listed = RevocationList.read(authority.revocation_list(), authority.certificate_pem)
    assert peer_of(me.certificate_pem, me.authority_pem, north.now, listed) == OSLO
    assert "Hospital root" in require_root(read_authority(me.authority_pem), organisation.pem, north.now)


def test_t33_no_party_trusts_other_certificates_of_the_ca(north: Any, tmp_path: Path) -> None:
    organisation = Organisation(north.now)
    authority = organisation.authority(tmp_path / "one", "north")
    other = organisation.authority(tmp_path / "other", "north")
    foreign = other.sign(write_request(new_key(), OSLO))
    listed = RevocationList.read(authority.revocation_list(), authority.certificate_pem)
    with pytest.raises(NotTrustedError):
        peer_of(foreign, authority.certificate_pem, north.now, listed)
    with pytest.raises(NotTrustedError):
        RevocationList.read(other.revocation_list(), authority.certificate_pem)


@pytest.mark.parametrize(
    "change",
    [
        {"basic": None},
        {"basic": (x509.BasicConstraints(ca=True, path_length=None), True)},
        {"basic": (x509.BasicConstraints(ca=True, path_length=1), True)},
        {"basic": (x509.BasicConstraints(ca=True, path_length=0), False)},
        {"basic": (x509.BasicConstraints(ca=False, path_length=None), True)},
        {"usage": None},
        {"usage": (ca_usage(crl_sign=False), True)},
        {"usage": (ca_usage(key_cert_sign=False), True)},
        {"key": (x509.SubjectKeyIdentifier(b"another name"), False)},
        {"purposes": (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)},
        {"names": (x509.NameConstraints([x509.DNSName("hospital.example")], None), True)},
        {"policy": (x509.InhibitAnyPolicy(0), True)},
    ],
)
def test_t33_a_certificate_that_is_not_of_an_authority_is_refused(
    change: dict[str, Any], north: Any, tmp_path: Path
) -> None:
    with pytest.raises(NotTrustedError):
        Organisation(north.now).authority(tmp_path / "authority", "north", **change)
    assert [path.name for path in (tmp_path / "authority").iterdir()] == ["authority-key.pem"]


def test_extensions_of_a_ca_that_are_not_critical_are_accepted(north: Any, tmp_path: Path) -> None:
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    place = x509.AccessDescription(
        x509.oid.AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier("http://ca.hospital.example")
    )
    Organisation(north.now).authority(
        tmp_path / "authority",
        "north",
        purposes=(x509.ExtendedKeyUsage(purposes), False),
        where=(x509.AuthorityInformationAccess([place]), False),
        usage=(ca_usage(digital_signature=True), True),
        key=None,
    )


def test_a_ca_that_did_not_sign_or_has_expired_is_refused(north: Any, tmp_path: Path) -> None:
    organisation, other = Organisation(north.now, levels=2), Organisation(north.now)
    asked = Authority.prepare(tmp_path / "authority", "north")
    signed = organisation.sign(asked)
    authority = read_authority(signed)
    root = organisation.chain[-1].public_bytes(Encoding.PEM)
    for roots in (other.pem, root, b"", b"nonsense", north.pem):
        with pytest.raises(NotTrustedError):
            require_root(authority, roots, north.now)
    for moment in (north.now + timedelta(days=365), north.now - timedelta(days=2)):
        with pytest.raises(NotTrustedError, match=facts("CN=north", str(authority.not_valid_after_utc))):
            require_root(authority, organisation.pem, moment)
    with pytest.raises(WrongSignerError):
        Authority.certify(
            tmp_path / "authority", organisation.sign(Authority.prepare(tmp_path / "x", "north")), organisation.pem,
            lambda: north.now,
        )  # fmt: skip


def test_certificates_do_not_outlive_the_authority(north: Any, tmp_path: Path) -> None:
    authority = Organisation(north.now).authority(tmp_path / "authority", "north", days=20)
    ends = read_authority(authority.certificate_pem).not_valid_after_utc
    with pytest.raises(InvalidParameterError, match=facts(str(ends))):
        authority.sign(write_request(new_key(), OSLO), days=30)
    assert authority.sign(write_request(new_key(), OSLO), days=10)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="signs with openssl")
def test_openssl_signs_the_request_of_an_authority_as_it_is(tmp_path: Path) -> None:
    """The commands of the page."""
    (tmp_path / "authority.csr").write_bytes(Authority.prepare(tmp_path / "authority", "north"))
    (tmp_path / "authority.ext").write_text(
        "basicConstraints = critical, CA:TRUE, pathlen:0\nkeyUsage = critical, keyCertSign, cRLSign\n"
        "subjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n"
    )
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "9"]
    asked = ["x509", "-req", "-in", "authority.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
    asked += ["-days", "7", "-sha256", "-extfile", "authority.ext", "-out", "authority.pem"]
    for words in ([*made, "-subj", "/O=Hospital/CN=Hospital root"], asked):
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: S603, S607  # our own words
    signed, roots = ((tmp_path / name).read_bytes() for name in ("authority.pem", "ca.pem"))
    moment = read_authority(signed).not_valid_before_utc + timedelta(hours=1)
    authority = Authority.certify(tmp_path / "authority", signed, roots, lambda: moment)
    assert authority.federation == "north"
    made = authority.sign(write_request(new_key(), OSLO), days=3)
    (tmp_path / "oslo.pem").write_bytes(made)
    chain = ["-CAfile", "ca.pem", "-untrusted", "authority.pem", "-attime", str(int(moment.timestamp())), "oslo.pem"]
    checked = subprocess.run(["openssl", "verify", *chain], cwd=tmp_path, capture_output=True, check=False)  # noqa: S603, S607
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("bit", [1, 32])
def test_a_damaged_certificate_of_a_ca_is_an_error_and_no_crash(bit: int, north: Any, tmp_path: Path) -> None:
    organisation = Organisation(north.now)
    signed = organisation.sign(Authority.prepare(tmp_path / "authority", "north"))
    for changed in damaged(signed, bit):
        try:
            require_root(read_authority(changed), organisation.pem, north.now)
        except DpspcaError:
            continue
        # Only bytes beside what is signed may differ, such as the number of unused bits of the signature.
        assert read_authority(changed).tbs_certificate_bytes == read_authority(signed).tbs_certificate_bytes
    for changed in damaged(organisation.pem, bit):
        with suppress(DpspcaError):  # what its root says of itself is not looked at
            require_root(read_authority(signed), changed, north.now)


def damaged(pem: bytes, bit: int) -> Iterator[bytes]:
    """Give a certificate with this bit of each of its bytes changed."""
    whole = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    for place in range(len(whole)):
        changed = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
        text = b64encode(changed).decode()
        yield f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n".encode()
