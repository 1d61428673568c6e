"""How a party joins a federation: a key, a request, the certificate, and a settings file to start from.

Everything is in one folder: ``identity``, the revocation list and the settings. If joining is interrupted at any point,
the same invitation continues it, with the same key.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dpspca.common.checks import check
from dpspca.common.errors import NotNowError, NotTrustedError, RevokedError, UnsafeFileError
from dpspca.common.names import Role
from dpspca.common.storage import Address, ProxyAddress, Route, files
from dpspca.common.transport import CertificateMail, Mailbox, MailFolder, RemoteMailbox, is_loopback
from dpspca.common.trust import IDENTITY_FILE, Identity, Invitation, identity

from .renewal import MAILBOX_FOLDER, Notify, wait_for_certificate

if TYPE_CHECKING:
    from dpspca.server.mailbox import MailboxServer

FETCH_SECONDS: Final = 30.0
"""How long a coordinator that has joined still offers the certificates of the others."""
FETCH_PAUSE: Final = 0.2
IDENTITY_FOLDER: Final = "identity"
REVOCATIONS: Final = "revoked.pem"
_NEW_FOLDER: Final = "join with that in a new folder: --folder NEW_FOLDER."
EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  # what a coordinator listens on, for its operator to change
EVERY_ADDRESS_WITH_IPV6: Final = "[::]"
"""The same, if the study reaches it by IPv6. It includes the addresses of IPv4."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A party that joins, with its new folder. ``exchange`` is a folder of files that replaces the mailbox.

    ``proxy`` is on the way to the mailbox and to the coordinator. ``proxy_credentials`` is the file for it.
    """

    invitation: Invitation
    folder: Path
    exchange: Path | None = None
    proxy: ProxyAddress | None = None
    proxy_credentials: Path | None = None

    def __post_init__(self) -> None:
        check(
            self.proxy is None or not self._is_coordinator,
            "A proxy is for parties that connect to the coordinator, and this invitation is for the coordinator.",
            "Leave out --proxy.",
        )
        check(
            self.proxy_credentials is None or self.proxy is not None,
            "--proxy-credentials is given without --proxy.",
            "Give both, or --proxy alone.",
        )

    @property
    def identity_folder(self) -> Path:
        """Where the key and the certificate are."""
        return self.folder / IDENTITY_FOLDER

    @property
    def settings(self) -> Path:
        """The settings file."""
        return self.folder / f"{self.invitation.party.role}.toml"

    def joined(self) -> Identity | None:
        """Return the identity if this invitation has led to one already."""
        if files.stamp(self.identity_folder / IDENTITY_FILE) is None:
            return None
        found = Identity.load(self.identity_folder)
        same = (found.name, found.authority_pem) == (self.invitation.party, self.invitation.authority_pem)
        check(same, f"{self.folder} belongs to {found.name} already.", "Choose another folder with --folder.")
        self._require_not_revoked(found)
        check(
            identity.invitation_id(self.identity_folder) in {None, self.invitation.id},
            f"{found.name} joined in {self.folder} with another invitation than this one.",
            f"A new invitation is for a new key, so {_NEW_FOLDER}",
        )
        return found

    def _require_not_revoked(self, found: Identity) -> None:
        """Refuse a folder whose certificate was revoked, as far as its revocation list says so."""
        listed = identity.stored_revocations(self.folder / REVOCATIONS, found.authority_pem)
        if listed is not None and listed.names(found.certificate_pem):
            raise RevokedError(
                f"{self.folder} holds a certificate of {found.name} that was revoked.",
                f"Ask the authority's operator for a new invitation, and {_NEW_FOLDER}",
            )

    def require_usable(self, now: datetime) -> None:
        """Refuse an invitation that has expired or leads nowhere, before a key is made."""
        self._require_way()
        if self.invitation.until <= now:
            raise NotNowError(
                f"The invitation expired at {self.invitation.until:%Y-%m-%d %H:%M} UTC.",
                "Ask the authority's operator for a new one, or correct the clock.",
            )

    def request(self) -> bytes:
        """Make the key, unless there is one, and return the request."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise UnsafeFileError(
                f"{self.folder} cannot be created: {problem.strerror}.", "Choose another folder with --folder."
            ) from None
        return identity.join_request(self.identity_folder, self.invitation)

    def _require_way(self) -> None:
        check(
            bool(self.exchange or self.invitation.mailbox),
            "This federation has no mailbox.",
            "Name a folder with --exchange. The request is written there, and the certificate is expected there.",
        )

    @property
    def _mailbox(self) -> Mailbox:
        if self.exchange:
            return MailFolder(self.exchange)
        if self._is_coordinator:
            return MailFolder(self.folder / MAILBOX_FOLDER)
        address = Address.parse(self.invitation.mailbox)
        return RemoteMailbox(Route.of(address, self.proxy, self.proxy_credentials))

    @property
    def mail(self) -> CertificateMail:
        """This party's part of the mailbox."""
        revocations = None if self.invitation.party.role is Role.ANALYST else self.folder / REVOCATIONS
        return CertificateMail(self.identity_folder, revocations, self._mailbox, self.invitation.slot)

    @property
    def _is_coordinator(self) -> bool:
        return self.invitation.party.role is Role.COORDINATOR

    async def run(self, request: bytes, notify: Notify, *, wait: bool = True) -> Identity | None:
        """Send the request, wait for the certificate and install it. Without ``wait``, look once."""
        async with self._offered() as server:
            made = await wait_for_certificate(self.mail, request, self.invitation.authority_pem, notify, wait=wait)
            if made and server:
                await self._until_fetched(notify)
        return made

    async def _until_fetched(self, notify: Notify) -> None:
        """Offer the mailbox until the other parties have their certificates, because this one needs it no more."""
        folder = MailFolder(self.folder / MAILBOX_FOLDER)
        if folder.unconfirmed:
            notify("Waiting for the other parties to fetch their certificates.")
        with suppress(TimeoutError):  # the coordinator offers them again when it starts
            async with asyncio.timeout(FETCH_SECONDS):
                while folder.unconfirmed:  # noqa: ASYNC110  # nothing wakes it when a call ends
                    await asyncio.sleep(FETCH_PAUSE)

    @asynccontextmanager
    async def _offered(self) -> AsyncIterator["MailboxServer | None"]:
        """Offer the mailbox while the coordinator joins, because the others need it."""
        if not self._is_coordinator or self.exchange:
            yield None
            return
        from dpspca.server.mailbox import MailboxServer  # noqa: PLC0415  # analysts need no part of the coordinator

        folder, given = MailFolder(self.folder / MAILBOX_FOLDER), self.invitation
        server = MailboxServer(folder, given.mailbox_key, given.authority_pem)
        await server.start(_everywhere(given.mailbox))
        try:
            yield server
        finally:
            await server.stop()

    def write_settings(self, data_sets: dict[str, str], policy: str) -> bool:
        """Write a settings file, unless there is one, and return whether it was written."""
        if files.stamp(self.settings) is not None:
            return False
        content = settings_for(self.invitation, data_sets, policy, self._proxy_lines)
        files.create(self.settings, content.encode())
        return True

    @property
    def _proxy_lines(self) -> list[str]:
        """Return the lines of the settings that name the proxy."""
        lines = [] if self.proxy is None else [f"proxy = {_quoted(self.proxy)}"]
        if self.proxy_credentials is not None:
            lines.append(f"proxy_credentials = {_quoted(str(self.proxy_credentials.absolute()))}")
        return lines


