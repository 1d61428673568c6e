"""Names of parties: a federation, one of three roles, and a name, written as ``dpspca://FEDERATION/ROLE/NAME``.

Each party has exactly one written name, so two names are the same party if and only if their texts are equal. There
are no upper-case letters, percent-encodings or other alphabets, and nothing to normalise.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from .choices import choices
from .errors import InvalidParameterError, InvalidTypeError

MAX_NAME: Final = 63
COORDINATOR_HOST: Final = "coordinator.dpspca"
"""The host name in every coordinator's certificate, whatever its real address is."""

_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9.-]{{0,{MAX_NAME - 1}}}")
_MOST_SHOWN: Final = 80
_SCHEME: Final = "dpspca://"


class Role(StrEnum):
    """A party's role, which decides its rights. It is read from the party's certificate, never from its messages."""

    COORDINATOR = "coordinator"
    PROVIDER = "provider"
    ANALYST = "analyst"


@dataclass(frozen=True, slots=True, order=True)
class PartyName:
    """One party of one federation."""

    federation: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        check_name("the federation", self.federation)
        check_name("the party's name", self.name)
        if self.role not in set(Role):
            raise InvalidParameterError(f"Unknown role {shortened(self.role)}.", choices(self.role, list(Role)))
        object.__setattr__(self, "role", Role(self.role))

    @property
    def uri(self) -> str:
        """The canonical form of this name."""
        return f"{_SCHEME}{self.federation}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return self.uri

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read a name. Refuse any text that is not in canonical form."""
        if not isinstance(uri, str):
            raise InvalidTypeError(f"{shortened(uri)} is not text.", "Give a name as text.")
        parts = uri.removeprefix(_SCHEME).split("/")
        if not uri.startswith(_SCHEME) or len(parts) != 3:  # noqa: PLR2004  # federation, role, name
            raise InvalidParameterError(
                f"{shortened(uri)} is not the name of a party.", "Write it as dpspca://FEDERATION/ROLE/NAME."
            )
        federation, role, name = parts
        return cls(federation, role, name)  # type: ignore[arg-type]  # an unknown role is refused on construction


def check_name(what: str, name: object) -> str:
    """Refuse a name that is not in canonical form."""
    if not isinstance(name, str):
        raise InvalidTypeError(f"{what} is {shortened(name)}, not text.", "Give a name.")
    if not _NAME.fullmatch(name):
        raise InvalidParameterError(
            f"{what} is {shortened(name)}.",
            f"Use at most {MAX_NAME} of the characters a-z, 0-9, dot and hyphen, the first a letter or a digit.",
        )
    return name


def shortened(value: object) -> str:
    """Return a value from outside as text for a message: escaped, and at most 80 characters long.

    Text that is cut still ends with its quotation mark, so that a reader sees where the quotation ends.
    """
    if shape := getattr(value, "shape", ()):  # of a table or an array, no number is shown: it may be one of a row
        return f"(a {type(value).__name__} of the shape {shape})"
    try:
        text = ascii(value)
    except RecursionError:
        return "(nested too deeply to be shown)"
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "(a number too long to be shown)"
    if len(text) <= _MOST_SHOWN:
        return text
    end = f"...{text[-1]}" if text[0] == text[-1] and text[0] in "'\"" else "..."
    return text[: _MOST_SHOWN - len(end)] + end
