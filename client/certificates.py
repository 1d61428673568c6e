"""Until when a party's own certificate, its authority's and the revocation list are valid."""

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import AnalystConfig, read_any_config
from dpspca.common.trust import Identity, load_revocations, read_authority

from .clock import now

SOON: Final = timedelta(days=10)
"""From when on before an end everybody is warned."""


def facts(config: Path) -> list[dict[str, Any]]:
    """Return what is valid until when, as plain values. What cannot be read is left out."""
    try:
        settings = read_any_config(config)
        me = Identity.load(settings.identity)
    except DpspcaError:
        return []
    found = [_fact(str(me.name), me.not_after)]
    found.append(_fact("the authority", read_authority(me.authority_pem).not_valid_after_utc))
    if not isinstance(settings, AnalystConfig):
        with suppress(DpspcaError):
            listed = load_revocations(settings.revocations, me.authority_pem)
            found.append(_fact("the revocation list", listed.next_update))
    return found


def _fact(what: str, until: datetime) -> dict[str, Any]:
    return {"what": what, "until": f"{until:%Y-%m-%dT%H:%M:%SZ}", "days_left": (until - now()).days}
