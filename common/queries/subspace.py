"""Queries that a provider answers with a subspace from a private mechanism, which has randomness of its own.

The answer is U U^T, the d x d projection on the subspace, rounded to integers in units of 2^-30: post-processing of U,
like everything that follows. It describes the subspace, but not the frame U, whose signs and order are arbitrary. And
projections can be added, unlike frames. The coordinator takes the leading eigenvectors of the sum.

There is a query for each unit, because the unit decides three things that a provider must not take from the
coordinator: how wide the mechanism's noise must be, what its price means, and whether the answer may have a weight.
Under replace-one the number n of rows is public by definition and the answer is n U U^T, so that a large provider
counts for more in the sum. Under add/remove n is not public, and every provider counts the same. For the units of
persons the same holds with one row for each person; a plan refuses more rows (``plan.pricing``).

There is no bound on the sensitivity: the answer can move from anywhere to anywhere. Its cost is its event, which the
plan names and the provider's code guarantees (``dpspca.provider.evaluate.mechanisms`` says by which theorem).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from dpspca.common.arrays import refuse
from dpspca.common.privacy import MOMENT_BITS, PrivacyUnit

from .base import Announcement, Content, Extent, check_unit
from .content import read_center
from .rows import ColumnsQuery

MAX_SUBSPACE_COLUMNS: Final = 2**11
"""At this dimension an answer has 32 megabytes and eigenvectors take seconds; beyond it, use products instead."""
PROJECTION_BITS: Final = MOMENT_BITS


@dataclass(frozen=True, eq=False)
class SubspaceQuery(ColumnsQuery):
    """The projection on the ``columns`` leading eigenvectors of X^T X, around a public centre if there is one.

    This is for add/remove; the subclasses named ``Weighted...`` are for replace-one.
    """

    units = frozenset({PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.PERSON_ADD_REMOVE})
    is_private: ClassVar[bool] = True
    caveat: ClassVar[str] = (
        "The theorem behind the promise for the subspace is about real numbers, and a computer rounds them. The "
        "promise allows for that: integer noise hides the rounding, and a 256th of epsilon and a probability below "
        "1e-41 pay for it. It relies on the published error bounds of the linear-algebra library."
    )
    replaces: ClassVar[bool] = False
    """Whether neighbours differ by a replaced row, and not by a removed one."""
    columns: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.columns <= self.dimension <= MAX_SUBSPACE_COLUMNS:
            refuse(
                f"A subspace of {self.columns} columns in {self.dimension} dimensions is not answered.",
                f"Ask for at least 1 column, at most the dimension, in at most {MAX_SUBSPACE_COLUMNS} dimensions.",
            )

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension, self.columns)

    @classmethod
    def row_variance(cls, extent: Extent) -> float:
        """Return 0: an answer is no sum over rows. For replace-one, providers weigh their own by their rows."""
        return 0.0

    @classmethod
    def read(cls, announced: Announcement, content: Content, basis_hash: str) -> Self:
        return cls(announced.extent.dimension, read_center(announced, content), announced.extent.columns)

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (extent.dimension, extent.dimension)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        check_unit(cls, unit)
        return math.inf

    @classmethod
    def unit_value(cls, norm_bound: float) -> float:
        """Return the unit of a projection, which does not depend on the norm of rows."""
        return 2.0**-PROJECTION_BITS

    @property
    def step(self) -> int:
        """The distance of neighbours in rows: a replacement is a removal and an addition."""
        return 2 if self.replaces else 1

    @property
    def weighted(self) -> bool:
        """Whether the answer is multiplied by the number of rows, which then is public."""
        return self.replaces


class _ReplaceOne:
    """The parts of a query that differ under replace-one."""

    units = frozenset({PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.PERSON_REPLACE_ONE})
    replaces: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class PerturbedSubspace(SubspaceQuery):
    """The eigenvectors, rotated at random, plus noise scaled to a smooth bound on their sensitivity."""

    kind = "perturbed-subspace"
    mechanism = (
        "each provider adds noise to its own components, less noise if its rows show them more clearly. The width of "
        "the noise is not disclosed, because it depends on the rows."
    )
    published: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class WeightedPerturbedSubspace(_ReplaceOne, PerturbedSubspace):
    """The same under replace-one, times the number of rows."""

    kind = "weighted-perturbed-subspace"


@dataclass(frozen=True, eq=False)
class PublishedSubspace(PerturbedSubspace):
    """The same with the noise of Gonen & Gilad-Bachrach's formulas."""

    kind = "published-subspace"
    published: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class WeightedPublishedSubspace(_ReplaceOne, PublishedSubspace):
    """The same under replace-one, times the number of rows."""

    kind = "weighted-published-subspace"


@dataclass(frozen=True, eq=False)
class DrawnSubspace(SubspaceQuery):
    """A subspace from the exponential mechanism, axis by axis, by an exact sampler."""

    kind = "drawn-subspace"
    mechanism = (
        "each provider draws a subspace at random; it is more likely if it explains more of the rows. The draw itself "
        "protects the rows; no noise is added."
    )


@dataclass(frozen=True, eq=False)
class WeightedDrawnSubspace(_ReplaceOne, DrawnSubspace):
    """The same under replace-one, times the number of rows."""

    kind = "weighted-drawn-subspace"


@dataclass(frozen=True, eq=False)
class WalkedSubspace(SubspaceQuery):
    """An approximation by a Markov chain of a subspace from the exponential mechanism, with all axes at once.

    Its event is that of the mechanism. It is NOT the price of a chain that stopped too early, which nothing can detect.
    """

    kind = "walked-subspace"
    mechanism = (
        "each provider draws a subspace by a Markov chain that prefers subspaces which explain more of its rows. No "
        "noise is added, and the draw protects only if the chain had converged."
    )
    is_proven = False
    caveat = (
        "The subspace was drawn by a Markov chain. The promise holds only if the chain had converged, which cannot be "
        "checked: do not release such results."
    )


@dataclass(frozen=True, eq=False)
class WeightedWalkedSubspace(_ReplaceOne, WalkedSubspace):
    """The same under replace-one, times the number of rows."""

    kind = "weighted-walked-subspace"


SUBSPACE_QUERIES: Final[tuple[type[SubspaceQuery], ...]] = (
    PerturbedSubspace,
    WeightedPerturbedSubspace,
    PublishedSubspace,
    WeightedPublishedSubspace,
    DrawnSubspace,
    WeightedDrawnSubspace,
    WalkedSubspace,
    WeightedWalkedSubspace,
)
