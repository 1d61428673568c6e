"""Queries about a symmetric matrix of which every provider holds an additive share, such as the edges of a graph.

They protect not a row but one entry and its mirror image (the unit ``entry``), or any change of bounded spectral norm
(the unit ``spectral``). The bound C on the change is the job's ``norm_bound``. The matrix is never clipped to C: it
bounds the change of an entry, not its size.

Scales, with C that bound:

==================  ==================================================================================
what                one unit
==================  ==================================================================================
entry of M          C / 2^30, and an entry has at most 2^50 units (``largest_entry`` says the same of C)
basis               2^-20
answer              C / 2^30: the floor of the exact integer product, shifted by the basis's 20 bits
==================  ==================================================================================

Every rounding is priced. The quotient of an entry by the unit is below 2^50, where floating-point arithmetic errs by at
most a sixteenth of a unit. So two entries that differ by at most C have quotients that differ by less than 2^30 + 1/4,
and become integers that differ by less than 2^30 + 5/4, hence by at most 2^30 + 1. A floor moves by at most one unit
more than its argument, and not at all if that does not move.
"""

import math
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray, finite_matrix, refuse
from dpspca.common.privacy import BASIS_BITS, PrivacyUnit, basis_gain

from .base import Announcement, Content, Extent, RowQuery, RowSparse, check_unit, with_rounding_margin
from .bases import check_orthonormal, check_support
from .content import basis_size, read_basis, write_content

ENTRY_BITS: Final = 30
"""A change of an entry by C is 2^30 units."""
WIDEST_ENTRY: Final = 20
"""No entry is larger than C 2^20, even in a small matrix."""
TOTAL_SHIFT: Final = 26
"""A sum of entries is in units of C / 2^4, so that it fits on the lattice."""
LARGEST_TOTAL: Final = 2**54

_CHANGE: Final = 2.0**ENTRY_BITS + 1
"""How far one entry moves, in units of an entry."""


def largest_entry(dimension: int) -> int:
    """Return the largest entry of a share, in units of C, for a matrix of this width, so that sums fit into 64 bits.

    A row then has norm at most C 2^24, and a product with a column of a basis at most 2^54 units, whatever the width.
    """
    return 1 << min(WIDEST_ENTRY, 24 - math.ceil(math.log2(dimension) / 2))


@dataclass(frozen=True, eq=False)
class MatrixProduct(RowQuery):
    """M X for an orthonormal X: one step of a power loop. ``kept`` has the nonzero rows of X."""

    units = frozenset[PrivacyUnit]()
    given: InitVar[FloatArray | RowSparse]
    kept: RowSparse = field(init=False)

    def __post_init__(self, given: FloatArray | RowSparse) -> None:
        kept = given if isinstance(given, RowSparse) else RowSparse.of(finite_matrix(given))
        check_support(kept)
        check_orthonormal(kept.rows, kept.dimension)
        object.__setattr__(self, "kept", kept)

    @cached_property
    def basis(self) -> FloatArray:
        """The basis with all its rows."""
        return self.kept.dense()

    @property
    def extent(self) -> Extent:
        return self.kept.extent

    def content(self) -> Content:
        return write_content(self.kept)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return basis_size(announced.extent)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(read_basis(announced, content, basis_hash))

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, extent.columns)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return norm_bound * 2.0**-ENTRY_BITS


