"""The request that a party sends to the authority, and what shows who sent it.

A name is enrolled once, and a key is certified once: see ``Authority.sign``. A request that enrols carries a proof made
with the party's invitation: only its holder can write it, for one name and one key. To renew, a party signs the request
for its new key with its current key too, so that nobody else can get a certificate in its name. A renewal consists of
the request, the current certificate and that signature, one PEM block each. No private key leaves its folder.
"""

import base64
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dpspca.common.errors import MalformedProofError, WrongSignerError, require_trust
from dpspca.common.names import PartyName

from . import invitations, joined_bytes
from .certificates import MAX_PEM_BYTES, PublicKey, public_key_of, read_certificate, read_key, read_request, readable

_PURPOSE: Final = b"dpspca renewal of an identity, version 1\0"
_ENROLMENT: Final = b"dpspca enrolment with an invitation, version 1\0"
_BEGIN, _END = b"-----BEGIN DPSPCA RENEWAL-----\n", b"-----END DPSPCA RENEWAL-----\n"
_RENEWAL: Final = re.compile(
    rb"(?P<request>.*?)(?P<former>-----BEGIN CERTIFICATE-----.*?)"
    + _BEGIN
    + rb"(?P<signature>[A-Za-z0-9+/=\n]+)"
    + _END
    + rb"\s*",
    re.DOTALL,
)
_BEGIN_PROOF, _END_PROOF = b"-----BEGIN DPSPCA ENROLMENT-----\n", b"-----END DPSPCA ENROLMENT-----\n"
_INVITED: Final = re.compile(
    rb"(?P<request>.*?)" + _BEGIN_PROOF + rb"(?P<proof>[A-Za-z0-9+/=\n]+)" + _END_PROOF + rb"\s*", re.DOTALL
)
_OWN_BLOCKS: Final = (_BEGIN, _END, _BEGIN_PROOF, _END_PROOF)
SHOWN_KEY_DIGITS: Final = 24
"""Hexadecimal digits of a key's fingerprint that people compare: making a key with the same 96 bits is infeasible."""
REQUEST_HEADER: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
_REMEDY: Final = "Make a new one with `dpspca identity renew`."
_DAMAGED: Final = "Ask the party to send it again."


@dataclass(frozen=True, slots=True)
class Proof:
    """A claim to hold an invitation, not yet verified."""

    invitation: str
    code: bytes = field(repr=False)
    signed: bytes = field(repr=False)

    def is_made_with(self, key: bytes) -> bool:
        """Whether this was made with an invitation's key."""
        return invitations.is_proven(self.code, key, self.signed)


@dataclass(frozen=True, slots=True)
class Request:
    """A name and a key to certify, and the former certificate or the invitation of the party that asks."""

    party: PartyName
    key: PublicKey
    former: x509.Certificate | None = None
    """The certificate whose key signed a renewal."""
    proof: Proof | None = None


def write_renewal(request_pem: bytes, certificate_pem: bytes, key_pem: bytes) -> bytes:
    """Sign a request with the key of the party's current certificate."""
    signature = read_key(key_pem).sign(_signed_bytes(request_pem), ec.ECDSA(SHA256()))
    return request_pem + certificate_pem + _BEGIN + base64.encodebytes(signature) + _END


def write_enrolment(request_pem: bytes, invitation: invitations.Invitation) -> bytes:
    """Add the proof that the request comes from the holder of an invitation."""
    code = invitations.prove(invitation.key, _enrolment_bytes(request_pem, invitation.party, invitation.id))
    armoured = base64.encodebytes(bytes.fromhex(invitation.id) + code)
    return request_pem + _BEGIN_PROOF + armoured + _END_PROOF


def read(pem: bytes) -> Request:
    """Read what a party has sent. Refuse a renewal that the key of its former certificate did not sign.

    The caller must check who issued the former certificate, and verify the proof of an invitation.
    """
    require_trust(
        len(pem) <= MAX_PEM_BYTES,
        f"The request is {len(pem)} bytes long; at most {MAX_PEM_BYTES} are allowed.",
        _REMEDY,
    )
    held = pem.count(REQUEST_HEADER)
    require_trust(held < 2, f"The file holds {held} requests.", "Give one at a time.", MalformedProofError)  # noqa: PLR2004
    whole = pem.replace(b"\r\n", b"\n") + b"\n"
    if invited := _INVITED.fullmatch(whole):
        return _read_invited(invited)
    renewal = _RENEWAL.fullmatch(whole)
    if not renewal:
        damaged = any(each.strip() in pem for each in _OWN_BLOCKS)
        require_trust(
            not damaged, "The request is damaged, or something was added to it.", _DAMAGED, MalformedProofError
        )
        return Request(*read_request(pem))
    party, key = read_request(renewal["request"])
    former = read_certificate(renewal["former"])
    try:
        public_key_of(former).verify(
            base64.b64decode(renewal["signature"]), _signed_bytes(renewal["request"]), ec.ECDSA(SHA256())
        )
    except (InvalidSignature, ValueError):
        raise WrongSignerError("The key of the former certificate did not sign this renewal.", _REMEDY) from None
    return Request(party, key, former)


def fingerprint(request: bytes) -> str:
    """Return the fingerprint of the key in a request as people compare it, in groups of four digits."""
    public = read(request).key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digits = sha256(public).hexdigest()[:SHOWN_KEY_DIGITS]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _read_invited(found: "re.Match[bytes]") -> Request:
    party, key = read_request(found["request"])
    try:
        proof = base64.b64decode(found["proof"])
    except ValueError:
        proof = b""
    name, code = proof[: invitations.ID_BYTES].hex(), proof[invitations.ID_BYTES :]
    return Request(party, key, proof=Proof(name, code, _enrolment_bytes(found["request"], party, name)))


def _enrolment_bytes(request_pem: bytes, party: PartyName, invitation: str) -> bytes:
    """Return the bytes that the proof covers: the invitation, the party, and the whole request in DER."""
    with readable("The request"):
        request = x509.load_pem_x509_csr(request_pem).public_bytes(Encoding.DER)
    return _ENROLMENT + joined_bytes.join(invitation.encode(), party.uri.encode(), request)


def _signed_bytes(request_pem: bytes) -> bytes:
    """Return the bytes that the former key signs: the whole request in DER."""
    with readable("The request"):
        return _PURPOSE + x509.load_pem_x509_csr(request_pem).public_bytes(Encoding.DER)
