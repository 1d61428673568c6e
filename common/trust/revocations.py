"""Whom to believe: the party behind a certificate, and the list of certificates that no longer count.

``peer_of`` is the one door through which a stranger becomes a party, for connections and for signed jobs alike. It
asks, in this order: did this federation's authority issue it, in just the form it issues; is it in force now; is it
not revoked, by a list that is itself in force. No list, or a list past its date, means nobody is believed.

Pure: no file is touched and the time is an argument.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Self, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import NotNowError, WrongRoleError, require_trust
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
"""Certificates of which it is remembered that the authority issued them."""
Span: TypeAlias = tuple[datetime, datetime]
"""From when, and until when."""
_FETCH: Final = "Install the operator's newest revocation list."


@dataclass(frozen=True, slots=True)
class RevocationList:
    """Certificates withdrawn before their end, as their authority signed it. Lists count upwards."""

    authority: bytes = field(repr=False)
    """Fingerprint of the authority's certificate: a list says nothing about another federation's parties."""
    number: int
    issued_at: datetime
    next_update: datetime
    serials: frozenset[int] = field(repr=False)

    @classmethod
    def read(cls, pem: bytes, authority_pem: bytes) -> Self:
        """Read a list and verify that the authority signed it."""
        authority = read_authority(authority_pem)
        with readable("The revocation list"):
            require_trust(len(pem) <= MAX_LIST_BYTES, "The revocation list is too long.", _FETCH)
            listed = x509.load_pem_x509_crl(pem)
            signed = _signed_by(listed, authority)
        require_trust(signed, "The revocation list is not the authority's.", _FETCH)
        extensions = extensions_of(listed)
        number = next((each.crl_number for each, _ in extensions if isinstance(each, x509.CRLNumber)), 0)
        end = listed.next_update_utc
        whole = end is not None and extensions == _list_extensions(number, public_key_of(authority))
        require_trust(whole, "The revocation list is not in the form that the authority writes.", _FETCH)
        assert end is not None
        serials = frozenset(each.serial_number for each in listed)
        return cls(authority.fingerprint(SHA256()), number, listed.last_update_utc, end, serials)

    def newer_than(self, other: "RevocationList") -> bool:
        """Tell whether this list supersedes another: of the same authority, with a higher number."""
        return self.authority == other.authority and self.number > other.number

    def require_succession(self, seen: "RevocationList") -> None:
        """Refuse to go back to an older list, which would bring revoked parties back to life."""
        require_trust(
            self == seen or self.newer_than(seen),
            f"The revocation list is number {self.number}; number {seen.number} was seen before.",
            _FETCH,
        )

    def require_current(self, now: datetime) -> None:
        """Refuse to judge by a list whose successor is due."""
        if not self.issued_at <= whole_second(now) < self.next_update:
            raise NotNowError(
                f"The revocation list holds from {self.issued_at} to {self.next_update}.",
                "Ask the operator for a fresh one, and check the clock.",
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
    """Say who holds this certificate, or refuse."""
    known = _issued(certificate_pem, authority_pem)
    party, (since, until) = known.party, known.in_force
    _require_in_force(known.authority_in_force, now, "The authority's certificate")
    _require_in_force(known.in_force, now, f"The certificate of {party}")
    short = until - since <= MAX_LIFE + CLOCK_SKEW
    require_trust(short, f"The certificate of {party} lives too long.", "Have it renewed.")
    require_trust(revoked.authority == known.authority, "The revocation list at hand is another authority's.", _FETCH)
    revoked.require_current(now)
    free = known.serial not in revoked.serials
    require_trust(free, f"The certificate of {party} was revoked.", "Ask the federation's operator why.")
    return party


def holder_of(certificate_pem: bytes, authority_pem: bytes) -> tuple[PartyName, PublicKey]:
    """Say to whom the authority issued a certificate, and over which key; whether it still counts is not looked at."""
    known = _issued(certificate_pem, authority_pem)
    return known.party, known.key


@dataclass(frozen=True, slots=True)
class _Issued:
    """What a certificate says that the authority issued, taken out of it."""

    party: PartyName
    key: PublicKey
    serial: int
    in_force: Span
    authority: bytes
    """Fingerprint of the authority's certificate."""
    authority_in_force: Span


@lru_cache(MAX_REMEMBERED)
def _issued(certificate_pem: bytes, authority_pem: bytes) -> _Issued:
    """Verify what never changes, who issued a certificate and to whom, once: the same parties are judged often."""
    authority = read_authority(authority_pem)
    certificate = read_certificate(certificate_pem)
    return _Issued(
        party=name_in(certificate, authority),
        key=public_key_of(certificate),
        serial=certificate.serial_number,
        in_force=_span(certificate),
        authority=authority.fingerprint(SHA256()),
        authority_in_force=_span(authority),
    )


def _span(certificate: x509.Certificate) -> Span:
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def require_role(party: PartyName, *allowed: Role) -> None:
    """Refuse a party whose role is not on the list; an empty list refuses everybody."""
    if party.role not in allowed:
        only = " or ".join(allowed) or "nobody"
        raise WrongRoleError(f"{party} is no {only}.", "Use the identity that was issued for this purpose.")


def _list_extensions(number: int, issuer: PublicKey) -> Extensions:
    return [
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False),
        (x509.CRLNumber(number), False),
    ]


def _require_in_force(span: Span, now: datetime, what: str) -> None:
    since, until = span
    if not since <= whole_second(now) < until:
        raise NotNowError(f"{what} holds from {since} to {until}.", "Renew it, or correct the clock.")


def _signed_by(listed: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if listed.issuer != authority.subject or not isinstance(listed.signature_hash_algorithm, SHA256):
        return False
    return listed.is_signature_valid(public_key_of(authority))
