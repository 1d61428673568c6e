"""Which party a certificate belongs to, and the list of revoked certificates.

``peer_of`` is the only check that turns a certificate into a trusted party, for connections and for signed jobs. It
checks in this order: this federation's authority issued the certificate, in exactly the form that it writes; the
certificate is valid now; a revocation list that is valid now does not name it. If there is no list, or if the list has
expired, nobody is trusted.

Pure: it opens no file, and the time is an argument.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Self, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import (
    MalformedProofError,
    NotNowError,
    RevokedError,
    WrongRoleError,
    WrongSignerError,
    require_trust,
)
from dpspca.common.names import PartyName, Role

from .certificates import (
    CLOCK_SKEW,
    MAX_LIFE,
    Extensions,
    Issuer,
    PublicKey,
    extensions_of,
    name_in,
    public_key_of,
    read_authority,
    read_certificate,
    readable,
    whole_second,
)

MAX_LIST_BYTES: Final = 1 << 24
MAX_REMEMBERED: Final = 1024
"""Number of certificates whose check against the authority is cached."""
Validity: TypeAlias = tuple[datetime, datetime]
"""Start and end of a validity period."""
_FETCH: Final = "Install the authority's newest revocation list."


@dataclass(frozen=True, slots=True)
class RevocationList:
    """A signed list of the certificates that the authority has revoked. Each new list has a higher number."""

    authority: bytes = field(repr=False)
    """Fingerprint of the authority's certificate: a list says nothing about the parties of another federation."""
    number: int
    issued_at: datetime
    next_update: datetime
    serials: frozenset[int] = field(repr=False)

    @classmethod
    def read(cls, pem: bytes, authority_pem: bytes) -> Self:
        """Read a list and verify that the authority signed it."""
        authority = read_authority(authority_pem)
        with readable("The revocation list"):
            require_trust(
                len(pem) <= MAX_LIST_BYTES,
                f"The revocation list is {len(pem)} bytes long; at most {MAX_LIST_BYTES} are allowed.",
                _FETCH,
            )
            listed = x509.load_pem_x509_crl(pem)
            signed = _signed_by(listed, authority)
        require_trust(signed, "This federation's authority did not sign the revocation list.", _FETCH, WrongSignerError)
        extensions = extensions_of(listed)
        number = next((each.crl_number for each, _ in extensions if isinstance(each, x509.CRLNumber)), 0)
        end = listed.next_update_utc
        whole = end is not None and extensions == _list_extensions(number, public_key_of(authority))
        require_trust(
            whole, "The revocation list is not in the form that the authority writes.", _FETCH, MalformedProofError
        )
        assert end is not None
        serials = frozenset(each.serial_number for each in listed)
        return cls(authority.fingerprint(SHA256()), number, listed.last_update_utc, end, serials)

    def names(self, certificate_pem: bytes) -> bool:
        """Whether this list names a certificate of its authority."""
        return read_certificate(certificate_pem).serial_number in self.serials

    def newer_than(self, other: "RevocationList") -> bool:
        """Whether this list is of the same authority as another and has a higher number."""
        return self.authority == other.authority and self.number > other.number

    def require_succession(self, seen: "RevocationList") -> None:
        """Refuse to go back to an older list, which would trust revoked certificates again."""
        require_trust(
            self == seen or self.newer_than(seen),
            f"The revocation list has number {self.number}, but number {seen.number} was installed before.",
            _FETCH,
        )

    def require_current(self, now: datetime) -> None:
        """Refuse a list that is not valid now."""
        if not self.issued_at <= whole_second(now) < self.next_update:
            raise NotNowError(
                f"The revocation list is valid from {self.issued_at} to {self.next_update}; it is {now} now.",
                "Install the authority's newest revocation list, or correct the clock.",
            )


