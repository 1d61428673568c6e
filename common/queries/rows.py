"""Queries about rows.

A query is a frozen value that is checked when it is made: its arrays are finite, of the right shape and, if needed,
orthonormal. It computes how far one row can move its answer, and never takes that from the coordinator:

``sensitivity(unit)``
    In L2 and exact arithmetic. Row queries state it for rows of Euclidean norm at most one; a bound C on the norm
    multiplies it by C or C^2, as ``unit_value`` does.
``lattice_sensitivity(unit, extent)``
    The same on the public lattice, in its units, with all rounding included. It depends only on the query's ``Extent``,
    which a plan fixes before any content is known.
"""

from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Self

from dpspca.common.arrays import FloatArray, finite_matrix, optional_scales, optional_vector, refuse
from dpspca.common.privacy import ROW_BITS, PrivacyUnit, basis_gain, row_unit

from .base import (
    Announcement,
    Content,
    Extent,
    RowQuery,
    RowSparse,
    SecondMomentQuery,
    check_unit,
    quadratic_sensitivity,
)
from .bases import check_orthonormal, check_support
from .content import basis_size, place_size, read_basis, read_center, read_scales, write_content


@dataclass(frozen=True, eq=False)
class Count(RowQuery):
    """The number of rows.

    Adding or removing a row moves it by one. Under replace-one for rows, the number of rows is public by definition.
    Under replace-one for persons it is not: a person has between one row and m rows, so the number moves by at most
    m - 1. With one row for each person it is the number of persons, which is public.
    """

    kind = "count"
    finds_components = False

    @property
    def extent(self) -> Extent:
        return Extent(0)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls()

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (1,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return 0.0 if unit is PrivacyUnit.ROW_REPLACE_ONE else 1.0

    @classmethod
    def person_factor(cls, unit: PrivacyUnit, rows_per_person: int) -> int:
        """Return by how many rows two versions of a person may differ."""
        return rows_per_person - 1 if unit is PrivacyUnit.PERSON_REPLACE_ONE else rows_per_person

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return cls.sensitivity_of(unit, extent)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return 1.0


@dataclass(frozen=True, eq=False)
class ColumnSums(RowQuery):
    """The sum of the rows, each of norm at most B. Sensitivity: B for add/remove, 2B for replace-one (y = -x).

    With ``center``, it is subtracted first; with ``scales``, columns are then divided by these. Both are public, and
    rows are clipped to B after that, so nothing else changes.
    """

    kind = "column-sums"
    finds_components = False
    dimension: int
    scales: FloatArray | None = None
    center: FloatArray | None = None

    def __post_init__(self) -> None:
        _check_dimension(self.dimension)
        object.__setattr__(self, "scales", optional_scales(self.scales, self.dimension))
        object.__setattr__(self, "center", optional_vector(self.center, self.dimension))

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, centred=self.center is not None, scaled=self.scales is not None)

    def content(self) -> Content:
        return write_content(None, self.center, self.scales)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return place_size(announced)

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(announced.extent.dimension, read_scales(announced, content), read_center(announced, content))

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return 1.0 if unit.is_add_remove else 2.0

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Integer rows are summed without rounding, and their norms are checked in integers."""
        return cls.sensitivity_of(unit, extent) * 2.0**ROW_BITS

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        return 4.0**ROW_BITS / extent.dimension

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return row_unit(norm_bound)


@dataclass(frozen=True, eq=False)
class ColumnsQuery(SecondMomentQuery):
    """A query about the second moments of all columns, around a public centre if there is one."""

    dimension: int
    center: FloatArray | None = None

    def __post_init__(self) -> None:
        _check_dimension(self.dimension)
        object.__setattr__(self, "center", optional_vector(self.center, self.dimension))

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension)

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, centred=self.center is not None)

    def content(self) -> Content:
        return write_content(None, self.center)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return place_size(announced)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(announced.extent.dimension, read_center(announced, content))


@dataclass(frozen=True, eq=False)
class BasisQuery(SecondMomentQuery):
    """A query about second moments seen through an orthonormal basis, around a public centre if there is one.

    ``kept`` has the nonzero rows of the basis. A ``RowSparse`` basis is kept as it is; an array is copied.
    """

    given: InitVar[FloatArray | RowSparse]
    center: FloatArray | None = None
    kept: RowSparse = field(init=False)

    def __post_init__(self, given: FloatArray | RowSparse) -> None:
        kept = given if isinstance(given, RowSparse) else RowSparse.of(finite_matrix(given))
        check_support(kept)
        check_orthonormal(kept.rows, kept.dimension)
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "center", optional_vector(self.center, kept.dimension))

    @cached_property
    def basis(self) -> FloatArray:
        """The basis with all its rows."""
        return self.kept.dense()

    @property
    def extent(self) -> Extent:
        return self.kept.extent

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, centred=self.center is not None)

    def content(self) -> Content:
        return write_content(self.kept, self.center)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return basis_size(announced.extent) + place_size(announced)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(read_basis(announced, content, basis_hash), read_center(announced, content))

    @classmethod
    def gain(cls, extent: Extent) -> float:
        return basis_gain(extent.nonzero_rows, extent.columns)


@dataclass(frozen=True, eq=False)
class Covariance(ColumnsQuery):
    """The whole symmetric matrix A = X^T X.

    In Frobenius norm a row contributes at most C^2, and ||xx^T - yy^T||^2 = ||x||^4 + ||y||^4 - 2 (x.y)^2: the cross
    term is a square, so replacing a row never moves A by more than sqrt(2) C^2.
    """

    kind = "covariance"

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, extent.dimension)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        # In one dimension, a difference of squares is at most the larger square.
        return 1.0 if extent.dimension == 1 else quadratic_sensitivity(cls, unit)


@dataclass(frozen=True, eq=False)
class CovarianceTriangle(ColumnsQuery):
    """The entries of A on and above its diagonal, row by row.

    Its squared norm is half that of A and of A's diagonal together. Both are at most C^4 for a row, and at most 2 C^4
    for the difference of two: for A see ``Covariance``; two diagonals (x_j^2) have no negative entries, so their
    difference has at most the sum of their squared norms. So the triangle moves no further than the whole matrix. Equal
    noise on every entry has the same price, but off the diagonal it is sqrt(2) times that on a symmetrised whole
    matrix. The papers define it so.
    """

    kind = "covariance-triangle"

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension * (extent.dimension + 1) // 2,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return Covariance.sensitivity_of(unit, extent)


@dataclass(frozen=True, eq=False)
class CovarianceProduct(BasisQuery):
    """A Q for an orthonormal Q: one step of the power loop, over all rows or over one ``block`` of ``blocks``.

    Removing a row moves it by ||x|| ||Q^T x|| <= C^2. Replacing one moves it by at most sqrt(2) C^2 for two columns or
    more, as ||(xx^T - yy^T) Q|| <= ||xx^T - yy^T|| in Frobenius norm, reached by orthonormal x and y in the span of Q;
    for one column only by C^2, as -C^2 I <= xx^T - yy^T <= C^2 I. This requires bounded rows: clipped contributions
    xx^T Q could point in opposite directions, and a replacement would move the sum twice as far as a removal.

    A Q that is not orthonormal would multiply these bounds by its spectral norm, so it is refused.
    """

    kind = "covariance-product"
    block: int = 0
    blocks: int = 0

    def __post_init__(self, given: FloatArray | RowSparse) -> None:
        super().__post_init__(given)
        if not (0 < self.block <= self.blocks or self.block == self.blocks == 0):
            refuse(
                f"There is no block {self.block} of {self.blocks}.",
                "Send a block from 1 to the number of blocks, or 0 of 0.",
            )

    @property
    def extent(self) -> Extent:
        return replace(super().extent, block=self.block, blocks=self.blocks)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        basis, center = read_basis(announced, content, basis_hash), read_center(announced, content)
        return cls(basis, center, announced.extent.block, announced.extent.blocks)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, extent.columns)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return 1.0 if extent.columns == 1 else quadratic_sensitivity(cls, unit)


@dataclass(frozen=True, eq=False)
class CompressedCovariance(BasisQuery):
    """V^T A V and the rest of the trace: the variance that components explain, and the part that they do not.

    With y = V^T x a row contributes (y y^T, r) with r = ||x||^2 - ||y||^2 >= 0. Its norm is at most
    ||y||^2 + r = ||x||^2 <= C^2; two contributions have a non-negative inner product (y.z)^2 + r s, so replacing a row
    moves the answer by at most sqrt(2) C^2.

    On the lattice V is only nearly orthonormal, with squared spectral norm at most h = gain^2. Then r can be negative,
    down to -(h - 1) C^2, so the norm is at most (2h - 1) C^2 and the inner product at least -(h - 1) C^4: altogether
    at most sqrt(2) (2h - 1) h C^2.
    """

    kind = "compressed-covariance"
    finds_components = False

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.columns**2 + 1,)

    @classmethod
    def width(cls, extent: Extent) -> int:
        return extent.columns

    @classmethod
    def gain(cls, extent: Extent) -> float:
        stretch = super().gain(extent) ** 2
        return (2 * stretch - 1) * stretch

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Add the movement of the residual by its floors: one for every diagonal entry and one of its own."""
        residual = extent.columns + 1
        return super().lattice_sensitivity(unit, extent) + residual

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return quadratic_sensitivity(cls, unit)


def _check_dimension(dimension: int) -> None:
    if dimension < 1:
        refuse(f"The dimension is {dimension}.", "Send the number of columns of the schema, at least 1.")
