"""Queries about a view of the rows: some columns, at a public scale, clipped to the norm bound once more.

A view maps a row x to y = scale (x_S - P x_S) + along P x_S, where S is a set of columns and P = Q Q^T for a few axes
Q. The provider then clips y to the norm bound C and rounds it to the lattice. ``scale`` and ``along`` are therefore in
the place of a clipping bound: to clip the columns S at c instead of C, give scale = along = C / c, and multiply what
comes back by (c / C)^2.

Why any view is private at the same price: the view is public, and y is a function of its own row alone. After clipping,
the rows y are rows of norm at most C, and two neighbouring data sets have neighbouring views. So every bound on a sum
over rows of norm at most C holds for the sum over y, whatever S, Q, scale and along are. The axes need not be
orthonormal. A centre that is taken off and scales that columns are divided by are public maps of one row, too, and come
before all clipping. Who is trusted: the provider's own process alone, because the requester may send any view.
"""

import math
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray, optional_scales, optional_vector, refuse
from dpspca.common.errors import NotCanonicalQueryError
from dpspca.common.privacy import PrivacyUnit, basis_gain

from .base import (
    TAIL_VARIANCE,
    Announcement,
    Content,
    Extent,
    RowCountsQuery,
    RowQuery,
    SecondMomentQuery,
    check_unit,
    quadratic_sensitivity,
    squares_variance,
    with_rounding_margin,
)
from .bases import check_orthonormal
from .content import INDEX, REAL, place_size, read_center, read_scales, write_content

BINS: Final = 41
"""Bins of a histogram of norms: one for rows at or above the bound, and one for each factor of sqrt(2) below it."""
MAX_FACTOR: Final = 2.0**200
MIN_FACTOR: Final = 2.0**-100
"""Of factors other than 0. For smaller ones the entries of a view, or powers of them, would be subnormal numbers. On
some processors these take longer, so the time of an answer would tell which entries of a row are not zero."""
SIDE: Final = 32
"""Cells of a histogram of scores in each direction."""
SCORES: Final = 2
MAX_AXES: Final = 256
MAX_TURNED: Final = 2**15
"""Axes of a view, and the product of their number with the root of that of columns: up to here every product of a row
with them is exact in float64 (``ViewedRows.unclipped``)."""


