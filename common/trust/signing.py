"""A job as an analyst signs it, and as a provider believes it without believing whoever carried it.

An envelope holds the exact bytes of the job, whose it is, and whom, where and when it is for. It is written in one way
only: a prefix that no other signed thing begins with, then every field with its length before it. The signature covers
those bytes; a reader accepts them only if writing what it read gives the same bytes again. So no two readers can
take one signed text for two jobs, nothing can be added that is not signed, and the hash of the bytes names the job:
whoever remembers the hashes it has served knows a replay when it sees one.

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
)
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.privacy import MAX_PARTIES

from .certificates import name_in, public_key_of, read_authority, read_certificate, read_key
from .revocations import RevocationList, peer_of, require_role

MAX_SPEC_BYTES: Final = 1 << 21
MAX_JOB_BYTES: Final = MAX_SPEC_BYTES + (1 << 17)
MAX_JOB_LIFE: Final = 7 * 86_400
JOB_SKEW: Final = 300
"""Seconds by which the analyst's clock may be ahead of a provider's."""
NONCE_BYTES: Final = 16

_ENVELOPE: Final = b"dpspca signed job, version 2\0"
_EARLIER: Final = b"dpspca signed job, version 1\0"
_CARRIER: Final = b"dpspca job with its signature, version 1\0"
_LENGTH_BYTES: Final = 4
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
    """A job, and whose it is, to whom, about what and until when it speaks. ``audience`` is sorted, each once.

    The analyst is named in what is signed, and not by the signature alone: nobody else can sign the same bytes, and so
    make the job his own at a provider that has not seen it yet.
    """

    spec: bytes = field(repr=False)
    federation: str
    audience: tuple[str, ...]
    data_set: str
    issued_at: int
    expires_at: int
    nonce: str
    analyst: str = ""
    """Nobody, until somebody signs it."""

    def __post_init__(self) -> None:
        if not isinstance(self.spec, bytes) or not isinstance(self.audience, tuple):
            raise InvalidTypeError("A job is bytes, and its audience a tuple of names.", "Give these.")
        check_name("the federation", self.federation)
        check_name("the data set", self.data_set)
        if self.analyst:
            check_name("the analyst", self.analyst)
        for name in self.audience:
            check_name("a provider in the audience", name)
        _check(
            0 < len(self.spec) <= MAX_SPEC_BYTES, f"The job is {len(self.spec)} bytes long.", "Send a job that fits."
        )
        _check(
            0 < len(self.audience) <= MAX_PARTIES,
            f"The job names {len(self.audience)} providers.",
            f"Name between 1 and {MAX_PARTIES}: the sums of so many answers are bounded.",
        )
        in_order = self.audience == tuple(sorted(set(self.audience)))
        _check(in_order, "The audience is not in order, or names a provider twice.", "Sort it.")
        self._check_times()
        try:
            fresh = bytes.fromhex(self.nonce).hex() == self.nonce and len(self.nonce) == 2 * NONCE_BYTES
        except (ValueError, TypeError):
            fresh = False
        _check(fresh, "The nonce is not 16 bytes in lower-case hexadecimal.", "Draw one with `draw`.")

    def _check_times(self) -> None:
        for moment in (self.issued_at, self.expires_at):
            if isinstance(moment, bool) or not isinstance(moment, int):
                raise InvalidTypeError("A time is not a whole number.", "Give seconds since 1970, in UTC.")
        _check(
            0 <= self.issued_at < self.expires_at <= self.issued_at + MAX_JOB_LIFE < 1 << 40,
            f"The job holds from {self.issued_at} to {self.expires_at}.",
            f"Let it expire after its issue, by at most {MAX_JOB_LIFE // 86_400} days.",
        )

    @classmethod
    def draw(
        cls, spec: bytes, audience: Collection[PartyName], data_set: str, *, now: datetime, life: timedelta
    ) -> Self:
        """Make an envelope for these providers that differs from every other, in force from now on."""
        federations = {party.federation for party in audience}
        providers = {party.name for party in audience if party.role is Role.PROVIDER}
        proper = len(federations) == 1 and len(providers) == len(set(audience))
        _check(proper, "The audience is not one or more providers of one federation.", "Name such providers.")
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
        """Write the one form: what is signed."""
        return _ENVELOPE + _join(
            self.spec,
            self.federation.encode(),
            _join(*(name.encode() for name in self.audience)),
            self.data_set.encode(),
            self.issued_at.to_bytes(_TIME_BYTES),
            self.expires_at.to_bytes(_TIME_BYTES),
            bytes.fromhex(self.nonce),
            self.analyst.encode(),
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read that form; any other bytes are refused, even if their meaning could be guessed."""
        fields = _split(content, _ENVELOPE, MAX_JOB_BYTES, _ENVELOPE_FIELDS)
        spec, federation, audience, data_set, issued, expires, nonce, analyst = fields
        try:
            made = cls(
                spec=spec,
                federation=federation.decode("ascii"),
                audience=tuple(name.decode("ascii") for name in _parts(audience, MAX_PARTIES)),
                data_set=data_set.decode("ascii"),
                issued_at=int.from_bytes(issued),
                expires_at=int.from_bytes(expires),
                nonce=nonce.hex(),
                analyst=analyst.decode("ascii"),
            )
        except (DpspcaError, ValueError) as problem:
            raise MalformedJobError(f"The signed job is not in order: {str(problem)[:200]}", _SEND) from None
        if made.to_bytes() != content:
            raise MalformedJobError("The signed job is not written in its one form.", _SEND)
        return made


