"""Who connects to which coordinator, and whether the certificate is still valid."""

from collections.abc import Callable
from datetime import datetime
from os import PathLike
from pathlib import Path

from dpspca.client.enrolment import keep_fresh
from dpspca.common.checks import check
from dpspca.common.errors import NotNowError
from dpspca.common.storage import AnalystSettings, Route, read_settings
from dpspca.common.trust import CurrentIdentity, Identity


def settings(
    where: str | PathLike[str], identity: str | PathLike[str] | None
) -> tuple[str | Route, Callable[[], Identity]]:
    """Return the way to the coordinator, and a function that reads the identity as it is on disk when it is called.

    They come from a settings file, or from an address and a folder.
    """
    require_filled("the coordinator's address" if identity is not None else "the path of the settings file", where)
    if identity is not None:
        require_filled("the folder of the identity", identity)
        return str(where), CurrentIdentity(Path(identity)).get
    read = read_settings(AnalystSettings, Path(where))
    keep_fresh(read, Path(where))
    return read.route, CurrentIdentity(read.identity).get


def require_filled(what: str, given: str | PathLike[str]) -> None:
    """Refuse empty text. As a path it would mean the current folder, and as a prefix it would match every name."""
    check(bool(str(given).strip()), f"{what} is {given!r}, which is empty.", "Give a value.")


def require_in_force(me: Identity, now: datetime) -> None:
    """Raise if the certificate has expired. It is checked here because gRPC does not say why a handshake failed."""
    if me.not_after <= now:
        raise NotNowError(
            f"The certificate of {me.name} expired at {me.not_after:%Y-%m-%d %H:%M} UTC.",
            "Renew it with `dpspca identity renew`, or correct the clock.",
        )


def warn_if_outlived(me: Identity, end: datetime, notify: Callable[[str], None]) -> None:
    """Warn if a job may still run when the certificate that signs it ends. No provider answers it after that."""
    if me.not_after < end:
        notify(
            f"Your certificate ends at {me.not_after:%Y-%m-%d %H:%M} UTC, and no provider answers this job after that, "
            f"although the job is valid until {end:%Y-%m-%d %H:%M} UTC. If it may take so long, cancel it, renew with "
            "`dpspca identity renew`, and sign it again."
        )
