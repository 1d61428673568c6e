"""Who a party is, and whom to believe: identities, certificates, signatures, revocation."""

from . import identity
from .authority import PARTY_DAYS, Authority, IndexEntry
from .certificates import MAX_PEM_BYTES, federation_of, read_authority, read_certificate
from .connection_proof import new_challenge, prove, require_proof
from .identity import IDENTITY_FILE, CurrentIdentity, CurrentRevocations, Identity, load_revocations
from .receipts import MAX_RECEIPT_BYTES, issue, require_own
from .renewal_requests import REQUEST
from .revocations import RevocationList, holder_of, peer_of, require_role
from .signing import (
    JOB_SKEW,
    MAX_JOB_BYTES,
    MAX_JOB_LIFE,
    JobEnvelope,
    SignedJob,
    require_still,
    sign,
    signer_of,
    verify,
)

__all__ = [
    "IDENTITY_FILE",
    "JOB_SKEW",
    "MAX_JOB_BYTES",
    "MAX_JOB_LIFE",
    "MAX_PEM_BYTES",
    "MAX_RECEIPT_BYTES",
    "PARTY_DAYS",
    "REQUEST",
    "Authority",
    "CurrentIdentity",
    "CurrentRevocations",
    "Identity",
    "IndexEntry",
    "JobEnvelope",
    "RevocationList",
    "SignedJob",
    "federation_of",
    "holder_of",
    "identity",
    "issue",
    "load_revocations",
    "new_challenge",
    "peer_of",
    "prove",
    "read_authority",
    "read_certificate",
    "require_own",
    "require_proof",
    "require_role",
    "require_still",
    "sign",
    "signer_of",
    "verify",
]
