"""A party's identity on disk: its private key, its certificate, and the certificate of the authority it trusts.

All three are in one private file, ``identity.pem``, which is replaced in one step, so that a crash cannot separate a
new key from its certificate. The key is made in this folder and never leaves it. A new key and the request for it are
kept in ``waiting.pem`` until the certificate is installed; until then the old identity stays in use. A renewal cannot
change the authority. ``mailbox-slot`` says where in the mailbox the party's requests and certificates are, and
``invitation`` is the public name of the invitation with which it joined. Only the coordinator also has a
``mailbox-key``.

A daemon asks ``CurrentIdentity`` and ``CurrentRevocations`` each time it needs one. Both read their file again only if
it has changed, so renewal and revocation need no restart.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.errors import NotTrustedError, UnsafeFileError, WrongSignerError, require_trust
from dpspca.common.names import PartyName
from dpspca.common.storage import files

from .certificates import (
    key_pem,
    name_in,
    new_key,
    public_key_of,
    read_authority,
    read_certificate,
    read_key,
    read_request,
    same_key,
    write_request,
)
from .invitations import Invitation, is_slot
from .requests import write_enrolment, write_renewal
from .revocations import RevocationList

IDENTITY_FILE: Final = "identity.pem"
WAITING_FILE: Final = "waiting.pem"
SLOT_FILE: Final = "mailbox-slot"
INVITATION_FILE: Final = "invitation"
MAILBOX_KEY_FILE: Final = "mailbox-key"

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----\n[A-Za-z0-9+/=\n]+-----END \1-----\n")
_IDENTITY: Final = [b"PRIVATE KEY", b"CERTIFICATE", b"CERTIFICATE"]
_WAITING: Final = [b"PRIVATE KEY", b"CERTIFICATE REQUEST"]
_AGAIN: Final = "Ask the authority's operator to invite this party again, and use `dpspca join` in a new folder."
_RESTORE: Final = "Restore it from a backup. If there is none, ask the authority's operator for a new invitation."
_JOIN: Final = "Get an invitation from the authority's operator, and use it with `dpspca join`."
_RENEW: Final = "To renew the certificate, use `dpspca identity renew`."
_WAIT: Final = "Repeat `dpspca join` with the same invitation: it installs the certificate when that is there."


@dataclass(frozen=True, slots=True)
class Identity:
    """A party's name, and the key and certificates that prove it."""

    name: PartyName
    key_pem: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)
    authority_pem: bytes = field(repr=False)
    not_after: datetime

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an identity. Refuse a file that others can read, or whose parts do not belong together."""
        files.require_private_folder(folder)
        if files.stamp(folder / IDENTITY_FILE) is None:
            waits = files.stamp(folder / WAITING_FILE) is not None
            raise UnsafeFileError(f"There is no certificate in {folder} yet.", _WAIT if waits else _JOIN)
        return cls.of(*_read_blocks(folder / IDENTITY_FILE, _IDENTITY))

    @classmethod
    def of(cls, key_pem: bytes, certificate_pem: bytes, authority_pem: bytes) -> Self:
        """Build an identity if its parts belong together. Whether it is valid now is checked by other parties."""
        certificate = read_certificate(certificate_pem)
        name = name_in(certificate, read_authority(authority_pem))
        fits = same_key(read_key(key_pem).public_key(), public_key_of(certificate))
        require_trust(fits, f"The certificate of {name} is for another key.", _AGAIN, WrongSignerError)
        pems = (_canonical(certificate_pem), _canonical(authority_pem))
        return cls(name, key_pem, *pems, certificate.not_valid_after_utc)


def request(folder: Path, name: PartyName) -> bytes:
    """Make a key for a new party, and return the request for the operator. Nothing is overwritten.

    If a key already waits for its certificate, return the same request again.
    """
    files.make_private_folder(folder)
    if files.stamp(folder / IDENTITY_FILE) is not None:
        raise UnsafeFileError(
            f"{folder} already holds an identity.", "Renew it with `dpspca identity renew`, or choose another folder."
        )
    return _make_request(folder, name)


def join_request(folder: Path, invitation: Invitation) -> bytes:
    """Make a key for an invited party, and return the request that proves the invitation. Nothing is overwritten.

    If a key already waits for its certificate, return the same request again.
    """
    made = write_enrolment(request(folder, invitation.party), invitation)
    _keep(folder / SLOT_FILE, invitation.slot.encode())
    _keep(folder / INVITATION_FILE, invitation.id.encode())
    if invitation.mailbox_key:
        _keep(folder / MAILBOX_KEY_FILE, invitation.mailbox_key)
    return made


def invitation_id(folder: Path) -> str | None:
    """Return the name of the invitation that was used in this folder last, or None if an earlier version used it."""
    path = folder / INVITATION_FILE
    return None if files.stamp(path) is None else files.read(path, private=True).decode("ascii", errors="replace")


def mailbox_slot(folder: Path) -> str:
    """Return the party's slot in the mailbox."""
    path = folder / SLOT_FILE
    if files.stamp(path) is None:
        raise UnsafeFileError(
            f"{folder} has no slot in a mailbox.",
            "It was enrolled without one. Exchange requests and certificates as files (--exchange).",
        )
    slot = files.read(path, private=True).decode("ascii", errors="replace")
    require_trust(is_slot(slot), f"{path} does not hold a slot.", _RESTORE)
    return slot


def mailbox_key(folder: Path) -> bytes:
    """Return the key with which the coordinator recognises slots."""
    return files.read(folder / MAILBOX_KEY_FILE, private=True)


