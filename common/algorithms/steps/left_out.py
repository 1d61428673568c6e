"""How far from zero the loadings of columns may be that a method left out.

With an eigenvalue w of all columns, and its eigenvector in parts v of the columns that take part and x of the others, M
says that (w - M_xx) x = M_xv v. So what the others show of a component, M_xv v, estimates x direction by direction of
M_xx, over the gap between w and the eigenvalue there. Directions of M_xx that stand out from noise are taken one by
one, and all others as one group, as in ``eigen_noise``. A direction that explains nearly as much as the component, or
more, may have any part in it. The loading of such a column is 0 in the model. So the error of that 0 is the loading
itself, and an interval around 0 has to reach from there over the estimate and its noise. Its standard deviation is
taken as the root of the sum of both squares: then 95 % of such intervals cover, or more.

The loadings of a component have length 1 together. If columns that are left out have a part in it, the others are
longer by that. So the intervals of the others are about the component that these columns have among themselves.
Everything here follows from released numbers, so it costs nothing.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import scipy.linalg

from dpspca.common.arrays import FloatArray

from .eigen_noise import Choice, EigenNoise, EntryNoise, eigen_noise
from .free_structure import Columns, ReleasedMatrix, spread_over

_MOST_WHOLE: Final = 1024
"""The most columns left out of which all directions may be taken one by one."""
_MOST_SINGLE: Final = 32
"""Of more columns, the most directions that are: those that explain the most."""
_FEWEST_STDS: Final = 4.0
"""A gap that is smaller than this many standard deviations of the noise may well be none."""


@dataclass(frozen=True, eq=False, slots=True)
class Estimates:
    """Estimates of loadings of columns that are left out, and the standard deviation of their noise, by column.

    A standard deviation of 1 says that nothing is known.
    """

    columns: Columns
    loadings: FloatArray
    stds: FloatArray

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
    if not out.size:
        return Estimates(out, np.zeros((0, len(values))), np.zeros((0, len(values))))
    products = released.matrix[np.ix_(out, kept)] @ components[kept]
    stds = np.sqrt(released.noise_beside(components))
    return solved(out, released.block(out), released.off_std, products, stds, values)


def solved(  # noqa: PLR0913, PLR0917  # a matrix, what it was multiplied by, and the noise of both
    out: Columns, block: FloatArray, off_std: float, products: FloatArray, stds: FloatArray, values: FloatArray
) -> Estimates:
    """Solve for the loadings of columns left out, whose own block and products with the components are known.

    ``off_std`` is the noise of the block, and ``stds`` are those of the products.
    """
    size = len(out)
    first = 0 if size <= _MOST_WHOLE else size - _MOST_SINGLE
    found, axes = scipy.linalg.eigh(block, subset_by_index=[first, size - 1])
    usual = float(np.trace(block)) / size
    away, edge = np.abs(found - usual), 2 * off_std * np.sqrt(size)
    clear = away > edge
    true = usual + np.copysign(away + np.sqrt(np.maximum(away**2 - edge**2, 0.0)), found - usual) / 2
    axes, single = axes[:, clear], true[clear]
    rest = (float(np.trace(block)) - single.sum()) / max(size - single.size, 1)
    along, gaps = axes.T @ products, values[None] - single[:, None]
    inner = divided(along, np.where(gaps > _FEWEST_STDS * np.hypot(stds, off_std), gaps, 0.0), stds)
    outer = divided(products - axes @ along, values - rest, stds)
    shares = np.square(axes)
    outside = np.maximum(1 - shares.sum(axis=1), 0.0)[:, None]
    variances = shares @ np.square(inner[1]) + outside * np.square(outer[1])
    return Estimates(out, axes @ inner[0] + outer[0], np.minimum(np.sqrt(variances), 1.0))


def divided(products: FloatArray, gaps: FloatArray, stds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Divide products and their noise by gaps. Where noise hides a gap, nothing is known."""
    is_clear = np.broadcast_to(gaps > np.maximum(stds, np.finfo(float).tiny), products.shape)
    safe = np.where(is_clear, gaps, 1.0)
    return np.where(is_clear, products / safe, 0.0), np.where(is_clear, stds / safe, 1.0)


def bounded_by(diagonal: FloatArray, components: FloatArray, values: FloatArray) -> Estimates:
    """Bound the loadings of columns of which only sums of squares are known, with noise.

    No direction explains more of a column than its sum of squares: an eigenvalue times the square of the loading. A sum
    that noise made smaller than usual counts as a usual one.
    """
    out = left_out_of(components)
    sums = np.maximum(diagonal[out], np.median(diagonal))[:, None]
    bounds = (sums > 0) & (values > sums)  # otherwise nothing is known, and no loading exceeds 1
    squares = np.divide(sums, values, out=np.ones(bounds.shape), where=bounds)
    return Estimates(out, np.zeros(squares.shape), np.sqrt(squares))


def with_left_out(loading_std: FloatArray, known: Estimates) -> FloatArray:
    """Return the standard deviations of all loadings, where those of some columns left out are known from estimates."""
    stds = loading_std.copy()
    stds[known.columns] = np.minimum(np.hypot(known.loadings, known.stds), 1.0)
    return stds


def _choice(released: ReleasedMatrix, columns: Columns) -> Choice | None:
    """Return from what the columns of components were chosen, if not all take part."""
    others = len(released.matrix) - columns.size
    if not others:
        return None
    left = np.delete(np.diagonal(released.matrix), columns)
    return Choice(len(released.matrix), float(left.mean()))


def matrix_noise(released: ReleasedMatrix, components: FloatArray) -> EigenNoise:
    """Estimate the noise of components that were computed from a released matrix, or from a block of it."""
    columns = np.flatnonzero(components.any(axis=1))
    block, vectors = released.block(columns), components[columns]
    known = released.noise or EntryNoise.equal(len(components), released.off_std)
    noise = eigen_noise(block, vectors, known.on(columns), _choice(released, columns))
    stds = spread_over(len(components), columns, noise.loading_std)
    return EigenNoise(noise.values, with_left_out(stds, seen_in(released, components, noise.values)))
