"""Statements: a provider signs facts for one analyst who asked for them, and the coordinator only carries them.

The analyst signs a request: what kind of statement, about what, and when, with a nonce. A provider answers a request
only while it is fresh, so nobody can ask again later in the analyst's name. It signs its content together with its own
name and the digest of the request. So a statement of another provider, for another analyst, about something else, or
from before, does not verify. A provider that has nothing to say sends no statement, whatever the reason: its policy
does not name the analyst, or there is no such thing. That reply is not signed, because anybody can
withhold a statement.

Statements stay true when certificates expire: ``verify_statement`` takes the moment at which to judge.
"""

import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import DpspcaError, NotNowError, NotTrustedError, WrongSignerError, require_trust
from dpspca.common.names import PartyName, Role, check_name, shortened

from . import joined_bytes
from .certificates import read_certificate, read_key
from .joined_bytes import join
from .revocations import RevocationList, holder_at, holder_of, peer_of, require_role
from .signing import JOB_SKEW, NONCE_BYTES, Signer

MAX_STATEMENT_BYTES: Final = 1 << 21
MAX_REQUEST_BYTES: Final = 1 << 13
REQUEST_SECONDS: Final = 120
"""How long a provider answers a request. A coordinator that keeps one cannot ask again later."""

_REQUEST: Final = b"dpspca request for a statement, version 1\0"
_STATEMENT: Final = b"dpspca statement of a provider, version 1\0"
_CARRIER: Final = b"dpspca statement with its signature, version 1\0"
_REQUEST_CARRIER: Final = b"dpspca request with its signature, version 1\0"
_TIME_BYTES: Final = 8
_METHOD: Final = ec.ECDSA(SHA256())
_JOB: Final = re.compile("[0-9a-f]{64}")
_DATA_SET: Final = re.compile("[a-z0-9][a-z0-9.-]{0,62}")
_AGAIN: Final = "Ask again. If this is repeated, do not trust this coordinator, and tell its operator."


class StatementKind(StrEnum):
    """Subjects of statements."""

    TERMS = "terms"
    """The rules and what is left of the budget, for one analyst on one data set."""
    RECORD = "record"
    """The ledger's record of one job, for its own analyst."""
    APPROVALS = "approvals"
    """The decisions of persons about one job, for its own analyst."""

    @property
    def is_about_a_job(self) -> bool:
        """Whether a request names a job, and not a data set."""
        return self is not StatementKind.TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRequest:
    """An analyst's request for statements of providers. ``about`` is a data set, or the name of a job."""

    kind: StatementKind
    about: str
    federation: str
    analyst: str
    issued_at: int
    nonce: bytes = field(repr=False)

    @classmethod
    def draw(cls, kind: StatementKind, about: str, analyst: PartyName, now: datetime) -> Self:
        """Make a request with a fresh nonce."""
        return cls(
            kind=kind,
            about=about,
            federation=analyst.federation,
            analyst=analyst.name,
            issued_at=int(now.timestamp()),
            nonce=secrets.token_bytes(NONCE_BYTES),
        )

    def to_bytes(self) -> bytes:
        """Return the canonical form: the bytes that are signed."""
        names = (self.kind, self.about, self.federation, self.analyst)
        return _REQUEST + join(*(name.encode() for name in names), self.issued_at.to_bytes(_TIME_BYTES), self.nonce)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the canonical form, or raise ``NotTrustedError``."""
        kind, about, federation, analyst, issued, nonce = _split("request", content, _REQUEST, 6)
        try:
            read = cls(
                kind=StatementKind(kind.decode("ascii")),
                about=about.decode("ascii"),
                federation=check_name("the federation", federation.decode("ascii")),
                analyst=check_name("the analyst", analyst.decode("ascii")),
                issued_at=int.from_bytes(issued),
                nonce=nonce,
            )
        except (DpspcaError, ValueError):
            raise _malformed("request") from None
        canonical = len(nonce) == NONCE_BYTES and len(issued) == _TIME_BYTES and read.to_bytes() == content
        require_trust(canonical and read._names_something(), "The request is not in its canonical form.", _AGAIN)
        return read

    def _names_something(self) -> bool:
        pattern = _JOB if self.kind.is_about_a_job else _DATA_SET
        return pattern.fullmatch(self.about) is not None


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request's bytes, the analyst's signature over them, and the analyst's certificate. Not yet verified."""

    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """The hash of the signed bytes. No other request has it."""
        return sha256(self.payload).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the bytes to send or store."""
        return _REQUEST_CARRIER + join(self.payload, self.signature, self.certificate_pem)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the three parts. ``verify_request`` checks them."""
        require_trust(len(content) <= MAX_REQUEST_BYTES, f"The request is {len(content)} bytes long.", _AGAIN)
        return cls(*_split("request", content, _REQUEST_CARRIER, 3))


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement's content, the provider's signature, and the provider's certificate. Not yet verified."""

    content: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the bytes to send or store."""
        return _CARRIER + join(self.content, self.signature, self.certificate_pem)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the three parts. ``verify_statement`` checks them."""
        require_trust(len(content) <= MAX_STATEMENT_BYTES, f"The statement is {len(content)} bytes long.", _AGAIN)
        return cls(*_split("statement", content, _CARRIER, 3))


