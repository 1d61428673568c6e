"""The federation's authority: a folder on the operator's own machine. It offers no service.

It holds five files. ``authority.pem`` is its certificate; every invitation contains it. ``authority-key.pem`` is its
key and never leaves the folder. ``index.jsonl`` is an append-only log of who was invited and what was issued, revoked
and published. ``revoked.pem`` is the newest revocation list; every party needs each new one. ``mailbox-key`` is what
the slots of the coordinator's mailbox follow from. An act is recorded on disk before its result is shown. So the index
may name a certificate that nobody received, but it names every certificate that exists.

The authority takes only a name and a key from a request, and certifies each once:
- A key gets one certificate. If the same request is signed again while that certificate is valid, the authority returns
  the same certificate, so one that was lost on its way can be fetched again. After it expires, the key gets no other.
- A name that has a certificate, expired or not, gets another only if the key of its newest certificate signed the
  request (``requests.py``), or if the operator has revoked all of its certificates. So nobody can enrol in another
  party's name, not even with a key that the party has replaced, and one party cannot become two.
- ``admit`` also asks who sent a first request: it must be proven with an invitation for that very name, which has not
  expired and has led to no certificate. The line that records a certificate also records which invitation it used up,
  so no crash can separate the two.

Each act holds a lock on the index: if many requests for one name arrive at once, one of them is certified.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self, TypeAlias

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ReasonFlags

from dpspca.common.errors import (
    DamagedFileError,
    InvalidParameterError,
    NotNowError,
    NotTrustedError,
    OccupiedFolderError,
    RevokedError,
    require_trust,
)
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import files

from . import invitations, requests
from .authority_index import IndexEntry, IndexState, InvitationEntry, Reason
from .certificates import (
    Issuer,
    PublicKey,
    federation_of,
    key_pem,
    name_in,
    new_key,
    public_key_of,
    read_certificate,
    same_key,
    whole_second,
    write_authority_request,
    write_party,
)
from .external_ca import require_root
from .invitations import Invitation
from .revocations import write_revocations

Clock: TypeAlias = Callable[[], datetime]

AUTHORITY_LIFE: Final = timedelta(days=3652)
PARTY_DAYS: Final = 30
LIST_DAYS: Final = 30
INVITATION_DAYS: Final = 14
MAX_INVITATION_DAYS: Final = 90

CERTIFICATE_FILE: Final = "authority.pem"
KEY_FILE: Final = "authority-key.pem"
INDEX_FILE: Final = "index.jsonl"
LIST_FILE: Final = "revoked.pem"
MAILBOX_KEY_FILE: Final = "mailbox-key"


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
        _make_empty(folder)
        files.create(folder / KEY_FILE, key_pem(issuer.key))
        return cls._begin(folder, issuer, clock)

    @classmethod
    def _begin(cls, folder: Path, issuer: Issuer, clock: Clock) -> Self:
        """Write the files of a new authority beside its key."""
        files.create(folder / MAILBOX_KEY_FILE, invitations.new_mailbox_key())
        files.create(folder / INDEX_FILE, b"")
        made = cls(folder, issuer, clock)
        files.create(folder / CERTIFICATE_FILE, made.certificate_pem, files.PUBLIC)
        made.revocation_list()
        return made

    @classmethod
    def prepare(cls, folder: Path, federation: str) -> bytes:
        """Make the key of a new authority, and return the request for an organisation's CA to sign."""
        key = new_key()
        asked = write_authority_request(key, federation)
        _make_empty(folder)
        files.create(folder / KEY_FILE, key_pem(key))
        return asked

    @classmethod
    def certify(cls, folder: Path, certificate_pem: bytes, roots_pem: bytes, clock: Clock) -> Self:
        """Set up the authority of a prepared folder with the certificate that a CA signed. ``roots_pem`` is that CA."""
        files.require_private_folder(folder)
        issuer = Issuer.read(certificate_pem, files.read(folder / KEY_FILE, private=True))
        require_root(issuer.certificate, roots_pem, clock())
        return cls._begin(folder, issuer, clock)

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

    def mailbox_key(self) -> bytes:
        """Return the key from which slots are derived. Create it in a folder of an earlier version."""
        path = self.folder / MAILBOX_KEY_FILE
        if files.stamp(path) is None:
            files.create(path, invitations.new_mailbox_key())
        return files.read(path, private=True)

    def invite(
        self, party: PartyName, coordinator: str, mailbox: str = "", *, days: int = INVITATION_DAYS
    ) -> Invitation:
        """Make an invitation for a party that has no certificate. It takes the place of an earlier one, if unused."""
        if not 1 <= days <= MAX_INVITATION_DAYS:
            raise InvalidParameterError(
                f"An invitation cannot be valid for {days} days.", f"Give 1 to {MAX_INVITATION_DAYS} days."
            )
        require_trust(
            party.federation == self.federation,
            f"{party} is not in the federation {self.federation}.",
            "Ask the authority of its federation.",
        )
        key = self.mailbox_key()
        made = Invitation(
            party=party,
            secret=invitations.draw_secret(),
            authority_pem=self.certificate_pem,
            until=whole_second(self._clock()) + timedelta(days=days),
            coordinator=coordinator,
            mailbox=mailbox,
            slot=invitations.slot_of(key, party),
            mailbox_key=key if party.role is Role.COORDINATOR else b"",
        )
        with self._locked_index():
            state = self._state()
            if enrolled := state.of_party(party):
                raise InvalidParameterError(
                    f"{party} is enrolled already, with serial number {enrolled[-1].serial}.",
                    f"It renews with its key. If it lost that: `dpspca study revoke {party}`, then invite it again.",
                )
            for each in [each for each in state.invitations.values() if each.name == party and each.used is None]:
                self._record("withdrawn", id=each.id)
            self._record("invited", id=made.id, name=party.uri, key=made.key.hex(), until=made.until.isoformat())
        return made

    def examine(self, request_pem: bytes) -> None:
        """Raise what ``admit`` would raise for a request now."""
        self._admissible(requests.read(request_pem))

    def admit(self, request_pem: bytes, *, days: int = PARTY_DAYS) -> bytes:
        """Certify a request that an invitation or the party's own key vouches for, as ``sign`` does."""
        asked = requests.read(request_pem)
        with self._locked_index():
            before, invitation = self._admissible(asked)
            return before or self._issue(asked, days, invitation)

    def sign(self, request_pem: bytes, *, days: int = PARTY_DAYS, expected: PartyName | None = None) -> bytes:
        """Certify the key in a request, once. The caller knows who sent it: ``admit`` does not rely on that.

        If ``expected`` is given, refuse a request for any other name. A request that was signed before gets the same
        certificate again. After that has expired, it gets none.
        """
        asked = requests.read(request_pem)
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
            return self._issue(asked, days, None)

    def certificate_for(self, request_pem: bytes) -> bytes | None:
        """Return the valid certificate that a request has got before, if there is one."""
        found = self._certificate_of_key(requests.read(request_pem))
        return found.encode() if found else None

    def invited(self) -> tuple[InvitationEntry, ...]:
        """List every invitation, in the order in which they were made."""
        return tuple(self._state().invitations.values())

    def list(self) -> tuple[IndexEntry, ...]:
        """List every certificate issued so far, in order of issue."""
        return tuple(self._state().certificates.values())

    def revoke(self, which: PartyName | str, reason: Reason = Reason.KEY_COMPROMISE) -> tuple[IndexEntry, ...]:
        """Revoke one certificate, given its serial number, or all certificates of a party, given its name.

        A party refuses the revoked certificates only after it installs the new ``revoked.pem``: hand it out at once.
        """
        with self._locked_index():
            entries = [each for each in self.list() if not each.revoked and str(which) in (each.serial, each.name.uri)]
            if not entries:
                raise InvalidParameterError(
                    f"No certificate that is not revoked yet matches {str(which)!r:.120}.",
                    "Give a serial number or a full name as `dpspca study show` shows it.",
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
        state = self._state()
        number = state.list_number
        revoked = [
            (int(each.serial, 16), each.revoked, ReasonFlags(each.reason))
            for each in state.certificates.values()
            if each.revoked is not None
        ]
        self._record("published", number=number + 1)
        pem = write_revocations(self._issuer, revoked, number + 1, self._clock(), timedelta(days=days))
        files.replace(self.folder / LIST_FILE, pem, files.PUBLIC)
        return pem

    def _locked_index(self) -> AbstractContextManager[None]:
        return files.exclusive_lock(self.folder / INDEX_FILE)

    def _admissible(self, asked: requests.Request) -> tuple[bytes | None, str | None]:
        """Return the certificate that the key has already, if any, and the invitation that vouches for a new party."""
        if before := self._certificate_of_key(asked):
            return before.encode(), None
        if asked.former is None:
            invitation = self._require_invitation(asked)
        else:
            invitation = None
            require_trust(
                bool(self._state().of_party(asked.party)),
                f"{asked.party} has no certificate that it could renew.",
                f"If its certificates were revoked by mistake, invite it again: `dpspca study invite {asked.party}`.",
            )
        self._require_free_name(asked)
        return None, invitation

    def _require_invitation(self, asked: requests.Request) -> str:
        """Refuse a first request unless a valid, unused invitation for its name proves it. Return the invitation."""
        again = f"If you know who asks, send a new invitation: `dpspca study invite {asked.party}`."
        require_trust(asked.proof is not None, f"The request of {asked.party} comes with no invitation.", again)
        assert asked.proof
        found = self._state().invitations.get(asked.proof.invitation)
        proven = found is not None and found.name == asked.party and asked.proof.is_made_with(found.key)
        require_trust(proven, f"The request of {asked.party} was not made with an invitation of {asked.party}.", again)
        assert found
        require_trust(
            found.used is None,
            f"The invitation of {asked.party} was used before, with another key: certificate {found.used}.",
            "Ask the party which key is its own. If somebody else used its invitation, run `dpspca study revoke "
            f"{asked.party}` and invite it again.",
        )
        if found.until <= self._clock():
            raise NotNowError(f"The invitation of {asked.party} expired at {found.until:%Y-%m-%d %H:%M} UTC.", again)
        return found.id

    def _issue(self, asked: requests.Request, days: int, invitation: str | None) -> bytes:
        made = write_party(self._issuer, asked.party, asked.key, self._clock(), timedelta(days=days))
        since, until = made.not_valid_before_utc.isoformat(), made.not_valid_after_utc.isoformat()
        serial, pem = f"{made.serial_number:x}", made.public_bytes(Encoding.PEM)
        used = {} if invitation is None else {"invitation": invitation}
        self._record(
            "issued",
            serial=serial,
            name=asked.party.uri,
            since=since,
            until=until,
            certificate=pem.decode("ascii"),
            **used,
        )
        return pem

    def _certificate_of_key(self, asked: requests.Request) -> str | None:
        """Return the valid certificate of a key, or None. Refuse a key if its certificate is another's or expired."""
        known = next((each for each in self.list() if each.certificate and _is_for(asked.key, each)), None)
        if known is None:
            return None
        require_trust(
            known.name == asked.party and not known.revoked,
            f"This key was already certified for {known.name}, with serial number {known.serial}"
            f"{', which was revoked' if known.revoked else ''}.",
            f"Invite the party again, so that it makes a new key in a new folder: `dpspca study invite {asked.party}`.",
            RevokedError if known.revoked else NotTrustedError,
        )
        if known.until <= self._clock():
            raise _expired(known)
        return known.certificate

    def _require_free_name(self, asked: requests.Request) -> None:
        """Refuse a name that is enrolled, unless the key of its newest certificate vouches for this request."""
        taken = [each for each in self.list() if each.name == asked.party and not each.revoked]
        require_trust(
            not taken or self._has_vouched(taken[-1], asked),
            f"{asked.party} is already enrolled, with serial number {taken[-1].serial if taken else None}, and the "
            "key of that certificate did not sign this request.",
            "To renew, the party runs `dpspca identity renew`. If it has lost its key, check who is asking, then "
            f"revoke its certificates with `dpspca study revoke {asked.party}` and invite it again.",
        )

    def _has_vouched(self, newest: IndexEntry, asked: requests.Request) -> bool:
        """Whether the key of the party's newest certificate vouches for the request.

        Older certificates do not count: the party has replaced their keys and may no longer guard them.
        """
        if asked.former is None or name_in(asked.former, self._issuer.certificate) != asked.party:
            return False
        return f"{asked.former.serial_number:x}" == newest.serial

    def _record(self, act: str, **details: str | int) -> None:
        line = {"act": act, "at": whole_second(self._clock()).isoformat(), **details}
        files.append(self.folder / INDEX_FILE, json.dumps(line).encode() + b"\n")

    def _state(self) -> IndexState:
        """Read the whole index."""
        try:
            return IndexState.replay(self._lines())
        except (ValueError, KeyError, TypeError):
            raise DamagedFileError(
                f"{INDEX_FILE} is damaged.",
                "Restore it from a backup. If only its last line is cut short, remove that line. A complete last line "
                "ends with a line break.",
            ) from None

    def _lines(self) -> Iterable[bytes]:
        content = files.read(self.folder / INDEX_FILE, private=True)
        if content and not content.endswith(b"\n"):  # the next act would be appended to the same line
            raise ValueError
        return content.splitlines()


def _make_empty(folder: Path) -> None:
    files.make_private_folder(folder)
    if any(folder.iterdir()):
        raise OccupiedFolderError(f"{folder} is not empty.", "Choose a new folder: an authority is never overwritten.")


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
        f"`dpspca study revoke {entry.name}`, and invite it again.",
    )
