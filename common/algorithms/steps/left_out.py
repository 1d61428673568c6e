"""How far from zero the loadings of columns may be that a method left out.

A column is left out if noise explains what it shows: entry j of M v, over the gap between the eigenvalue of v and the
column's own sum of squares, estimates its loading, with noise of known size. Its loading is 0 in the model. So the
error of that 0 is the loading itself, and an interval around 0 has to reach from there over the estimate and its noise.
Its standard deviation is taken as the root of the sum of both squares: then 95 % of such intervals cover, or more.

The loadings of a component have length 1 together. If columns that are left out have a part in it, the others are
longer by that. So the intervals of the others are about the component that these columns have among themselves.
Everything here follows from released numbers, so it costs nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from dpspca.common.arrays import FloatArray

from .eigen_noise import EigenNoise, EntryNoise, eigen_noise
from .free_structure import Columns, ReleasedMatrix, spread_over


@dataclass(frozen=True, eq=False, slots=True)
class Estimates:
    """Estimates of loadings of columns that are left out, and the standard deviation of their noise, by column.

    A standard deviation of 1 says that nothing is known.
    """

    columns: Columns
    loadings: FloatArray
    stds: FloatArray

    @classmethod
    def of_products(cls, columns: Columns, products: FloatArray, std: FloatArray, gaps: FloatArray) -> Self:
        """Take rows of a matrix times its eigenvectors, and the noise of each eigenvector's product.

        Where noise hides the gap between an eigenvalue and a column's sum of squares, nothing is known.
        """
        is_clear = gaps > np.maximum(std, np.finfo(float).tiny)
        safe = np.where(is_clear, gaps, 1.0)
        return cls(columns, np.where(is_clear, products / safe, 0.0), np.where(is_clear, std / safe, 1.0))

    @classmethod
    def uncut(cls, components: FloatArray, before: FloatArray, loading_std: FloatArray) -> Self:
        """Take what components had before some of their columns were left out."""
        out = left_out_of(components)
        return cls(out, before[out], loading_std[out])

    def among(self, columns: Columns) -> Self:
        """Return the same for a table in which these columns have other numbers: those of ``columns``, in order."""
        return type(self)(columns[self.columns], self.loadings, self.stds)

    def outside(self, columns: Columns) -> Self:
        """Return those of columns that are not among these."""
        here = ~np.isin(self.columns, columns)
        return type(self)(self.columns[here], self.loadings[here], self.stds[here])


def left_out_of(components: FloatArray) -> Columns:
    """Return the columns that take no part in any component. Components are columns."""
    return np.flatnonzero(~components.any(axis=1))


def seen_in(released: ReleasedMatrix, components: FloatArray, values: FloatArray) -> Estimates:
    """Estimate the loadings of columns that are left out, from a matrix that was released of all columns.

    ``values`` are the eigenvalues without noise.
    """
    out, kept = left_out_of(components), np.flatnonzero(components.any(axis=1))
    products = released.matrix[np.ix_(out, kept)] @ components[kept]
    gaps = values[None] - released.diagonal[out][:, None]
    return Estimates.of_products(out, products, np.sqrt(released.noise_beside(components)), gaps)


def bounded_by(diagonal: FloatArray, components: FloatArray, values: FloatArray) -> Estimates:
    """Bound the loadings of columns of which only sums of squares are known.

    No direction explains more of a column than its sum of squares: an eigenvalue times the square of the loading.
    """
    out = left_out_of(components)
    squares = np.maximum(diagonal[out], 0.0)[:, None] / np.maximum(values, np.finfo(float).tiny)[None]
    return Estimates(out, np.zeros(squares.shape), np.minimum(np.sqrt(squares), 1.0))


def with_left_out(loading_std: FloatArray, known: Estimates) -> FloatArray:
    """Return the standard deviations of all loadings, where those of some columns left out are known from estimates."""
    stds = loading_std.copy()
    stds[known.columns] = np.minimum(np.hypot(known.loadings, known.stds), 1.0)
    return stds


def matrix_noise(released: ReleasedMatrix, components: FloatArray) -> EigenNoise:
    """Estimate the noise of components that were computed from a released matrix, or from a block of it."""
    columns = np.flatnonzero(components.any(axis=1))
    block, vectors = released.block(columns), components[columns]
    known = released.noise or EntryNoise.equal(len(components), released.off_std)
    noise = eigen_noise(block, vectors, known.on(columns))
    stds = spread_over(len(components), columns, noise.loading_std)
    return EigenNoise(noise.values, with_left_out(stds, seen_in(released, components, noise.values)))
