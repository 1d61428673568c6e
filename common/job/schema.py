"""The columns of a job: how many there are, and what they are called."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from dpspca.common.checks import check, check_whole
from dpspca.common.errors import InvalidTypeError

MAX_DIMENSION: Final = 2**24


@dataclass(frozen=True, slots=True)
class Schema:
    """How many columns the rows have and, where that is known, what they are called."""

    dimension: int
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        dimension = check_whole("the number of columns", self.dimension, least=1, most=MAX_DIMENSION)
        object.__setattr__(self, "dimension", dimension)
        if self.names is not None:
            object.__setattr__(self, "names", _names(self.names))
            if not all(isinstance(name, str) for name in self.names):
                raise InvalidTypeError("A column's name is not text.", "Give names as text, or none to any column.")
            check(
                len(self.names) == self.dimension,
                f"There are {len(self.names)} names for {self.dimension} columns.",
                "Give every column one name, or none to any.",
            )
            check(
                len(set(self.names)) == self.dimension,
                "Two columns have the same name.",
                "Give every column a name of its own.",
            )

    @classmethod
    def of(cls, columns: int | Sequence[str]) -> Self:
        """Make a schema from a number of columns or from their names."""
        if isinstance(columns, int | np.integer):
            return cls(int(columns))
        schema = cls(len(columns), tuple(columns))
        schema.require_named()
        return schema

    def require_named(self) -> None:
        """Refuse a column whose name is empty. Only new jobs are checked: jobs on a disk are read as they are."""
        empty = [number for number, name in enumerate(self.names or (), 1) if not name.strip()]
        check(
            not empty,
            f"Column {empty[0] if empty else 0} of {self.dimension} has an empty name.",
            "Give it a name, or remove it: some programs write a column of row numbers without one.",
        )


def check_components(name: str, value: Any, columns: int) -> int:  # noqa: ANN401  # any value
    """Return the number of components, or refuse one that is not from 1 to the number of columns."""
    return check_whole(name, value, least=1, most=columns, most_is="the number of columns")


def _names(given: Any) -> tuple[Any, ...]:  # noqa: ANN401  # whatever was given
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidTypeError(f"The columns' names are {given!r:.60}.", "Give a list of names.")
    return tuple(given)