@dataclass(frozen=True, eq=False)
class View:
    """The choice of a view: columns S in ascending order, axes Q with a row for each of them, and the two factors.

    Entries of Q are at most 1 in size. Without ``along`` both parts of a row have the same factor.
    """

    dimension: int
    columns: Any
    scale: float = 1.0
    axes: FloatArray | None = None
    along: float | None = None

    def __post_init__(self) -> None:
        columns = named_columns(self.columns, self.dimension)
        axes = np.zeros((len(columns), 0)) if self.axes is None else np.array(self.axes, dtype=np.float64, order="C")
        if axes.ndim != 2 or len(axes) != len(columns) or axes.shape[1] > MAX_AXES:  # noqa: PLR2004  # a matrix
            refuse(
                f"A view of {len(columns)} columns has axes of shape {axes.shape}.",
                f"Send a row for each column, and at most {MAX_AXES} axes.",
            )
        if not (np.abs(axes) <= 1).all():  # which NaN is not
            refuse("An entry of a view's axes is not between -1 and 1.", "Send orthonormal axes.")
        if axes.shape[1] ** 2 * len(columns) > MAX_TURNED**2:
            refuse(
                f"A view of {len(columns)} columns has {axes.shape[1]} axes.",
                f"Name fewer columns, or send at most {math.isqrt(MAX_TURNED**2 // len(columns))} axes.",
            )
        if not axes.shape[1] and self.along not in {None, self.scale}:
            refuse(
                f"A view without axes has two factors, {self.scale} and {self.along}.",
                "Send the same factor twice.",
                NotCanonicalQueryError,
            )
        axes += 0.0  # of the two zeros, one form
        axes.setflags(write=False)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "scale", _factor(self.scale))
        object.__setattr__(self, "along", _factor(self.scale if self.along is None else self.along))

    @classmethod
    def whole(cls, dimension: int, scale: float = 1.0) -> Self:
        """Look at all columns."""
        return cls(dimension, np.arange(dimension), scale)

    @property
    def axes_matrix(self) -> FloatArray:
        """The axes. There may be none."""
        assert self.axes is not None
        return self.axes

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of the part across the axes and of the part along them."""
        assert self.along is not None
        return self.scale, self.along

    @property
    def extent(self) -> Extent:
        """Measure it. Where a basis counts its rows, it counts the columns that it looks at."""
        return Extent(self.dimension, self.axes_matrix.shape[1], len(self.columns))

    @property
    def fingerprint(self) -> str:
        """Hash the form in which it is sent."""
        return sha256(self.content()).hexdigest()

    def content(self) -> bytes:
        """Write the factors, the columns and the axes."""
        columns: bytes = self.columns.astype(INDEX).tobytes()
        return np.array(self.factors, dtype=REAL).tobytes() + columns + self.axes_matrix.astype(REAL).tobytes()

    @staticmethod
    def content_size(extent: Extent) -> int:
        """Count the bytes of a view."""
        return 2 * REAL.itemsize + extent.nonzero_rows * (INDEX.itemsize + extent.columns * REAL.itemsize)

    @classmethod
    def read(cls, extent: Extent, content: Content) -> Self:
        """Read what ``content`` wrote, with every check."""
        count, start = extent.nonzero_rows, 2 * REAL.itemsize
        scale, along = np.frombuffer(content, REAL, 2).tolist()
        columns = np.frombuffer(content, INDEX, count, start).astype(np.intp)
        axes = np.frombuffer(content, REAL, count * extent.columns, start + count * INDEX.itemsize)
        return cls(extent.dimension, columns, scale, axes.reshape(count, extent.columns), along)


@dataclass(frozen=True, eq=False)
class ViewQuery(RowQuery):
    """A query about a view, around a public centre if there is one. Smaller views than planned may be asked about."""

    fits_extent = True
    view: View
    center: FloatArray | None = None
    scales: FloatArray | None = None
    """The numbers by which columns are divided, after the centre is subtracted and before rows are clipped."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", optional_vector(self.center, self.view.dimension))
        object.__setattr__(self, "scales", optional_scales(self.scales, self.view.dimension))

    @property
    def extent(self) -> Extent:
        return self.view.extent

    @property
    def lift(self) -> float:
        """By how much the columns of the view are multiplied before they are clipped to C and rounded, at least 1.

        It keeps rows precise that are far shorter than C. Each part of a row is multiplied by as much at least. So what
        is clipped there would be clipped anyway, and keeps its direction.
        """
        return max(1.0, min(self.view.factors))

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, centred=self.center is not None, scaled=self.scales is not None)

    def content(self) -> Content:
        return self.view.content() + bytes(write_content(None, self.center, self.scales))

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return View.content_size(announced.extent) + place_size(announced)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        view, center = View.read(announced.extent, content), read_center(announced, content)
        return cls(view, center, read_scales(announced, content))


@dataclass(frozen=True, eq=False)
class ViewCovariance(ViewQuery, SecondMomentQuery):
    """Y^T Y, the second moments of a view.

    Sensitivity: that of ``Covariance`` for rows of norm at most C, by this module's argument: C^2 for add/remove and
    sqrt(2) C^2 for replace-one, in Frobenius norm. It is reached by orthogonal rows that were clipped.
    """

    kind = "view-covariance"

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.nonzero_rows, extent.nonzero_rows)

    @classmethod
    def width(cls, extent: Extent) -> int:
        return extent.nonzero_rows

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        # For one column see ``Covariance``. The plan may allow more columns, and then pays for more.
        return 1.0 if extent.nonzero_rows == 1 else quadratic_sensitivity(cls, unit)


@dataclass(frozen=True, eq=False)
class ViewProduct(ViewQuery, SecondMomentQuery):
    """Y^T Y Q, the second moments of a view times its own axes Q, which must be orthonormal here.

    Sensitivity: that of ``CovarianceProduct`` for rows of norm at most C, by this module's argument: C^2 for
    add/remove, and for replace-one sqrt(2) C^2, or C^2 with one axis. It is reached by orthogonal rows in the span of
    Q, whatever the factors are, because rows are clipped after them.

    Axes that are not orthonormal would multiply this by their spectral norm, so they are refused. ``gain`` covers what
    rounding them to the lattice adds to that norm.
    """

    kind = "view-product"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.extent.columns:
            refuse("A product with a view has 0 axes.", "Send at least 1.")
        check_orthonormal(self.basis, len(self.view.columns))

    @property
    def basis(self) -> FloatArray:
        """The matrix by which the second moments are multiplied: the axes of the view."""
        return self.view.axes_matrix

    @classmethod
    def gain(cls, extent: Extent) -> float:
        return basis_gain(extent.nonzero_rows, extent.columns)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.nonzero_rows, extent.columns)

    @classmethod
    def width(cls, extent: Extent) -> int:
        return extent.nonzero_rows

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return 1.0 if extent.columns == 1 else quadratic_sensitivity(cls, unit)


