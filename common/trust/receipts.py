"""Receipts: with every answer a provider signs how many entries its ledger has, and others keep the receipts.

A ledger that went back in time lacks entries that a receipt proves. A receipt names the ledger, its number of entries
and the hash of the last one. It stays valid for as long as the ledger is used, whether its certificate was renewed,
expired or revoked: what was signed stays true. So a thief of a provider's key can put its ledger into quarantine, which
stops its answers and gives no data away.
"""

from functools import lru_cache
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.errors import NotTrustedError, require_trust
from dpspca.common.names import PartyName
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .certificates import PrivateKey, read_key
from .revocations import holder_of
from .signing import Signer

MAX_RECEIPT_BYTES: Final = 1 << 13
"""Several times the size of a receipt."""
_PURPOSE: Final = b"dpspca receipt of a ledger, version 1\0"
_WHOLE_BYTES: Final = 8
_METHOD: Final = ec.ECDSA(SHA256())
_IGNORE: Final = "The receipt is ignored; there is nothing to do."


class LedgerHead(Protocol):
    """How far a ledger has come."""

    @property
    def ledger(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def hash(self) -> str: ...


def sign_receipt(identity: Signer, head: LedgerHead) -> pb.Receipt:
    """Sign how far this provider's ledger has come."""
    signature = _key(identity.key_pem).sign(_signed_bytes(identity.name, head), _METHOD)
    return pb.Receipt(
        ledger=head.ledger,
        entries=head.entries,
        hash=head.hash,
        certificate=identity.certificate_pem,
        signature=signature,
    )


def verify_receipt(receipt: pb.Receipt, provider: PartyName, authority_pem: bytes) -> None:
    """Refuse a receipt that this provider did not sign, at any time."""
    size = receipt.ByteSize()
    require_trust(
        size <= MAX_RECEIPT_BYTES,
        f"The receipt is {size} bytes long; at most {MAX_RECEIPT_BYTES} are allowed.",
        _IGNORE,
    )
    party, key = holder_of(receipt.certificate, authority_pem)
    require_trust(party == provider, f"The receipt was signed by {party}, not by {provider}.", _IGNORE)
    try:
        key.verify(receipt.signature, _signed_bytes(provider, receipt), _METHOD)
    except (InvalidSignature, ValueError):
        raise NotTrustedError(f"The receipt's signature is not {provider}'s.", _IGNORE) from None


@lru_cache(1)
def _key(pem: bytes) -> PrivateKey:
    """Parse the key and cache it, because parsing takes as long as signing. A renewed key has another PEM."""
    return read_key(pem)


def _signed_bytes(provider: PartyName, head: LedgerHead) -> bytes:
    """Return the bytes that are signed: each part after its length, so that no two receipts have the same bytes."""
    parts = (provider.uri.encode(), head.ledger.encode(), head.entries.to_bytes(_WHOLE_BYTES), head.hash.encode())
    return _PURPOSE + b"".join(len(part).to_bytes(_WHOLE_BYTES) + part for part in parts)
