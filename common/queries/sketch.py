"""Queries for a sketch whose directions nobody could choose: commit, reveal, sketch, look at its peaks, project.

A provider draws a nonce, shows its hash, and shows the nonce only when all hashes are on the table. Of all nonces
together every provider makes the same random directions Omega, and keeps home Y = M Omega + noise, with which the rest
is answered. Who looks after that is ``provider/evaluate/sketches.py``; here is what the queries are, and what they
cost.

A provider has a *slot*, its place in the job's audience: what has to reach everybody one by one, and not as a sum, is
answered in that place of an array that is zero elsewhere.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import ArrayLike

from dpspca.common.arrays import FloatArray, finite_matrix, refuse
from dpspca.common.privacy import (
    DIRECTION_BITS,
    MAX_PARTIES,
    NONCE_WORDS,
    ROW_BITS,
    PrivacyUnit,
    Words,
    row_unit,
    stretch,
)

from .base import Announcement, Extent, Received, RowQuery, check_unit, round_up

SLOTS: Final = MAX_PARTIES
MAX_COLUMNS: Final = 256
"""Columns of a sketch: up to here every product of the integers below is exact in float64."""
SKETCH_BITS: Final = 16
"""A provider keeps the entries of its sketch as integers below 2^16."""
MAP_BITS: Final = 29
"""A column of a map is rounded to 2^-29 of its largest entry, up to a factor of two."""
WEIGHT_BITS: Final = 20
"""The sketch seen through a map has entries of at most 1, which is 2^20 units."""
PROJECTION_SHIFT: Final = 7
"""What is taken off a projection, so that 2^24 rows stay on the lattice."""


def slots_of(told: FloatArray) -> Words:
    """Read what providers answered in their slots, from the sum of the answers; refuse what is no list of words."""
    words = np.asarray(told)
    if words.shape != (SLOTS, NONCE_WORDS) or not ((words >= 0) & (words < 2.0**32) & (words == np.rint(words))).all():
        refuse("What providers answered in their slots does not add up to words.", "Find out who wrote in two slots.")
    return words.astype(np.uint32)


class SketchQuery(RowQuery):
    """A query that a provider answers with the help of what it kept from the job's earlier ones.

    Unless it says otherwise it is free: it tells of random numbers, or of what a private sketch was made into.

    How many rows there are must be public, for each has noise of its own. With one row of each person it is; which of
    somebody's rows that is may exchange the places of rows, and what is answered does not depend on their order.
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
    """Draw a nonce, and answer its hash in your slot. No row has a part in it."""

    kind = "commit"

    @property
    def extent(self) -> Extent:
        return Extent(0)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SLOTS, NONCE_WORDS)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        return cls()


@dataclass(frozen=True, eq=False)
class SlotsQuery(SketchQuery):
    """A query that carries a list of words, one entry for every slot."""

    words: ArrayLike

    def __post_init__(self) -> None:
        words = np.array(self.words, order="C")
        if words.shape != (SLOTS, NONCE_WORDS) or words.dtype != np.uint32:
            refuse("The list has not one entry of 32 bytes for every slot.", f"Send {SLOTS} x {NONCE_WORDS} words.")
        words.setflags(write=False)
        object.__setattr__(self, "words", words)

    @property
    def listed(self) -> Words:
        """The list."""
        return np.asarray(self.words, dtype=np.uint32)

    def entry(self, slot: int) -> bytes:
        """Give what stands in a slot."""
        return bytes(self.listed[slot].astype("<u4").data)

    def content(self) -> Received:
        return bytes(self.listed.astype("<u4").data)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return 4 * SLOTS * NONCE_WORDS

    @classmethod
    def _words_in(cls, content: Received) -> Words:
        return np.frombuffer(content, dtype="<u4").astype(np.uint32).reshape(SLOTS, NONCE_WORDS)


@dataclass(frozen=True, eq=False)
class Reveal(SlotsQuery):
    """Here are all commitments: show your nonce, in your slot.

    No row has a part in the answer. It costs the probability of an unlucky Omega all the same, and costs it here: from
    now on whoever has all nonces knows Omega, and may break off and begin another job until one is unlucky. Every
    such attempt is paid for.
    """

    kind = "reveal"
    mechanism = (
        "each provider shows a random number, in which no row has a part. That directions made of it are unlucky has a "
        "probability, which delta pays for."
    )

    @property
    def extent(self) -> Extent:
        return Extent(0)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SLOTS, NONCE_WORDS)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        return cls(cls._words_in(content))


