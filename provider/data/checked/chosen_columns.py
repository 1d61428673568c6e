"""Some columns of rows that are read when they are used."""

from collections.abc import Sequence
from dataclasses import dataclass

from .later_rows import forget_kept
from .preparation import Table, UsableRows, column_places, with_places


@dataclass(frozen=True, eq=False, slots=True)
class ChosenColumns:
    """Rows with some of their columns, in the order that a job names them."""

    rows: UsableRows
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.rows.count

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return len(self.names)

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self.rows.is_sparse

    @property
    def pieces(self) -> Sequence[slice] | None:
        """The parts in which all rows are read one after the other, or None if they are in memory."""
        return self.rows.pieces

    def part(self, which: slice) -> Table:
        """Return rows by their position."""
        return with_places(self.rows.part(which), column_places(self.rows.names or (), self.names))

    def forget(self) -> list[object]:
        """Drop the rows that were kept in memory, and return them."""
        return forget_kept(self.rows)


def columns_of(rows: UsableRows, names: Sequence[str] | None) -> UsableRows:
    """Return rows with the columns of these names in this order, or the rows as they are if None."""
    if names is None or tuple(names) == rows.names:
        return rows
    return ChosenColumns(rows, tuple(names))
