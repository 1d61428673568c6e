"""Short texts that a party signs with its key, apart from jobs and receipts.

The signature covers a purpose that nothing else has, then each text after its length, so that no two lists of texts
have the same bytes. It stays valid after the signer's certificate has expired: what was signed stays true.
"""

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.errors import NotTrustedError, require_trust
from dpspca.common.names import PartyName

from .certificates import read_key
from .revocations import holder_of
from .signing import Signer

_LENGTH_BYTES: Final = 8
_METHOD: Final = ec.ECDSA(SHA256())
_IGNORE: Final = "It is ignored."


def sign_texts(identity: Signer, purpose: str, *parts: str) -> bytes:
    """Sign texts for a purpose."""
    return read_key(identity.key_pem).sign(_signed_bytes(identity.name, purpose, parts), _METHOD)


def verify_texts(
    signature: bytes, certificate_pem: bytes, authority_pem: bytes, signer: PartyName, purpose: str, *parts: str
) -> None:
    """Refuse texts that this party did not sign, at any time."""
    party, key = holder_of(certificate_pem, authority_pem)
    require_trust(party == signer, f"The text was signed by {party}, not by {signer}.", _IGNORE)
    try:
        key.verify(signature, _signed_bytes(signer, purpose, parts), _METHOD)
    except (InvalidSignature, ValueError):
        raise NotTrustedError(f"The signature is not {signer}'s.", _IGNORE) from None


def _signed_bytes(signer: PartyName, purpose: str, parts: tuple[str, ...]) -> bytes:
    """Return the bytes that are signed: the purpose, then the signer and each text after its length."""
    encoded = [each.encode() for each in (purpose, signer.uri, *parts)]
    return b"dpspca signed texts, version 1\0" + b"".join(len(each).to_bytes(_LENGTH_BYTES) + each for each in encoded)
