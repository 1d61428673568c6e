"""What every query has in common: an extent, a price for each privacy unit, and a hash of its whole content."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.privacy import MOMENT_BITS, PrivacyUnit, moment_unit

Received: TypeAlias = bytes | memoryview
"""A query's content, as it is sent or as it arrived."""

ROW_UNITS = frozenset(unit for unit in PrivacyUnit if unit.is_row)


@dataclass(frozen=True, slots=True)
class Extent:
    """What is known of a query before its content: how wide the data are, how many columns and rows a basis has.

    ``block`` of ``blocks`` says that it is about a part of the rows alone, from 1 on; of 0 blocks, about all of them.
    """

    dimension: int
    columns: int = 0
    nonzero_rows: int = 0
    block: int = 0
    blocks: int = 0

    def covers(self, other: "Extent") -> bool:
        """Tell whether a query of the other extent moves no further than one of this."""
        same = replace(other, nonzero_rows=self.nonzero_rows) == self
        return same and other.nonzero_rows <= self.nonzero_rows


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is said of a query before its content: enough to know how many bytes will follow."""

    kind: str
    extent: Extent
    centred: bool = False
    threshold: float = 0.0
    power: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class RowSparse:
    """A matrix as its rows that are not zero, in ascending order; work and memory go with these alone.

    It takes the arrays over as they are: they cannot be written to from then on. ``hashed`` is its fingerprint, from
    whoever made it of bytes that were hashed as they came.
    """

    dimension: int
    support: NDArray[np.intp]
    rows: FloatArray
    hashed: str = ""

    def __post_init__(self) -> None:
        for array in (self.support, self.rows):
            array.setflags(write=False)

    @classmethod
    def of(cls, matrix: FloatArray) -> Self:
        """Leave out the rows of which every entry is exactly zero."""
        return cls(len(matrix), np.arange(len(matrix)), matrix).without_zeros()

    @property
    def has_zeros(self) -> bool:
        """Tell whether a row is here that is zero nevertheless."""
        return not (self.rows[:, 0].all() or self.rows.any(axis=1).all())  # one column is quicker to look at

    def without_zeros(self) -> Self:
        """Leave out such rows."""
        if not self.has_zeros:
            return self
        kept = self.rows.any(axis=1)
        return type(self)(self.dimension, self.support[kept], self.rows[kept])

    @property
    def extent(self) -> Extent:
        """Measure it."""
        return Extent(self.dimension, self.rows.shape[1], len(self.support))

    @property
    def fingerprint(self) -> str:
        """Hash the form in which it is sent: indices, then rows."""
        if self.hashed:
            return self.hashed
        state = sha256(self.support.astype("<u4").data)
        state.update(np.ascontiguousarray(self.rows, dtype="<f8").data)
        return state.hexdigest()

    def dense(self) -> FloatArray:
        """Write it out."""
        if len(self.support) == self.dimension:
            return self.rows
        matrix = np.zeros((self.dimension, self.rows.shape[1]))
        matrix[self.support] = self.rows
        matrix.setflags(write=False)
        return matrix


class Query(ABC):
    """A query; equal when its content is equal, bit for bit."""

    kind: ClassVar[str]
    units: ClassVar[frozenset[PrivacyUnit]]

    def sensitivity(self, unit: PrivacyUnit) -> float:
        """Bound, in L2, how far the exact answer moves between neighbouring data sets."""
        check_unit(type(self), unit)
        return self._sensitivity(unit)

    @abstractmethod
    def _sensitivity(self, unit: PrivacyUnit) -> float: ...

    def digest(self) -> str:
        """Hash the query's whole content; a query asked twice is recognised by it."""
        state = sha256(self.kind.encode())
        for field in fields(self):  # type: ignore[arg-type]  # every query is a dataclass
            value = getattr(self, field.name)
            state.update(f"|{field.name}={_canonical(value)}".encode())
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())


