"""Identities of the parties of all runs. They are made once, because making them takes long."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from local_federation import Enrolment

from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList

SITES: Final = ("north", "south", "east")
DIMENSION: Final = 6


@dataclass(frozen=True)
class PartyIdentities:
    """The identities of all parties. ``bob`` is a second analyst, or None."""

    authority_pem: bytes
    revoked: RevocationList
    started_at: datetime
    hub: Identity
    ada: Identity
    sites: dict[str, Identity]
    bob: Identity | None = None

    @classmethod
    def of(cls, enrolment: Enrolment, started_at: datetime) -> "PartyIdentities":
        return cls(
            enrolment.authority.certificate_pem,
            enrolment.revocations(),
            started_at,
            enrolment.identity(Role.COORDINATOR, "hub"),
            enrolment.identity(Role.ANALYST, "ada"),
            {name: enrolment.identity(Role.PROVIDER, name) for name in SITES},
            enrolment.identity(Role.ANALYST, "bob"),
        )
