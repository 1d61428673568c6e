"""Identities, certificates, signatures and revocation: who a party is, and whether it is trusted."""

from . import identity
from .authority import PARTY_DAYS, Authority, IndexEntry
from .certificates import MAX_PEM_BYTES, federation_of, read_authority, read_certificate, read_key
from .connection_proof import new_challenge, sign_challenge, verify_challenge
from .identity import IDENTITY_FILE, CurrentIdentity, CurrentRevocations, Identity, load_revocations
from .receipts import MAX_RECEIPT_BYTES, sign_receipt, verify_receipt
from .renewal_requests import REQUEST_HEADER
from .revocations import RevocationList, holder_at, holder_of, peer_of, require_role
from .signed_texts import sign_texts, verify_texts
from .signing import (
    JOB_SKEW,
    MAX_JOB_BYTES,
    MAX_JOB_LIFE,
    JobEnvelope,
    SignedJob,
    require_still_valid,
    sign,
    signer_of,
    verify,
)
from .statements import (
    MAX_REQUEST_BYTES,
    MAX_STATEMENT_BYTES,
    Kind,
    SignedRequest,
    SignedStatement,
    StatementRequest,
    requester_of,
    sign_request,
    sign_statement,
    verify_request,
    verify_statement,
)

__all__ = [
    "IDENTITY_FILE",
    "JOB_SKEW",
    "MAX_JOB_BYTES",
    "MAX_JOB_LIFE",
    "MAX_PEM_BYTES",
    "MAX_RECEIPT_BYTES",
    "MAX_REQUEST_BYTES",
    "MAX_STATEMENT_BYTES",
    "PARTY_DAYS",
    "REQUEST_HEADER",
    "Authority",
    "CurrentIdentity",
    "CurrentRevocations",
    "Identity",
    "IndexEntry",
    "JobEnvelope",
    "Kind",
    "RevocationList",
    "SignedJob",
    "SignedRequest",
    "SignedStatement",
    "StatementRequest",
    "federation_of",
    "holder_at",
    "holder_of",
    "identity",
    "load_revocations",
    "new_challenge",
    "peer_of",
    "read_authority",
    "read_certificate",
    "read_key",
    "requester_of",
    "require_role",
    "require_still_valid",
    "sign",
    "sign_challenge",
    "sign_receipt",
    "sign_request",
    "sign_statement",
    "sign_texts",
    "signer_of",
    "verify",
    "verify_challenge",
    "verify_receipt",
    "verify_request",
    "verify_statement",
    "verify_texts",
]
