"""The study file: which parties a federation is made of, and where its coordinator and mailbox are."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Self, TypeAlias

from dpspca.common.decoding import By, Rule, Source, between, decode
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import PartyName, Role, check_name

from .addresses import Address
from .paths import FilePath, located
from .routes import Route
from .settings import ProxyText
from .toml_file import read_toml

_SAMPLE: Final = "`dpspca config sample study` shows what belongs there."
_MOST_DAYS: Final = 90

PartyText: TypeAlias = Annotated[str, By(lambda name, _: check_name("the name", name))]
Names: TypeAlias = Annotated[
    tuple[PartyText, ...],
    Rule("List names in brackets, each of them once.", lambda names: len(set(names)) == len(names)),
]
Days: TypeAlias = Annotated[int, between(1, _MOST_DAYS)]
FixedAddress: TypeAlias = Annotated[
    Address, By(lambda text, _: Address.parse(text)), Rule("Give a fixed port.", lambda address: address.port > 0)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The content of a study file."""

    federation: PartyText
    coordinator: PartyText
    address: FixedAddress
    mailbox: FixedAddress | None = None
    providers: Names
    analysts: Names
    certificate_days: Days = 30
    analyst_days: Days = 30
    invitation_days: Days = 14
    proxy: ProxyText | None = None
    proxy_credentials: FilePath | None = None

    def __post_init__(self) -> None:
        if self.mailbox == self.address:
            raise InvalidParameterError(
                f"mailbox and address are both {self.address}.", "Give the mailbox a port of its own."
            )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a study file, or say everything that is wrong with it."""
        return decode(cls, read_toml(path), Source(str(path), partial(located, path.parent), sample=_SAMPLE))

    @property
    def mailbox_route(self) -> Route | None:
        """How the authority's machine reaches the mailbox."""
        return None if self.mailbox is None else Route.of(self.mailbox, self.proxy, self.proxy_credentials)

    @property
    def parties(self) -> Iterator[PartyName]:
        """Name all parties: the coordinator, then providers and analysts as they are listed."""
        yield PartyName(self.federation, Role.COORDINATOR, self.coordinator)
        for role, names in ((Role.PROVIDER, self.providers), (Role.ANALYST, self.analysts)):
            for name in names:
                yield PartyName(self.federation, role, name)

    def days_for(self, party: PartyName) -> int:
        """Return how many days a certificate of this party is valid."""
        return self.analyst_days if party.role is Role.ANALYST else self.certificate_days
