"""What a provider signs of its ledger with every answer, for others to keep: a ledger that went back in time lacks it.

A receipt says which ledger, how many entries, and the hash of the last. It counts for as long as the ledger is used,
and so no date is looked at: keys are renewed and withdrawn, and what was signed with them stays true. Whoever else has
a provider's key can have its ledger doubted, which stops its answers and gives nothing away.
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
"""Several times what one takes."""
_PURPOSE: Final = b"dpspca receipt of a ledger, version 1\0"
_WHOLE_BYTES: Final = 8
_METHOD: Final = ec.ECDSA(SHA256())
_IGNORE: Final = "Nothing need be done: it is ignored."


class Headed(Protocol):
    """How far a ledger has come."""

    @property
    def ledger(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def hash(self) -> str: ...


def issue(identity: Signer, head: Headed) -> pb.Receipt:
    """Sign how far our ledger has come."""
    signature = _key(identity.key_pem).sign(_signed(identity.name, head), _METHOD)
    return pb.Receipt(
        ledger=head.ledger,
        entries=head.entries,
        hash=head.hash,
        certificate=identity.certificate_pem,
        signature=signature,
    )


def require_own(receipt: pb.Receipt, provider: PartyName, authority_pem: bytes) -> None:
    """Refuse a receipt that this very provider has not signed, whenever that was."""
    size = receipt.ByteSize()
    require_trust(size <= MAX_RECEIPT_BYTES, f"The receipt is {size} bytes long, which none is.", _IGNORE)
    party, key = holder_of(receipt.certificate, authority_pem)
    require_trust(party == provider, f"The receipt is of {party}, not of {provider}.", _IGNORE)
    try:
        key.verify(receipt.signature, _signed(provider, receipt), _METHOD)
    except (InvalidSignature, ValueError):
        raise NotTrustedError(f"The receipt was not signed by {provider}.", _IGNORE) from None


@lru_cache(1)
def _key(pem: bytes) -> PrivateKey:
    """Read our key once, not for every answer: that takes as long as to sign. A renewed one is read anew."""
    return read_key(pem)


def _signed(provider: PartyName, head: Headed) -> bytes:
    """Write what is signed, each part with its length before it: no two receipts have the same text."""
    parts = (provider.uri.encode(), head.ledger.encode(), head.entries.to_bytes(_WHOLE_BYTES), head.hash.encode())
    return _PURPOSE + b"".join(len(part).to_bytes(_WHOLE_BYTES) + part for part in parts)
