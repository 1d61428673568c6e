"""How a coordinator proves, inside a connection, that its certificate still counts.

gRPC's client holds a server to its authority and its name, and tells nobody which certificate was shown: one that was
revoked would be taken for good until it runs out. So a provider sends a challenge with its greeting, and the
coordinator signs it. The signature is over the provider's name too, and is given only to the provider that is
connected: a revoked coordinator between the two cannot borrow it, for it lacks that provider's key.
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
    """Draw what nobody has signed before."""
    return secrets.token_bytes(CHALLENGE_BYTES)


def prove(identity: Signer, challenge: bytes, provider: PartyName) -> bytes:
    """Sign the challenge of the provider that is connected."""
    if len(challenge) != CHALLENGE_BYTES:
        raise RefusedError(f"A challenge has {CHALLENGE_BYTES} bytes.", "Use a matching version.")
    return read_key(identity.key_pem).sign(_signed(challenge, provider), ec.ECDSA(SHA256()))


def require_proof(certificate_pem: bytes, signature: bytes, challenge: bytes, provider: PartyName) -> None:
    """Refuse whoever does not hold the key of the certificate it shows; whose that is, ``trust.peer_of`` says."""
    key = public_key_of(read_certificate(certificate_pem))
    try:
        key.verify(signature, _signed(challenge, provider), ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise NotTrustedError(
            "The coordinator does not hold the key of the certificate it shows.", "Ask the federation's operator."
        ) from None


def _signed(challenge: bytes, provider: PartyName) -> bytes:
    """Write what is signed; the challenge's length is fixed, so that the name's beginning is too."""
    return _PURPOSE + challenge + provider.uri.encode()
