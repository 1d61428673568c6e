"""What a method decided from public facts and released numbers, and on what grounds.

A decision is computed from released numbers alone, so it costs no privacy. Its wording is in ``client/findings.py``.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from .checks import check, check_whole, choice, is_real


class ReleasePath(StrEnum):
    """Which way the budget was spent."""

    WHOLE = "whole-matrix"
    SPARSE = "staged-sparse"
    DENSE = "staged-dense"
    WIDE = "staged-wide"
    PRODUCTS = "staged-products"


@dataclass(frozen=True, slots=True)
class Decision:
    """The path that was taken, how many columns take part, and what spoke for it.

    ``outstanding`` is how many columns stood out from noise, and ``held`` which part of what all columns show these
    hold. Both are None where the path follows from the number of columns alone; ``held`` is also None where the number
    of outstanding columns decided, or where there are too many columns for a matrix of all. ``visible`` is how many
    components showed above the noise of the largest matrix that was released. Where it is fewer than were asked for,
    columns may have been missed without a sign of it. Of the ``asked`` components, ``useful`` ones showed above noise
    in the last release and explain more than an average column; both are None where none was to be left out.
    ``hidden`` says that noise hid how long rows are, and no bound was known: all were clipped to one length.
    """

    path: ReleasePath
    columns: int
    outstanding: int | None = None
    held: float | None = None
    visible: int | None = None
    asked: int | None = None
    useful: int | None = None
    hidden: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"path": self.path.value}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """Read what ``to_dict`` wrote, with every check."""
        path = choice(ReleasePath, "the path of a decision", raw["path"])
        columns = check_whole("the columns of a decision", raw["columns"], least=0, most=2**31)
        outstanding, held, visible = raw["outstanding"], raw["held"], raw["visible"]
        asked, useful = raw["asked"], raw["useful"]
        for name, count in (
            ("outstanding columns", outstanding),
            ("visible components", visible),
            ("asked components", asked),
            ("useful components", useful),
        ):
            if count is not None:
                check_whole(f"the {name} of a decision", count, least=0, most=2**31)
        check(held is None or is_real(held), "The part that a decision is based on is no number.", "Give a number.")
        hidden = raw.get("hidden", False)
        check(isinstance(hidden, bool), "Whether lengths were hidden is neither true nor false.", "Give one of these.")
        return cls(path, columns, outstanding, held, visible, asked, useful, hidden)
