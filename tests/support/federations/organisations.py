"""An organisation's CA, made by hand, that signs the authority of a federation."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from dpspca.common.trust.authority import Authority

Extensions = Sequence[tuple[x509.ExtensionType, bool]]


def ca_usage(**changes: bool) -> x509.KeyUsage:
    others = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    uses = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(**uses | {"key_cert_sign": True, "crl_sign": True} | changes)


class Organisation:
    """A CA: a root with an RSA key, as organisations have them, and perhaps a CA between it and the authority."""

    def __init__(self, now: datetime, *, levels: int = 1) -> None:
        self.now = now
        self.chain: list[x509.Certificate] = []
        self._key = rsa.generate_private_key(65537, 2048)
        self._issuer = _name("Hospital root")
        for level in range(levels):
            key = self._key if level == 0 else rsa.generate_private_key(65537, 2048)
            subject = self._issuer if level == 0 else _name(f"Hospital CA {level}")
            extensions = [(x509.BasicConstraints(ca=True, path_length=None), True), (ca_usage(), True)]
            self.chain.insert(0, self._sign(subject, key.public_key(), extensions))
            self._key, self._issuer = key, subject

    @property
    def pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)

    def sign(self, request_pem: bytes, days: int = 365, **changes: Any) -> bytes:
        """Sign an authority's request. Each change is an extension by its kind; None leaves it out."""
        asked = x509.load_pem_x509_csr(request_pem)
        wanted: dict[str, Any] = {
            "basic": (x509.BasicConstraints(ca=True, path_length=0), True),
            "usage": (ca_usage(), True),
            "key": (x509.SubjectKeyIdentifier.from_public_key(asked.public_key()), False),  # type: ignore[arg-type]
            "issuer": (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        }
        extensions = [each for each in (wanted | changes).values() if each is not None]
        return self._sign(asked.subject, asked.public_key(), extensions, days).public_bytes(Encoding.PEM)

    def authority(self, folder: Path, federation: str, **changes: Any) -> Authority:
        """Set up an authority that this CA signed."""
        signed = self.sign(Authority.prepare(folder, federation), **changes)
        return Authority.certify(folder, signed, self.pem, lambda: self.now)

    def _sign(self, subject: x509.Name, public: Any, extensions: Extensions, days: int = 3650) -> x509.Certificate:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._issuer).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(self.now - timedelta(days=1))
        builder = builder.not_valid_after(self.now + timedelta(days=days))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, SHA256())


def _name(text: str) -> x509.Name:
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Hospital")
    return x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, text)])
