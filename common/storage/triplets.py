"""What is declared about rows that are written as triplets: a line for each number, with its row and its column."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Self

from dpspca.common.errors import InvalidParameterError

SUM: Final = "sum"
UNUSABLE: Final = "unusable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Triplets:
    """Which columns of a long table say to which row and column a number belongs."""

    row: str
    column: str
    rows: Path
    """A file that names all rows, one in each line, in their order. Rows that no triplet names are rows of zeros.

    Without it, a row without triplets would not be there, and others would take its place.
    """
    value: str | None = None
    """The column with the numbers. By default each triplet counts 1."""
    duplicates: str = SUM
    """What several numbers of one row and column mean: their sum, or that the row is unusable."""

    @classmethod
    def parse(cls, told: object) -> Self:
        """Check what was written."""
        if not isinstance(told, Mapping):
            raise _wrong(f"triplets is {told!r:.80}.")
        known = {each.name for each in fields(cls)}
        for key, value in told.items():
            if key not in known or not isinstance(value, str) or not value.strip():
                raise _wrong(f"triplets has {key!r:.60} = {value!r:.60}.")
        missing = sorted({"row", "column", "rows"} - told.keys())
        if missing:
            raise _wrong(f"triplets lacks {', '.join(missing)}.")
        if told.get("duplicates", SUM) not in {SUM, UNUSABLE}:
            raise InvalidParameterError(
                f"duplicates is {told['duplicates']!r:.60}.", f"Use {SUM!r} or {UNUSABLE!r} (the row counts as zeros)."
            )
        return cls(**{**told, "rows": Path(told["rows"])})

    def located(self, locate: Callable[[str], Path]) -> Self:
        """Take the path of the rows from where ``locate`` finds it."""
        return replace(self, rows=locate(str(self.rows)))


def _wrong(what: str) -> InvalidParameterError:
    return InvalidParameterError(
        what,
        'Write { row = "person_id", column = "concept_id", value = "value", rows = "persons.txt" }: three columns, and '
        "a file that names all rows. value and duplicates may be left out.",
    )
