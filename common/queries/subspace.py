"""Queries that a provider answers with a subspace from a private mechanism, whose randomness is its own.

The answer is U U^T, the d x d projection on the subspace, rounded to integers in units of 2^-30: post-processing of U,
like everything that follows. It says all about the subspace and nothing about the frame U, whose signs and order mean
nothing; and projections can be added, of which frames know nothing. The coordinator takes the leading eigenvectors of
the sum.

There is a query for each unit, for what the unit is decides three things that a provider must not take from whoever
asks: how far the mechanism's noise has to reach, what its price means, and whether the answer may carry a weight.
Under replace-one the number n of rows is public by definition and the answer is n U U^T, so that a large provider
counts for more in the sum. Under add/remove it is not public, and every provider counts as much as any other. For the
units of persons the same holds of one row of each, and a plan refuses more (``plan.price``).

No sensitivity is stated: the answer can move from anywhere to anywhere. What it costs is its event, which the plan
names and the provider's own code keeps (``dpspca.provider.evaluate.mechanisms`` says by which theorem).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from dpspca.common.arrays import refuse
from dpspca.common.privacy import MOMENT_BITS, PrivacyUnit

from .base import Announcement, Extent, Received, check_unit
from .content import read_center
from .rows import ColumnsQuery

MAX_DIMENSION: Final = 2**11
"""An answer of 32 megabytes, and eigenvectors within seconds; beyond, ask for products instead."""
PROJECTION_BITS: Final = MOMENT_BITS


@dataclass(frozen=True, eq=False)
class SubspaceQuery(ColumnsQuery):
    """Leading eigenvectors of X^T X, as many as ``columns``, around a public centre if there is one: as a projection.

    What is said here of add/remove is said of replace-one by the subclasses named ``Weighted...``.
    """

    units = frozenset({PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.PERSON_ADD_REMOVE})
    is_private: ClassVar[bool] = True
    caveat: ClassVar[str] = (
        "The theorem behind the promise for the subspace is one about real numbers, and a computer rounds them. The "
        "promise allows for that: integer noise hides what was rounded, and a 256th of epsilon and less than 1e-41 of "
        "probability are set aside for it. It rests on the published error bounds of the linear-algebra library."
    )
    replaces: ClassVar[bool] = False
    """Whether neighbours have another row in the place of one, and not one row fewer."""
    columns: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.columns <= self.dimension <= MAX_DIMENSION:
            refuse(
                f"There is no answer of {self.columns} columns in {self.dimension} dimensions.",
                f"Ask for 1 up to all of at most {MAX_DIMENSION}.",
            )

    @property
    def extent(self) -> Extent:
        return Extent(self.dimension, self.columns)

    @classmethod
    def read(cls, announced: Announcement, content: Received, basis_hash: str) -> Self:
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
        """Projections have no unit of the rows."""
        return 2.0**-PROJECTION_BITS

    @property
    def step(self) -> int:
        """How far apart neighbours are, in rows: a replacement is a removal and an addition."""
        return 2 if self.replaces else 1

    @property
    def weighted(self) -> bool:
        """Whether the answer is multiplied by the number of rows, which then is public."""
        return self.replaces


class _ReplaceOne:
    """What replace-one changes."""

    units = frozenset({PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.PERSON_REPLACE_ONE})
    replaces: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class PerturbedSubspace(SubspaceQuery):
    """The eigenvectors, turned at random, plus noise that follows a smooth bound on their sensitivity."""

    kind = "perturbed-subspace"
    mechanism = (
        "each provider adds noise to its own components, the less the more clearly its rows show them. How wide the "
        "noise was is not told, for it follows the rows."
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
        "each provider draws a subspace at random, the likelier the more of its rows it explains. The draw is what "
        "protects; no noise is added."
    )


@dataclass(frozen=True, eq=False)
class WeightedDrawnSubspace(_ReplaceOne, DrawnSubspace):
    """The same under replace-one, times the number of rows."""

    kind = "weighted-drawn-subspace"


@dataclass(frozen=True, eq=False)
class WalkedSubspace(SubspaceQuery):
    """A subspace from the exponential mechanism, all axes at once, as near as a Markov chain came to it.

    Its event is the mechanism's; of a chain that stopped too soon it is NOT the price, and nothing here can tell.
    """

    kind = "walked-subspace"
    mechanism = (
        "each provider draws a subspace by a Markov chain, which goes where more of its rows is explained. No noise is "
        "added, and the draw protects only if the chain had converged."
    )
    is_proven = False
    caveat = (
        "The subspace was drawn by a Markov chain. What is promised here holds only if the chain had converged, and "
        "nothing can tell whether it had: such results are not for release."
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
