"""The data: populations with a known answer, rows drawn from them, and shards prepared once for all jobs on them.

Drawing and preparing the rows of section 5.1 takes far longer than any job from a Gram matrix, so all jobs on a sample
run together. Only the last sample is cached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from scipy.linalg import hadamard

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.common.arrays import FloatArray
from dpspca.common.queries.rows import Covariance
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard, Strategy

PAPER_SQUARED_BOUND = 5500.0
"""The bound on ||x||^2 that fits the printed figures of paper 002, at its d = 1000. The paper states none."""
PAPER_MEAN_SQUARED_LENGTH = 5475.0
"""The mean of ||x||^2 in that population: 5 eigenvalues of 100, and 995 of mean 5."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows as providers hold them, prepared under the population's bound, and the components to be found."""

    shards: Sequence[Shard]
    truth: FloatArray
    gram: FloatArray
    """X^T X of the clipped rows, or the symmetric matrix, for results without privacy."""
    support: int
    table: FloatArray | None = None
    """The data of a job for which no shard was prepared."""


class Population(Protocol):
    """A source of samples. Populations are compared and hashed by value."""

    def __hash__(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    @property
    def components(self) -> int: ...
    @property
    def norm_bound(self) -> float: ...
    def draw(self, seed: int) -> tuple[FloatArray, FloatArray]:
        """Return rows, and an orthonormal basis of the leading subspace."""
        ...

    @property
    def support(self) -> int:
        """Return the number of features in the support of the leading subspace, which are the first ones."""
        ...


@dataclass(frozen=True)
class Spiked:
    """The model of section 5.1 of paper 002, clipped as fits the printed figures, in proportion at other sizes."""

    dimension: int = 1000
    components: int = 5
    support: int = 10
    rows: int = 100_000
    leading: float = 100.0

    @property
    def norm_bound(self) -> float:
        """Return the same multiple of the mean squared length at every size. It does not depend on the rows drawn."""
        mean = self.components * self.leading + (self.dimension - self.components) * 5.0
        return float(np.sqrt(mean * PAPER_SQUARED_BOUND / PAPER_MEAN_SQUARED_LENGTH))

    def draw(self, seed: int) -> tuple[FloatArray, FloatArray]:
        model = SpikedModel(self.dimension, self.components, self.support, self.leading)
        drawn = spiked_rows(model, self.rows, np.random.default_rng([seed, self.dimension, self.components]))
        return drawn.rows, drawn.basis


@dataclass(frozen=True)
class Carried:
    """Rows of norm at most one. Some lie in a subspace, and all have a little noise.

    ``carriers`` rows share an energy (sum of squares) of ``energy`` in the subspace equally: the fewer, the longer each
    and the more coherent the rows, with sqrt(rows / carriers) as the C-coherence of Hardt & Roth (2012), while X^T X
    stays what it is. Every row has isotropic noise of norm ``noise``, too.
    """

    dimension: int = 64
    components: int = 3
    rows: int = 50_000
    carriers: int = 50_000
    energy: float = 5_000.0
    noise: float = 0.02

    @property
    def norm_bound(self) -> float:
        return 1.0

    @property
    def support(self) -> int:
        return self.dimension

    def draw(self, seed: int) -> tuple[FloatArray, FloatArray]:
        generator = np.random.default_rng([seed, self.rows, self.carriers])
        basis = flat_basis(self.dimension, self.dimension, self.components, generator)
        scores = generator.standard_normal((self.carriers, self.components))
        scores *= np.sqrt(self.energy / self.carriers) / np.linalg.norm(scores, axis=1)[:, None]
        rows = generator.standard_normal((self.rows, self.dimension)) * (self.noise / np.sqrt(self.dimension))
        rows[generator.permutation(self.rows)[: self.carriers]] += scores @ basis.T
        return rows, basis


@dataclass(frozen=True)
class Planted:
    """A symmetric matrix: ``strength`` on a subspace of ``components`` dimensions, and noise of 1/2 on every entry.

    The subspace has a basis whose entries are of one size on ``spread`` features and zero beyond: its coherence is
    dimension / spread exactly, by every definition. Entries are what is protected, or a spectral norm: the matrix is
    the whole of the data.
    """

    dimension: int = 512
    components: int = 3
    spread: int = 512
    strength: float = 2000.0

    @property
    def norm_bound(self) -> float:
        """Return how much one entry may change."""
        return 1.0

    @property
    def support(self) -> int:
        return self.spread

    def draw(self, seed: int) -> tuple[FloatArray, FloatArray]:
        generator = np.random.default_rng([seed, self.dimension, self.spread])
        basis = flat_basis(self.dimension, self.spread, self.components, generator)
        noise = generator.standard_normal((self.dimension, self.dimension)) * 0.5
        matrix = self.strength * basis @ basis.T + np.triu(noise) + np.triu(noise, 1).T
        return (matrix + matrix.T) / 2, basis


def flat_basis(dimension: int, spread: int, components: int, generator: np.random.Generator) -> FloatArray:
    """Return orthonormal columns of +-1/sqrt(spread) on the first features: a Hadamard matrix with random signs."""
    signs = generator.choice([-1.0, 1.0], size=spread)[:, None]
    basis = np.zeros((dimension, components))
    basis[:spread] = signs * hadamard(spread)[:, 1 : components + 1] / np.sqrt(spread)
    return basis


@lru_cache(maxsize=1)
def sample(population: Population, seed: int) -> Sample:
    """Draw the rows of one provider. For section 5.1, also prepare a shard once for all jobs."""
    table, truth = population.draw(seed)
    if isinstance(population, Planted):
        return Sample((), truth, table, population.support, table)
    if isinstance(population, Carried):
        return Sample((), truth, table.T @ table, population.support, table)
    shard = Shard(check_rows(table), population.norm_bound, strategy=Strategy.GRAM)
    unit = Covariance.unit_value(population.norm_bound)
    gram: FloatArray = shard.evaluate(Covariance(population.dimension)) * np.float64(unit)
    return Sample((shard,), truth, gram, population.support)