def write_revocations(
    issuer: Issuer,
    revoked: Iterable[tuple[int, datetime, x509.ReasonFlags]],
    number: int,
    now: datetime,
    life: timedelta,
) -> bytes:
    """Sign a list of revoked certificates."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(whole_second(now) - CLOCK_SKEW)
        .next_update(whole_second(now) + life)
    )
    for extension, critical in _list_extensions(number, issuer.key.public_key()):
        builder = builder.add_extension(extension, critical=critical)
    for serial, since, reason in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since)
        builder = builder.add_revoked_certificate(entry.add_extension(x509.CRLReason(reason), critical=False).build())
    return builder.sign(issuer.key, SHA256()).public_bytes(Encoding.PEM)


def peer_of(certificate_pem: bytes, authority_pem: bytes, now: datetime, revoked: RevocationList) -> PartyName:
    """Return the party that holds this certificate, or refuse it if it is not valid now."""
    known = _issued(certificate_pem, authority_pem)
    party, (since, until) = known.party, known.in_force
    _require_in_force(known.authority_in_force, now, "The authority's certificate")
    _require_in_force(known.in_force, now, f"The certificate of {party}")
    days = (until - since).days
    short = until - since <= MAX_LIFE + CLOCK_SKEW
    problem = f"The certificate of {party} is valid for {days} days; at most {MAX_LIFE.days} are allowed."
    require_trust(short, problem, "Renew it.")
    ours = revoked.authority == known.authority
    require_trust(ours, "The installed revocation list is another authority's.", _FETCH, WrongSignerError)
    revoked.require_current(now)
    free = known.serial not in revoked.serials
    require_trust(free, f"The certificate of {party} was revoked.", "Ask the authority's operator why.", RevokedError)
    return party


def holder_of(certificate_pem: bytes, authority_pem: bytes) -> tuple[PartyName, PublicKey]:
    """Return the party and the key of a certificate that the authority issued, whether or not it is valid now."""
    known = _issued(certificate_pem, authority_pem)
    return known.party, known.key


def holder_at(certificate_pem: bytes, authority_pem: bytes, moment: datetime) -> PartyName:
    """Return the party of a certificate that was valid at a moment. Whether it was revoked then is not known here."""
    known = _issued(certificate_pem, authority_pem)
    _require_in_force(known.authority_in_force, moment, "The authority's certificate")
    _require_in_force(known.in_force, moment, f"The certificate of {known.party}")
    return known.party


@dataclass(frozen=True, slots=True)
class _Issued:
    """The contents of a certificate that the authority issued."""

    party: PartyName
    key: PublicKey
    serial: int
    in_force: Validity
    authority: bytes
    """Fingerprint of the authority's certificate."""
    authority_in_force: Validity


@lru_cache(MAX_REMEMBERED)
def _issued(certificate_pem: bytes, authority_pem: bytes) -> _Issued:
    """Check who issued a certificate and to whom. This never changes, and is cached because parties connect often."""
    authority = read_authority(authority_pem)
    certificate = read_certificate(certificate_pem)
    return _Issued(
        party=name_in(certificate, authority),
        key=public_key_of(certificate),
        serial=certificate.serial_number,
        in_force=_validity(certificate),
        authority=authority.fingerprint(SHA256()),
        authority_in_force=_validity(authority),
    )


def _validity(certificate: x509.Certificate) -> Validity:
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class CertificateStatus:
    """Whether a certificate that the authority issued may be used."""

    problem: str | None
    """REVOKED, EXPIRED, or None."""
    until: datetime


REVOKED: Final = "revoked"
EXPIRED: Final = "expired"


def certificate_status(
    certificate_pem: bytes, authority_pem: bytes, now: datetime, revoked: RevocationList
) -> CertificateStatus:
    """Tell whether a certificate may be used, for people. Only ``peer_of`` decides who is trusted."""
    known = _issued(certificate_pem, authority_pem)
    _, until = known.in_force
    if known.serial in revoked.serials:
        return CertificateStatus(REVOKED, until)
    return CertificateStatus(EXPIRED if until <= now else None, until)


def newest_certificate(certificates: Iterable[bytes]) -> bytes:
    """Return the certificate that was issued last. Empty ones are left out; there may be none."""
    given = [each for each in certificates if each]
    return (
        max(given, key=lambda each: read_certificate(each).not_valid_before_utc) if len(given) > 1 else b"".join(given)
    )


def require_role(party: PartyName, *allowed: Role) -> None:
    """Refuse a party whose role is not allowed. If no role is allowed, refuse every party."""
    if party.role not in allowed:
        needed = " or ".join(allowed) or "none"
        raise WrongRoleError(f"{party} does not have the role {needed}.", "Use an identity with this role.")


def _list_extensions(number: int, issuer: PublicKey) -> Extensions:
    return [
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False),
        (x509.CRLNumber(number), False),
    ]


def _require_in_force(validity: Validity, now: datetime, what: str) -> None:
    since, until = validity
    if not since <= whole_second(now) < until:
        raise NotNowError(
            f"{what} is valid from {since} to {until}; it is {now} now.", "Renew it, or correct the clock."
        )


def _signed_by(listed: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if listed.issuer != authority.subject or not isinstance(listed.signature_hash_algorithm, SHA256):
        return False
    return listed.is_signature_valid(public_key_of(authority))
