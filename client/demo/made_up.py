"""Rows made up for a demonstration: drawn from a known model, so that the distance from the truth can be told.

With real rows it never can. Settings are checked before any row is made.
"""

import math
import secrets
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from dpspca.client.synthetic import LEAST_ROWS, SpikedModel, SpikedRows, spiked_rows, unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.linalg import subspace_distance
from dpspca.common.model import Model
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_PARTIES, PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema

LARGEST_DATA: Final = 2**28
"""Numbers that the made-up rows may consist of; together with their integer copies they take three gigabytes."""
LARGEST_DIMENSION: Final = 4000
"""Making rows takes time that grows with the cube of this: at 4000 features some ten seconds."""
SMALLEST_SUPPORT: Final = 10
USUAL_SPARSITY: Final = 20
ANSWER_SECONDS: Final = 60


@dataclass(frozen=True, kw_only=True)
class MadeUp:
    """What the flags say, and the rows that follow from it. Without a seed they are fresh."""

    providers: int = 4
    rows: int = 80_000
    dimension: int = 400
    components: int = 3
    sparsity: int | None = None
    epsilon: float = 1.0
    delta: float = 1e-6
    seed: int | None = None

    def __post_init__(self) -> None:
        check_whole("the number of rows", self.rows, least=LEAST_ROWS, most=2**31)
        check(
            self.dimension <= LARGEST_DIMENSION,
            f"--dimension is {self.dimension}; a demonstration makes rows of up to {LARGEST_DIMENSION} features, for "
            "the time it takes grows with the cube of their number.",
            f"Choose at most {LARGEST_DIMENSION}; rows of your own may have more.",
        )
        check(
            self.rows * self.dimension <= LARGEST_DATA,
            f"{self.rows} rows of {self.dimension} features are more than a demonstration holds.",
            f"Choose --rows and --dimension whose product is at most {LARGEST_DATA}.",
        )
        most = min(MAX_PARTIES, self.rows // LEAST_ROWS)
        check_whole("the number of providers", self.providers, least=1, most=most)
        check_sparsity(self.features, self.components, self.dimension)
        _ = self.plan  # refuses what no job can ask, before anything starts

    @property
    def plan(self) -> Plan:
        """All that the job may ask."""
        return catalogue.plan(self.job)

    @property
    def features(self) -> int:
        """How many features may take part: as asked for, or a few."""
        return min(USUAL_SPARSITY, self.dimension) if self.sparsity is None else self.sparsity

    @property
    def population(self) -> SpikedModel:
        """The model that the rows are drawn from: as many components as are looked for, on a few features."""
        support = min(self.dimension, max(SMALLEST_SUPPORT, 2 * self.components))
        return SpikedModel(self.dimension, self.components, support)

    @property
    def norm_bound(self) -> float:
        """The bound on a row's length: it follows from the population's parameters, not from its rows."""
        return math.ceil(10 * self.population.norm_bound) / 10

    @property
    def introduction(self) -> str:
        """Say whose rows these are: nobody's."""
        return (
            f"MADE-UP ROWS: {self.rows:,} rows of {self.dimension:,} features are drawn from a known model and divided "
            f"over {self.providers} providers. Nobody's data are in this run. Rows longer "
            f"than {self.norm_bound:g} are clipped to it: the square root of the expected squared "
            "length plus two standard deviations of it, worked out from the model's parameters and not from the rows."
        )

    @cached_property
    def job(self) -> JobSpec:
        """Describe the job."""
        return JobSpec(
            schema=Schema(self.dimension),
            unit=PrivacyUnit.ROW_ADD_REMOVE,
            budget=Budget(self.epsilon, self.delta),
            norm_bound=self.norm_bound,
            components=self.components,
            minimum_parties=self.providers,
            answer_seconds=ANSWER_SECONDS,
            seed=secrets.randbits(63) if self.seed is None else self.seed,
            options={"sparsity": self.features},
        )

    @cached_property
    def truth(self) -> SpikedRows:
        """Draw the rows."""
        return spiked_rows(self.population, self.rows, np.random.default_rng(self.seed))

    def shards(self) -> list[FloatArray]:
        """Divide the rows."""
        return unequal_shards(self.truth.rows, self.providers)

    def findings(self, model: Model) -> dict[str, Any]:
        """Compare a model with the truth."""
        true_features = set(np.flatnonzero(self.truth.basis.any(axis=1)).tolist())
        return {
            "made_up_rows": True,
            "settings": asdict(self) | {"norm_bound": self.norm_bound},
            "subspace_distance": subspace_distance(model.components.T, self.truth.basis),
            "largest_subspace_distance": largest_distance(self.components, self.dimension),
            "true_features": len(true_features),
            "true_features_found": len(true_features & set(model.support.tolist())),
        }

    def verdict(self, numbers: dict[str, Any]) -> str:
        """Say how close the result is to the truth, which is known here."""
        return (
            f"Distance from the true subspace: {numbers['subspace_distance']:.3f}, on a scale from 0 (the truth) to "
            f"{numbers['largest_subspace_distance']:.3f} (at right angles to it). {numbers['true_features_found']} of "
            f"the {numbers['true_features']} true features were found.\n"
            "The true components are equally strong, so that only the subspace they span has a right answer; which "
            "axes of it are called components is chance."
        )


def largest_distance(components: int, dimension: int) -> float:
    """Two subspaces of the same dimension are never further apart than this."""
    return math.sqrt(min(components, dimension - components))


def check_sparsity(sparsity: int, components: int | None, columns: int | None) -> None:
    """Refuse fewer features than components, or more than there are, in the words of the flags."""
    check(
        components is None or sparsity >= components,
        f"--sparsity is {sparsity} and --components is {components}: that many components cannot be at right angles to "
        "one another on fewer features than there are components.",
        f"Give a --sparsity of at least {components}, or fewer components.",
    )
    check(
        columns is None or sparsity <= columns,
        f"--sparsity is {sparsity}, and there are {columns} features.",
        f"Give a --sparsity of at most {columns}.",
    )
