"""Rules of a field's type, besides the kind of its values: ``Annotated[kind, ...]``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from dpspca.common.checks import is_real
from dpspca.common.choices import choices

from .faults import Source


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a value. ``expected`` tells a reader what to write, whatever is wrong with the value."""

    expected: str | Callable[[object], str]
    holds: Callable[[Any], bool] = lambda _: True

    def remedy(self, value: object) -> str:
        """Name the values that are allowed instead."""
        return self.expected if isinstance(self.expected, str) else self.expected(value)


@dataclass(frozen=True, slots=True)
class By:
    """A function that takes a value of type ``of`` and gives the field's, or raises an error of this package."""

    read: Callable[[Any, Source], Any]
    of: Any = Any


class Derived:
    """Marks a field that follows from others and cannot be written."""


def between(least: float, most: float, what: str = "a whole number") -> Rule:
    """Return the rule that a number lies in a range, both ends included."""
    return Rule(f"Give {what} from {least} to {most}.", lambda value: is_real(value) and least <= value <= most)


def one_of(*known: str) -> Rule:
    """Return the rule that text is one of the known."""
    return Rule(lambda value: choices(value, known), lambda value: value in known)


def distinct(expected: str) -> Rule:
    """Return the rule that a list has entries, and none of them twice."""
    return Rule(expected, lambda entries: 0 < len(entries) == len(set(entries)))


Filled: TypeAlias = Annotated[str, Rule("Give text in quotes that is not empty.", lambda text: bool(text.strip()))]
"""Text that says something."""
Count: TypeAlias = Annotated[int, Rule("Give a whole number from 0 on.", lambda count: count >= 0)]
DERIVED: Final = Derived()
