"""Queries for a sketch along directions that nobody can choose: commit, reveal, sketch, peaks, projection.

A provider draws a nonce, answers with its hash, and reveals the nonce only when it has all hashes. From all nonces
together every provider derives the same random directions Omega. It keeps Y = M Omega + noise to itself and answers the
remaining queries with it. ``provider/evaluate/sketches.py`` enforces this; this module defines the queries and their
sensitivities.

A provider has a *seat*, its position in the job's audience. A value that must reach everybody individually, and not as
a sum, is answered in that seat of an array that is zero elsewhere.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import ArrayLike

from dpspca.common.arrays import FloatArray, finite_matrix, refuse
from dpspca.common.privacy import (
    DIRECTION_BITS,
    MAX_PROVIDERS,
    NONCE_WORDS,
    ROW_BITS,
    PrivacyUnit,
    Words,
    row_unit,
    stretch,
)

from .base import Announcement, Content, Extent, RowQuery, check_unit, with_rounding_margin

SEATS: Final = MAX_PROVIDERS
MAX_COLUMNS: Final = 256
"""Most columns of a sketch: up to here every product of the integers below is exact in float64."""
SKETCH_BITS: Final = 16
"""A provider keeps the entries of its sketch as integers below 2^16."""
MAP_BITS: Final = 29
"""A column of a map is rounded to 2^-29 of its largest entry, up to a factor of two."""
WEIGHT_BITS: Final = 20
"""The product of the sketch with a map has entries of at most 1, which is 2^20 units."""
PROJECTION_SHIFT: Final = 7
"""Bits by which a projection is shifted down, so that 2^24 rows fit on the lattice."""


def read_seats(total: FloatArray) -> Words:
    """Read the words in all seats from the sum of the answers; refuse a sum that does not consist of words."""
    words = np.asarray(total)
    if words.shape != (SEATS, NONCE_WORDS) or not ((words >= 0) & (words < 2.0**32) & (words == np.rint(words))).all():
        refuse(
            "The random numbers of the providers do not add up to 32-bit words: one wrote into another's seat.",
            "Submit the job again, with fewer providers, to find out which.",
        )
    return words.astype(np.uint32)


class SketchQuery(RowQuery):
    """A query that a provider answers with what it kept from earlier queries of the job.

    Unless a subclass says otherwise it is free: its answer is made of random numbers, or of the private sketch.

    The number of rows must be public, because each row of the sketch has noise of its own. With one row for each person
    it is. The choice of that row may change the order of rows, but answers do not depend on the order.
    """

    units = frozenset({PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.PERSON_REPLACE_ONE})
    is_private: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return 0.0

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return 0.0

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return 1.0


@dataclass(frozen=True, eq=False)
class Commit(SketchQuery):
    """Draw a nonce, and answer with its hash in your seat. The answer does not depend on any row."""

    kind = "commit"

    @property
    def extent(self) -> Extent:
        return Extent(0)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SEATS, NONCE_WORDS)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls()


@dataclass(frozen=True, eq=False)
class SlotsQuery(SketchQuery):
    """A query that carries a list with one entry of words for every seat."""

    words: ArrayLike

    def __post_init__(self) -> None:
        words = np.array(self.words, order="C")
        if words.shape != (SEATS, NONCE_WORDS) or words.dtype != np.uint32:
            refuse(
                f"The list has shape {words.shape} and type {words.dtype}.",
                f"Send {SEATS} x {NONCE_WORDS} words of 32 bits.",
            )
        words.setflags(write=False)
        object.__setattr__(self, "words", words)

    @property
    def listed(self) -> Words:
        """The words, a row for each seat."""
        return np.asarray(self.words, dtype=np.uint32)

    def entry(self, seat: int) -> bytes:
        """Return the bytes of a seat."""
        return bytes(self.listed[seat].astype("<u4").data)

    def content(self) -> Content:
        return bytes(self.listed.astype("<u4").data)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return 4 * SEATS * NONCE_WORDS

    @classmethod
    def _read_words(cls, content: Content) -> Words:
        return np.frombuffer(content, dtype="<u4").astype(np.uint32).reshape(SEATS, NONCE_WORDS)


@dataclass(frozen=True, eq=False)
class Reveal(SlotsQuery):
    """Given all commitments, reveal your nonce, in your seat.

    The answer does not depend on any row. Still, its price is the probability of an unlucky Omega: from now on, a party
    with all nonces knows Omega, and can abandon jobs until one has an unlucky Omega. So every such attempt is paid for.
    """

    kind = "reveal"
    mechanism = (
        "each provider reveals a random number that does not depend on its rows. The directions made of it are unlucky "
        "with a small probability, which delta pays for."
    )

    @property
    def extent(self) -> Extent:
        return Extent(0)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SEATS, NONCE_WORDS)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(cls._read_words(content))


@dataclass(frozen=True, eq=False)
class Sketch(SlotsQuery):
    """Given all nonces, sketch your rows along the directions derived from them, with noise, and answer with Y^T Y.

    Y = M Omega + noise is private, and the answer is computed from it. A replaced row changes by v with ||v|| <= 2C, so
    its row of M Omega changes by v^T Omega: at most 2C ``stretch``, unless Omega is unlucky, because v was fixed before
    Omega. ``Reveal`` paid for that. In units: a row has norm at most 2^17, and Omega a standard deviation of 2^11.
    """

    kind = "sketch"
    mechanism = (
        "each provider multiplies its rows by the random directions, adds noise, and keeps the result; the answer is "
        "computed from that."
    )
    dimension: int
    columns: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.columns <= MAX_COLUMNS or self.dimension < 1:
            refuse(
                f"A sketch was asked for with {self.columns} columns in {self.dimension} dimensions.",
                f"Ask for 1 to {MAX_COLUMNS} columns in at least 1 dimension.",
            )

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension, self.columns)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.columns, extent.columns)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the movement of the sketch itself, from which the answer is computed."""
        check_unit(cls, unit)
        return with_rounding_margin(2 * stretch(extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return cls.sensitivity_of(unit, extent) * 2.0 ** (ROW_BITS + DIRECTION_BITS)

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(cls._read_words(content), announced.extent.dimension, announced.extent.columns)


@dataclass(frozen=True, eq=False)
class MapQuery(SketchQuery):
    """A query about U = Y S for a square map S of p columns; entries of U above 1 are set to zero, whatever S is."""

    given: ArrayLike

    def __post_init__(self) -> None:
        matrix = finite_matrix(self.given)
        if matrix.shape[0] != matrix.shape[1] or len(matrix) > MAX_COLUMNS:
            refuse(f"The map has shape {matrix.shape}.", f"Send a square of at most {MAX_COLUMNS} columns.")
        object.__setattr__(self, "given", matrix)

    @property
    def map(self) -> FloatArray:
        """The map S."""
        return np.asarray(self.given, dtype=np.float64)

    def content(self) -> Content:
        return bytes(self.map.astype("<f8").data)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return 8 * announced.extent.columns**2

    @classmethod
    def _read_map(cls, announced: Announcement, content: Content) -> FloatArray:
        columns = announced.extent.columns
        values = np.frombuffer(content, dtype="<f8", count=columns**2)
        return values.astype(np.float64).reshape(columns, columns)


@dataclass(frozen=True, eq=False)
class Peaks(MapQuery):
    """The largest entry of each column of U and the length of its longest row, in your seat.

    Computed from the private sketch, so it is free. In units of 2^-20, each rounded up.
    """

    kind = "peaks"

    @property
    def extent(self) -> Extent:
        return Extent(0, len(self.map))

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SEATS, extent.columns + 1)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return 2.0**-WEIGHT_BITS

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(cls._read_map(announced, content))


@dataclass(frozen=True, eq=False)
class Projection(MapQuery):
    """M^T U, where rows of U longer than ``reach`` are set to zero.

    U is computed from the private sketch, so it counts as public; the price protects M. Replacing row j moves the
    answer by the outer product of v and U_j, so by ||v|| ||U_j|| <= 2C reach. The provider itself sets long rows to
    zero, so that this holds for every map that anybody can send. No row of U is longer than sqrt(p), because its
    entries are at most 1; if rows are shorter, noise is scaled to the reach. Tight: y = -x in the place of the longest
    row.

    In units: entries of U are integers up to 2^20, rows of M have norm at most 2^17, and rounding the sum down by 7
    bits moves each number by less than one.
    """

    kind = "projection"
    is_private: ClassVar[bool] = False
    fits_noise: ClassVar[bool] = True
    dimension: int
    reach: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2.0**-WEIGHT_BITS <= self.reach <= math.sqrt(len(self.map)) or self.dimension < 1:
            refuse(
                f"The reach is {self.reach}.",
                "Send a bound on the length of rows of U, from 2^-20 to the root of the columns.",
            )

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension, len(self.map))

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, extent.columns)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return with_rounding_margin(2 * math.sqrt(extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return _projection_movement(math.sqrt(extent.columns), extent)

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        check_unit(type(self), unit)
        if l1:
            return self.lattice_l1_sensitivity(unit, self.extent)
        return min(_projection_movement(self.reach, self.extent), self.lattice_sensitivity(unit, self.extent))

    def _sensitivity(self, unit: PrivacyUnit) -> float:
        check_unit(type(self), unit)
        return with_rounding_margin(2 * self.reach)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return row_unit(norm_bound) * 2.0 ** (PROJECTION_SHIFT - WEIGHT_BITS)

    def content(self) -> Content:
        return bytes(super().content()) + np.array([self.reach], dtype="<f8").tobytes()

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return super().content_size(announced) + 8

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        reach = float(np.frombuffer(content, dtype="<f8", offset=8 * announced.extent.columns**2)[0])
        return cls(cls._read_map(announced, content), announced.extent.dimension, reach)


def _projection_movement(reach: float, extent: Extent) -> float:
    """Bound the movement of a projection in units: a row's change of 2^18, times a row of U, plus floors."""
    floors = math.sqrt(extent.dimension * extent.columns)
    return with_rounding_margin(
        with_rounding_margin(reach) * 2.0 ** (ROW_BITS + 1 + WEIGHT_BITS - PROJECTION_SHIFT) + floors
    )


SKETCH_QUERIES: Final = (Commit, Reveal, Sketch, Peaks, Projection)
"""All of them."""
