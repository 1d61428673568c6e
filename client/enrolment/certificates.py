"""Until when a party's own certificate, its authority's and the revocation list are valid."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpspca.client.clock import now
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import AnalystSettings, read_any_settings
from dpspca.common.transport import Expiry, ends
from dpspca.common.trust import Identity, RevocationList, load_revocations


def facts(config: Path) -> list[dict[str, Any]]:
    """Return until when certificates and lists are valid, as plain values. Those that cannot be read are left out."""
    try:
        settings = read_any_settings(config)
        me = Identity.load(settings.identity)
    except DpspcaError:
        return []
    listed: RevocationList | None = None
    if not isinstance(settings, AnalystSettings):
        with suppress(DpspcaError):
            listed = load_revocations(settings.revocations, me.authority_pem)
    return [_fact(end) for end in ends(me, listed)]


def warnings(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return warnings about certificates that end soon or have expired."""
    return [each["warning"] for each in found if each["warning"]]


def _fact(end: Expiry) -> dict[str, Any]:
    return {
        "what": end.what,
        "until": f"{end.until:%Y-%m-%dT%H:%M:%SZ}",
        "days_left": (end.until - now()).days,
        "warning": end.warning(now()) or None,
    }
