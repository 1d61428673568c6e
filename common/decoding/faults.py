"""Faults of raw input: what is wrong, where, and what may be there instead."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from dpspca.common.choices import plain
from dpspca.common.errors import InvalidInputError, InvalidParameterError
from dpspca.common.names import shortened

MOST_FAULTS: Final = 20
"""More faults of one list, table or document are not listed."""
LONGEST_TEXT: Final = 2**20


@dataclass(frozen=True, slots=True)
class Source:
    """Where raw input comes from."""

    name: str = ""
    """Its name in messages, such as the path of a file. Every message begins with it."""
    locate: Callable[[str], Any] = str
    """Where a path that is written there leads."""
    longest_text: float = LONGEST_TEXT
    """Characters of one text."""
    sample: str = ""
    """A sentence that says where an example is."""


STORED: Final = Source("The stored value", longest_text=inf)
"""Values that a program stored itself. They may contain long texts."""


class Fault(NamedTuple):
    """One mistake: the keys that lead to it, the rest of the sentence, and what to do."""

    path: tuple[str | int, ...]
    rest: str
    remedy: str

    def error(self, source: Source) -> InvalidParameterError:
        """Return the error about it."""
        where = ": ".join(part for part in (source.name, dotted(self.path)) if part)
        text = f"{where}{self.rest}" if where else self.rest.removeprefix(":").strip()
        return InvalidParameterError(text, self.remedy)


class WrongInput(Exception):  # noqa: N818  # never leaves this package: it becomes an InvalidInputError
    """A value is wrong. On its way up each table adds the key under which it is."""

    def __init__(self, faults: Sequence[Fault], *, is_kind: bool = False) -> None:
        super().__init__()
        self.faults = faults
        self.is_kind = is_kind
        """Whether the value is of another kind, so that a rule of the field knows better what to write."""

    @classmethod
    def of(cls, value: object, remedy: str) -> "WrongInput":
        """Say that a value cannot be there."""
        return cls([Fault((), f" is {shortened(value)}.", remedy)], is_kind=True)

    def under(self, key: str | int) -> list[Fault]:
        """Return the faults of a value that is under a key."""
        return [fault._replace(path=(key, *fault.path)) for fault in self.faults]

    def error(self, source: Source) -> InvalidInputError:
        """Return the error about all of them."""
        return InvalidInputError([fault.error(source) for fault in self.faults[:MOST_FAULTS]])


def dotted(path: Iterable[str | int]) -> str:
    """Write a path of keys as TOML does, and places in a list in brackets."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{plain(key)}" for key in path)
    return "".join(parts).removeprefix(".")