@dataclass(frozen=True, eq=False)
class Sketch(SlotsQuery):
    """Here are all nonces: sketch your rows along the directions that follow, with noise, and answer Y^T Y.

    What is private is Y = M Omega + noise, and the answer is made of it. A replaced row changes by v with ||v|| <= 2C,
    and so its row of M Omega by v^T Omega: at most 2C ``stretch``, unless Omega is unlucky, for v was there before
    Omega was. ``Reveal`` paid for that. In units: a row has norm at most 2^17, and Omega a standard deviation of 2^11.
    """

    kind = "sketch"
    mechanism = (
        "each provider adds noise to what its rows make of the random directions, and keeps the result; the answer is "
        "made of that."
    )
    dimension: int
    columns: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.columns <= MAX_COLUMNS or self.dimension < 1:
            refuse(f"A sketch has between 1 and {MAX_COLUMNS} columns.", "Ask for as many.")

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension, self.columns)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.columns, extent.columns)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        """Bound the movement of the sketch itself, of which the answer is made."""
        check_unit(cls, unit)
        return round_up(2 * stretch(extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return cls.sensitivity_of(unit, extent) * 2.0 ** (ROW_BITS + DIRECTION_BITS)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        return cls(cls._words_in(content), announced.extent.dimension, announced.extent.columns)


@dataclass(frozen=True, eq=False)
class MapQuery(SketchQuery):
    """A query about U = Y S for a map S of p columns: entries of U beyond 1 are zero, whatever S is."""

    given: ArrayLike

    def __post_init__(self) -> None:
        matrix = finite_matrix(self.given)
        if matrix.shape[0] != matrix.shape[1] or len(matrix) > MAX_COLUMNS:
            refuse(f"The map has shape {matrix.shape}.", f"Send a square of at most {MAX_COLUMNS} columns.")
        object.__setattr__(self, "given", matrix)

    @property
    def map(self) -> FloatArray:
        """S."""
        return np.asarray(self.given, dtype=np.float64)

    def content(self) -> Received:
        return bytes(self.map.astype("<f8").data)

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return 8 * announced.extent.columns**2

    @classmethod
    def _map_in(cls, announced: Announcement, content: Received) -> FloatArray:
        columns = announced.extent.columns
        values = np.frombuffer(content, dtype="<f8", count=columns**2)
        return values.astype(np.float64).reshape(columns, columns)


@dataclass(frozen=True, eq=False)
class Peaks(MapQuery):
    """How large are U's entries, column by column, and how long is its longest row? In your slot.

    Made of the sketch, which was private already: free. In units of 2^-20, each rounded up.
    """

    kind = "peaks"

    @property
    def extent(self) -> Extent:
        return Extent(0, len(self.map))

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (SLOTS, extent.columns + 1)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return 2.0**-WEIGHT_BITS

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        return cls(cls._map_in(announced, content))


@dataclass(frozen=True, eq=False)
class Projection(MapQuery):
    """M^T U, where rows of U longer than ``reach`` are zero.

    U is made of the private sketch, and so as good as public; what is protected is M. Replacing row j moves the answer
    by the outer product of v and U_j: by ||v|| ||U_j|| <= 2C reach. The provider cuts U itself, so that this holds for
    every map that anybody can send. No row of U can be longer than sqrt(p), its entries being at most 1; where rows
    are shorter, noise follows the reach. Tight: y = -x in the place of the longest row.

    In units: entries of U are integers up to 2^20, rows of M have norm 2^17 at most, and a floor of the sum by 7 bits
    moves each number by less than one.
    """

    kind = "projection"
    is_private: ClassVar[bool] = False
    fits_noise: ClassVar[bool] = True
    dimension: int
    reach: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2.0**-WEIGHT_BITS <= self.reach <= math.sqrt(len(self.map)) or self.dimension < 1:
            refuse("The reach is not between 2^-20 and the root of the columns.", "Send how long rows of U may be.")

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension, len(self.map))

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, extent.columns)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return round_up(2 * math.sqrt(extent.columns))

    @classmethod
    def lattice_sensitivity(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return _projected(math.sqrt(extent.columns), extent)

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        check_unit(type(self), unit)
        if l1:
            return self.lattice_l1_sensitivity(unit, self.extent)
        return min(_projected(self.reach, self.extent), self.lattice_sensitivity(unit, self.extent))

    def _sensitivity(self, unit: PrivacyUnit) -> float:
        check_unit(type(self), unit)
        return round_up(2 * self.reach)

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        return row_unit(norm_bound) * 2.0 ** (PROJECTION_SHIFT - WEIGHT_BITS)

    def content(self) -> Received:
        return bytes(super().content()) + np.array([self.reach], dtype="<f8").tobytes()

    @classmethod
    def content_size(cls, announced: Announcement) -> int:
        return super().content_size(announced) + 8

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
        reach = float(np.frombuffer(content, dtype="<f8", offset=8 * announced.extent.columns**2)[0])
        return cls(cls._map_in(announced, content), announced.extent.dimension, reach)


def _projected(reach: float, extent: Extent) -> float:
    """Bound the movement of a projection in units: a change of a row by 2^18, times a row of U, and floors."""
    floors = math.sqrt(extent.dimension * extent.columns)
    return round_up(round_up(reach) * 2.0 ** (ROW_BITS + 1 + WEIGHT_BITS - PROJECTION_SHIFT) + floors)


SKETCH_QUERIES: Final = (Commit, Reveal, Sketch, Peaks, Projection)
"""All of them."""
