"""What a method found, and what a released matrix shows of it."""

import math
from dataclasses import dataclass

import numpy as np

from dpspca.common.algorithms.steps import ReleasedMatrix, debiased, largest_rows, matrix_noise
from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr
from dpspca.common.results import Decision


@dataclass(frozen=True, slots=True)
class Found:
    """Components as columns, with their noise and the variance they explain.

    ``noise_std`` is the standard deviation of the noise of a variance along a direction beside them.
    ``explained`` and ``total`` are sums over all rows: for each component, and for all columns. ``shown`` is the number
    of components above the noise of the last released matrix.
    """

    components: FloatArray
    loading_std: FloatArray
    explained: FloatArray
    total: float
    noise_std: float
    parties: int
    shown: int
    decision: Decision
    longest: float = 1.0
    """Hardly any row is longer, as a multiple of the norm bound."""


def found_in(released: ReleasedMatrix, components: FloatArray, decision: Decision, usual: float | None = None) -> Found:
    """Return the variances of a released matrix that components explain, with their noise.

    ``usual`` is the sum of squares of a usual column, if the matrix is a block of columns that are none.
    """
    sure = matrix_noise(released, components)
    usual = usual_in(released, components.shape[1]) if usual is None else usual
    return Found(
        components,
        sure.loading_std,
        sure.values,
        float(np.trace(released.matrix)),
        math.sqrt(2) * released.off_std,
        released.parties,
        visible_in(signals_of(released, components.shape[1], usual)),
        decision,
    )


def usual_in(released: ReleasedMatrix, components: int) -> float:
    """Return the sum of squares along a usual direction.

    It is that of a usual column, or the mean of what clear components leave, if this is less: where all columns have a
    part in a long component, a column's own sum of squares says little about other directions.
    """
    usual, clear = max(0.0, float(np.median(released.diagonal))), 0
    while True:
        signals = signals_of(released, components, usual)
        before, clear = clear, visible_in(signals)
        if clear in {before, len(released.matrix)}:
            return usual
        left = float(np.trace(released.matrix) - (signals[:clear] + usual).sum()) / (len(released.matrix) - clear)
        usual = max(0.0, min(usual, left))


def signals_of(whole: ReleasedMatrix, components: int, usual: float) -> FloatArray:
    """Estimate by how much the leading eigenvalues exceed ``usual``, a typical column's sum of squares.

    The result is 0 for an eigenvalue that noise explains.
    """
    vectors, values = whole.leading(components)
    return debiased(values - usual, whole.off_std, len(whole.matrix), whole.noise_beside(vectors))


def visible_in(signals: FloatArray) -> int:
    """Count the components above the noise."""
    return int(np.count_nonzero(signals > 0))


def limited(vectors: FloatArray, explained: FloatArray, most: int | None) -> FloatArray:
    """Keep at most ``most`` rows of the components: those in which they explain the most."""
    kept = largest_rows(vectors, explained, most)
    if kept.size == len(vectors):
        return vectors
    cut = np.zeros_like(vectors)
    cut[kept] = thin_qr(vectors[kept])[0]
    return cut
