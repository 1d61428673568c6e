"""Populations and tables that ``accuracy.py`` measures on."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr


@dataclass(frozen=True, eq=False, slots=True)
class Sample:
    """Rows, the true leading directions as columns, how many columns take part in them, and a public bound."""

    rows: FloatArray
    truth: FloatArray
    support: int
    norm_bound: float


@dataclass(frozen=True, slots=True)
class Design:
    """A population to draw from; ``say`` is one line for a reader, ``goal`` an error that the default should reach."""

    say: str
    draw: Callable[[np.random.Generator], Sample]
    goal: float | None = None
    components: int = 2


def paper(rows: int, dimension: int = 1000) -> Callable[[np.random.Generator], Sample]:
    """Draw from the model of section 5.1 of Ge et al. (2018)."""
    model = SpikedModel(dimension=dimension)

    def draw(generator: np.random.Generator) -> Sample:
        drawn = spiked_rows(model, rows, generator)
        return Sample(drawn.rows, drawn.basis, model.support, model.norm_bound)

    return draw


def blocks(rows: int, dimension: int, *, columns: int = 10, correlation: float = 0.6) -> Callable[..., Sample]:
    """Draw columns of variance 1, of which two blocks are correlated, with signs. Variances show nothing."""

    def draw(generator: np.random.Generator) -> Sample:
        drawn, truth = generator.standard_normal((rows, dimension)), np.zeros((dimension, 2))
        for block in range(2):
            these = slice(block * columns, (block + 1) * columns)
            signs = generator.choice([-1.0, 1.0], columns)
            common = generator.standard_normal((rows, 1)) * signs
            drawn[:, these] = math.sqrt(1 - correlation) * drawn[:, these] + math.sqrt(correlation) * common
            truth[these, block] = signs / math.sqrt(columns)
        leading = 1 + (columns - 1) * correlation
        spectrum = np.full(dimension, 1.0)
        spectrum[: 2 * columns] = 1 - correlation
        spectrum[:2] = leading
        return Sample(drawn, truth, 2 * columns, _bound(spectrum))

    return draw


def spikes(  # noqa: PLR0913  # what the population is
    rows: int, dimension: int, support: int, leading: tuple[float, float], *, null: float, spread: float = 0.0
) -> Callable[..., Sample]:
    """Draw two strong directions over some columns. Other variances are ``null``, times e^(spread N(0, 1))."""

    def draw(generator: np.random.Generator) -> Sample:
        variances = null * np.exp(spread * generator.standard_normal(dimension))
        level = float(variances[:support].mean())
        variances[:support] = level
        truth = np.zeros((dimension, 2))
        truth[:support] = thin_qr(generator.standard_normal((support, 2)))[0]
        drawn = generator.standard_normal((rows, dimension)) * np.sqrt(variances)
        scores = generator.standard_normal((rows, 2)) * np.sqrt(np.array(leading) - level)
        drawn[:, :support] += scores @ truth[:support].T
        spectrum = variances.copy()
        spectrum[:2] = leading
        return Sample(drawn, truth, support, _bound(spectrum))

    return draw


def _bound(spectrum: FloatArray) -> float:
    """Bound a row's length from the population alone: the mean squared length and two standard deviations."""
    return math.sqrt(float(spectrum.sum()) + 2 * math.sqrt(2 * float(np.square(spectrum).sum())))


