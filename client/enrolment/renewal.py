"""How a party renews its certificate, at its command or in time by itself, and waits for what the authority signs."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final

from dpspca.client.clock import now
from dpspca.common.checks import check
from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName
from dpspca.common.storage import AnalystSettings, AnySettings, CoordinatorSettings, read_any_settings
from dpspca.common.transport import (
    CertificateMail,
    Mailbox,
    MailboxAwayError,
    MailFolder,
    RemoteMailbox,
    catch_up,
    is_due,
    renew_if_due,
)
from dpspca.common.trust import SLOT_FILE, Identity, identity

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds between two looks into the mailbox."""
MAILBOX_FOLDER: Final = "mailbox"
"""The coordinator's folder of the mailbox, in the folder of its settings unless they name another."""

Notify = Callable[[str], None]

_log = logging.getLogger(__name__)


def begin(config: Path, exchange: Path | None) -> tuple[bytes, CertificateMail]:
    """Create a key unless a renewal is pending. Return the certificate request and how it is delivered."""
    settings = read_any_settings(config)
    mail = mail_of(settings, config, exchange)
    return identity.renew_request(settings.identity), mail


def if_due(config: Path, exchange: Path | None, revocations: Path | None = None) -> tuple[Identity, bool, list[str]]:
    """Do once what a daemon with a mailbox does by itself. Return the identity, and whether its certificate is new.

    Fetch the newest revocation list, into ``revocations`` too if that has an older one. Install the certificate if one
    was asked for and is there. Ask for one if a third of the certificate's life is left. The texts say what went wrong.
    """
    settings = read_any_settings(config)
    me, mail = Identity.load(settings.identity), mail_of(settings, config, exchange)
    made, problems = renew_if_due(mail, me, now())
    if revocations is not None:
        copy_newer_list(mail, revocations, me.authority_pem)
    return made or me, made is not None, problems


def copy_newer_list(mail: CertificateMail, target: Path, authority_pem: bytes) -> None:
    """Copy a party's revocation list over an older one. A newer one that was installed by hand stays."""
    if mail.revocations is None:
        return
    fetched, there = (identity.stored_revocations(path, authority_pem) for path in (mail.revocations, target))
    if fetched is not None and (there is None or fetched.number > there.number):
        identity.install_revocations(target, mail.revocations.read_bytes(), authority_pem)


def mail_of(settings: AnySettings, config: Path, exchange: Path | None = None) -> CertificateMail:
    """Return a party's part of the mailbox that its settings name, or of a folder of files."""
    revocations = None if isinstance(settings, AnalystSettings) else settings.revocations
    if exchange:
        has_slot = (settings.identity / SLOT_FILE).exists()
        own = Identity.load(settings.identity).name
        slot = identity.mailbox_slot(settings.identity) if has_slot else _slot_for_files(own)
        return CertificateMail(settings.identity, revocations, MailFolder(exchange), slot)
    check(
        settings.mailbox is not None,
        f"{config} names no mailbox.",
        "Add it, or name a folder with --exchange.",
    )
    mailbox: Mailbox
    if isinstance(settings, CoordinatorSettings):
        mailbox = MailFolder(mailbox_folder(settings, config))
    else:
        assert settings.mailbox_route
        mailbox = RemoteMailbox(settings.mailbox_route)
    return CertificateMail(settings.identity, revocations, mailbox, identity.mailbox_slot(settings.identity))


def mailbox_folder(settings: CoordinatorSettings, config: Path) -> Path:
    """Return where a coordinator with these settings, in this file, keeps its mailbox."""
    return settings.mailbox_folder or config.parent / MAILBOX_FOLDER


def keep_fresh(settings: AnalystSettings, config: Path) -> None:
    """Do for an analyst what a daemon does by itself: ask for a new certificate in time, and install it.

    Every command that connects does this first, if a third of the certificate's life is left and the settings name a
    mailbox. What goes wrong is logged, and the earlier certificate stays in use.
    """
    if settings.mailbox is None or not (settings.identity / SLOT_FILE).exists():
        return
    me = Identity.load(settings.identity)
    if not is_due(me, now()):
        return
    try:
        mail = mail_of(settings, config)
    except DpspcaError as problem:
        _log.warning("The certificate is not renewed: %s", problem)
        return
    with ThreadPoolExecutor(1) as apart:  # an event loop may run in this thread
        apart.submit(catch_up, mail, me, now()).result()


async def run(mail: CertificateMail, request: bytes, notify: Notify, *, wait: bool) -> Identity | None:
    """Send a renewal, wait for the certificate and install it. Without ``wait``, look once."""
    authority = Identity.load(mail.folder).authority_pem
    return await wait_for_certificate(mail, request, authority, notify, wait=wait)


async def wait_for_certificate(
    mail: CertificateMail, request: bytes, authority_pem: bytes, notify: Notify, *, wait: bool
) -> Identity | None:
    """Send a request, and look for the certificate until it is installed. Without ``wait``, look once."""
    pause, noted = FIRST_PAUSE, ""
    while True:
        try:
            made, news = await asyncio.to_thread(_look, mail, request, authority_pem)
        except MailboxAwayError as problem:
            if not wait:
                raise
            made, news = None, f"{problem.what} Trying again."
        if news not in {"", noted}:
            notify(news)
            noted = news
        if made or not wait:
            return made
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, LONGEST_PAUSE)


def _look(mail: CertificateMail, request: bytes, authority_pem: bytes) -> tuple[Identity | None, str]:
    others = mail.send(request)
    made, ignored = mail.receive(authority_pem)
    return made, " ".join(filter(None, (others, ignored)))


def _slot_for_files(party: PartyName) -> str:
    """Return a name for the files of a party that was enrolled without a mailbox. It need not be secret."""
    return f"{party.role}-{party.name}-{sha256(party.uri.encode()).hexdigest()[:32]}"
