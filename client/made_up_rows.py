"""Synthetic rows with known components, for demonstrations, tests and benchmarks.

They follow the model of section 5.1 of Ge, Wang, Wang & Liu (2018): Gaussian rows whose covariance has ``components``
large eigenvalues, with eigenvectors supported on the first ``support`` features. The other eigenvalues are small, drawn
uniformly from a range, and their eigenvectors are spread over all features. Nothing here was chosen by looking at data.

Equal generators give equal rows with the same build of the linear algebra library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.errors import InvalidTypeError
from dpspca.common.linalg import thin_qr

LARGEST_DIMENSION: Final = 2**14
"""All eigenvectors are in memory at once: two gigabytes at this dimension."""

LEAST_ROWS: Final = 2
"""A provider with fewer rows is refused, because they would show no variation."""

_BLOCK_ENTRIES: Final = 2**21
"""Entries drawn at a time: enough for a fast matrix product, few compared to the rows themselves."""


@dataclass(frozen=True, slots=True)
class SpikedModel:
    """The population that rows are drawn from. The defaults are those of the paper."""

    dimension: int = 1000
    components: int = 5
    support: int = 10
    leading_eigenvalue: float = 100.0
    noise_range: tuple[float, float] = (0.0, 10.0)

    def __post_init__(self) -> None:
        check_whole("the dimension", self.dimension, least=1, most=LARGEST_DIMENSION)
        check_whole("the number of components", self.components, least=1, most=self.dimension)
        check_whole("the size of the support", self.support, least=self.components, most=self.dimension)
        low, high = self.noise_range
        check(
            all(map(math.isfinite, (low, high, self.leading_eigenvalue))) and 0 <= low <= high,
            f"leading_eigenvalue is {self.leading_eigenvalue} and noise_range is {self.noise_range}.",
            "Give finite numbers, and a noise_range (low, high) with 0 <= low <= high.",
        )
        check(
            self.leading_eigenvalue > high,
            f"leading_eigenvalue is {self.leading_eigenvalue:g}, but the other eigenvalues may be up to {high:g}.",
            "Give a leading_eigenvalue above the noise_range, or there is nothing to find.",
        )

    @property
    def norm_bound(self) -> float:
        """Return a bound on a row's length that is public; a few rows in a hundred are longer.

        The squared length of a row is a sum of independent terms: lambda_j times a chi-square variable of one degree
        of freedom, with mean lambda_j and variance 2 lambda_j^2. The squared bound is the mean plus two standard
        deviations, with the first two moments of the range in place of the small eigenvalues. It uses the parameters of
        this model and no row.
        """
        low, high = self.noise_range
        others = self.dimension - self.components
        mean = self.components * self.leading_eigenvalue + others * (low + high) / 2
        squares = self.components * self.leading_eigenvalue**2 + others * (low**2 + low * high + high**2) / 3
        return math.sqrt(mean + 2 * math.sqrt(2 * squares))


@dataclass(frozen=True, eq=False, slots=True)
class SpikedRows:
    """Rows, and what an analysis of them should find: the leading eigenvectors of the population."""

    rows: FloatArray
    basis: FloatArray
    """The true leading subspace, dimension x components, orthonormal, zero below the support."""
    eigenvalues: FloatArray
    """Eigenvalues of the population covariance, in descending order."""


def spiked_rows(model: SpikedModel, rows: int, generator: np.random.Generator) -> SpikedRows:
    """Draw rows from the model. Each call also draws a new leading subspace and new small eigenvalues."""
    check_whole("the number of rows", rows, least=1, most=2**31)
    if not isinstance(generator, np.random.Generator):
        raise InvalidTypeError(
            f"generator is a {type(generator).__name__}, not a numpy.random.Generator.",
            "Pass numpy.random.default_rng(seed).",
        )
    basis = _leading_basis(model, generator)
    small = generator.uniform(*model.noise_range, size=model.dimension - model.components)
    eigenvalues = np.concatenate([np.full(model.components, model.leading_eigenvalue), np.sort(small)[::-1]])
    mixing = np.sqrt(eigenvalues)[:, None] * _completed(basis, generator).T
    return SpikedRows(_mixed(rows, mixing, generator), basis, eigenvalues)


def unequal_shards(rows: FloatArray, providers: int) -> list[FloatArray]:
    """Split rows into consecutive shards whose sizes grow like 1, 2, 3, ... Shards are views that cover all rows.

    Every provider gets at least two rows, because it would be refused with fewer.
    """
    check_whole("the number of providers", providers, least=1, most=max(1, len(rows) // LEAST_ROWS))
    sizes = _sizes(len(rows), range(1, providers + 1))
    return np.split(rows, np.cumsum(sizes)[:-1])


def _leading_basis(model: SpikedModel, generator: np.random.Generator) -> FloatArray:
    """Draw an orthonormal basis uniformly from those supported on the first ``support`` features."""
    basis = np.zeros((model.dimension, model.components))
    basis[: model.support], _ = thin_qr(generator.standard_normal((model.support, model.components)))
    return basis


def _completed(basis: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Complete an orthonormal basis uniformly to all dimensions. Its columns stay first, with the signs of thin_qr."""
    dimension, columns = basis.shape
    others = generator.standard_normal((dimension, dimension - columns))
    complete, _ = thin_qr(np.hstack([basis, others]))
    return complete


def _mixed(rows: int, mixing: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Multiply standard normal rows by the mixing matrix, a block of rows at a time."""
    mixed = np.empty((rows, len(mixing)))
    step = max(1, _BLOCK_ENTRIES // len(mixing))
    for start in range(0, rows, step):
        block = mixed[start : start + step]
        np.matmul(generator.standard_normal(block.shape), mixing, out=block)
    return mixed


def _sizes(rows: int, weights: Sequence[int]) -> list[int]:
    """Divide rows in proportion to the weights, after the minimum for each. The last one gets the remainder."""
    spare = rows - LEAST_ROWS * len(weights)
    sizes = [LEAST_ROWS + spare * weight // sum(weights) for weight in weights]
    sizes[-1] += rows - sum(sizes)
    return sizes
