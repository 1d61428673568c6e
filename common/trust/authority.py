"""The federation's authority: a folder on the operator's own machine. It needs no network and offers no service.

It holds four files. ``authority.pem`` is its certificate; every party must receive it by a way that the party trusts.
``authority-key.pem`` is its key and never leaves the folder. ``index.jsonl`` is an append-only log of what was issued,
revoked and published. ``revoked.pem`` is the newest revocation list; every party needs each new one. An act is recorded
on disk before its result is shown. So the index may name a certificate that nobody received, but it names every
certificate that exists.

The authority takes only a name and a key from a request, and certifies each once:
- A key gets one certificate. If the same request is signed again while that certificate is valid, the authority returns
  the same certificate, so one that was lost on its way can be fetched again. After it expires, the key gets no other.
- A name that has a certificate, expired or not, gets another only if the key of its newest certificate signed the
  request (``renewal_requests.py``), or if the operator has revoked all of its certificates. So nobody can enrol in
  another party's name, not even with a key that the party has replaced, and one party cannot become two.

Each act holds a lock on the index: if many requests for one name arrive at once, one of them is certified.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ReasonFlags

from dpspca.common.errors import InvalidParameterError, NotNowError, UnsafeFileError, require_trust
from dpspca.common.names import PartyName
from dpspca.common.storage import files

from . import renewal_requests
from .certificates import (
    Issuer,
    PublicKey,
    federation_of,
    key_pem,
    name_in,
    public_key_of,
    read_certificate,
    same_key,
    whole_second,
    write_party,
)
from .revocations import write_revocations

Clock: TypeAlias = Callable[[], datetime]

AUTHORITY_LIFE: Final = timedelta(days=3652)
PARTY_DAYS: Final = 30
LIST_DAYS: Final = 30

CERTIFICATE_FILE: Final = "authority.pem"
KEY_FILE: Final = "authority-key.pem"
INDEX_FILE: Final = "index.jsonl"
LIST_FILE: Final = "revoked.pem"


class Reason(StrEnum):
    """Why a certificate was revoked, in the terms of RFC 5280."""

    KEY_COMPROMISE = "keyCompromise"
    AFFILIATION_CHANGED = "affiliationChanged"
    SUPERSEDED = "superseded"
    CESSATION_OF_OPERATION = "cessationOfOperation"
    PRIVILEGE_WITHDRAWN = "privilegeWithdrawn"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One certificate that the authority has issued."""

    name: PartyName
    serial: str
    since: datetime
    until: datetime
    certificate: str = field(default="", repr=False)
    """Empty if an earlier version wrote the entry."""
    revoked: datetime | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Authority:
    """An open authority folder."""

    folder: Path
    _issuer: Issuer = field(repr=False)
    _clock: Clock = field(repr=False)

    @classmethod
    def init(cls, folder: Path, federation: str, clock: Clock) -> Self:
        """Set up a new authority in a folder that does not exist or is empty."""
        issuer = Issuer.new(federation, clock(), AUTHORITY_LIFE)
        files.make_private_folder(folder)
        if any(folder.iterdir()):
            raise UnsafeFileError(f"{folder} is not empty.", "Choose a new folder: an authority is never overwritten.")
        files.create(folder / KEY_FILE, key_pem(issuer.key))
        files.create(folder / INDEX_FILE, b"")
        made = cls(folder, issuer, clock)
        files.create(folder / CERTIFICATE_FILE, made.certificate_pem, files.PUBLIC)
        made.revocation_list()
        return made

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> Self:
        """Open an authority that was set up before."""
        files.require_private_folder(folder)
        key = files.read(folder / KEY_FILE, private=True)
        return cls(folder, Issuer.read(files.read(folder / CERTIFICATE_FILE), key), clock)

    @property
    def federation(self) -> str:
        """The federation whose parties it certifies."""
        return federation_of(self._issuer.certificate)

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate. Every party must receive it by a way that the party trusts."""
        return self._issuer.certificate.public_bytes(Encoding.PEM)

    def sign(self, request_pem: bytes, *, days: int = PARTY_DAYS, expected: PartyName | None = None) -> bytes:
        """Certify the key in a request, once. If ``expected`` is given, refuse a request for any other name.

        A request that was signed before gets the same certificate again. After that has expired, it gets none.
        """
        asked = renewal_requests.read(request_pem)
        party = asked.party
        require_trust(
            expected in (None, party),
            f"The request is for {party}, not for {expected}.",
            "Find out who sent it, and why.",
        )
        with self._locked_index():
            if before := self._certificate_of_key(asked):
                return before.encode()
            self._require_free_name(asked)
            made = write_party(self._issuer, party, asked.key, self._clock(), timedelta(days=days))
            since, until = made.not_valid_before_utc.isoformat(), made.not_valid_after_utc.isoformat()
            serial, pem = f"{made.serial_number:x}", made.public_bytes(Encoding.PEM)
            self._record(
                "issued", serial=serial, name=party.uri, since=since, until=until, certificate=pem.decode("ascii")
            )
        return pem

    def list(self) -> tuple[IndexEntry, ...]:
        """List every certificate issued so far, in order of issue."""
        return tuple(self._state()[0].values())

    def revoke(self, which: PartyName | str, reason: Reason = Reason.KEY_COMPROMISE) -> tuple[IndexEntry, ...]:
        """Revoke one certificate, given its serial number, or all certificates of a party, given its name.

        A party refuses the revoked certificates only after it installs the new ``revoked.pem``: hand it out at once.
        """
        with self._locked_index():
            entries = [each for each in self.list() if not each.revoked and str(which) in (each.serial, each.name.uri)]
            if not entries:
                raise InvalidParameterError(
                    f"No certificate that is not revoked yet matches {str(which)!r:.120}.",
                    "Give a serial number or a full name as `dpspca ca list` shows it.",
                )
            for entry in entries:
                self._record("revoked", serial=entry.serial, reason=Reason(reason).value)
            self._publish(LIST_DAYS)
        serials = {entry.serial for entry in entries}
        return tuple(each for each in self.list() if each.serial in serials)

    def revocation_list(self, *, days: int = LIST_DAYS) -> bytes:
        """Sign a new revocation list, with the next number and valid for ``days``, and store it as ``revoked.pem``."""
        if not 1 <= days <= AUTHORITY_LIFE.days:
            raise InvalidParameterError(
                f"A revocation list cannot be valid for {days} days.", f"Give 1 to {AUTHORITY_LIFE.days} days."
            )
        with self._locked_index():
            return self._publish(days)

    def _publish(self, days: int) -> bytes:
        entries, number = self._state()
        revoked = [
            (int(each.serial, 16), each.revoked, ReasonFlags(each.reason))
            for each in entries.values()
            if each.revoked is not None
        ]
        self._record("published", number=number + 1)
        pem = write_revocations(self._issuer, revoked, number + 1, self._clock(), timedelta(days=days))
        files.replace(self.folder / LIST_FILE, pem, files.PUBLIC)
        return pem

    def _locked_index(self) -> AbstractContextManager[None]:
        return files.exclusive_lock(self.folder / INDEX_FILE)

    def _certificate_of_key(self, asked: renewal_requests.Request) -> str | None:
        """Return the valid certificate of a key, or None. Refuse a key if its certificate is another's or expired."""
        known = next((each for each in self.list() if each.certificate and _is_for(asked.key, each)), None)
        if known is None:
            return None
        require_trust(
            known.name == asked.party and not known.revoked,
            f"This key was already certified for {known.name}, with serial number {known.serial}"
            f"{', which was revoked' if known.revoked else ''}.",
            "Ask the party to make a new key with `dpspca identity request` in a new folder.",
        )
        if known.until <= self._clock():
            raise _expired(known)
        return known.certificate

    def _require_free_name(self, asked: renewal_requests.Request) -> None:
        """Refuse a name that is enrolled, unless the key of its newest certificate vouches for this request."""
        taken = [each for each in self.list() if each.name == asked.party and not each.revoked]
        require_trust(
            not taken or self._has_vouched(taken[-1], asked),
            f"{asked.party} is already enrolled, with serial number {taken[-1].serial if taken else None}, and the "
            "key of that certificate did not sign this request.",
            "To renew, the party runs `dpspca identity renew`. If it has lost its key, check who is asking, then "
            f"revoke its certificates with `dpspca ca revoke {asked.party}`.",
        )

    def _has_vouched(self, newest: IndexEntry, asked: renewal_requests.Request) -> bool:
        """Whether the key of the party's newest certificate vouches for the request.

        Older certificates do not count: the party has replaced their keys and may no longer guard them.
        """
        if asked.former is None or name_in(asked.former, self._issuer.certificate) != asked.party:
            return False
        return f"{asked.former.serial_number:x}" == newest.serial

    def _record(self, act: str, **details: str | int) -> None:
        line = {"act": act, "at": whole_second(self._clock()).isoformat(), **details}
        files.append(self.folder / INDEX_FILE, json.dumps(line).encode() + b"\n")

    def _state(self) -> tuple[dict[str, IndexEntry], int]:
        """Read the whole index: the certificates, and the number of the newest revocation list."""
        try:
            return self._replay()
        except (ValueError, KeyError, TypeError):
            raise UnsafeFileError(
                f"{INDEX_FILE} is damaged.",
                "Restore it from a backup. If only its last line is cut short, remove that line. A complete last line "
                "ends with a line break.",
            ) from None

    def _replay(self) -> tuple[dict[str, IndexEntry], int]:
        entries: dict[str, IndexEntry] = {}
        number = 0
        for line in self._lines():
            match line:
                case {"act": "issued", "serial": serial, "name": name, "since": since, "until": until}:
                    pem = str(line.get("certificate", ""))
                    entries[serial] = IndexEntry(PartyName.parse(name), serial, _time(since), _time(until), pem)
                case {"act": "revoked", "serial": serial, "at": at, "reason": reason}:
                    entries[serial] = replace(entries[serial], revoked=_time(at), reason=Reason(reason))
                case {"act": "published", "number": number}:
                    pass
                case _:
                    raise ValueError
        return entries, number

    def _lines(self) -> Iterator[Any]:
        content = files.read(self.folder / INDEX_FILE, private=True)
        if content and not content.endswith(b"\n"):  # the next act would be appended to the same line
            raise ValueError
        for line in content.splitlines():
            yield json.loads(line)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _is_for(key: PublicKey, entry: IndexEntry) -> bool:
    return same_key(key, public_key_of(read_certificate(entry.certificate.encode())))


def _expired(entry: IndexEntry) -> NotNowError:
    """Explain that the certificate for this request has expired, and how the party gets a new one.

    A party that has the certificate can renew with its key. A party that never received it must enrol again.
    """
    return NotNowError(
        f"This request was signed before: the certificate of {entry.name} with serial number {entry.serial} expired at "
        f"{entry.until:%Y-%m-%d %H:%M} UTC, and its key gets no other.",
        "If the party has installed that certificate or a later one, ask it to run `dpspca identity renew`, which "
        "works after expiry too. If the party never received one, check who is asking, revoke its certificates with "
        f"`dpspca ca revoke {entry.name}`, and ask it to run `dpspca identity request` in a new folder.",
    )
