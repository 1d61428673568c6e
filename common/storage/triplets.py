"""Declarations about rows that are written as triplets: a line for each number, with its row and its column."""

from dataclasses import dataclass
from typing import Annotated, Final

from dpspca.common.decoding import Filled, one_of

from .paths import FilePath

SUM: Final = "sum"
UNUSABLE: Final = "unusable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Triplets:
    """Which columns of a long table say to which row and column a number belongs."""

    row: Filled
    column: Filled
    rows: FilePath
    """A file that names all rows, one in each line, in their order. Rows that no triplet names are rows of zeros.

    Without it, a row without triplets would not be there, and others would take its place.
    """
    value: Filled | None = None
    """The column with the numbers. By default each triplet counts 1."""
    duplicates: Annotated[str, one_of(SUM, UNUSABLE)] = SUM
    """The meaning of several numbers of one row and column: their sum, or that the row is unusable."""