class RowQuery(Query):
    """A sum over the providers, answered on the public lattice; most are sums over rows."""

    units = ROW_UNITS
    is_private: ClassVar[bool] = False
    """Whether the answer is made by a private mechanism, by randomness of its own: no noise is added to it after."""
    mechanism: ClassVar[str] = ""
    """What that mechanism does at each provider, in a sentence; nothing where the query has no price."""
    is_repeatable: ClassVar[bool] = True
    """Whether it can be asked in another job as well, and not only in the one whose draws it speaks of."""
    is_proven: ClassVar[bool] = True
    """Whether its price holds whatever happens, and not only if something did that nobody can check."""
    caveat: ClassVar[str] = ""
    """What else has to hold for its price to be true, in a sentence for those who rely on the result."""
    fits_noise: ClassVar[bool] = False
    """Whether noise may follow the query's content, which is public, instead of the worst of its extent."""

    @property
    @abstractmethod
    def extent(self) -> Extent:
        """Say how large this query is."""

    @property
    def announcement(self) -> Announcement:
        """Say what is sent ahead of the content."""
        return Announcement(self.kind, self.extent)

    def content(self) -> Received:
        """Write what the announcement does not say: nothing, for most queries."""
        return b""

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        """Count the bytes of the content before any of it is there."""
        return 0

    @classmethod
    @abstractmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        """Make the query of what was sent, with every check; ``basis_hash`` is that of the basis, if there is one."""

    @classmethod
    @abstractmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        """Shape of the integer array that answers."""

    @classmethod
    @abstractmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the exact answer's movement for rows of norm at most one."""

    @classmethod
    @abstractmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the integer answer's movement, in lattice units."""

    @classmethod
    def lattice_l1_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the integer answer's movement in L1: m numbers of norm one have at most sqrt(m), by Cauchy-Schwarz."""
        entries = math.prod(cls.answer_shape(extent))
        return round_up(cls.lattice_sensitivity(unit, extent) * math.sqrt(entries))

    @classmethod
    def times(cls, unit: PrivacyUnit, rows_per_person: int) -> int:
        """Say how many times as far as by one row the answer moves by all rows of one person, who has so many at most.

        Rows move a sum one after the other. Where a person's rows are replaced by fewer, some are replaced and the
        rest are removed, and no sum moves further by a removal than by a replacement; ``Count`` says more of itself.
        It is sharp: a person's rows may all be equal.
        """
        return rows_per_person

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        """Bound the movement of the integer answer to this very query: never above what its extent says."""
        bound = self.lattice_l1_sensitivity if l1 else self.lattice_sensitivity
        return bound(unit, self.extent)

    @classmethod
    @abstractmethod
    def unit_value(cls, norm_bound: float) -> float:
        """Value of one lattice unit when rows have norm at most ``norm_bound``."""

    def _sensitivity(self, unit: PrivacyUnit) -> float:
        return self.sensitivity_of(unit, self.extent)


class SecondMomentQuery(RowQuery):
    """A sum of contributions that are quadratic in the row; floors add at most one unit to each entry's movement."""

    @classmethod
    def gain(cls, extent: Extent) -> float:
        """Bound what rounding the query itself adds, as a factor."""
        return 1.0

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        floors = math.sqrt(math.prod(cls.answer_shape(extent)))
        return cls.sensitivity_of(unit, extent) * cls.gain(extent) * 2.0**MOMENT_BITS + floors

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return moment_unit(norm_bound)


def quadratic(query: type[RowQuery], unit: PrivacyUnit) -> float:
    """Bound the movement of a sum of contributions that are quadratic in rows of norm at most one.

    Where any two contributions u, v have norm at most one and u.v >= 0, ||u - v||^2 <= 2: replacing a row moves the
    sum by at most sqrt(2). The same holds for their images under a map of norm at most one.
    """
    check_unit(query, unit)
    return 1.0 if unit.is_add_remove else round_up(math.sqrt(2))


def round_up(value: float) -> float:
    """Cover the rounding of a formula of a few operations."""
    return math.nextafter(value * (1 + 2.0**-48), math.inf)


def check_unit(query: type[Query], unit: PrivacyUnit) -> None:
    """Refuse to price a query for a unit it was not analysed for."""
    if unit not in query.units:
        known = ", ".join(sorted(query.units))
        raise InvalidParameterError(
            f"The query '{query.kind}' has no price for the privacy unit '{unit}'.",
            f"Use one of: {known}; or ask another query.",
        )


def _canonical(value: object) -> str:
    """Write a field so that different contents never read the same."""
    if isinstance(value, RowSparse):
        return f"{value.extent}:{value.fingerprint}"
    if isinstance(value, np.ndarray):
        return f"{value.shape}:{sha256(np.ascontiguousarray(value, dtype='<f8').data).hexdigest()}"
    return repr(value)