@dataclass(frozen=True, eq=False)
class SymmetricProduct(MatrixProduct):
    """M X where one entry of M, and its mirror image, changes by at most C.

    A change c of the entries (i, j) and (j, i) moves row i of the answer by c X_j and row j by c X_i: by |c|
    sqrt(||X_i||^2 + ||X_j||^2) in L2, and by |c| (|X_i| + |X_j|) in L1; on the diagonal only by |c| ||X_i||. The two
    largest rows of X bound both. X was released before, so its rows are public, and noise scaled to them costs nothing:
    if no row is large, as in power loops over incoherent matrices, little noise is needed.

    A plan only knows that X is orthonormal: the squared norms of two of its rows add up to at most 2, for a single
    column to at most 1, and their L1 norms to at most sqrt(2p) times the root of that.
    """

    kind = "symmetric-product"
    units = frozenset({PrivacyUnit.ENTRY})
    fits_noise: ClassVar[bool] = True

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return with_rounding_margin(math.sqrt(min(2, extent.columns)))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Add the floors of two rows, that is of 2p numbers."""
        rows = cls.sensitivity_of(unit, extent) * basis_gain(extent.nonzero_rows, extent.columns)
        return with_rounding_margin(_CHANGE * rows + math.sqrt(2 * extent.columns))

    @classmethod
    def lattice_l1_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        entries = 2 * extent.columns
        return with_rounding_margin(cls.lattice_sensitivity(unit, extent) * math.sqrt(entries))

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        """Bound the movement of this answer, from the integers that the basis is rounded to."""
        check_unit(type(self), unit)
        whole = np.rint(self.kept.rows * 2.0**BASIS_BITS)
        sizes = np.abs(whole).sum(axis=1) if l1 else np.square(whole).sum(axis=1)
        largest = float(np.partition(sizes, len(sizes) - 2)[-2:].sum()) if len(sizes) > 1 else float(sizes.sum())
        rows = largest if l1 else math.sqrt(largest)
        floors = 2 * self.kept.extent.columns
        moves = _CHANGE * rows * 2.0**-BASIS_BITS + (floors if l1 else math.sqrt(floors))
        return min(with_rounding_margin(moves), super().movement(unit, l1=l1))

    def _sensitivity(self, unit: PrivacyUnit) -> float:
        """Bound the movement in exact arithmetic, for a change of at most one."""
        squares = np.sort(np.square(self.kept.rows).sum(axis=1))
        return with_rounding_margin(math.sqrt(math.fsum(squares[-2:])))


@dataclass(frozen=True, eq=False)
class CappedProduct(SymmetricProduct):
    """M X with noise scaled to a bound ``largest`` on the entries of X, as in the papers.

    Two rows of p such entries have L2 norm at most sqrt(2p) ``largest``, L1 norm at most 2p ``largest``. The bound is
    checked here, so that the coordinator cannot get less noise than the entries require.
    """

    kind = "capped-product"
    largest: float = field(kw_only=True)

    def __post_init__(self, given: FloatArray | RowSparse) -> None:
        super().__post_init__(given)
        if not 0 < self.largest <= 1:
            refuse(f"The bound on the basis's entries is {self.largest}.", "Send a bound above 0 and at most 1.")
        if np.abs(self.kept.rows).max() > self.largest * (1 + 2.0**-30) + 2.0**-30:
            refuse(f"An entry of the basis is above its bound of {self.largest}.", "Send a bound that holds.")

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, threshold=self.largest)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(read_basis(announced, content, basis_hash), largest=announced.threshold)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return with_rounding_margin(math.sqrt(2 * extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return cls._entry_movement(1.0, extent.columns)

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        check_unit(type(self), unit)
        columns = self.kept.extent.columns
        moves = self._entry_movement(self.largest, columns)
        return with_rounding_margin(moves * math.sqrt(2 * columns)) if l1 else moves

    @staticmethod
    def _entry_movement(largest: float, columns: int) -> float:
        """Bound the movement in L2. Rounding adds at most half a unit to an entry of the basis; one is allowed for."""
        entry = largest + 2.0**-BASIS_BITS
        return with_rounding_margin((_CHANGE * entry + 1) * math.sqrt(2 * columns))


@dataclass(frozen=True, eq=False)
class SpectralProduct(MatrixProduct):
    """M X where M changes by a matrix E of spectral norm at most C.

    ||E X|| <= ||E||_2 ||X||, so the movement is at most sqrt(p) C in L2; and p sqrt(d) C in L1, because each column of
    E X has norm at most C and d entries. Rounding M to the grid changes every entry of the difference of two matrices
    by at most 5/4 units, hence its spectral norm by (5/4) d units. These bounds do not depend on X, so noise does not.
    """

    kind = "spectral-product"
    units = frozenset({PrivacyUnit.SPECTRAL})

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return with_rounding_margin(math.sqrt(extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        floors = math.sqrt(extent.dimension * extent.columns)
        return with_rounding_margin(cls._stretch(extent) * cls.sensitivity_of(unit, extent) + floors)

    @classmethod
    def lattice_l1_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        column = cls._stretch(extent) * math.sqrt(extent.dimension) + extent.dimension
        return with_rounding_margin(extent.columns * column)

    @staticmethod
    def _stretch(extent: Extent) -> float:
        """Bound the spectral norm of the change times that of the rounded basis."""
        return (2.0**ENTRY_BITS + 1.25 * extent.dimension) * basis_gain(extent.nonzero_rows, extent.columns)


@dataclass(frozen=True, eq=False)
class EntryTotal(RowQuery):
    """The sum of the absolute values of all entries of a share; summed over shares it bounds the largest eigenvalue.

    An entry and its mirror image change by at most C each, so the sum changes by 2 C. Each absolute value is rounded
    down to whole units of C / 2^4, and so moves by at most 2^4 + 1 of these. A sum above 2^54 counts as 2^54, which
    brings no two sums further apart.
    """

    kind = "entry-total"
    finds_components = False
    units = frozenset({PrivacyUnit.ENTRY})
    dimension: int

    def __post_init__(self) -> None:
        if self.dimension < 1:
            refuse(f"The dimension is {self.dimension}.", "Send the number of columns of the schema, at least 1.")

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(announced.extent.dimension)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (1,)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return 2.0

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return cls.sensitivity_of(unit, extent) * (2.0 ** (ENTRY_BITS - TOTAL_SHIFT) + 1)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return norm_bound * 2.0 ** (TOTAL_SHIFT - ENTRY_BITS)