@dataclass(frozen=True, eq=False)
class ViewSquares(ViewQuery, SecondMomentQuery):
    """The sum over the rows of the vectors (y_j^2), each clipped to norm C^2: the diagonal of Y^T Y.

    Here y is not clipped to C first. Each vector has norm at most C^2 and no negative entry, so two of them are never
    further apart than sqrt(2) C^2: the sensitivity is C^2 for add/remove and sqrt(2) C^2 for replace-one. Rows along
    two different columns reach it.
    """

    kind = "view-squares"

    @property
    def lift(self) -> float:
        return _lift_of_squares(self.view)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.nonzero_rows,)

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        return squares_variance(extent.nonzero_rows)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return quadratic_sensitivity(cls, unit)


@dataclass(frozen=True, eq=False)
class NormHistogram(RowCountsQuery, ViewQuery):
    """How many rows of a view have a norm in each of ``BINS`` bins, before the view is clipped.

    Bin 0 counts norms of C and more, bin j norms from C 2^(-j/2) up to C 2^((1 - j)/2), and the last bin all that are
    smaller. All edges are lower by a 1024th, so that rows that were clipped to C and rounded are in bin 0. With
    ``power`` 2 it counts norms of the squared entries (y_j^2) instead, in multiples of C^2.

    Each row is in one bin. Removing it moves one count by 1, and replacing it moves two counts by 1 at most: the
    sensitivity is 1 for add/remove and sqrt(2) for replace-one. Two rows in different bins reach it.
    """

    kind = "norm-histogram"
    finds_components = False
    power: int = 1

    @property
    def lift(self) -> float:
        return super().lift if self.power == 1 else _lift_of_squares(self.view)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power not in {1, 2}:
            refuse("The power must be 1 (norm of the row) or 2 (norm of its squared entries).", "Send 1 or 2.")

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, power=self.power)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return replace(super().read(announced, content, basis_hash), power=announced.power)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (BINS,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return 1.0 if unit.is_add_remove else with_rounding_margin(math.sqrt(2))

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        return TAIL_VARIANCE


@dataclass(frozen=True, eq=False)
class ScoreHistogram(RowCountsQuery, ViewQuery):
    """How many rows have their two scores in each of ``SIDE`` times ``SIDE`` cells of equal size.

    The view has two axes, and a row's score on an axis q is along (q . x) / C: from -1 to 1 it falls into a cell, and
    beyond that into the cell at the edge. Rows are clipped to C / ``scale`` before, if the factors are above 1. The
    first number of a cell is the place of the first score.

    Each row is in one cell: the sensitivity is 1 for add/remove and sqrt(2) for replace-one, as for ``NormHistogram``,
    whatever the axes and factors are.
    """

    kind = "score-histogram"
    finds_components = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extent.columns != SCORES:
            refuse(f"A histogram of scores has {self.extent.columns} axes.", f"Send {SCORES}.")

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SIDE, SIDE)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return NormHistogram.sensitivity_of(unit, extent)


def _lift_of_squares(view: View) -> float:
    """Give the lift where not y but (y_j^2) is clipped, to C^2: less, because its norm is at least |y|^2 / sqrt(p)."""
    return max(1.0, float(min(view.factors) / len(view.columns) ** 0.25))


def named_columns(given: Any, dimension: int) -> Any:  # noqa: ANN401  # integers, as an array
    """Refuse columns that are not named once, in order: equal views have one form."""
    columns = np.array(given)
    if columns.ndim != 1 or not columns.size or columns.dtype.kind not in "iu":
        refuse("A query about some columns names none.", "Name at least one.")
    columns = columns.astype(np.intp)
    if (columns[1:] <= columns[:-1]).any() or columns[0] < 0 or columns[-1] >= dimension:
        refuse("The columns of a query are not in ascending order below the dimension.", "Name every column once.")
    columns.setflags(write=False)
    return columns


def _factor(given: float) -> float:
    if not (given == 0 or MIN_FACTOR <= given <= MAX_FACTOR):  # which NaN is not
        refuse(f"A factor of a view is {given!r}.", f"Send 0, or a number from {MIN_FACTOR:g} to {MAX_FACTOR:g}.")
    return float(given) + 0.0  # of the two zeros, one form
