"""Queries that each provider answers with columns that belong together, chosen by exponential mechanisms.

Sums cannot show which of very many columns belong together: noise on d^2 numbers drowns them. A choice can, because
what it costs does not depend on how many things there are to choose from.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpspca.common.arrays import FloatArray, optional_scales, refuse
from dpspca.common.errors import NotCanonicalQueryError
from dpspca.common.privacy import PrivacyUnit

from .base import Announcement, Content, Extent, RowQuery, check_unit
from .content import INDEX, place_size, read_center, read_scales, write_content
from .rows import ColumnsQuery
from .views import ViewQuery, named_columns


class ColumnChoice(RowQuery):
    """A query that is answered with columns that a provider chose: a number for each column, and no noise."""

    is_private: ClassVar[bool] = True

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Return no bound, because an answer can move from anywhere to anywhere. Its price is its event's."""
        check_unit(cls, unit)
        return math.inf

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return cls.sensitivity_of(unit, extent)

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        """Return 0: every provider has as many votes."""
        return 0.0

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return 1.0

    @staticmethod
    def score_movement(unit: PrivacyUnit, rows_per_person: int) -> int:
        """Bound how far a score moves between neighbours."""
        return (1 if unit.is_add_remove else 2) * rows_per_person


@dataclass(frozen=True, eq=False)
class SignPairs(ColumnChoice, ColumnsQuery):
    """How often each column was chosen, where a provider chooses pairs of columns whose signs go together.

    The choice is among the pairs of some columns, ``among``, or of all if it is None. A pair's score is
    |sum over the rows of sign(x_i) sign(x_j)|, around a public centre if there is one. An entry below 2^-18 of its
    row's length, at public scales if there are any, counts as zero. Each choice is among the pairs that add a column.
    The score needs no bound on the columns.

    A row adds -1, 0 or 1 to the sum: removing it moves a score by at most 1, and replacing it by at most 2; the rows of
    one person, m at most, by m times as much. Which columns are asked about is public, and the same for neighbours. The
    plan's event (``ChoiceEvent``) says how many choices there are and with which scale, and what they cost.
    Counting choices is post-processing. Who is trusted: the provider, and its source of random words.
    """

    kind = "sign-pairs"
    mechanism: ClassVar[str] = (
        "each provider chooses pairs of columns at random. A pair is likelier the more often its columns are above or "
        "below zero together. The answer is how often each column was chosen."
    )

    scales: FloatArray | None = None
    among: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scales", optional_scales(self.scales, self.dimension))
        object.__setattr__(self, "among", _some_columns(self.among, self.dimension))

    @property
    def extent(self) -> Extent:
        """The size: where a basis counts its rows, it counts the columns asked about, unless these are all."""
        return Extent(self.dimension, 0, 0 if self.among is None else len(self.among))

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, scaled=self.scales is not None)

    def content(self) -> Content:
        columns = b"" if self.among is None else self.among.astype(INDEX).tobytes()
        return columns + bytes(write_content(None, self.center, self.scales))

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return announced.extent.nonzero_rows * INDEX.itemsize + place_size(announced)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        count = announced.extent.nonzero_rows
        among = np.frombuffer(content, INDEX, count).astype(np.intp) if count else None
        center, scales = read_center(announced, content), read_scales(announced, content)
        return cls(announced.extent.dimension, center, scales, among)

    @classmethod
    def is_within(cls, extent: Extent, planned: Extent) -> bool:
        """Require as many columns as planned. In an extent, 0 means all of them, which are more than any number."""
        return extent == planned

    @staticmethod
    def columns_of(extent: Extent) -> int:
        """Count the columns whose pairs are asked about."""
        return extent.nonzero_rows or extent.dimension


def _some_columns(given: Any, dimension: int) -> Any:  # noqa: ANN401  # integers, as an array
    """Refuse all columns in place of None, and columns that are not in order: equal choices have one form."""
    if given is None:
        return None
    columns = named_columns(given, dimension)
    if len(columns) == dimension:
        refuse("A choice of pairs names all columns.", "Leave them out: it is then about all.", NotCanonicalQueryError)
    return columns


@dataclass(frozen=True, eq=False)
class TiedColumns(ColumnChoice, ViewQuery):
    """Columns outside a view that a provider chooses because they go together with the axes of the view.

    The answer is 1 for each column that was chosen. A column's score is the largest, over the axes q, of
    |sum over the rows of sign(x_j) sign(q . x_S)|, where x_S are the columns of the view. Its factors play no part.
    Each choice is among the columns outside the view that were not chosen before. The score needs no bound on a column
    and no scale.

    A row adds -1, 0 or 1 to each sum, whatever the axes are. So removing it moves a score by at most 1, and replacing
    it by at most 2; the rows of one person, m at most, by m times as much. The largest of several sums moves no further
    than one of them. The plan's event (``ChoiceEvent``) says how many choices there are and with which scale, and what
    they cost. Who is trusted: the provider, and its source of random words.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.view.factors != (1.0, 1.0):
            refuse(
                f"The view of a choice of columns has the factors {self.view.factors}.",
                "Send factors of 1: only signs count.",
                NotCanonicalQueryError,
            )

    kind = "tied-columns"
    mechanism: ClassVar[str] = (
        "each provider chooses columns at random. A column is likelier the more often it is above zero where a "
        "component that was found is, and below zero where that is. The answer is which columns were chosen."
    )