@dataclass(frozen=True, slots=True)
class SignedJob:
    """An envelope's bytes, the analyst's signature over them, and the analyst's certificate. Not yet believed."""

    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)

    @property
    def job_id(self) -> str:
        """The job's name: the hash of what was signed. The same job shown again has the same name."""
        return sha256(self.payload).hexdigest()

    def to_bytes(self) -> bytes:
        """Write it, to be sent or kept."""
        return _CARRIER + _join(self.payload, self.signature, self.certificate_pem)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Take the three parts out again; whether they are true is for ``verify`` to say."""
        payload, signature, certificate = _split(content, _CARRIER, MAX_JOB_BYTES, 3)
        return cls(payload, signature, certificate)


def sign(envelope: JobEnvelope, identity: Signer) -> SignedJob:
    """Sign a job as an analyst of its federation, whose it is from then on."""
    require_role(identity.name, Role.ANALYST)
    if identity.name.federation != envelope.federation:
        raise WrongAudienceError("The job is for another federation than its analyst's.", "Sign with that identity.")
    if envelope.analyst not in {"", identity.name.name}:
        raise NotTrustedError(f"The job is {envelope.analyst}'s, not yours.", "Sign one of your own.")
    payload = replace(envelope, analyst=identity.name.name).to_bytes()
    signature = read_key(identity.key_pem).sign(payload, ec.ECDSA(SHA256()))
    return SignedJob(payload, signature, identity.certificate_pem)


def verify(
    signed: SignedJob, authority_pem: bytes, *, me: PartyName, now: datetime, revoked: RevocationList
) -> tuple[JobEnvelope, PartyName]:
    """Believe a job, and say who signed it; or refuse.

    Nothing in the payload is looked at before its signature holds. That a job is not served twice is for the ledger,
    which remembers each ``job_id`` until the job has expired.
    """
    analyst = peer_of(signed.certificate_pem, authority_pem, now, revoked)
    require_role(analyst, Role.ANALYST)
    _require_signature(signed)
    envelope = JobEnvelope.from_bytes(signed.payload)
    _require_meant_for(me, analyst, envelope)
    _require_in_force(envelope, int(now.timestamp()))
    return envelope, analyst


def signer_of(signed: SignedJob, authority_pem: bytes) -> PartyName:
    """Say who signed a job, whenever that was: for an analyst who is shown a job as his own."""
    analyst = name_in(read_certificate(signed.certificate_pem), read_authority(authority_pem))
    _require_signature(signed)
    return analyst


def require_still(
    signed: SignedJob, envelope: JobEnvelope, authority_pem: bytes, *, now: datetime, revoked: RevocationList
) -> None:
    """Refuse a job that was believed before, and is to be no longer: it ran out, or its analyst did."""
    peer_of(signed.certificate_pem, authority_pem, now, revoked)
    _require_in_force(envelope, int(now.timestamp()))


def _require_signature(signed: SignedJob) -> None:
    certificate = read_certificate(signed.certificate_pem)
    if certificate.public_bytes(Encoding.PEM) != signed.certificate_pem:
        raise NotTrustedError("The signer's certificate is not written in its one form.", _SEND)
    try:
        public_key_of(certificate).verify(signed.signature, signed.payload, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise NotTrustedError("The signature is not the analyst's over these bytes.", _SEND) from None


def _require_meant_for(me: PartyName, analyst: PartyName, envelope: JobEnvelope) -> None:
    if not me.federation == envelope.federation == analyst.federation:
        raise WrongAudienceError(f"The job is for the federation {envelope.federation}.", "Send it there.")
    if envelope.analyst != analyst.name:
        raise NotTrustedError(f"The job is not that of {analyst.name}, who signed it.", _SEND)
    if me.role is Role.PROVIDER and me.name not in envelope.audience:
        raise WrongAudienceError(f"The job does not name {me.name} among its providers.", "Ask for one that does.")


def _require_in_force(envelope: JobEnvelope, now: int) -> None:
    if not envelope.issued_at - JOB_SKEW <= now < envelope.expires_at:
        raise NotNowError(
            f"The job holds from {envelope.issued_at} to {envelope.expires_at}; it is {now} here.",
            "Sign a new one, or correct the clock.",
        )


def _check(holds: bool, what: str, remedy: str) -> None:  # noqa: FBT001  # reads as: check that it holds
    if not holds:
        raise InvalidParameterError(what, remedy)


def _join(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in parts)


def _parts(content: bytes, most: int) -> list[bytes]:
    """Take apart what ``_join`` put together; a bomb of tiny parts ends at the first too many."""
    parts: list[bytes] = []
    start = 0
    while start < len(content):
        begin = start + _LENGTH_BYTES
        end = begin + int.from_bytes(content[start:begin])
        if end > len(content) or begin > len(content) or len(parts) == most:
            raise MalformedJobError("The signed job is cut short, or has too many parts.", _SEND)
        parts.append(content[begin:end])
        start = end
    return parts


def _split(content: bytes, prefix: bytes, most: int, count: int) -> list[bytes]:
    if content.startswith(_EARLIER):
        raise MalformedJobError(
            "This job was signed for an earlier version of dpspca.", "Fetch its result with that, and sign a new one."
        )
    if len(content) > most or not content.startswith(prefix):
        raise MalformedJobError("These bytes are no signed job of this version, or too many.", _SEND)
    parts = _parts(content[len(prefix) :], count)
    if len(parts) != count:
        raise MalformedJobError(f"The signed job has {len(parts)} parts, not {count}.", _SEND)
    return parts
