"""Made-up rows with a known answer, for demonstrations, tests and benchmarks.

The model of section 5.1 of Ge, Wang, Wang & Liu (2018): Gaussian rows whose covariance has ``components`` large
eigenvalues with eigenvectors supported on the first ``support`` features, and otherwise small eigenvalues drawn
uniformly from a range, with eigenvectors spread over all features. No data were looked at to choose anything here.

Equal generators give equal rows, on one build of the linear algebra library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidTypeError
from dpspca.common.linalg import thin_qr
from dpspca.common.spec import check, check_whole

LARGEST_DIMENSION: Final = 2**14
"""All eigenvectors are held at once: two gigabytes of them at this dimension."""

LEAST_ROWS: Final = 2
"""A provider with fewer rows could show no variation, and is refused."""

_BLOCK_ENTRIES: Final = 2**21
"""Entries drawn at a time: enough to keep the matrix product busy, little beside the rows themselves."""


@dataclass(frozen=True, slots=True)
class SpikedModel:
    """The population that rows are drawn from; the defaults are the paper's."""

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
            "The eigenvalues are not finite numbers, or the range of the small ones is empty or negative.",
            "Give a noise range of two numbers, 0 <= low <= high.",
        )
        check(
            self.leading_eigenvalue > high,
            f"The leading eigenvalue is {self.leading_eigenvalue:g}, the range of the others reaches up to {high:g}.",
            "Let the leading one stand out, or there is nothing to find.",
        )

    @property
    def norm_bound(self) -> float:
        """A bound on a row's length that is known beforehand; a few rows in a hundred are longer.

        A row's squared length is a sum of independent terms, lambda_j times a chi-square of one degree of freedom, of
        mean lambda_j and variance 2 lambda_j^2. The bound squared is the mean plus two standard deviations, with the
        small eigenvalues taken at the first two moments of their range: it uses this model's parameters and no row.
        """
        low, high = self.noise_range
        others = self.dimension - self.components
        mean = self.components * self.leading_eigenvalue + others * (low + high) / 2
        squares = self.components * self.leading_eigenvalue**2 + others * (low**2 + low * high + high**2) / 3
        return math.sqrt(mean + 2 * math.sqrt(2 * squares))


@dataclass(frozen=True, eq=False, slots=True)
class SpikedRows:
    """Rows, and what an analysis of them should find: the first columns of the population's eigenvectors."""

    rows: FloatArray
    basis: FloatArray
    """The true leading subspace, dimension x components, orthonormal, zero below the support."""
    eigenvalues: FloatArray
    """Of the population covariance, descending."""


def spiked_rows(model: SpikedModel, rows: int, generator: np.random.Generator) -> SpikedRows:
    """Draw rows from the model; the leading subspace and the small eigenvalues are drawn anew as well."""
    check_whole("the number of rows", rows, least=1, most=2**31)
    if not isinstance(generator, np.random.Generator):
        raise InvalidTypeError("The generator is no numpy Generator.", "Pass numpy.random.default_rng(seed).")
    basis = _leading_basis(model, generator)
    small = generator.uniform(*model.noise_range, size=model.dimension - model.components)
    eigenvalues = np.concatenate([np.full(model.components, model.leading_eigenvalue), np.sort(small)[::-1]])
    mixing = np.sqrt(eigenvalues)[:, None] * _completed(basis, generator).T
    return SpikedRows(_mixed(rows, mixing, generator), basis, eigenvalues)


def unequal_shards(rows: FloatArray, providers: int) -> list[FloatArray]:
    """Cut rows into consecutive shards whose sizes grow like 1, 2, 3, ...; views, in order, of all the rows.

    Every provider first gets the two rows without which it could not take part.
    """
    check_whole("the number of providers", providers, least=1, most=max(1, len(rows) // LEAST_ROWS))
    sizes = _sizes(len(rows), range(1, providers + 1))
    return np.split(rows, np.cumsum(sizes)[:-1])


def _leading_basis(model: SpikedModel, generator: np.random.Generator) -> FloatArray:
    """Draw an orthonormal basis uniformly among those supported on the first features."""
    basis = np.zeros((model.dimension, model.components))
    basis[: model.support], _ = thin_qr(generator.standard_normal((model.support, model.components)))
    return basis


def _completed(basis: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Complete an orthonormal basis to all dimensions, uniformly; its own columns stay first, by thin_qr's signs."""
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
    """Share rows out in proportion to the weights, beyond the least that each needs; the last takes the remainder."""
    spare = rows - LEAST_ROWS * len(weights)
    sizes = [LEAST_ROWS + spare * weight // sum(weights) for weight in weights]
    sizes[-1] += rows - sum(sizes)
    return sizes
