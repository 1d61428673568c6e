"""Queries about the sizes of rows and columns whose units are unknown: counts in ranges, before any clipping.

The ranges are wide and reach over all sizes that numbers have. So one answer shows the size roughly, whatever it is.
"""

import math
from dataclasses import dataclass
from typing import Final

from dpspca.common.privacy import PrivacyUnit

from .base import TAIL_VARIANCE, Extent, RowCountsQuery, check_unit, with_rounding_margin
from .rows import ColumnsQuery
from .views import NormHistogram

RANGES: Final = 41
"""Bins of a range of norms, each a factor of 16 wide."""
LARGEST_RANGE: Final = 2.0**68
"""Norms from here on are in the first range, and norms below 2^-88 in the last."""
SIZES: Final = 102
"""Ranges of a column's entries, each a factor of 4 wide."""
LARGEST_SIZE: Final = 2.0**100
"""Entries from here on are in the first range, and entries below 2^-100 in the last."""


@dataclass(frozen=True, eq=False)
class NormRange(RowCountsQuery, ColumnsQuery):
    """How many rows have a norm in each of ``RANGES`` ranges of a factor of 16, before anything is clipped.

    Range 0 is from ``LARGEST_RANGE`` on, range j from 16^-j times that up to the range before, and the last one below.
    It shows roughly how long rows are if no bound is known.

    Each row is in one range: the sensitivity is 1 for add/remove and sqrt(2) for replace-one, as for ``NormHistogram``.
    """

    kind = "norm-range"

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (RANGES,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return NormHistogram.sensitivity_of(unit, extent)

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        return TAIL_VARIANCE


@dataclass(frozen=True, eq=False)
class ColumnSizes(RowCountsQuery, ColumnsQuery):
    """For each column, how many rows have an entry in each of ``SIZES`` ranges of a factor of 4, before any clipping.

    Range 0 is from ``LARGEST_SIZE`` on, range j from 4^-j times that up to the range before, and the last one below,
    zeros included. It says roughly how large each column is, whatever its units are.

    For each of the d columns a row is in one range: it adds a vector of d ones. Removing it moves the answer by
    sqrt(d). Replacing it moves at most two counts of each column by one, so that the answer moves by sqrt(2 d). Rows
    that differ in size in every column reach both.
    """

    kind = "column-sizes"
    finds_components = False

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, SIZES)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return with_rounding_margin(math.sqrt(extent.dimension if unit.is_add_remove else 2 * extent.dimension))

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        return TAIL_VARIANCE
