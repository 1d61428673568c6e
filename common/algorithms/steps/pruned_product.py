"""Sparse components from the last product of a power loop, A X plus noise: columns that stand out, for free.

Everything here is post-processing of released numbers, so it costs no budget.
"""

import math
from typing import Final

import numpy as np
from scipy.special import chdtri

from dpspca.common.arrays import FloatArray
from dpspca.common.protocol import Aggregate

from .free_structure import DENSE_FRACTION, FALSE_ROWS, MOST_ROUNDS, PART, Columns, spread_over, strongest
from .row_steps import AUTO, Auto

_USUAL: Final = 1.4826
"""The standard deviation of normal numbers is so many times the median of their absolute values."""
_CLEAR: Final = 3.0
"""So many standard deviations of what noise alone would hold are no chance."""


def last_product(answer: Aggregate, components: int, sparsity: int | Auto | None) -> FloatArray:
    """Return the last product of a loop, pruned if the job's option says so."""
    return answer.values if sparsity is None else pruned_product(answer.values, answer.noise_std, components, sparsity)


def left_vectors(product: FloatArray, components: int) -> FloatArray:
    """Return the leading left singular vectors of a product, with zeros where its rows are zero, to the last bit."""
    kept = np.flatnonzero(product.any(axis=1))
    if not components <= kept.size < len(product):
        return np.linalg.svd(product, full_matrices=False)[0][:, :components]
    return spread_over(len(product), kept, np.linalg.svd(product[kept], full_matrices=False)[0][:, :components])


def pruned_product(product: FloatArray, noise_std: float, components: int, sparsity: int | Auto) -> FloatArray:
    """Return a product in which rows are zero whose columns take no part in its leading components.

    If few columns stand out and hold nearly all of the components, the others are left out. Otherwise the components
    are dense. A number limits the columns in either case, to those with the largest rows.
    """
    leading, kept = _fixed_point(product, noise_std, components)
    if not _is_sparse(leading, kept, noise_std):
        kept = np.arange(len(product))
    if sparsity != AUTO and kept.size > sparsity:
        energy = np.square(leading[kept]).sum(axis=1)
        kept = kept[strongest(energy, sparsity)]
    cut = np.zeros_like(product)
    cut[kept] = product[kept]
    return cut


def _fixed_point(product: FloatArray, noise_std: float, components: int) -> tuple[FloatArray, Columns]:
    """Keep the rows that stand out, find the leading directions on these alone, and repeat until nothing changes.

    Along a direction w, an entry of the product times w has the noise of one entry. Sampling errors come on top, which
    are not known: the numbers of rows and the columns' variances need not have been asked for. If the components are
    sparse, most columns have no part in them, so their median shows noise and sampling errors together.
    """
    kept = np.arange(len(product))
    for _ in range(MOST_ROUNDS):
        right = np.linalg.svd(product[kept], full_matrices=False)[2][:components]
        leading = product @ right.T
        usual = _USUAL * np.median(np.abs(leading), axis=0)
        scores = np.square(leading / np.maximum(usual, noise_std)).sum(axis=1)
        found = np.flatnonzero(scores > chdtri(len(right), FALSE_ROWS / len(product)))
        if found.size < components:
            found = strongest(scores, components)
        if np.array_equal(found, kept):
            break
        kept = found
    return leading, kept


def _is_sparse(leading: FloatArray, kept: Columns, noise_std: float) -> bool:
    """Tell whether few columns hold nearly all of what the components show beyond noise, and this is no chance."""
    size, components = leading.shape
    energy = np.square(leading).sum(axis=1) - components * noise_std**2
    whole, chance = float(energy.sum()), _CLEAR * noise_std**2 * math.sqrt(2 * components * size)
    return kept.size <= size // DENSE_FRACTION and whole > chance and float(energy[kept].sum()) > PART * whole
