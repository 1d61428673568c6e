"""Populations that no rule of a method was fitted on. ``untuned.py`` measures on them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from designs.samples import Sample, spikes
from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr

Draw = Callable[[np.random.Generator], Sample]


@dataclass(frozen=True, slots=True)
class Untuned:
    """A population, and the parts of its rows that the providers have."""

    say: str
    draw: Draw
    components: int = 2
    parts: tuple[float, ...] = (1.0,)


def with_bound(draw: Draw, factor: float) -> Draw:
    """Draw the same rows, with a norm bound that is wrong by a factor."""

    def drawn(generator: np.random.Generator) -> Sample:
        sample = draw(generator)
        return replace(sample, norm_bound=factor * sample.norm_bound)

    return drawn


def heavy_tailed(rows: int, dimension: int, support: int) -> Draw:
    """Draw scores and noise from Student's t with 3 degrees of freedom, scaled to the variances 40, 30 and 1."""

    def draw(generator: np.random.Generator) -> Sample:
        truth = np.zeros((dimension, 2))
        truth[:support] = thin_qr(generator.standard_normal((support, 2)))[0]
        scores = _student(generator, (rows, 2)) * np.sqrt([39.0, 29.0])
        drawn = scores @ truth.T + _student(generator, (rows, dimension))
        return Sample(drawn, truth, support, _usual_length(drawn))

    return draw


def _student(generator: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return generator.standard_t(3, shape) / math.sqrt(3)


def correlated_blocks(rows: int, dimension: int, sizes: tuple[int, ...], correlation: float) -> Draw:
    """Draw columns of variance 1. Those of a block have one common factor, with signs. Blocks differ in size."""

    def draw(generator: np.random.Generator) -> Sample:
        drawn, truth, start = generator.standard_normal((rows, dimension)), np.zeros((dimension, len(sizes))), 0
        for number, size in enumerate(sizes):
            these, start = slice(start, start + size), start + size
            signs = generator.choice([-1.0, 1.0], size)
            common = generator.standard_normal((rows, 1)) * signs
            drawn[:, these] = math.sqrt(1 - correlation) * drawn[:, these] + math.sqrt(correlation) * common
            truth[these, number] = signs / math.sqrt(size)
        return Sample(drawn, truth, start, _usual_length(drawn))

    return draw


def spectrum(rows: int, dimension: int, leading: tuple[float, ...], kept: int, null: float = 1.0) -> Draw:
    """Draw Gaussian rows with these leading eigenvalues over all columns; the first ``kept`` are looked for."""

    def draw(generator: np.random.Generator) -> Sample:
        basis = thin_qr(generator.standard_normal((dimension, len(leading))))[0]
        scores = generator.standard_normal((rows, len(leading))) * np.sqrt(np.array(leading) - null)
        drawn = math.sqrt(null) * generator.standard_normal((rows, dimension)) + scores @ basis.T
        return Sample(drawn, basis[:, :kept], dimension, _usual_length(drawn))

    return draw


def counts(rows: int, dimension: int) -> Draw:
    """Draw integers: Poisson counts whose rates have two common factors in a tenth of the columns, not centred.

    The second moments of columns i and j are b_i b_j e^(w_i . w_j), and b_i more on the diagonal, for mean counts b and
    loadings w of the logarithms.
    """

    def draw(generator: np.random.Generator) -> Sample:
        means = np.exp(generator.normal(0.0, 0.7, dimension))
        loadings = np.zeros((dimension, 2))
        loadings[: dimension // 10] = generator.normal(0.0, 0.6, (dimension // 10, 2))
        scores = generator.standard_normal((rows, 2))
        rates = means * np.exp(scores @ loadings.T - np.square(loadings).sum(axis=1) / 2)
        drawn = generator.poisson(rates).astype(np.float64)
        moments = np.outer(means, means) * np.exp(loadings @ loadings.T) + np.diag(means)
        return Sample(drawn, np.linalg.eigh(moments)[1][:, :-3:-1], dimension, _usual_length(drawn))

    return draw


def _usual_length(rows: FloatArray) -> float:
    """Bound lengths by their 95 % quantile: the best case for methods that cannot find a bound, on made-up rows."""
    return float(np.quantile(np.linalg.norm(rows, axis=1), 0.95))


ONE_LARGE: Final = (0.9, *[0.1 / 9] * 9)
_SPARSE, _DENSE = spikes(8000, 150, 8, (20, 15), null=2), spectrum(8000, 60, (20, 15), 2)

UNTUNED: Final = {
    "tails": Untuned("heavy tails: d = 150, n = 10,000, over 12 columns", heavy_tailed(10_000, 150, 12)),
    "tails, dense": Untuned("heavy tails: d = 50, n = 5,000, over all columns", heavy_tailed(5000, 50, 50)),
    "blocks": Untuned(
        "correlated blocks of 16, 12, 9 and 6 of 400 columns, n = 20,000",
        correlated_blocks(20_000, 400, (16, 12, 9, 6), 0.6),
        components=4,
    ),
    "close": Untuned(
        "close eigenvalues 30, 20, 18, of which two are wanted: d = 60, n = 20,000",
        spectrum(20_000, 60, (30, 20, 18), 2),
    ),
    "close, wide": Untuned("the same with d = 250", spectrum(20_000, 250, (30, 20, 18), 2)),
    "uneven": Untuned("sparse: d = 150, n = 8,000, one of ten providers has 90 %", _SPARSE, parts=ONE_LARGE),
    "uneven, dense": Untuned("dense: d = 60, n = 8,000, one of ten providers has 90 %", _DENSE, parts=ONE_LARGE),
    "counts": Untuned("integer counts, not centred: d = 120, n = 8,000", counts(8000, 120)),
    "counts, few": Untuned("integer counts, not centred: d = 60, n = 3,000", counts(3000, 60)),
    "30 x 200": Untuned("d = 30, n = 200, eigenvalues 20 and 10 over 1", spectrum(200, 30, (20, 10), 2)),
    "barely": Untuned("n barely enough: d = 50, n = 800, eigenvalues 20 and 15 over 1", spectrum(800, 50, (20, 15), 2)),
    "barely, sparse": Untuned(
        "n barely enough: d = 300, n = 2,500, over 10 columns", spikes(2500, 300, 10, (40, 30), null=1)
    ),
    "d = 3": Untuned(
        "d = 3, n = 500, eigenvalues 4, 2 over 1, one is wanted", spectrum(500, 3, (4, 2), 1), components=1
    ),
    "sparse, 10 x": Untuned("sparse: d = 150, n = 8,000, norm bound 10 times too large", with_bound(_SPARSE, 10)),
    "sparse, 0.1 x": Untuned("the same, 10 times too small", with_bound(_SPARSE, 0.1)),
    "dense, 10 x": Untuned("dense: d = 60, n = 8,000, norm bound 10 times too large", with_bound(_DENSE, 10)),
    "dense, 0.1 x": Untuned("the same, 10 times too small", with_bound(_DENSE, 0.1)),
}
QUICK: Final = {"d = 3": UNTUNED["d = 3"]}
