"""A challenge by which a coordinator proves to a connected provider which certificate it holds.

gRPC's client checks a server's authority and name, but does not reveal the certificate, so a provider could not notice
that it was revoked. The provider therefore sends a challenge with its greeting, and the coordinator signs it. The
signature also covers the provider's name, and the coordinator gives it only to that provider over its own connection.
So a revoked coordinator between the two cannot obtain it: it lacks that provider's key.
"""

import secrets
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.errors import NotTrustedError, RefusedError
from dpspca.common.names import PartyName

from .certificates import public_key_of, read_certificate, read_key
from .signing import Signer

CHALLENGE_BYTES: Final = 32
_PURPOSE: Final = b"dpspca proof of a coordinator, version 1\0"


def new_challenge() -> bytes:
    """Draw random bytes, which no party has signed before."""
    return secrets.token_bytes(CHALLENGE_BYTES)


def sign_challenge(identity: Signer, challenge: bytes, provider: PartyName) -> bytes:
    """Sign the challenge of the connected provider."""
    if len(challenge) != CHALLENGE_BYTES:
        raise RefusedError(
            f"The challenge has {len(challenge)} bytes, not {CHALLENGE_BYTES}.",
            "Use the coordinator's version of dpspca.",
        )
    return read_key(identity.key_pem).sign(_signed_bytes(challenge, provider), ec.ECDSA(SHA256()))


def verify_challenge(certificate_pem: bytes, signature: bytes, challenge: bytes, provider: PartyName) -> None:
    """Refuse a coordinator that lacks the key of the certificate it shows. ``peer_of`` says whose certificate it is."""
    key = public_key_of(read_certificate(certificate_pem))
    try:
        key.verify(signature, _signed_bytes(challenge, provider), ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise NotTrustedError(
            "The coordinator does not hold the key of the certificate it shows.", "Ask the coordinator's operator."
        ) from None


def _signed_bytes(challenge: bytes, provider: PartyName) -> bytes:
    """Return the bytes that are signed. The challenge has a fixed length, so the name begins at a fixed place."""
    return _PURPOSE + challenge + provider.uri.encode()
