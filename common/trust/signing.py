"""Signed jobs: an analyst signs a job, and a provider verifies it without trusting the coordinator that carried it.

An envelope holds the exact bytes of the job spec, the analyst, the audience, the data set and the period of validity.
It has one canonical form: a prefix that no other signed message has, then each field after its length. The signature
covers these bytes. A reader accepts them only if writing the envelope that it read gives the same bytes. So two readers
cannot read one signed text as two jobs, nothing unsigned can be added, and the hash of the bytes identifies the job. A
provider that remembers the hashes it has served recognises a replay.

Pure, except that a new envelope draws its nonce from the operating system.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Protocol, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import (
    DpspcaError,
    InvalidParameterError,
    InvalidTypeError,
    MalformedJobError,
    NotNowError,
    NotTrustedError,
    WrongAudienceError,
    WrongSignerError,
)
from dpspca.common.names import PartyName, Role, check_name, shortened
from dpspca.common.privacy import MAX_PROVIDERS

from . import joined_bytes
from .certificates import name_in, public_key_of, read_authority, read_certificate, read_key
from .joined_bytes import join
from .revocations import RevocationList, peer_of, require_role

MAX_SPEC_BYTES: Final = 1 << 21
MAX_JOB_BYTES: Final = MAX_SPEC_BYTES + (1 << 17)
MAX_JOB_LIFE: Final = 7 * 86_400
JOB_SKEW: Final = 300
"""The most seconds by which the analyst's clock may be ahead of a provider's."""
NONCE_BYTES: Final = 16

_ENVELOPE: Final = b"dpspca signed job, version 2\0"
_ENVELOPE_1: Final = b"dpspca signed job, version 1\0"
_CARRIER: Final = b"dpspca job with its signature, version 1\0"
_TIME_BYTES: Final = 8
_ENVELOPE_FIELDS: Final = 8
_SEND: Final = "Send the job exactly as the analyst signed it."


class Signer(Protocol):
    """The parts of an identity that signing needs."""

    @property
    def name(self) -> PartyName: ...
    @property
    def key_pem(self) -> bytes: ...
    @property
    def certificate_pem(self) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvelope:
    """A job spec with its analyst, audience, data set and period of validity. ``audience`` is sorted, without repeats.

    The signed bytes name the analyst. Otherwise another analyst could sign the same bytes and claim the job at a
    provider that has not seen it yet.
    """

    spec: bytes = field(repr=False)
    federation: str
    audience: tuple[str, ...]
    data_set: str
    issued_at: int
    expires_at: int
    nonce: str
    analyst: str = ""
    """Empty until an analyst signs it."""

    def __post_init__(self) -> None:
        if not isinstance(self.spec, bytes) or not isinstance(self.audience, tuple):
            raise InvalidTypeError(
                "The job spec is not bytes, or the audience is not a tuple.", "Give bytes and a tuple of names."
            )
        check_name("the federation", self.federation)
        check_name("the data set", self.data_set)
        if self.analyst:
            check_name("the analyst", self.analyst)
        for name in self.audience:
            check_name("a provider in the audience", name)
        _check(
            0 < len(self.spec) <= MAX_SPEC_BYTES,
            f"The job spec is {len(self.spec)} bytes long.",
            f"Send 1 to {MAX_SPEC_BYTES} bytes.",
        )
        _check(
            0 < len(self.audience) <= MAX_PROVIDERS,
            f"The job names {len(self.audience)} providers.",
            f"Name 1 to {MAX_PROVIDERS}, so that the sums of their answers stay in range.",
        )
        in_order = self.audience == tuple(sorted(set(self.audience)))
        _check(in_order, "The audience is not sorted, or names a provider twice.", "Sort it and remove repeats.")
        self._check_times()
        try:
            fresh = bytes.fromhex(self.nonce).hex() == self.nonce and len(self.nonce) == 2 * NONCE_BYTES
        except (ValueError, TypeError):
            fresh = False
        _check(
            fresh, f"The nonce is not {NONCE_BYTES} bytes in lower-case hexadecimal.", "Make the envelope with `draw`."
        )

    def _check_times(self) -> None:
        for moment in (self.issued_at, self.expires_at):
            if isinstance(moment, bool) or not isinstance(moment, int):
                raise InvalidTypeError(
                    f"The time {shortened(moment)} is not a whole number.", "Give seconds since 1970, in UTC."
                )
        _check(
            0 <= self.issued_at < self.expires_at <= self.issued_at + MAX_JOB_LIFE < 1 << 40,
            f"The job is valid from {self.issued_at} to {self.expires_at}.",
            f"It must expire after its issue, and at most {MAX_JOB_LIFE // 86_400} days later.",
        )

    @classmethod
    def draw(
        cls, spec: bytes, audience: Collection[PartyName], data_set: str, *, now: datetime, life: timedelta
    ) -> Self:
        """Make an envelope for these providers, valid from now on, with a fresh nonce."""
        federations = {party.federation for party in audience}
        providers = {party.name for party in audience if party.role is Role.PROVIDER}
        proper = len(federations) == 1 and len(providers) == len(set(audience))
        _check(proper, "The audience must be one or more providers of one federation.", "Name such providers.")
        issued = int(now.timestamp())
        return cls(
            spec=spec,
            federation=federations.pop(),
            audience=tuple(sorted(providers)),
            data_set=data_set,
            issued_at=issued,
            expires_at=issued + int(life.total_seconds()),
            nonce=secrets.token_hex(NONCE_BYTES),
        )

    def to_bytes(self) -> bytes:
        """Return the canonical form: the bytes that are signed."""
        return _ENVELOPE + join(
            self.spec,
            self.federation.encode(),
            join(*(name.encode() for name in self.audience)),
            self.data_set.encode(),
            self.issued_at.to_bytes(_TIME_BYTES),
            self.expires_at.to_bytes(_TIME_BYTES),
            bytes.fromhex(self.nonce),
            self.analyst.encode(),
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the canonical form. Refuse any other bytes, even if their meaning could be guessed."""
        fields = _split(content, _ENVELOPE, MAX_JOB_BYTES, _ENVELOPE_FIELDS)
        spec, federation, audience, data_set, issued, expires, nonce, analyst = fields
        try:
            made = cls(
                spec=spec,
                federation=federation.decode("ascii"),
                audience=tuple(name.decode("ascii") for name in _parts(audience, MAX_PROVIDERS)),
                data_set=data_set.decode("ascii"),
                issued_at=int.from_bytes(issued),
                expires_at=int.from_bytes(expires),
                nonce=nonce.hex(),
                analyst=analyst.decode("ascii"),
            )
        except (DpspcaError, ValueError) as problem:
            raise MalformedJobError(f"The signed job is not valid: {str(problem)[:200]}", _SEND) from None
        if made.to_bytes() != content:
            raise MalformedJobError("The signed job is not in its canonical form.", _SEND)
        return made


