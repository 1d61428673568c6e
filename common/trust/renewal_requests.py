"""What a party hands to the operator: a request, and for a renewal the word of the key that it has so far.

A name is enrolled once, and a key is certified once: see ``Authority.sign``. So that a party can have a new key all
the same, and nobody else can have one in its name, it signs the request for the new key with the old one too. The
renewal is the request, the old certificate and that signature, one block of PEM each; the old key never leaves its
folder.
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
    + rb"(?P<word>[A-Za-z0-9+/=\n]+)"
    + _END
    + rb"\s*",
    re.DOTALL,
)
REQUEST: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
_REMEDY: Final = "Make a new one with `dpspca identity renew`."


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for: a name, a key, and the certificate whose holder vouches for both, if one does."""

    party: PartyName
    key: PublicKey
    former: x509.Certificate | None


def write_renewal(request_pem: bytes, certificate_pem: bytes, key_pem: bytes) -> bytes:
    """Vouch for a request with the key of a certificate that is held already."""
    word = read_key(key_pem).sign(_signed(request_pem), ec.ECDSA(SHA256()))
    return request_pem + certificate_pem + _BEGIN + base64.encodebytes(word) + _END


def read(pem: bytes) -> Request:
    """Take apart what a party has sent; a renewal for which the old key does not vouch is refused.

    Who issued the old certificate is for the authority to judge.
    """
    require_trust(len(pem) <= MAX_PEM_BYTES, "The request is too long to be one.", _REMEDY)
    require_trust(pem.count(REQUEST) < 2, "There is more than one request.", "Give one at a time.")  # noqa: PLR2004
    renewal = _RENEWAL.fullmatch(pem.replace(b"\r\n", b"\n") + b"\n")
    if not renewal:
        damaged = _BEGIN.strip() in pem or _END.strip() in pem
        require_trust(not damaged, "The renewal was damaged on its way, or something was added.", "Have it sent again.")
        return Request(*read_request(pem), None)
    party, key = read_request(renewal["request"])
    former = read_certificate(renewal["former"])
    try:
        public_key_of(former).verify(base64.b64decode(renewal["word"]), _signed(renewal["request"]), ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise NotTrustedError("The old key does not vouch for the renewal.", _REMEDY) from None
    return Request(party, key, former)


def _signed(request_pem: bytes) -> bytes:
    """Write what the old key signs: all of the request, in its one binary form."""
    with readable("The request"):
        return _PURPOSE + x509.load_pem_x509_csr(request_pem).public_bytes(Encoding.DER)
