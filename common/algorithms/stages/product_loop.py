"""Rounds of a power loop over views: A Q for all columns, clipped at a bound that is found privately.

A round may be at the scale of the components found so far. The part of each row along them and the rest are divided by
their own lengths a and b, so that the product's noise across the components is in proportion to 2 a b and not to
a^2 + b^2. That helps where components explain little of a row's length.

No product is thrown away. Products K_t = A Q_t + noise with bases of different quality are joined: with components V
and B_t = V' Q_t, K_t is about A V B_t. So A V is estimated by least squares, weighed by the noise of each product.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dpspca.common.algorithms.steps import DENSE_FRACTION, FALSE_ROWS, turned_variance, turns
from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import RowQuery, View, ViewProduct

from .view_steps import Reach, ReleasedFacts, ask_reach

_SHORTEST_PART: Final = 2.0**-9
"""Least length of a part of the rows, as a part of the other: the lattice has to hold both."""
_JOINS: Final = 4
"""Steps of the joint estimate. It is near its fixed point after two."""
_SURE_PART: Final = 0.95
"""Pruning must leave this part of the components' energy."""


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """A product with a basis, the noise of its entries, and where rows were clipped for it."""

    basis: FloatArray
    values: FloatArray
    std: float
    reach: Reach
    parties: int

    @property
    def direction(self) -> FloatArray:
        """The product as an orthonormal basis: one step of the power method."""
        return thin_qr(self.values)[0]


def ask_product(
    facts: ReleasedFacts, basis: FloatArray, reach: Reach | None, lengths: tuple[float, float] | None = None
) -> Generator[RowQuery, Aggregate, Product]:
    """Ask for A times an orthonormal basis over all columns.

    ``lengths`` are those of a row along the basis and across it, to ask at their scale; otherwise all parts of a row
    have one scale. Without a ``reach``, a histogram of norms is asked for first.
    """
    unit = facts.spec.norm_bound / 4
    along, rest = lengths or (unit, unit)
    scale = facts.gain * unit / rest
    view = View(facts.dimension, np.arange(facts.dimension), scale, basis, facts.gain * unit / along)
    if reach is None:
        reach = yield from ask_reach(facts, view)
    asked = replace(view, scale=view.scale / reach.length, along=view.factors[1] / reach.length)
    answer = yield ViewProduct(asked, facts.center, facts.scales)
    back = reach.length / unit / math.sqrt(reach.left)
    inner = basis.T @ answer.values
    across = answer.values - basis @ inner
    values = basis @ inner * (along * back) ** 2 + across * (along * rest * back**2)
    return Product(basis, values, answer.noise_std * along * rest * back**2, reach, answer.parties)


@dataclass(frozen=True, eq=False, slots=True)
class Joined:
    """Components, as columns, that all products show together, with their eigenvalues and noise.

    ``sizes`` are the lengths of the columns of A V, noise included, and ``stds`` the noise of their entries. Noise
    alone has columns of lengths up to about ``edges``.
    """

    vectors: FloatArray
    sizes: FloatArray
    values: FloatArray
    stds: FloatArray
    edges: FloatArray

    @property
    def is_clear(self) -> NDArray[np.bool_]:
        """Which components noise alone does not explain."""
        found: NDArray[np.bool_] = self.sizes > 1.1 * self.edges
        return found

    @property
    def shown(self) -> int:
        """How many components noise alone does not explain."""
        return int(np.count_nonzero(self.is_clear))

    @property
    def loading_std(self) -> FloatArray:
        """The standard deviation of each loading: from noise beside the components, and from noise that mixes them.

        Two singular vectors of sizes a and b are mixed by noise on both sides, as eigenvectors would be whose gap has
        the square (a^2 - b^2)^2 / (a^2 + b^2). How far the loop is from where it would end is not part of it.
        """
        with np.errstate(divide="ignore"):
            beside = np.where(self.is_clear, np.square(np.minimum(self.stds / self.values, 1.0)), 1.0)
        squares, noise = np.square(self.values), np.square(self.stds)
        both = np.maximum(squares[:, None] + squares[None], np.finfo(float).tiny)
        gaps = np.square(squares[:, None] - squares[None]) / both
        mixed = turned_variance(self.vectors, turns(gaps, np.maximum(noise[:, None], noise[None])))
        return np.minimum(np.sqrt(beside + mixed), 1.0)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise of the eigenvalues."""
        return float(self.stds.max())

    def pruned(self, facts: ReleasedFacts, diagonal: FloatArray) -> "Joined":
        """Drop columns that noise and sampling explain, if few remain and these hold nearly all of the components."""
        size, count = self.vectors.shape
        products = self.vectors * self.values
        sampled = np.maximum(diagonal, 0.0)[:, None] * self.values[None] / facts.rows
        variances = self.stds**2 + sampled
        scores = (np.square(products) / variances).sum(axis=1)
        kept = np.flatnonzero(scores > chdtri(count, FALSE_ROWS / size))
        energy = np.square(products).sum(axis=1) - variances.sum(axis=1)
        if not count <= kept.size <= size // DENSE_FRACTION or energy[kept].sum() < _SURE_PART * energy.sum():
            return self
        cut = np.zeros_like(self.vectors)
        cut[kept] = thin_qr(self.vectors[kept])[0]
        return replace(self, vectors=cut)


def join(products: Sequence[Product]) -> Joined:
    """Join products by least squares: find V so that all K_t are near A V B_t with B_t = V' Q_t."""
    vectors = products[-1].direction
    for _ in range(_JOINS):
        turns = [vectors.T @ each.basis for each in products]
        precision = sum((turn @ turn.T / each.std**2 for turn, each in zip(turns, products, strict=True)), np.zeros(1))
        total = sum((each.values @ turn.T / each.std**2 for turn, each in zip(turns, products, strict=True)), 0.0)
        inverse = np.linalg.pinv(precision, hermitian=True)
        left, sizes, right = np.linalg.svd(total @ inverse, full_matrices=False)
        vectors = left
    variances = np.einsum("ij,jk,ik->i", right, inverse, right)
    noise = variances * len(vectors)
    values = np.sqrt(np.maximum(np.square(sizes) - noise, 0.0))
    edges = np.sqrt(variances) * (math.sqrt(len(vectors)) + math.sqrt(len(sizes)))
    return Joined(vectors, sizes, values, np.sqrt(variances), edges)


def lengths_of(facts: ReleasedFacts, found: Joined, total: float) -> tuple[float, float]:
    """Estimate the lengths of a row along components and across them, from what was released."""
    row = max(total / facts.rows, (facts.spec.norm_bound * 2.0**-40) ** 2)
    along = float(found.values.sum()) / facts.rows
    along = min(max(along, row * _SHORTEST_PART**2), row * (1 - _SHORTEST_PART**2))
    return math.sqrt(along), math.sqrt(row - along)