def is_enrolled(folder: Path) -> bool:
    """Whether the folder holds an identity."""
    return files.stamp(folder / IDENTITY_FILE) is not None


def is_waiting(folder: Path) -> bool:
    """Whether a key waits for its certificate."""
    return files.stamp(folder / WAITING_FILE) is not None


def renew_request(folder: Path) -> bytes:
    """Make a new key for the party in this folder, and return the renewal request for the operator.

    The current key signs the request, so that nobody else can renew in the party's name. The current identity stays in
    use until the new certificate is installed.
    """
    current = Identity.load(folder)
    return write_renewal(_make_request(folder, current.name), current.certificate_pem, current.key_pem)


def install(folder: Path, certificate_pem: bytes, authority_pem: bytes) -> Identity:
    """Install the certificate for the waiting key, if it is for the requested name and from the same authority."""
    files.require_private_folder(folder)
    if files.stamp(folder / WAITING_FILE) is None:
        there = files.stamp(folder / IDENTITY_FILE) is not None
        raise UnsafeFileError(f"No request in {folder} waits for a certificate.", _RENEW if there else _JOIN)
    key, asked_for = _read_blocks(folder / WAITING_FILE, _WAITING)
    asked, _ = read_request(asked_for)
    made = Identity.of(key, certificate_pem, authority_pem)
    require_trust(
        made.name == asked,
        f"The certificate is for {made.name}, not for {asked}.",
        "Ask the authority's operator to sign the request again.",
    )
    if files.stamp(folder / IDENTITY_FILE) is not None:
        same = Identity.load(folder).authority_pem == made.authority_pem
        require_trust(
            same,
            "The certificate is from another authority than before.",
            "To join another federation, use a new folder.",
            WrongSignerError,
        )
    files.replace(folder / IDENTITY_FILE, made.key_pem + made.certificate_pem + made.authority_pem)
    (folder / WAITING_FILE).unlink()
    return made


def install_revocations(path: Path, pem: bytes, authority_pem: bytes) -> RevocationList:
    """Install a revocation list that the authority signed and that is not older than the installed one."""
    listed = RevocationList.read(pem, authority_pem)
    if installed := stored_revocations(path, authority_pem):
        listed.require_succession(installed)
        if listed == installed:
            return listed
    files.replace(path, pem, files.PUBLIC)
    return listed


def stored_revocations(path: Path, authority_pem: bytes) -> RevocationList | None:
    """Read the installed revocation list, if there is one."""
    return None if files.stamp(path) is None else load_revocations(path, authority_pem)


def load_revocations(path: Path, authority_pem: bytes) -> RevocationList:
    """Read a revocation list from a file."""
    try:
        return RevocationList.read(files.read(path, linked=True), authority_pem)
    except NotTrustedError as problem:
        raise type(problem)(f"{path}: {problem.what}", problem.remedy) from None


class CurrentIdentity:
    """A party's identity, as it is on disk now. Thread-safe: the cached value is replaced in one assignment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cached = (files.stamp(folder / IDENTITY_FILE), Identity.load(folder))

    def get(self) -> Identity:
        """Return the identity, read again if the file has changed."""
        stamp, identity = self._cached
        now = files.stamp(self._folder / IDENTITY_FILE)
        if now != stamp:
            identity = Identity.load(self._folder)
            self._cached = (now, identity)
        return identity


class CurrentRevocations:
    """The revocation list, as it is on disk now. An older list or an unreadable file is an error.

    Thread-safe: the cached value is replaced in one assignment.
    """

    def __init__(self, path: Path, authority_pem: bytes) -> None:
        self._path = path
        self._authority_pem = authority_pem
        self._cached = (files.stamp(path, linked=True), load_revocations(path, authority_pem))

    def get(self) -> RevocationList:
        """Return the list, read again if the file has changed."""
        stamp, listed = self._cached
        now = files.stamp(self._path, linked=True)
        if now != stamp:
            found = load_revocations(self._path, self._authority_pem)
            found.require_succession(listed)
            listed = found
            self._cached = (now, found)
        return listed


def _keep(path: Path, content: bytes) -> None:
    """Write a private file, unless it has this content already."""
    if files.stamp(path) is None or files.read(path, private=True) != content:
        files.replace(path, content)


def _make_request(folder: Path, name: PartyName) -> bytes:
    if files.stamp(folder / WAITING_FILE) is not None:
        _, asked = _read_blocks(folder / WAITING_FILE, _WAITING)
        waits, _ = read_request(asked)
        if waits != name:
            raise UnsafeFileError(f"{folder} already holds a request for {waits}.", "Choose another folder.")
        return asked
    key = new_key()
    pem = write_request(key, name)
    files.create(folder / WAITING_FILE, key_pem(key) + pem)
    return pem


def _read_blocks(path: Path, labels: list[bytes]) -> list[bytes]:
    """Split a private file into its PEM blocks, which must have exactly these labels."""
    content = files.read(path, private=True)
    blocks = list(_BLOCK.finditer(content))
    whole = [block[1] for block in blocks] == labels and b"".join(block[0] for block in blocks) == content
    require_trust(whole, f"{path} does not hold the expected PEM blocks.", _RESTORE)
    return [block[0] for block in blocks]


def _canonical(pem: bytes) -> bytes:
    """Return a certificate in its canonical PEM form, whatever spaces or line ends it was sent with."""
    return read_certificate(pem).public_bytes(Encoding.PEM)
