"""The federation's authority: a folder on the operator's own machine, which needs no network and offers no service.

It holds four files. ``authority.pem`` is its certificate, to be handed to every party by a way they trust;
``authority-key.pem`` never leaves; ``index.jsonl`` records, one line an act and never rewritten, what was issued,
revoked and published; ``revoked.pem`` is the newest revocation list, to be handed to every party again and again.
An act is recorded, on disk, before its result is shown: the index may name a certificate that nobody received, but
there is none that it does not name.

From a request the authority takes a name and a key, nothing more, and it takes each once. A key has one certificate:
signed again, the same request gets the same as long as that holds, since the index has it, so that one lost on its way
is not lost; once it has run out, the key gets nothing. A name that has a certificate, run out or not, gets another only
where the key of the newest vouches for that (``renewals.py``), or where the operator has revoked all it had. So whoever
asks in another's name gets nothing, be it with a key that the party gave up long ago, and one party does not become
two. An act holds a lock on the index, whoever else acts: of many that would enrol under one name at once, one does.
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
    """Why a certificate no longer counts, in the words of the standard (RFC 5280)."""

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
    """Empty where an earlier version wrote the index."""
    revoked: datetime | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority's folder, opened."""

    folder: Path
    _issuer: Issuer = field(repr=False)
    _clock: Clock = field(repr=False)

    @classmethod
    def init(cls, folder: Path, federation: str, clock: Clock) -> Self:
        """Set up a new authority in a folder that does not exist, or is empty."""
        issuer = Issuer.new(federation, clock(), AUTHORITY_LIFE)
        files.make_private_folder(folder)
        if any(folder.iterdir()):
            raise UnsafeFileError(f"{folder} is not empty.", "An authority is never overwritten: choose a new folder.")
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
        """The federation it speaks for."""
        return federation_of(self._issuer.certificate)

    @property
    def certificate_pem(self) -> bytes:
        """What every party must receive by a way it trusts."""
        return self._issuer.certificate.public_bytes(Encoding.PEM)

    def sign(self, request_pem: bytes, *, days: int = PARTY_DAYS, expected: PartyName | None = None) -> bytes:
        """Certify the key in a request, once. With ``expected``, a request for any other name is refused.

        A request that was signed before gets the certificate of then; once that has run out, it gets nothing.
        """
        asked = renewal_requests.read(request_pem)
        party = asked.party
        require_trust(
            expected in (None, party), f"The request is for {party}, not for {expected}.", "Ask who sent it, and why."
        )
        with self._alone():
            if before := self._signed_before(asked):
                return before.encode()
            self._require_free(asked)
            made = write_party(self._issuer, party, asked.key, self._clock(), timedelta(days=days))
            since, until = made.not_valid_before_utc.isoformat(), made.not_valid_after_utc.isoformat()
            serial, pem = f"{made.serial_number:x}", made.public_bytes(Encoding.PEM)
            self._record(
                "issued", serial=serial, name=party.uri, since=since, until=until, certificate=pem.decode("ascii")
            )
        return pem

    def list(self) -> tuple[IndexEntry, ...]:
        """Every certificate issued so far, in order."""
        return tuple(self._state()[0].values())

    def revoke(self, which: PartyName | str, reason: Reason = Reason.KEY_COMPROMISE) -> tuple[IndexEntry, ...]:
        """Revoke one certificate by its serial number as listed, or by its name all that a party has left.

        The new list counts for a party once it has that list: hand out ``revoked.pem`` at once.
        """
        with self._alone():
            entries = [each for each in self.list() if not each.revoked and str(which) in (each.serial, each.name.uri)]
            if not entries:
                raise InvalidParameterError(
                    f"There is nothing to revoke under {str(which)!r:.120}.",
                    "Give a serial number or a whole name as `dpspca ca list` shows it; what is revoked stays revoked.",
                )
            for entry in entries:
                self._record("revoked", serial=entry.serial, reason=Reason(reason).value)
            self._publish(LIST_DAYS)
        serials = {entry.serial for entry in entries}
        return tuple(each for each in self.list() if each.serial in serials)

    def revocation_list(self, *, days: int = LIST_DAYS) -> bytes:
        """Sign a fresh list, with the next number and ``days`` to run, and keep it as ``revoked.pem``."""
        if not 1 <= days <= AUTHORITY_LIFE.days:
            raise InvalidParameterError(f"A list was asked for a life of {days} days.", "Give at least one.")
        with self._alone():
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

    def _alone(self) -> AbstractContextManager[None]:
        return files.alone(self.folder / INDEX_FILE)

    def _signed_before(self, asked: renewal_requests.Request) -> str | None:
        """Find the certificate of a key, while it holds; refuse a key that is spoken for, or has had its time."""
        known = next((each for each in self.list() if each.certificate and _is_for(asked.key, each)), None)
        if known is None:
            return None
        require_trust(
            known.name == asked.party and not known.revoked,
            f"This key was certified before, for {known.name}, with serial number {known.serial}"
            f"{', which was revoked' if known.revoked else ''}.",
            "Have the party make a new key, with `dpspca identity request` in a new folder.",
        )
        if known.until <= self._clock():
            raise _run_out(known)
        return known.certificate

    def _require_free(self, asked: renewal_requests.Request) -> None:
        """Refuse a name that is taken by somebody who does not vouch for this."""
        taken = [each for each in self.list() if each.name == asked.party and not each.revoked]
        require_trust(
            not taken or self._vouched(asked, taken[-1]),
            f"{asked.party} is enrolled, with serial number {taken[-1].serial if taken else None}, and the key of that "
            "certificate does not vouch for this request.",
            "To renew it, the party runs `dpspca identity renew`. If it has lost its key, make sure who is asking, and "
            "withdraw what it had with `dpspca ca revoke`.",
        )

    def _vouched(self, asked: renewal_requests.Request, newest: IndexEntry) -> bool:
        """Tell whether the request brings the word of the newest certificate that the party has of ours.

        Those before it do not count: their keys were given up, and nobody guards them any more.
        """
        if asked.former is None or name_in(asked.former, self._issuer.certificate) != asked.party:
            return False
        return f"{asked.former.serial_number:x}" == newest.serial

    def _record(self, act: str, **details: str | int) -> None:
        line = {"act": act, "at": whole_second(self._clock()).isoformat(), **details}
        files.append(self.folder / INDEX_FILE, json.dumps(line).encode() + b"\n")

    def _state(self) -> tuple[dict[str, IndexEntry], int]:
        """Read the index from its start: the certificates, and the number of the last list."""
        try:
            return self._replay()
        except (ValueError, KeyError, TypeError):
            raise UnsafeFileError(
                f"{INDEX_FILE} is not as the authority wrote it.",
                "Restore it from a backup; if only its last line is cut short, remove that line. One that is whole is "
                "followed by a line end.",
            ) from None

    def _replay(self) -> tuple[dict[str, IndexEntry], int]:
        entries: dict[str, IndexEntry] = {}
        number = 0
        for line in self._acts():
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

    def _acts(self) -> Iterator[Any]:
        content = files.read(self.folder / INDEX_FILE, private=True)
        if content and not content.endswith(b"\n"):  # the next act would be written into the same line
            raise ValueError
        for line in content.splitlines():
            yield json.loads(line)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _is_for(key: PublicKey, entry: IndexEntry) -> bool:
    return same_key(key, public_key_of(read_certificate(entry.certificate.encode())))


def _run_out(entry: IndexEntry) -> NotNowError:
    """Say that a request had its certificate, and how the party comes by one that is in force.

    Its key vouches for another, which only whoever has the certificate can ask for; who never got it begins anew.
    """
    return NotNowError(
        f"This request was signed before: the certificate of {entry.name} with serial number {entry.serial} ended at "
        f"{entry.until:%Y-%m-%d %H:%M} UTC, and its key gets no other.",
        "If the party has installed it, or a later one, have it ask with `dpspca identity renew`, which counts after "
        "the end too. If it never got it, make sure who is asking, withdraw what it had with "
        f"`dpspca ca revoke {entry.name}`, and have it begin anew with `dpspca identity request` in a new folder.",
    )