@dataclass(frozen=True, slots=True)
class SignedJob:
    """An envelope's bytes, the analyst's signature over them, and the analyst's certificate. Not yet verified."""

    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)

    @property
    def job_id(self) -> str:
        """The hash of the signed bytes. The same job always has the same ID."""
        return sha256(self.payload).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the bytes to send or store."""
        return _CARRIER + join(self.payload, self.signature, self.certificate_pem)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the three parts. ``verify`` checks them."""
        payload, signature, certificate = _split(content, _CARRIER, MAX_JOB_BYTES, 3)
        return cls(payload, signature, certificate)


def sign(envelope: JobEnvelope, identity: Signer) -> SignedJob:
    """Sign a job as an analyst of its federation. The signed envelope names this analyst."""
    require_role(identity.name, Role.ANALYST)
    if identity.name.federation != envelope.federation:
        raise WrongAudienceError(
            f"The job is for the federation {envelope.federation}, but the identity is {identity.name}.",
            "Sign with an identity of that federation.",
        )
    if envelope.analyst not in {"", identity.name.name}:
        raise NotTrustedError(f"The job belongs to {envelope.analyst}, not to you.", "Sign your own jobs only.")
    payload = replace(envelope, analyst=identity.name.name).to_bytes()
    signature = read_key(identity.key_pem).sign(payload, ec.ECDSA(SHA256()))
    return SignedJob(payload, signature, identity.certificate_pem)


