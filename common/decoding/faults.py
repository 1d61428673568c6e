"""Faults of raw input: what is wrong, where, and what may be there instead."""

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Any, Final, NamedTuple

from dpspca.common.errors import InvalidInputError, InvalidParameterError
from dpspca.common.names import shortened

MOST_FAULTS: Final = 20
"""More faults of one list, table or document are not listed."""
_MOST_NAMED: Final = 30
_LONGEST_KEY: Final = 60
_BARE: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")
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


def plain(key: object) -> str:
    """Return a key as it is if it is short and harmless, and escaped and shortened if it is not."""
    return key if isinstance(key, str) and _BARE.fullmatch(key) else f"{str(key)[:_LONGEST_KEY]!a}"


def choices(value: object, known: Iterable[str]) -> str:
    """Say which known name was meant, or which there are."""
    names = sorted(known) if isinstance(known, AbstractSet) else list(known)
    near = get_close_matches(value[:_LONGEST_KEY], names, n=1) if isinstance(value, str) else []
    more = ", ..." if len(names) > _MOST_NAMED else ""
    listed = f"Choose one of: {', '.join(map(repr, names[:_MOST_NAMED]))}{more}."
    return f"Did you mean {near[0]!r}? {listed}" if near else listed