DESIGNS: Final = {
    "P": Design("the paper's: d = 1,000, n = 100,000, k = 5 over 10 columns", paper(100_000), 0.006, 5),
    "P4": Design("the paper's with n = 10,000", paper(10_000), 0.03, 5),
    "H1": Design(
        "weak: d = 5,000, n = 20,000, eigenvalues 15 and 12 over 5", spikes(20_000, 5000, 20, (15, 12), null=5), 0.2
    ),
    "H2": Design("equal variances: d = 5,000, n = 20,000, two blocks of 10", blocks(20_000, 5000), 0.05),
    "H3": Design("equal variances: d = 1,000, n = 100,000, two blocks of 10", blocks(100_000, 1000), 0.008),
    "H4": Design(
        "unequal variances: d = 1,000, n = 100,000, eigenvalues 60 and 50",
        spikes(100_000, 1000, 20, (60, 50), null=5, spread=0.5),
        0.012,
    ),
    "D": Design("dense: d = 200, n = 20,000, eigenvalues 40 and 30 over 2", spikes(20_000, 200, 200, (40, 30), null=2)),
    "S": Design("few columns: d = 40, n = 20,000, k = 2 over 6", spikes(20_000, 40, 6, (20, 15), null=2)),
    "M": Design("d = 400, n = 5,000, k = 2 over 30", spikes(5000, 400, 30, (40, 30), null=1)),
}
WIDE: Final = {
    "WP": Design(
        "wide, few columns: d = 10,000, n = 20,000, eigenvalues 100 and 80 over 5 on 10",
        spikes(20_000, 10_000, 10, (100, 80), null=5),
    ),
    "WS": Design(
        "wide, unequal variances: d = 10,000, n = 20,000, eigenvalues 60 and 50 on 20",
        spikes(20_000, 10_000, 20, (60, 50), null=5, spread=0.5),
    ),
    "WQ": Design("wide, equal variances: d = 10,000, n = 20,000, two blocks of 10", blocks(20_000, 10_000)),
    "WM": Design(
        "wide, some columns: d = 10,000, n = 20,000, eigenvalues 300 and 200 over 1 on 500",
        spikes(20_000, 10_000, 500, (300, 200), null=1),
    ),
    "WD": Design(
        "wide and dense: d = 10,000, n = 20,000, eigenvalues 2000 and 1500 over 1",
        spikes(20_000, 10_000, 10_000, (2000, 1500), null=1),
    ),
    "WU": Design(
        "wide and dense, unequal variances: d = 20,000, n = 10,000, eigenvalues 5000 and 4000",
        spikes(10_000, 20_000, 20_000, (5000, 4000), null=1, spread=0.7),
    ),
    "WE": Design(
        "wide and dense: d = 9,000, n = 4,000, eigenvalues 1500 and 1200 over 1",
        spikes(4000, 9000, 9000, (1500, 1200), null=1),
    ),
    "WF": Design(
        "wide, few columns: d = 9,000, n = 4,000, eigenvalues 200 and 150 over 5 on 10",
        spikes(4000, 9000, 10, (200, 150), null=5),
    ),
    "WX": Design(
        "very wide and dense: d = 50,000, n = 4,000, eigenvalues 20,000 and 15,000 over 1",
        spikes(4000, 50_000, 50_000, (20_000, 15_000), null=1),
    ),
}
"""Too many columns for a matrix of all of them. They take long, and are measured only if they are named."""
QUICK: Final = {
    "P": Design("the paper's, smaller: d = 110, n = 20,000", paper(20_000, 110), 0.1, 5),
    "D": Design("dense, smaller: d = 60, n = 5,000", spikes(5000, 60, 60, (40, 30), null=2)),
}


def tables() -> dict[str, FloatArray]:
    """Load six tables that packages ship, each column scaled to its range [-1, 1] and centred."""
    from sklearn import datasets  # noqa: PLC0415  # an extra

    china, flower = datasets.load_sample_images().images
    loaded = {
        "digits": datasets.load_digits().data,
        "breast cancer": datasets.load_breast_cancer().data,
        "wine": datasets.load_wine().data,
        "diabetes": datasets.load_diabetes().data,
        "photograph, 4 x 4": _patches(china, 4),
        "photograph, 12 x 12": _patches(flower, 12),
    }
    return {name: _scaled(np.asarray(table, dtype=np.float64)) for name, table in loaded.items()}


def _patches(image: FloatArray, side: int) -> FloatArray:
    """Cut a photograph into squares of grey values, one for each row."""
    grey = np.asarray(image, dtype=np.float64).mean(axis=2)
    high, wide = (length // side for length in grey.shape)
    cut = grey[: high * side, : wide * side].reshape(high, side, wide, side)
    return cut.transpose(0, 2, 1, 3).reshape(high * wide, side * side)


def _scaled(table: FloatArray) -> FloatArray:
    low, high = table.min(axis=0), table.max(axis=0)
    scaled = 2 * (table - low) / np.where(high > low, high - low, 1.0) - 1
    return scaled - scaled.mean(axis=0)
