"""The request that a party sends to the operator. A renewal request is also signed with the party's current key.

A name is enrolled once, and a key is certified once: see ``Authority.sign``. To renew, a party signs the request for
its new key with its current key too, so that nobody else can get a certificate in its name. A renewal consists of the
request, the current certificate and that signature, one PEM block each. The current key never leaves its folder.
"""

import base64
import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import NotTrustedError, require_trust
from dpspca.common.names import PartyName

from .certificates import MAX_PEM_BYTES, PublicKey, public_key_of, read_certificate, read_key, read_request, readable

_PURPOSE: Final = b"dpspca renewal of an identity, version 1\0"
_BEGIN, _END = b"-----BEGIN DPSPCA RENEWAL-----\n", b"-----END DPSPCA RENEWAL-----\n"
_RENEWAL: Final = re.compile(
    rb"(?P<request>.*?)(?P<former>-----BEGIN CERTIFICATE-----.*?)"
    + _BEGIN
    + rb"(?P<signature>[A-Za-z0-9+/=\n]+)"
    + _END
    + rb"\s*",
    re.DOTALL,
)
REQUEST_HEADER: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
_REMEDY: Final = "Make a new one with `dpspca identity renew`."


@dataclass(frozen=True, slots=True)
class Request:
    """A name and a key to certify and, for a renewal, the certificate whose key signed the request."""

    party: PartyName
    key: PublicKey
    former: x509.Certificate | None


def write_renewal(request_pem: bytes, certificate_pem: bytes, key_pem: bytes) -> bytes:
    """Sign a request with the key of the party's current certificate."""
    signature = read_key(key_pem).sign(_signed_bytes(request_pem), ec.ECDSA(SHA256()))
    return request_pem + certificate_pem + _BEGIN + base64.encodebytes(signature) + _END


def read(pem: bytes) -> Request:
    """Read what a party has sent. Refuse a renewal that the key of its former certificate did not sign.

    The caller must check who issued the former certificate.
    """
    require_trust(
        len(pem) <= MAX_PEM_BYTES,
        f"The request is {len(pem)} bytes long; at most {MAX_PEM_BYTES} are allowed.",
        _REMEDY,
    )
    require_trust(pem.count(REQUEST_HEADER) < 2, "The file holds more than one request.", "Give one at a time.")  # noqa: PLR2004
    renewal = _RENEWAL.fullmatch(pem.replace(b"\r\n", b"\n") + b"\n")
    if not renewal:
        damaged = _BEGIN.strip() in pem or _END.strip() in pem
        require_trust(
            not damaged, "The renewal is damaged, or something was added to it.", "Ask the party to send it again."
        )
        return Request(*read_request(pem), None)
    party, key = read_request(renewal["request"])
    former = read_certificate(renewal["former"])
    try:
        public_key_of(former).verify(
            base64.b64decode(renewal["signature"]), _signed_bytes(renewal["request"]), ec.ECDSA(SHA256())
        )
    except (InvalidSignature, ValueError):
        raise NotTrustedError("The key of the former certificate did not sign this renewal.", _REMEDY) from None
    return Request(party, key, former)


def _signed_bytes(request_pem: bytes) -> bytes:
    """Return the bytes that the former key signs: the whole request in DER."""
    with readable("The request"):
        return _PURPOSE + x509.load_pem_x509_csr(request_pem).public_bytes(Encoding.DER)