def verify(
    signed: SignedJob, authority_pem: bytes, *, me: PartyName, now: datetime, revoked: RevocationList
) -> tuple[JobEnvelope, PartyName]:
    """Verify a job, and return its envelope and the analyst who signed it. Raise if it is not valid for ``me`` now.

    The payload is not parsed before its signature is verified. The ledger prevents that a job is served twice: it
    remembers each ``job_id`` until the job has expired.
    """
    analyst = peer_of(signed.certificate_pem, authority_pem, now, revoked)
    require_role(analyst, Role.ANALYST)
    _require_signature(signed)
    envelope = JobEnvelope.from_bytes(signed.payload)
    _require_addressed_to(me, analyst, envelope)
    _require_in_force(envelope, int(now.timestamp()))
    return envelope, analyst


def signer_of(signed: SignedJob, authority_pem: bytes) -> PartyName:
    """Return who signed a job, at any time. An analyst checks with it that a job is theirs."""
    analyst = name_in(read_certificate(signed.certificate_pem), read_authority(authority_pem))
    _require_signature(signed)
    return analyst


def require_still_valid(
    signed: SignedJob, envelope: JobEnvelope, authority_pem: bytes, *, now: datetime, revoked: RevocationList
) -> None:
    """Refuse a job, verified before, that has expired or whose analyst's certificate is no longer valid."""
    peer_of(signed.certificate_pem, authority_pem, now, revoked)
    _require_in_force(envelope, int(now.timestamp()))


def _require_signature(signed: SignedJob) -> None:
    certificate = read_certificate(signed.certificate_pem)
    if certificate.public_bytes(Encoding.PEM) != signed.certificate_pem:
        raise NotTrustedError("The signer's certificate is not in its canonical form.", _SEND)
    try:
        public_key_of(certificate).verify(signed.signature, signed.payload, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise WrongSignerError("The signature over the job is not the analyst's.", _SEND) from None


def _require_addressed_to(me: PartyName, analyst: PartyName, envelope: JobEnvelope) -> None:
    if not me.federation == envelope.federation == analyst.federation:
        raise WrongAudienceError(
            f"The job is for the federation {envelope.federation}, not {me.federation}.", "Send it there."
        )
    if envelope.analyst != analyst.name:
        raise WrongSignerError(
            f"The job was signed by {analyst.name}, but names {envelope.analyst or 'nobody'} as its analyst.", _SEND
        )
    if me.role is Role.PROVIDER and me.name not in envelope.audience:
        raise WrongAudienceError(
            f"The job does not name {me.name} among its providers.", "Ask the analyst to sign a job that does."
        )


def _require_in_force(envelope: JobEnvelope, now: int) -> None:
    if not envelope.issued_at - JOB_SKEW <= now < envelope.expires_at:
        raise NotNowError(
            f"The job is valid from {envelope.issued_at} to {envelope.expires_at}; it is {now} now.",
            "Sign a new one, or correct the clock.",
        )


def _check(holds: bool, what: str, remedy: str) -> None:  # noqa: FBT001  # reads as: check that it holds
    if not holds:
        raise InvalidParameterError(what, remedy)


def _parts(content: bytes, most: int) -> list[bytes]:
    try:
        return joined_bytes.split(content, most)
    except ValueError as problem:
        raise MalformedJobError(f"The signed job {problem}.", _SEND) from None


def _split(content: bytes, prefix: bytes, most: int, count: int) -> list[bytes]:
    if content.startswith(_ENVELOPE_1):
        raise MalformedJobError(
            "This job was signed for an earlier version of dpspca.",
            "Fetch its result with that version, and sign a new job.",
        )
    if len(content) > most or not content.startswith(prefix):
        raise MalformedJobError(f"These bytes are not a signed job of this version, or more than {most} bytes.", _SEND)
    parts = _parts(content[len(prefix) :], count)
    if len(parts) != count:
        raise MalformedJobError(f"The signed job has {len(parts)} parts, not {count}.", _SEND)
    return parts
