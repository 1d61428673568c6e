"""A federation in a temporary folder with a clock that the test sets, and certificates made by hand."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpspca.common.names import PartyName, Role
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.certificates import Issuer, new_key
from dpspca.common.trust.identity import Identity, install, request
from dpspca.common.trust.revocations import RevocationList

NOON = datetime(2031, 5, 17, 12, tzinfo=UTC)


class Federation:
    """An authority and the parties that it enrols."""

    def __init__(self, root: Path, name: str, now: datetime = NOON) -> None:
        self.now = now
        self.root = root / name
        self.authority = Authority.init(self.root / "authority", name, lambda: self.now)

    @property
    def pem(self) -> bytes:
        return self.authority.certificate_pem

    @property
    def issuer(self) -> Issuer:
        return self.authority._issuer

    def party(self, role: Role | str, name: str) -> PartyName:
        return PartyName(self.authority.federation, Role(role), name)

    def folder(self, role: Role | str, name: str) -> Path:
        return self.root / role / name

    def enrol(self, role: Role | str, name: str, days: int = 30) -> Identity:
        folder, party = self.folder(role, name), self.party(role, name)
        return install(folder, self.authority.sign(request(folder, party), days=days, expected=party), self.pem)

    def revocations(self) -> RevocationList:
        return RevocationList.read(self.authority.revocation_list(), self.pem)

    def forge(
        self, names: Sequence[x509.GeneralName] | None, by: Issuer | None = None, digest: Any = None, **changes: Any
    ) -> bytes:
        """Write a certificate by hand, signed with the authority's own key.

        Each change is a kind of extension: None leaves it out, anything else replaces it.
        """
        issuer, key = by or self.issuer, changes.pop("key", None) or new_key()
        builder = (
            x509.CertificateBuilder()
            .issuer_name(issuer.certificate.subject)
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")]))
            .public_key(key.public_key())
            .serial_number(changes.pop("serial", None) or x509.random_serial_number())
            .not_valid_before(changes.pop("since", NOON))
            .not_valid_after(changes.pop("until", NOON + timedelta(days=30)))
        )
        proper = {
            "names": None if names is None else x509.SubjectAlternativeName(names),
            "purposes": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
            "usage": usage(digital_signature=True),
            "basic": x509.BasicConstraints(ca=False, path_length=None),
            "subject": x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            "issuer": x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()),
        }
        for kind, extension in (proper | changes).items():
            if extension is not None:
                builder = builder.add_extension(extension, critical=kind in {"usage", "basic"})
        return builder.sign(issuer.key, digest or SHA256()).public_bytes(Encoding.PEM)


def usage(**chosen: bool) -> x509.KeyUsage:
    """Allow only the chosen uses of a key."""
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**dict.fromkeys(every.split(), False) | chosen)


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., Federation]:
    return partial(Federation, tmp_path)


@pytest.fixture
def north(found: Callable[..., Federation]) -> Federation:
    return found("north")


@pytest.fixture
def south(found: Callable[..., Federation]) -> Federation:
    return found("south")
