"""Identities, certificates, signatures and revocation: who a party is, and whether it is trusted."""

from . import identity
from .authority import INVITATION_DAYS, PARTY_DAYS, Authority
from .authority_index import IndexEntry, InvitationEntry
from .certificates import MAX_PEM_BYTES, PublicKey, federation_of, read_authority, read_certificate, read_key, same_key
from .connection_proof import new_challenge, sign_challenge, verify_challenge
from .external_ca import require_root
from .identity import IDENTITY_FILE, SLOT_FILE, CurrentIdentity, CurrentRevocations, Identity, load_revocations
from .invitations import MAILBOX_KEY_BYTES, Invitation, is_slot, owner_of, slot_of
from .receipts import MAX_RECEIPT_BYTES, sign_receipt, verify_receipt
from .replies import MAX_REPLY_BYTES, Reply
from .requests import Request
from .requests import fingerprint as request_fingerprint
from .requests import read as read_request
from .revocations import (
    EXPIRED,
    REVOKED,
    RevocationList,
    certificate_status,
    holder_at,
    holder_of,
    newest_certificate,
    peer_of,
    require_role,
)
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
    SignedRequest,
    SignedStatement,
    StatementKind,
    StatementRequest,
    requester_of,
    sign_request,
    sign_statement,
    verify_request,
    verify_statement,
)

__all__ = [
    "EXPIRED",
    "IDENTITY_FILE",
    "INVITATION_DAYS",
    "JOB_SKEW",
    "MAILBOX_KEY_BYTES",
    "MAX_JOB_BYTES",
    "MAX_JOB_LIFE",
    "MAX_PEM_BYTES",
    "MAX_RECEIPT_BYTES",
    "MAX_REPLY_BYTES",
    "MAX_REQUEST_BYTES",
    "MAX_STATEMENT_BYTES",
    "PARTY_DAYS",
    "REVOKED",
    "SLOT_FILE",
    "Authority",
    "CurrentIdentity",
    "CurrentRevocations",
    "Identity",
    "IndexEntry",
    "Invitation",
    "InvitationEntry",
    "JobEnvelope",
    "PublicKey",
    "Reply",
    "Request",
    "RevocationList",
    "SignedJob",
    "SignedRequest",
    "SignedStatement",
    "StatementKind",
    "StatementRequest",
    "certificate_status",
    "federation_of",
    "holder_at",
    "holder_of",
    "identity",
    "is_slot",
    "load_revocations",
    "new_challenge",
    "newest_certificate",
    "owner_of",
    "peer_of",
    "read_authority",
    "read_certificate",
    "read_key",
    "read_request",
    "request_fingerprint",
    "requester_of",
    "require_role",
    "require_root",
    "require_still_valid",
    "same_key",
    "sign",
    "sign_challenge",
    "sign_receipt",
    "sign_request",
    "sign_statement",
    "sign_texts",
    "signer_of",
    "slot_of",
    "verify",
    "verify_challenge",
    "verify_receipt",
    "verify_request",
    "verify_statement",
    "verify_texts",
]
