"""Invitations: with an invitation, one party enrols once, and learns which authority to believe.

The authority draws a secret for each invitation. From the secret follows a key, with which the party proves that its
request comes from the holder of the invitation. The request is public: the mailbox that carries it can neither change
it nor learn the secret. The invitation also contains the authority's certificate, so the party accepts no certificate
of another authority. So an invitation must travel like a password: whoever has it can enrol in the party's name, once.

``slot_of`` names a party's place in the mailbox of the coordinator. It ends in a code that follows from a key that only
the authority and the coordinator have. So the coordinator recognises every slot, and strangers can guess none.

Pure: it opens no file, and the time is an argument.
"""

import base64
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest, new
from typing import Final, Self

from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import DpspcaError, NotTrustedError, require_trust
from dpspca.common.names import MAX_NAME, PartyName, Role

from . import joined_bytes
from .certificates import MAX_PEM_BYTES, federation_of, read_authority

SECRET_BYTES: Final = 32
ID_BYTES: Final = 16
TAG_BYTES: Final = 16
MAILBOX_KEY_BYTES: Final = 32

_VERSION: Final = b"dpspca invitation, version 1\0"
_KEY: Final = b"dpspca key of an invitation, version 1\0"
_ID: Final = b"dpspca name of an invitation, version 1\0"
_SLOT: Final = b"dpspca slot of a mailbox, version 1\0"
_TIME_BYTES: Final = 8
_PARTS: Final = 8
_ARMOUR: Final = re.compile(rb"-----BEGIN DPSPCA INVITATION-----\s+([A-Za-z0-9+/=\s]+?)-----END DPSPCA INVITATION-----")
_SLOT_TEXT: Final = re.compile(rf"([a-z]+)-([a-z0-9.-]{{1,{MAX_NAME}}})-[0-9a-f]{{{2 * TAG_BYTES}}}")
_AGAIN: Final = "Ask the authority's operator to send it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """The authority's invitation to a party, sent on a way that both trust. ``mailbox`` is empty if there is none."""

    party: PartyName
    secret: bytes = field(repr=False)
    authority_pem: bytes = field(repr=False)
    until: datetime
    coordinator: str
    mailbox: str
    slot: str
    mailbox_key: bytes = field(default=b"", repr=False)
    """Only in the coordinator's invitation: with it, the coordinator recognises slots."""

    @property
    def key(self) -> bytes:
        """The key that proves the invitation. The authority stores it instead of the secret."""
        return _hash(self.secret, _KEY)

    @property
    def id(self) -> str:
        """The public name of this invitation."""
        return _hash(self.secret, _ID)[:ID_BYTES].hex()

    def to_text(self) -> bytes:
        """Return the file to send: a sentence for people, and the invitation in PEM style."""
        content = joined_bytes.join(
            self.party.uri.encode(),
            self.secret,
            self.authority_pem,
            int(self.until.timestamp()).to_bytes(_TIME_BYTES),
            self.coordinator.encode(),
            self.mailbox.encode(),
            self.slot.encode(),
            self.mailbox_key,
        )
        heading = (
            f"This invites {self.party} to the federation {self.party.federation}, until {self.until:%Y-%m-%d %H:%M} "
            "UTC.\nKeep it secret: whoever has it can enrol in this name, once. Use it with `dpspca join`.\n"
        )
        armoured = base64.encodebytes(_VERSION + content)
        return (
            heading.encode() + b"-----BEGIN DPSPCA INVITATION-----\n" + armoured + b"-----END DPSPCA INVITATION-----\n"
        )

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Read an invitation. Text around it, such as that of an email, is ignored."""
        found = _ARMOUR.findall(text) if len(text) <= MAX_PEM_BYTES else []
        require_trust(len(found) == 1, f"There are {len(found)} invitations in the file, not one.", _AGAIN)
        try:
            content = base64.b64decode(b"".join(found[0].split()), validate=True)
            parts = joined_bytes.split(content.removeprefix(_VERSION), _PARTS) if content.startswith(_VERSION) else []
            party, secret, authority, until, coordinator, mailbox, slot, mailbox_key = parts
            read = cls(
                party=PartyName.parse(party.decode("ascii")),
                secret=secret,
                authority_pem=read_authority(authority).public_bytes(Encoding.PEM),
                until=datetime.fromtimestamp(int.from_bytes(until), UTC),
                coordinator=coordinator.decode("ascii"),
                mailbox=mailbox.decode("ascii"),
                slot=slot.decode("ascii"),
                mailbox_key=mailbox_key,
            )
        except (DpspcaError, ValueError, OverflowError, OSError):
            raise NotTrustedError("The invitation is damaged, or for another version of dpspca.", _AGAIN) from None
        read._require_consistent()
        return read

    def _require_consistent(self) -> None:
        """Refuse an invitation that no authority writes."""
        federation = federation_of(read_authority(self.authority_pem))
        fits = self.party.federation == federation and len(self.secret) == SECRET_BYTES
        keyed = len(self.mailbox_key) == (MAILBOX_KEY_BYTES if self.party.role is Role.COORDINATOR else 0)
        require_trust(fits and keyed and is_slot(self.slot), "The parts of the invitation do not fit together.", _AGAIN)


def draw_secret() -> bytes:
    """Draw the secret of a new invitation."""
    return secrets.token_bytes(SECRET_BYTES)


def new_mailbox_key() -> bytes:
    """Draw the key from which the slots of a federation's mailbox follow."""
    return secrets.token_bytes(MAILBOX_KEY_BYTES)


def slot_of(mailbox_key: bytes, party: PartyName) -> str:
    """Return a party's slot."""
    return f"{party.role}-{party.name}-{_hash(mailbox_key, _SLOT + party.uri.encode())[:TAG_BYTES].hex()}"


def is_slot(text: str) -> bool:
    """Whether a text has the form of a slot. It is then also safe as the beginning of a file's name."""
    return _SLOT_TEXT.fullmatch(text) is not None


def owner_of(slot: str, mailbox_key: bytes, federation: str) -> PartyName | None:
    """Return whose slot this is, or None if the authority made no such slot."""
    found = _SLOT_TEXT.fullmatch(slot)
    try:
        owner = PartyName(federation, Role(found[1]), found[2]) if found else None
    except ValueError:
        return None
    return owner if owner and compare_digest(slot_of(mailbox_key, owner), slot) else None


def prove(key: bytes, content: bytes) -> bytes:
    """Return the code with which a party proves that what it sends comes from it."""
    return _hash(key, content)


def is_proven(code: bytes, key: bytes, content: bytes) -> bool:
    """Whether the code is that of this content, under this key."""
    return compare_digest(code, prove(key, content))


def _hash(key: bytes, content: bytes) -> bytes:
    return new(key, content, sha256).digest()
