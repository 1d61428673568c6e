"""The scaled release: a block's second moments once more, at the scale of the components that were found in it."""

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.stats import chi2

from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import RowQuery, View, ViewCovariance

from .free_structure import FALSE_ROWS, Columns, Released, leading
from .view_steps import ReleasedFacts, ask_reach

SHORTEST_PART: Final = 2.0**-18
"""Least length of a part of the rows in the scaled release, as a multiple of the bound: the lattice shows no less."""


def ask_scaled(
    facts: ReleasedFacts, support: Columns, block: Released, diagonal: FloatArray
) -> Generator[RowQuery, Aggregate, tuple[FloatArray, FloatArray, float, int]]:
    """Ask for the block once more, with the part along the components and the rest each divided by its own length.

    Noise is the same in every direction of Frobenius norm, so after undoing the scale the entry between parts of
    lengths a and b carries noise in proportion to a b. The two releases are averaged entry by entry in these axes.
    """
    size, count = len(support), facts.components
    vectors, values = leading(block.matrix, count)
    unit = facts.spec.norm_bound / 4  # each part of a typical row becomes as long as this, far from where rows end
    shortest = (unit * SHORTEST_PART) ** 2
    there = max(float(values.sum()) / facts.rows, shortest)
    along = math.sqrt(there)
    rest = math.sqrt(max(float(np.trace(block.matrix)) / facts.rows - there, 0.02 * there, shortest))
    view = View(facts.dimension, support, unit / rest, vectors, unit / along)
    reach = yield from ask_reach(facts, view)
    asked = replace(view, scale=view.scale / reach, along=view.factors[1] / reach)
    answer = yield ViewCovariance(asked, facts.center)
    released = (answer.values + answer.values.T) / 2
    turned = _completed(vectors)
    lengths = np.concatenate([np.full(count, along), np.full(size - count, rest)]) * (reach / unit)
    scale = np.outer(lengths, lengths)
    second = (turned.T @ released @ turned) * scale
    second_std = answer.noise_std / math.sqrt(2) * scale
    first = turned.T @ block.matrix @ turned
    weight = second_std**-2 / (second_std**-2 + block.off_std**-2)
    joined = weight * second + (1 - weight) * first
    found, explained = leading(joined, count)
    components = _without_noise_rows(facts, turned @ found, explained, min(second_std[0, -1], block.off_std), diagonal)
    kept_noise = math.sqrt(2) * min(float(second_std[0, 0]), block.off_std)
    return components, explained, kept_noise, min(answer.parties, block.parties)


def _without_noise_rows(
    facts: ReleasedFacts, vectors: FloatArray, values: FloatArray, off_std: float, diagonal: FloatArray
) -> FloatArray:
    """Set the rows of the components to zero that noise and sampling explain."""
    size, count = vectors.shape
    rest = np.maximum(diagonal - np.square(vectors) @ values, 0.2 * np.median(np.maximum(diagonal, 0)))
    known = np.maximum(values, off_std)[None]
    variance = (off_std**2 + rest[:, None] * known / facts.rows) / known**2
    keep = np.flatnonzero((np.square(vectors) / variance).sum(axis=1) > chi2.isf(FALSE_ROWS / size, count))
    if keep.size < count:
        return vectors
    cut = np.zeros_like(vectors)
    cut[keep] = thin_qr(vectors[keep])[0]
    return cut


def _completed(vectors: FloatArray) -> FloatArray:
    """Complete orthonormal columns to a square orthogonal matrix."""
    left, _, _ = np.linalg.svd(vectors, full_matrices=True)
    left[:, : vectors.shape[1]] = vectors
    return left