def read_invitation(path: Path) -> Invitation:
    """Read an invitation from a file."""
    try:
        return Invitation.from_text(files.read(path))
    except NotTrustedError as problem:
        raise NotTrustedError(f"{path}: {problem.what}", problem.remedy) from None


def _everywhere(address: str) -> Address:
    """Return where to listen so that others reach this address: the same port on every address of this machine."""
    found = Address.parse(address)
    if is_loopback(found.host):
        return found
    return Address(f"{EVERY_ADDRESS_WITH_IPV6 if ':' in found.host else EVERY_ADDRESS}:{found.port}")


def settings_for(
    invitation: Invitation, data_sets: dict[str, str], policy: str, proxy_lines: Sequence[str] = ()
) -> str:
    """Return a settings file for a party that has joined."""
    party = invitation.party
    lines = [
        f"# Settings of {party}, written by `dpspca join`. `dpspca config sample {party.role}` explains every key."
    ]
    if party.role is Role.COORDINATOR:
        lines.append(f"listen = {_quoted(_everywhere(invitation.coordinator))}")
    else:
        lines += [f"coordinator = {_quoted(invitation.coordinator)}", *proxy_lines]
    lines.append(f"identity = {_quoted(IDENTITY_FOLDER)}")
    if party.role is not Role.ANALYST:
        lines.append(f"revocations = {_quoted(REVOCATIONS)}")
    if invitation.mailbox:
        where = _everywhere(invitation.mailbox) if party.role is Role.COORDINATOR else invitation.mailbox
        lines.append(f"mailbox = {_quoted(where)}")
    if party.role is Role.PROVIDER:
        lines += [f"policy = {_quoted(policy)}", "", "[data_sets]"]
        lines += [f"{name} = {_quoted(place)}" for name, place in data_sets.items()]
        if not data_sets:
            lines.append('# cohort = "rows.csv"   # a name for jobs, and the file with the rows')
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