def sign_request(request: StatementRequest, identity: Signer) -> SignedRequest:
    """Sign a request as the analyst that it names."""
    require_role(identity.name, Role.ANALYST)
    payload = request.to_bytes()
    return SignedRequest(payload, read_key(identity.key_pem).sign(payload, _METHOD), identity.certificate_pem)


def verify_request(
    signed: SignedRequest, authority_pem: bytes, *, now: datetime, revoked: RevocationList
) -> tuple[StatementRequest, PartyName]:
    """Verify a request, and return it with the analyst who signed it. Refuse it if it is not fresh."""
    analyst = peer_of(signed.certificate_pem, authority_pem, now, revoked)
    request = _read_request(signed, analyst, authority_pem)
    at = int(now.timestamp())
    if not request.issued_at - JOB_SKEW <= at < request.issued_at + REQUEST_SECONDS + JOB_SKEW:
        raise NotNowError(f"The request was signed at {request.issued_at}; it is {at} now.", "Correct the clock.")
    return request, analyst


def requester_of(signed: SignedRequest, authority_pem: bytes, at: datetime) -> tuple[StatementRequest, PartyName]:
    """Return a request and who signed it, with a certificate that was valid at a moment, whether it is fresh or not."""
    analyst = holder_at(signed.certificate_pem, authority_pem, at)
    return _read_request(signed, analyst, authority_pem), analyst


def sign_statement(content: bytes, request: SignedRequest, identity: Signer) -> SignedStatement:
    """Sign what a provider states in reply to a request."""
    require_role(identity.name, Role.PROVIDER)
    signature = read_key(identity.key_pem).sign(_signed_bytes(content, request, identity.name), _METHOD)
    return SignedStatement(content, signature, identity.certificate_pem)


def verify_statement(
    statement: SignedStatement,
    request: SignedRequest,
    provider: PartyName,
    authority_pem: bytes,
    *,
    at: datetime,
) -> bytes:
    """Return the content of a statement. Refuse it unless this provider signed it in reply to this very request.

    The provider's certificate must have been valid ``at`` this moment. Whether it was revoked is not known here.
    """
    signer = holder_at(statement.certificate_pem, authority_pem, at)
    require_trust(
        signer == provider, f"The statement was signed by {signer}, not by {provider}.", _AGAIN, WrongSignerError
    )
    _require_signature(statement, _signed_bytes(statement.content, request, provider), authority_pem)
    return statement.content


def _read_request(signed: SignedRequest, analyst: PartyName, authority_pem: bytes) -> StatementRequest:
    require_role(analyst, Role.ANALYST)
    _require_signature(signed, signed.payload, authority_pem)
    request = StatementRequest.from_bytes(signed.payload)
    same = (request.federation, request.analyst) == (analyst.federation, analyst.name)
    require_trust(
        same, f"The request names {shortened(request.analyst)}, but {analyst} signed it.", _AGAIN, WrongSignerError
    )
    return request


def _require_signature(signed: SignedRequest | SignedStatement, content: bytes, authority_pem: bytes) -> None:
    party, key = holder_of(signed.certificate_pem, authority_pem)
    canonical = read_certificate(signed.certificate_pem).public_bytes(Encoding.PEM) == signed.certificate_pem
    require_trust(canonical, f"The certificate of {party} is not in its canonical form.", _AGAIN)
    try:
        key.verify(signed.signature, content, _METHOD)
    except (InvalidSignature, ValueError):
        raise WrongSignerError(f"The signature is not {party}'s.", _AGAIN) from None


def _signed_bytes(content: bytes, request: SignedRequest, provider: PartyName) -> bytes:
    """Return the bytes that are signed: the content, and what binds it to its provider and to its request."""
    return _STATEMENT + join(provider.uri.encode(), bytes.fromhex(request.digest), content)


def _split(what: str, content: bytes, prefix: bytes, count: int) -> list[bytes]:
    try:
        parts = joined_bytes.split(content.removeprefix(prefix), count) if content.startswith(prefix) else []
    except ValueError:
        parts = []
    require_trust(len(parts) == count, f"These bytes are not a {what} of this version.", _AGAIN)
    return parts


def _malformed(what: str) -> NotTrustedError:
    return NotTrustedError(f"The {what} cannot be read.", _AGAIN)
