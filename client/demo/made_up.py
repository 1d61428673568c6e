"""Made-up rows for a demonstration. They are drawn from a known model, so the error of the result can be computed.

With real rows the error is unknown. Settings are checked before any row is drawn.
"""

import math
import secrets
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from dpspca.client.made_up_rows import LEAST_ROWS, SpikedModel, SpikedRows, spiked_rows, unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_PROVIDERS, PrivacyUnit
from dpspca.common.results import Model

LARGEST_DATA: Final = 2**28
"""Largest number of entries of the made-up rows. With their integer copies they take three gigabytes."""
LARGEST_DIMENSION: Final = 4000
"""Drawing rows takes time that grows with the cube of the dimension: about ten seconds for 4000 features."""
SMALLEST_SUPPORT: Final = 10
USUAL_SPARSITY: Final = 20
ANSWER_SECONDS: Final = 60


@dataclass(frozen=True, kw_only=True)
class MadeUp:
    """The flags of the command, and the rows that are drawn from them. Without a seed, each run draws other rows."""

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
            f"--dimension is {self.dimension}, but a demonstration has at most {LARGEST_DIMENSION} features, because "
            "drawing rows takes time that grows with the cube of that number.",
            f"Choose at most {LARGEST_DIMENSION}. Your own rows may have more.",
        )
        check(
            self.rows * self.dimension <= LARGEST_DATA,
            f"{self.rows} rows of {self.dimension} features are too many numbers for a demonstration.",
            f"Choose --rows and --dimension with a product of at most {LARGEST_DATA}.",
        )
        most = min(MAX_PROVIDERS, self.rows // LEAST_ROWS)
        check_whole("the number of providers", self.providers, least=1, most=most)
        check_sparsity(self.features, self.components, self.dimension)
        _ = self.plan  # refuses an invalid job before anything starts

    @cached_property
    def plan(self) -> Plan:
        """The plan of the job."""
        return catalogue.plan(self.job)

    @property
    def features(self) -> int:
        """The number of features that may take part: the given one, or a few."""
        return min(USUAL_SPARSITY, self.dimension) if self.sparsity is None else self.sparsity

    @property
    def population(self) -> SpikedModel:
        """The model that the rows are drawn from. It has as many components as the job asks for, on a few features."""
        support = min(self.dimension, max(SMALLEST_SUPPORT, 2 * self.components))
        return SpikedModel(self.dimension, self.components, support)

    @property
    def norm_bound(self) -> float:
        """The norm bound. It follows from the parameters of the population, not from its rows."""
        return math.ceil(10 * self.population.norm_bound) / 10

    @property
    def introduction(self) -> str:
        """Return an introduction to these rows, which says that they are made up."""
        return (
            f"MADE-UP ROWS: {self.rows:,} rows of {self.dimension:,} features are drawn from a known model and divided "
            f"among {self.providers} providers. Nobody's data are in this run. Rows longer than {self.norm_bound:g} "
            "are clipped to that length. It is the square root of the expected squared length plus two of its standard "
            "deviations, computed from the model's parameters and not from the rows."
        )

    @cached_property
    def job(self) -> JobSpec:
        """The job of the demonstration."""
        return JobSpec(
            schema=Schema(self.dimension),
            unit=PrivacyUnit.ROW_ADD_REMOVE,
            budget=Budget(self.epsilon, self.delta),
            norm_bound=self.norm_bound,
            components=self.components,
            minimum_providers=self.providers,
            answer_seconds=ANSWER_SECONDS,
            seed=secrets.randbits(63) if self.seed is None else self.seed,
            options={"sparsity": self.features},
        )

    @cached_property
    def truth(self) -> SpikedRows:
        """The rows, and the components of the model that they are drawn from."""
        return spiked_rows(self.population, self.rows, np.random.default_rng(self.seed))

    def shards(self) -> list[FloatArray]:
        """Divide the rows among the providers."""
        return unequal_shards(self.truth.rows, self.providers)

    def findings(self, model: Model) -> dict[str, Any]:
        """Compare the job's result with the true components."""
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
        """Return in words how close the result is to the truth, which is known here."""
        return (
            f"Distance from the true subspace: {numbers['subspace_distance']:.3f}, on a scale from 0 (equal) to "
            f"{numbers['largest_subspace_distance']:.3f} (orthogonal). {numbers['true_features_found']} of the "
            f"{numbers['true_features']} true features were found.\n"
            "The true components are equally strong, so only the subspace that they span is defined. The axes within "
            "it are random."
        )


def largest_distance(components: int, dimension: int) -> float:
    """Return the largest possible distance between two subspaces of the same dimension."""
    return math.sqrt(min(components, dimension - components))


def check_sparsity(sparsity: int, components: int | None, columns: int | None) -> None:
    """Refuse fewer features than components, or more than there are. Errors name the flags."""
    check(
        components is None or sparsity >= components,
        f"--sparsity is {sparsity} and --components is {components}, but {components} orthogonal components need at "
        f"least {components} features.",
        f"Give a --sparsity of at least {components}, or fewer components.",
    )
    check(
        columns is None or sparsity <= columns,
        f"--sparsity is {sparsity}, but there are only {columns} features.",
        f"Give a --sparsity of at most {columns}.",
    )
