"""The common parts of all queries: an extent, a sensitivity for each privacy unit, and a hash of the whole content."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import ClassVar, Final, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.privacy import MOMENT_BITS, PrivacyUnit, moment_unit

Content: TypeAlias = bytes | memoryview
"""The bytes of a query's content, to be sent or as received."""

ROW_UNITS = frozenset(unit for unit in PrivacyUnit if unit.is_row)

TAIL_VARIANCE: Final = 0.1
"""By how much one row makes the number of rows in a bin, or above a threshold, vary: q (1 - q) for a ninth of them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a query, known before its content: the width of the data, and the columns and rows of its basis.

    ``block`` of ``blocks`` is the part of the rows that the query is about, counted from 1; with 0 blocks, all rows.
    """

    dimension: int
    columns: int = 0
    nonzero_rows: int = 0
    block: int = 0
    blocks: int = 0

    def covers(self, other: "Extent") -> bool:
        """Whether an answer to a query of the other extent moves no further than one of this extent."""
        same = replace(other, nonzero_rows=self.nonzero_rows) == self
        return same and other.nonzero_rows <= self.nonzero_rows


@dataclass(frozen=True, slots=True)
class Announcement:
    """The message before a query's content. It shows how many bytes follow."""

    kind: str
    extent: Extent
    centred: bool = False
    threshold: float = 0.0
    power: int = 0
    scaled: bool = False


@runtime_checkable
class Fingerprinted(Protocol):
    """Content that hashes itself: a basis or a view."""

    @property
    def extent(self) -> Extent:
        """Return its size."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash the form in which it is sent."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class RowSparse:
    """A matrix stored as its nonzero rows in ascending order; work and memory depend on these only.

    It keeps the given arrays, without a copy, and makes them read-only. ``known_fingerprint`` is its fingerprint, if
    the caller has already hashed the same bytes while they arrived.
    """

    dimension: int
    support: NDArray[np.intp]
    rows: FloatArray
    known_fingerprint: str = ""

    def __post_init__(self) -> None:
        for array in (self.support, self.rows):
            array.setflags(write=False)

    @classmethod
    def of(cls, matrix: FloatArray) -> Self:
        """Store a matrix without the rows whose entries are all exactly zero."""
        return cls(len(matrix), np.arange(len(matrix)), matrix).without_zeros()

    @property
    def has_zeros(self) -> bool:
        """Whether a stored row is zero."""
        return not (self.rows[:, 0].all() or self.rows.any(axis=1).all())  # one column is faster to check

    def without_zeros(self) -> Self:
        """Leave out stored rows that are zero."""
        if not self.has_zeros:
            return self
        kept = self.rows.any(axis=1)
        return type(self)(self.dimension, self.support[kept], self.rows[kept])

    @property
    def extent(self) -> Extent:
        """Its size."""
        return Extent(self.dimension, self.rows.shape[1], len(self.support))

    @property
    def fingerprint(self) -> str:
        """Hash its encoding: indices, then rows."""
        if self.known_fingerprint:
            return self.known_fingerprint
        state = sha256(self.support.astype("<u4").data)
        state.update(np.ascontiguousarray(self.rows, dtype="<f8").data)
        return state.hexdigest()

    def dense(self) -> FloatArray:
        """Return the matrix with all its rows."""
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
        """Bound the L2 distance between the exact answers over neighbouring data sets."""
        check_unit(type(self), unit)
        return self._sensitivity(unit)

    @abstractmethod
    def _sensitivity(self, unit: PrivacyUnit) -> float: ...

    def digest(self) -> str:
        """Hash the query's whole content, to recognise a query that is sent twice."""
        state = sha256(self.kind.encode())
        for field in fields(self):  # type: ignore[arg-type]  # every query is a dataclass
            value = getattr(self, field.name)
            if field.name in {"scales", "among"} and value is None:
                continue  # earlier versions had neither, and the digest of a query stays what it was
            state.update(f"|{field.name}={_canonical(value)}".encode())
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())


