"""The content of evidence as plain values, as the file states it, whether or not it holds."""

from dataclasses import asdict
from typing import Any, Final

from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.errors import DpspcaError
from dpspca.common.names import shortened
from dpspca.common.storage import installed_digest
from dpspca.common.trust import StatementKind, holder_at, read_certificate
from dpspca.common.version import __version__

from .document import Evidence, Reported
from .parts import moment, read_request

_MOST_OUTCOMES: Final = 20
"""Providers whose outcome is in the words of a finding. All of them are among the facts."""


def stated_facts(evidence: Evidence) -> dict[str, Any]:
    """Return what the collector states, and the software that reads it. What others signed is added when checked."""
    return {
        "collected_at": evidence.collected_at,
        "collector": _collector(evidence),
        "reported": asdict(evidence.reported),
        "requests": {kind: _request(evidence, kind) for kind in StatementKind if kind in evidence.requests},
        "model": None if evidence.model is None else asdict(evidence.model),
        "software": {
            "dpspca": evidence.software,
            "digest": evidence.software_digest,
            "bill_of_materials": evidence.bill_of_materials,
        },
        "installed": {"dpspca": __version__, "digest": installed_digest()},
    }


def outcomes_in_words(reported: Reported) -> str:
    """Return what the coordinator reported of each provider."""
    listed = [
        f"{shortened(name)} answered {each.answered} of {each.asked}"
        + (f" ({shortened(each.reason)})" if each.reason else "")
        for name, each in list(reported.providers.items())[:_MOST_OUTCOMES]
    ]
    more = len(reported.providers) - len(listed)
    return ", ".join([*listed, *([f"and {more} more"] if more else [])]) or "no provider took part"


def _collector(evidence: Evidence) -> dict[str, Any] | None:
    """Return the party that the collector's certificate names, and the certificate's fingerprint."""
    try:
        holder = holder_at(evidence.collector.encode(), evidence.authority.encode(), moment(evidence.collected_at))
        certificate = read_certificate(evidence.collector.encode())
    except DpspcaError:
        return None
    return {"party": holder.uri, "fingerprint": certificate.fingerprint(SHA256()).hex(":").upper()}


def _request(evidence: Evidence, kind: StatementKind) -> dict[str, Any] | None:
    try:
        signed, request = read_request(evidence, kind)
    except DpspcaError:
        return None
    return {"about": request.about, "issued_at": request.issued_at, "digest": signed.digest}
