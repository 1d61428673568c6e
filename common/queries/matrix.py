"""Queries about a symmetric matrix of which every provider holds an additive share: the edges of a graph, say.

What is protected is not a row but one entry and its mirror image (the unit ``entry``), or whatever a change of a
bounded spectral norm can say (the unit ``spectral``); the bound C on the change is the job's ``norm_bound``. The
matrix is never clipped to it: C says how much may change, not how large an entry is.

Scales, with C that bound:

==================  ==================================================================================
what                one unit
==================  ==================================================================================
entry of M          C / 2^30, and an entry has at most 2^50 units (``largest_entry`` says the same of C)
basis               2^-20
answer              C / 2^30: the floor of the exact integer product, shifted by the basis's 20 bits
==================  ==================================================================================

Every rounding is priced. A quotient of an entry by the unit is below 2^50, where floating-point arithmetic errs by a
sixteenth of a unit at most. So two entries that differ by at most C have quotients that differ by less than 2^30 + 1/4,
and become integers that differ by less than 2^30 + 5/4, which is by at most 2^30 + 1. A floor moves by at most one unit
more than what it is taken of, and not at all where that does not move.
"""

import math
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray, finite_matrix, refuse
from dpspca.common.privacy import BASIS_BITS, PrivacyUnit, basis_gain

from .base import Announcement, Extent, Received, RowQuery, RowSparse, check_unit, round_up
from .content import basis_size, read_basis, written
from .rows import _check_orthonormal, _check_support

ENTRY_BITS: Final = 30
"""A change of an entry by C is 2^30 units."""
WIDEST_ENTRY: Final = 20
"""No entry is larger than C 2^20, however small the matrix."""
TOTAL_SHIFT: Final = 26
"""A sum of entries is in units of C / 2^4, so that it stays on the lattice."""
LARGEST_TOTAL: Final = 2**54

_CHANGE: Final = 2.0**ENTRY_BITS + 1
"""How far one entry moves, in units of an entry."""


def largest_entry(dimension: int) -> int:
    """Bound an entry of a share, in units of C, for a matrix of this width: what keeps sums within 64 bits.

    A row then has norm at most C 2^24, and a product with a column of a basis at most 2^54 units, whatever the width.
    """
    return 1 << min(WIDEST_ENTRY, 24 - math.ceil(math.log2(dimension) / 2))


@dataclass(frozen=True, eq=False)
class MatrixProduct(RowQuery):
    """M X for an orthonormal X: one step of a power loop. X is held as its rows that are not zero."""

    units = frozenset[PrivacyUnit]()
    given: InitVar[FloatArray | RowSparse]
    kept: RowSparse = field(init=False)

    def __post_init__(self, given: FloatArray | RowSparse) -> None:
        kept = given if isinstance(given, RowSparse) else RowSparse.of(finite_matrix(given))
        _check_support(kept)
        _check_orthonormal(kept.rows, kept.dimension)
        object.__setattr__(self, "kept", kept)

    @cached_property
    def basis(self) -> FloatArray:
        """The basis with all its rows."""
        return self.kept.dense()

    @property
    def extent(self) -> Extent:
        return self.kept.extent

    def content(self) -> Received:
        return written(self.kept)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return basis_size(announced.extent)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
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

    A change c of the entries (i, j) and (j, i) moves row i of the answer by c X_j and row j by c X_i: by
    |c| sqrt(||X_i||^2 + ||X_j||^2) in L2, and by |c| (|X_i| + |X_j|) in L1; on the diagonal by |c| ||X_i|| alone. The
    two largest rows of X bound both. X was released before, so its rows are public, and noise that follows them costs
    nothing: where no row is large, as in power loops over incoherent matrices, little noise is needed.

    Of X nothing is known beforehand but that it is orthonormal: two of its rows have squared norms of at most 2 in
    all, of a single column at most 1, and L1 norms of at most sqrt(2p) times the root of that.
    """

    kind = "symmetric-product"
    units = frozenset({PrivacyUnit.ENTRY})
    fits_noise: ClassVar[bool] = True

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return round_up(math.sqrt(min(2, extent.columns)))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Add the floors: of two rows, so of 2p numbers."""
        rows = cls.sensitivity_of(unit, extent) * basis_gain(extent.nonzero_rows, extent.columns)
        return round_up(_CHANGE * rows + math.sqrt(2 * extent.columns))

    @classmethod
    def lattice_l1_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        entries = 2 * extent.columns
        return round_up(cls.lattice_sensitivity(unit, extent) * math.sqrt(entries))

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        """Bound how far this very answer moves, from the integers that the basis becomes."""
        check_unit(type(self), unit)
        whole = np.rint(self.kept.rows * 2.0**BASIS_BITS)
        sizes = np.abs(whole).sum(axis=1) if l1 else np.square(whole).sum(axis=1)
        largest = float(np.partition(sizes, len(sizes) - 2)[-2:].sum()) if len(sizes) > 1 else float(sizes.sum())
        rows = largest if l1 else math.sqrt(largest)
        floors = 2 * self.kept.extent.columns
        moves = _CHANGE * rows * 2.0**-BASIS_BITS + (floors if l1 else math.sqrt(floors))
        return min(round_up(moves), super().movement(unit, l1=l1))

    def _sensitivity(self, unit: PrivacyUnit) -> float:
        """Bound how far the answer moves in exact arithmetic, for a change of at most one."""
        squares = np.sort(np.square(self.kept.rows).sum(axis=1))
        return round_up(math.sqrt(math.fsum(squares[-2:])))


