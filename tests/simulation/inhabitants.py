"""Who lives in every universe: identities, made once, for that takes long and says nothing about a run."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from town import Town

from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList

SITES: Final = ("north", "south", "east")
DIMENSION: Final = 6


@dataclass(frozen=True)
class Inhabitants:
    """The parties; ``bob`` is there where a second analyst is wanted."""

    authority_pem: bytes
    revoked: RevocationList
    born: datetime
    hub: Identity
    ada: Identity
    sites: dict[str, Identity]
    bob: Identity | None = None

    @classmethod
    def of(cls, town: Town, born: datetime) -> "Inhabitants":
        return cls(
            town.authority.certificate_pem,
            town.revocations(),
            born,
            town.identity(Role.COORDINATOR, "hub"),
            town.identity(Role.ANALYST, "ada"),
            {name: town.identity(Role.PROVIDER, name) for name in SITES},
            town.identity(Role.ANALYST, "bob"),
        )
