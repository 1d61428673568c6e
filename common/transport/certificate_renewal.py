"""Keeps a daemon's certificate and revocation list fresh, and warns before either ends.

When a third of the certificate's life is left, the daemon makes a new key, signs the request for it with its current
key, and leaves it in the mailbox. The authority's operator signs it with the next `dpspca study sign`. The old
certificate stays in use until the new one is installed; connections that are open keep it until they end. A newer
revocation list is fetched from the mailbox; it must be signed by the authority, and an older one is refused.

Whatever goes wrong here is logged and tried again. The daemon goes on with what it has.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from secrets import randbelow
from typing import Final, NamedTuple

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import Emit, ignore
from dpspca.common.trust import Identity, RevocationList, identity, read_authority, read_certificate

from .certificate_mail import CertificateMail

LOOK_SECONDS: Final = 60.0
"""Between two looks into the mailbox."""
SOON: Final = timedelta(days=10)
"""From when on before an end there are warnings; for short lives, from when a third is left."""
WARN_SECONDS: Final = 86_400.0
"""Between two warnings in the log about the same end."""

_log = logging.getLogger(__name__)


class Expiry(NamedTuple):
    """When something expires, and from when on to warn."""

    what: str
    until: datetime
    soon: datetime

    @classmethod
    def of(cls, what: str, since: datetime, until: datetime) -> "Expiry":
        """Return the end of something that is valid for this time."""
        return cls(what, until, until - min(SOON, (until - since) / 3))

    def warning(self, now: datetime) -> str:
        """Return a warning if the end is near, and nothing otherwise."""
        if now < self.soon:
            return ""
        if now >= self.until:
            return f"{self.what} expired at {self.until:%Y-%m-%d %H:%M} UTC."
        left = self.until - now
        hours = left / timedelta(hours=1)
        size = f"{left.days} days" if left >= timedelta(days=2) else f"{hours:.0f} hours"
        return f"{self.what} ends in {size}, at {self.until:%Y-%m-%d %H:%M} UTC."


def ends(me: Identity, revoked: RevocationList | None) -> list[Expiry]:
    """Return until when a party's certificate, its authority's and its revocation list are valid."""
    own, authority = read_certificate(me.certificate_pem), read_authority(me.authority_pem)
    found = [
        Expiry.of(f"The certificate of {me.name}", own.not_valid_before_utc, own.not_valid_after_utc),
        Expiry.of("The authority's certificate", authority.not_valid_before_utc, authority.not_valid_after_utc),
    ]
    if revoked is not None:
        found.append(Expiry.of("The revocation list", revoked.issued_at, revoked.next_update))
    return found


def days_until(end: datetime, now: datetime) -> float:
    """Return how many days are left."""
    return (end - now) / timedelta(days=1)


def is_due(me: Identity, now: datetime) -> bool:
    """Whether a certificate is to be renewed: when a third of its life is left."""
    since, until = read_certificate(me.certificate_pem).not_valid_before_utc, me.not_after
    return now >= until - (until - since) / 3


def catch_up(mail: CertificateMail, me: Identity, now: datetime) -> None:
    """Before a program starts: fetch what came while it was off, and ask for a new certificate if that is due."""
    for problem in renew_if_due(mail, me, now)[1]:
        _log.warning("Not all that is new came from the mailbox: %s", problem)


def renew_if_due(mail: CertificateMail, me: Identity, now: datetime) -> tuple[Identity | None, list[str]]:
    """Fetch the revocation list, and ask for a new certificate if that is due. Return it if it is there already.

    A list that is refused, such as an older one, does not keep the certificate from being renewed. The texts say what
    went wrong, which certificate was ignored, or which other key asks in this party's name.
    """
    problems = list[str]()
    try:
        mail.fetch_revocations(me.authority_pem)
    except DpspcaError as problem:
        problems.append(str(problem))
    try:
        made, ignored = mail.receive(me.authority_pem) if identity.is_waiting(mail.folder) else (None, "")
        problems += [ignored] if ignored else []
        if made is None and is_due(me, now) and (others := mail.send(identity.renew_request(mail.folder))):
            problems.append(others)
    except DpspcaError as problem:
        problems.append(str(problem))
        return None, [*dict.fromkeys(problems)]  # if the mailbox is away, both say so
    return made, problems


class CertificateRenewer:
    """Renews, fetches and warns, for as long as a daemon runs. Without ``mail`` it only warns.

    It also emits an event about every certificate and revocation list that comes into use, whoever installed it.
    """

    def __init__(
        self,
        mail: CertificateMail | None,
        current: Callable[[], Identity],
        revocations: Callable[[], RevocationList],
        clock: Callable[[], datetime],
        events: Emit = ignore,
    ) -> None:
        self._mail = mail
        self._events = events
        self._shown: tuple[bytes, int] = b"", -1
        """The certificate and the number of the revocation list of the last events."""
        self._current = current
        self._revocations = revocations
        self._clock = clock
        self._request = b""
        """The request that waits. It is made once, because each signature gives other bytes."""
        self._asked_for: bytes | None = None
        self._logged: dict[Hashable, datetime] = {}

    def follow(self, mail: CertificateMail | None) -> None:
        """Use this mail from now on, because the settings name another list or another proxy now."""
        self._mail = mail

    async def run(self) -> None:
        """Look regularly, at moments that differ between parties."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_SECONDS * (0.5 + randbelow(1000) / 1000))

    def look(self) -> None:
        """Do once what is to be done now."""
        for step in (self._warn, self._fetch, self._renew, self._emit_what_is_used):
            try:
                step()
            except DpspcaError as problem:
                self._log_once_a_day(str(problem), str(problem))
            except Exception:  # noqa: BLE001  # the daemon goes on with what it has
                _log.exception("Keeping the certificate fresh failed because of a bug.")

    def _warn(self) -> None:
        now = self._clock()
        for end in ends(self._current(), self._revocations()):
            if warning := end.warning(now):
                self._log_once_a_day(warning, (end.what, now >= end.until))

    def _fetch(self) -> None:
        if self._mail is None:
            return
        fetched = self._mail.fetch_revocations(self._current().authority_pem)
        if fetched:
            _log.info("Installed the revocation list %d, valid until %s.", fetched.number, f"{fetched.next_update:%F}")

    def _renew(self) -> None:
        me = self._current()
        if self._mail is None or not is_due(me, self._clock()):
            return
        if not self._request or not identity.is_waiting(self._mail.folder):
            self._request = identity.renew_request(self._mail.folder)
        if others := self._mail.send(self._request):
            self._log_once_a_day(others, others)
        if self._asked_for != me.certificate_pem:
            self._asked_for = me.certificate_pem
            _log.info("Asked the authority to renew the certificate, which expires on %s.", f"{me.not_after:%F}")
        made, _ = self._mail.receive(me.authority_pem)
        if made:
            self._request = b""

    def _emit_what_is_used(self) -> None:
        """Emit events about the certificate and the revocation list in use, if they are others than before.

        A new certificate is also logged, even if somebody installed it by hand.
        """
        me, listed = self._current(), self._revocations()
        certificate, number = self._shown
        self._shown = me.certificate_pem, listed.number
        if me.certificate_pem != certificate:
            serial = f"{read_certificate(me.certificate_pem).serial_number:x}"
            self._events("certificate", serial=serial, until=me.not_after.isoformat())
            if certificate:
                _log.info("A renewed certificate is in use. It is valid until %s.", f"{me.not_after:%F}")
        if listed.number != number:
            until = listed.next_update.isoformat()
            self._events("revocation-list", list_number=listed.number, until=until, revoked=len(listed.serials))

    def _log_once_a_day(self, text: str, about: Hashable) -> None:
        """Log a warning, but one about the same thing only once a day, however its words change meanwhile."""
        now = self._clock()
        last = self._logged.get(about)
        if last is None or now - last >= timedelta(seconds=WARN_SECONDS):
            self._logged = {each: at for each, at in self._logged.items() if (now - at).total_seconds() < WARN_SECONDS}
            self._logged[about] = now
            _log.warning("%s", text)