@dataclass(frozen=True, eq=False)
class CappedProduct(SymmetricProduct):
    """M X where no entry of X is larger than ``largest``, and noise follows that bound: as the papers have it.

    Two rows of p such entries have L2 norm at most sqrt(2p) ``largest``, L1 norm at most 2p ``largest``. The bound is
    checked here, so that whoever asks cannot have less noise than the entries need.
    """

    kind = "capped-product"
    largest: float = field(kw_only=True)

    def __post_init__(self, given: FloatArray | RowSparse) -> None:
        super().__post_init__(given)
        if not 0 < self.largest <= 1:
            refuse("The bound on the basis's entries is not between 0 and 1.", "Send such a bound.")
        if np.abs(self.kept.rows).max() > self.largest * (1 + 2.0**-30) + 2.0**-30:
            refuse("An entry of the basis is larger than its bound.", "Send a bound that holds.")

    @property
    def announcement(self) -> Announcement:
        return replace(super().announcement, threshold=self.largest)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        return cls(read_basis(announced, content, basis_hash), largest=announced.threshold)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return round_up(math.sqrt(2 * extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return cls._moves(1.0, extent.columns)

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        check_unit(type(self), unit)
        columns = self.kept.extent.columns
        moves = self._moves(self.largest, columns)
        return round_up(moves * math.sqrt(2 * columns)) if l1 else moves

    @staticmethod
    def _moves(largest: float, columns: int) -> float:
        """Bound the movement in L2. Rounding lengthens an entry of the basis by half a unit, and a half is to spare."""
        entry = largest + 2.0**-BASIS_BITS
        return round_up((_CHANGE * entry + 1) * math.sqrt(2 * columns))


@dataclass(frozen=True, eq=False)
class SpectralProduct(MatrixProduct):
    """M X where M changes by a matrix E of spectral norm at most C.

    ||E X|| <= ||E||_2 ||X||, so sqrt(p) C in L2; and, each column of E X having norm at most C and d entries, p sqrt(d)
    C in L1. Rounding M to the grid changes every entry of the difference of two by a unit and a quarter at most, so its
    spectral norm by (5/4) d units; nothing of this depends on X, and so noise cannot follow it.
    """

    kind = "spectral-product"
    units = frozenset({PrivacyUnit.SPECTRAL})

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return round_up(math.sqrt(extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        floors = math.sqrt(extent.dimension * extent.columns)
        return round_up(cls._stretch(extent) * cls.sensitivity_of(unit, extent) + floors)

    @classmethod
    def lattice_l1_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        column = cls._stretch(extent) * math.sqrt(extent.dimension) + extent.dimension
        return round_up(extent.columns * column)

    @staticmethod
    def _stretch(extent: Extent) -> float:
        """Bound the spectral norm of what changes, times that of the rounded basis."""
        return (2.0**ENTRY_BITS + 1.25 * extent.dimension) * basis_gain(extent.nonzero_rows, extent.columns)


@dataclass(frozen=True, eq=False)
class EntryTotal(RowQuery):
    """The sum of the absolute values of all entries of a share: their sum over shares bounds the largest eigenvalue.

    An entry and its mirror image change by at most C, so their absolute values do: 2 C. Each is cut to whole units
    of C / 2^4 by a floor of its own, and so moves by at most 2^4 + 1 of these. A sum beyond 2^54 counts as that, which
    brings no two of them further apart.
    """

    kind = "entry-total"
    units = frozenset({PrivacyUnit.ENTRY})
    dimension: int

    def __post_init__(self) -> None:
        if self.dimension < 1:
            refuse("The dimension must be at least 1.", "Send the number of columns of the schema.")

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
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