class RowQuery(Query):
    """A query whose answer is a sum over providers on the public lattice; most are sums over rows."""

    units = ROW_UNITS
    is_private: ClassVar[bool] = False
    """Whether a private mechanism with its own randomness makes the answer, so that no noise is added to it."""
    mechanism: ClassVar[str] = ""
    """A sentence that says what that mechanism does at each provider; empty if the query has no price."""
    is_repeatable: ClassVar[bool] = True
    """Whether the query means the same in another job: it does not depend on what its own job drew."""
    is_proven: ClassVar[bool] = True
    """Whether its price holds without a condition that nobody can check."""
    caveat: ClassVar[str] = ""
    """The assumptions of its price, in sentences for those who rely on the result."""
    fits_extent: ClassVar[bool] = False
    """Whether a query smaller than planned has an answer of its own size, at the price of the planned one."""
    fits_noise: ClassVar[bool] = False
    """Whether noise may be scaled to the query's content, which is public, instead of the worst case of its extent."""
    finds_components: ClassVar[bool] = True
    """Whether components are found from the answer. Other queries come before or after that, and are no rounds."""

    @property
    @abstractmethod
    def extent(self) -> Extent:
        """The size of this query."""

    @property
    def announcement(self) -> Announcement:
        """The message before the content."""
        return Announcement(self.kind, self.extent)

    def content(self) -> Content:
        """Encode what the announcement does not say: nothing, for most queries."""
        return b""

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        """Return how many bytes of content follow an announcement."""
        return 0

    @classmethod
    @abstractmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        """Decode and check a query; ``basis_hash`` is the hash of its basis, if it has one."""

    @classmethod
    @abstractmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        """Return the shape of the integer array that answers the query."""

    @classmethod
    @abstractmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the movement of the exact answer for rows of norm at most one."""

    @classmethod
    @abstractmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the movement of the integer answer, in lattice units."""

    @classmethod
    def lattice_l1_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the movement in L1: by Cauchy-Schwarz, that of m numbers is at most sqrt(m) times that in L2."""
        entries = math.prod(cls.answer_shape(extent))
        return with_rounding_margin(cls.lattice_sensitivity(unit, extent) * math.sqrt(entries))

    @classmethod
    def is_within(cls, extent: Extent, planned: Extent) -> bool:
        """Return whether a plan for one extent allows a query of another: the same, or fewer rows of a basis."""
        return planned.covers(extent)

    @classmethod
    def person_factor(cls, unit: PrivacyUnit, rows_per_person: int) -> int:
        """Return how many times further all rows of a person move the answer than one row does.

        Rows move a sum one after the other. If fewer rows replace a person's rows, some are replaced and the rest are
        removed, and a removal moves no sum further than a replacement; ``Count`` is an exception. The factor is tight:
        a person's rows may all be equal.
        """
        return rows_per_person

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        """Bound the movement of the integer answer to this query; at most the bound for its extent."""
        bound = self.lattice_l1_sensitivity if l1 else self.lattice_sensitivity
        return bound(unit, self.extent)

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        """Guess by how much one row makes a number of the answer vary from sample to sample, in squared lattice units.

        Providers' answers are weighed by it (``common/results/weights.py``). It is 0 for answers that are not sums over
        rows: these are added up as they are.
        """
        return 0.0

    @classmethod
    @abstractmethod
    def unit_value(cls, norm_bound: float) -> float:
        """Return the value of one lattice unit if rows have norm at most ``norm_bound``."""

    def _sensitivity(self, unit: PrivacyUnit) -> float:
        return self.sensitivity_of(unit, self.extent)


class RowCountsQuery(RowQuery):
    """Counts of rows by what they are like: exact in integers, and without a unit."""

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return cls.sensitivity_of(unit, extent)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return 1.0


class SecondMomentQuery(RowQuery):
    """A sum of contributions quadratic in the row; floors add at most one unit to the movement of each entry."""

    @classmethod
    def gain(cls, extent: Extent) -> float:
        """Bound the factor by which rounding the query itself increases the movement."""
        return 1.0

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        floors = math.sqrt(math.prod(cls.answer_shape(extent)))
        return cls.sensitivity_of(unit, extent) * cls.gain(extent) * 2.0**MOMENT_BITS + floors

    @classmethod
    def width(cls, extent: Extent) -> int:
        """Count the columns of the rows whose second moments are asked for."""
        return extent.dimension

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        """Take the product of a leading eigenvalue and another one, for rows of p columns that are as long as C.

        It decides how far a component is turned. It is about C^4 / p^2 if all directions are alike, and C^4 / p if
        nearly all is along one. This is the mean of the two by their logarithms.
        """
        return float(4.0**MOMENT_BITS / cls.width(extent) ** 1.5)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return moment_unit(norm_bound)


def quadratic_sensitivity(query: type[RowQuery], unit: PrivacyUnit) -> float:
    """Bound the movement of a sum of contributions that are quadratic in rows of norm at most one.

    If any two contributions u, v have norm at most one and u.v >= 0, then ||u - v||^2 <= 2: replacing a row moves the
    sum by at most sqrt(2). The same holds for their images under a map of norm at most one.
    """
    check_unit(query, unit)
    return 1.0 if unit.is_add_remove else with_rounding_margin(math.sqrt(2))


def squares_variance(columns: int) -> float:
    """Guess by how much a row makes a column's sum of squares vary, in squared units, if (x_j^2) has norm C^2."""
    return 4.0**MOMENT_BITS / columns


def with_rounding_margin(value: float) -> float:
    """Return a bound on the exact value of a formula with a few rounded operations."""
    return math.nextafter(value * (1 + 2.0**-48), math.inf)


def check_unit(query: type[Query], unit: PrivacyUnit) -> None:
    """Refuse a privacy unit for which the query was not analysed."""
    if unit not in query.units:
        known = ", ".join(sorted(query.units))
        raise InvalidParameterError(
            f"The query '{query.kind}' has no price for the privacy unit '{unit}'.",
            f"Use one of: {known}; or send another query.",
        )


def _canonical(value: object) -> str:
    """Encode a field so that different contents have different encodings."""
    if isinstance(value, Fingerprinted):
        return f"{value.extent}:{value.fingerprint}"
    if isinstance(value, np.ndarray):
        return f"{value.shape}:{sha256(np.ascontiguousarray(value, dtype='<f8').data).hexdigest()}"
    return repr(value)
