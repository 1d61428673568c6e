"""The study file: which parties a federation is made of, and where its coordinator and mailbox are."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import PartyName, Role, check_name

from .addresses import Address
from .toml_file import read_toml

_SAMPLE: Final = "`dpspca config sample study` shows what belongs there."
_NEEDED: Final = frozenset({"federation", "coordinator", "address", "providers", "analysts"})
_DAYS: Final = {"certificate_days": (30, 90), "analyst_days": (30, 90), "invitation_days": (14, 90)}
"""How long certificates and invitations are valid: the default, and the most."""
_KNOWN: Final = sorted(_NEEDED | {"mailbox"} | _DAYS.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a study file says."""

    federation: str
    coordinator: str
    address: Address
    mailbox: Address | None
    providers: tuple[str, ...]
    analysts: tuple[str, ...]
    certificate_days: int
    analyst_days: int
    invitation_days: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a study file, or raise an error that names the key that is wrong."""
        raw = read_toml(path)
        for key in sorted(raw.keys() - set(_KNOWN)):
            near = get_close_matches(key, _KNOWN, n=1)
            known = f"Did you mean {near[0]!r}?" if near else f"Use: {', '.join(_KNOWN)}."
            raise InvalidParameterError(f"{path} does not know {key!r:.80}.", known)
        if missing := sorted(_NEEDED - raw.keys()):
            raise InvalidParameterError(f"{path} lacks {', '.join(missing)}.", _SAMPLE)
        try:
            read = cls(
                federation=check_name("the federation", raw["federation"]),
                coordinator=check_name("the coordinator", raw["coordinator"]),
                address=_address("address", raw["address"]),
                mailbox=None if "mailbox" not in raw else _address("mailbox", raw["mailbox"]),
                providers=_names("providers", raw["providers"]),
                analysts=_names("analysts", raw["analysts"]),
                **{key: _days(key, raw.get(key, usual), most) for key, (usual, most) in _DAYS.items()},
            )
        except DpspcaError as problem:
            raise InvalidParameterError(f"{path}: {problem.what}", problem.remedy) from None
        if read.mailbox == read.address:
            raise InvalidParameterError(
                f"{path}: mailbox and address are both {read.address}.", "Give the mailbox a port of its own."
            )
        return read

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


def _address(key: str, value: object) -> Address:
    try:
        found = Address.parse(value)  # type: ignore[arg-type]  # it refuses what is no text
    except InvalidParameterError as problem:
        raise InvalidParameterError(f"{key}: {problem.what}", problem.remedy) from None
    if not found.port:
        raise InvalidParameterError(f"{key} is {found}, but parties need a fixed port.", "Give a port.")
    return found


def _names(key: str, value: Any) -> tuple[str, ...]:  # noqa: ANN401  # whatever was written
    if not isinstance(value, list):
        raise InvalidParameterError(f"{key} is {value!r:.80}.", 'Give a list of names, as in ["north", "south"].')
    names = tuple(check_name(f"a name in {key}", each) for each in value)
    if len(set(names)) < len(names):
        raise InvalidParameterError(f"{key} lists a name twice.", "Give every party a name of its own.")
    return names


def _days(key: str, value: object, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidParameterError(f"{key} is {value!r:.80}.", f"Give 1 to {most} days.")
    return value
