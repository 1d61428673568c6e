"""The forecast for power loops: how far each round turns the basis towards the components, and noise away from them.

A basis is followed by one number for each component: the squared cosine c^2 between the component and the basis. A
round multiplies the component's part by n L c, the rest by less, and adds noise to every entry. Rows of the support
have entries of equal variance. Where only the largest rows are kept, gamma laws say which these are and how much of
signal and noise is left. The dense start is random; its weakest direction is the one that takes longest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from dpspca.common.arrays import FloatArray
from dpspca.common.plan import Plan, Step
from dpspca.common.queries import CovarianceProduct, ViewProduct

from .population import Population
from .spectra import part_missed
from .whole_matrix import DENSE_FRACTION, Outlook

_LEAST: Final = 1e-12
"""Least squared cosine: no direction is at right angles to the last digit."""
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Loop:
    """A power loop: the columns of its basis, how many rows are kept, and the part of all rows that a round sees.

    ``prunes`` says that rows which do not stand out of the last product are left out.
    """

    columns: int
    kept: int
    part: float = 1.0
    prunes: bool = False


def of_loop(plan: Plan, population: Population, loop: Loop) -> Outlook:
    """Follow the loop from its random start, round by round."""
    rounds = products_of(plan)
    noise = _noise(rounds[0], population)
    state = _State(population.clipped(population.limit), noise, loop)
    cosines = start(population.components, loop.columns, population.dimension)
    for _ in rounds:
        cosines = state.after(cosines)
    if loop.columns > population.components:
        cosines = np.where(state.visible(), cosines, _LEAST)
    return state.pruned(cosines) if loop.prunes else Outlook(1 - cosines, noise, min(loop.kept, population.dimension))


def of_deflation(plan: Plan, population: Population) -> Outlook:
    """Follow one loop of a single column for each component."""
    rounds = products_of(plan)
    count = population.components
    each = (len(rounds) + 1) // count - 1
    noise = _noise(rounds[0], population)
    left = population.clipped(population.limit)
    found = np.zeros(count)
    for number in range(count):
        one = replace(left, leading=left.leading[number : number + 1])
        state = _State(one, noise, Loop(1, population.dimension))
        cosines = start(1, 1, population.dimension) * (count - number)
        for _ in range(each):
            cosines = state.after(np.minimum(cosines, 1.0))
        found[number] = cosines[0]
    return Outlook(1 - found, noise, population.dimension)


def products_of(plan: Plan) -> list[Step]:
    """Return the rounds of a plan that ask for products."""
    return [step for step in plan if step.query in {CovarianceProduct, ViewProduct}]


def _noise(step: Step, population: Population) -> float:
    return step.noise_std * step.query.unit_value(1.0) * math.sqrt(population.providers) * population.limit


def start(count: int, columns: int, dimension: int) -> FloatArray:
    """Return squared cosines of a random basis: quantiles of the singular values of a Gaussian matrix.

    For a square matrix these follow the quarter-circle law; with more columns the smallest is about sqrt(p) - sqrt(k).
    """
    if columns >= dimension:
        return np.ones(count)
    low, high = math.sqrt(columns) - math.sqrt(count), math.sqrt(columns) + math.sqrt(count)
    parts = (np.arange(count)[::-1] + 0.5) / count
    quarter = np.array([_root(_quarter_circle, 2, part) / 2 for part in parts])
    return np.asarray(np.minimum(np.square(low + (high - low) * quarter) / dimension, 1.0))


def _root(function: Callable[[float], float], highest: float, value: float = 0.0) -> float:
    """Return the number from 0 to ``highest`` at which a function has a value."""
    from scipy.optimize import brentq  # noqa: PLC0415  # loading it would make every command start a tenth slower

    return float(brentq(lambda x: function(x) - value, 0.0, highest))


def _quarter_circle(x: float) -> float:
    """Return the distribution function of the quarter-circle law on [0, 2]."""
    return (x * math.sqrt(max(0.0, 4 - x * x)) / 2 + 2 * math.asin(min(1.0, x / 2))) / math.pi


class _State:
    def __init__(self, population: Population, noise: float, loop: Loop) -> None:
        leading = population.leading
        self._population, self._leading, self._loop = population, leading, loop
        self._rows = population.rows * loop.part
        self._noise = noise
        sizes, others = population.counts, population.others
        self._shrinks = float(sizes @ np.square(others) / max(sizes.sum(), 1.0))
        self._sampled = float(sizes @ others / max(sizes.sum(), 1.0)) * leading * self._rows

    def visible(self) -> NDArray[np.bool_]:
        """Tell which components are above the singular values of a last product that is noise alone."""
        size = math.sqrt(self._population.dimension * self._loop.columns)
        return np.asarray(np.square(self._rows * self._leading) > self._noise**2 * size)

    def pruned(self, cosines: FloatArray) -> Outlook:
        """Leave out rows that do not stand out of the last product, if few columns take part and most of them do."""
        support, size = self._population.support, self._population.dimension
        signals = np.square(self._rows * self._leading) * cosines / support / (self._noise**2 + self._sampled)
        missed = part_missed(signals, size, support)
        if support > size // DENSE_FRACTION or missed > _HALF or not self.visible().all():
            return Outlook(1 - cosines, self._noise, size)
        return Outlook(missed + (1 - missed) * (1 - cosines) * support / size, self._noise, support)

    def after(self, cosines: FloatArray) -> FloatArray:
        """Return the squared cosines after a round."""
        support, size = self._population.support, self._population.dimension
        signal = np.square(self._rows * self._leading) * np.maximum(cosines, _LEAST) / support
        beside = (1 - cosines) * np.square(self._rows) * self._shrinks / size
        ratio = np.minimum(0.95, self._population.usual / self._leading)
        blurred = self._noise**2 + self._sampled * cosines * (1 + ratio) / (1 - ratio) + beside
        return self._truncated(signal, blurred)

    def _truncated(self, signal: FloatArray, blurred: FloatArray) -> FloatArray:
        """Keep the rows that are largest once the product is made orthonormal, and return the squared cosines."""
        support, size = self._population.support, self._population.dimension
        whole = support * signal + size * blurred
        inside, outside = (signal + blurred) / whole, blurred / whole
        kept_in, kept_out = _kept(inside, outside, support, size - support, self._loop.kept)
        part = signal / (signal + blurred)
        energy_in = kept_in * support * (signal + blurred)
        energy = energy_in + kept_out * (size - support) * blurred
        return np.asarray(np.clip(np.square(part * energy_in) / (support * signal * energy), _LEAST, 1.0))


def _kept(inside: FloatArray, outside: FloatArray, support: int, beside: int, most: int) -> tuple[float, float]:
    """Return which part of the energy of the support's rows, and of the others', is in the ``most`` largest rows.

    A row's squared length is a sum of squares of these variances, for which a gamma law of equal mean and variance
    stands. The energy above a threshold is that law's with one more degree of freedom.
    """
    if most >= support + beside:
        return 1.0, 1.0
    laws = [(float(v.sum()) ** 2 / (2 * float(np.square(v).sum())), v) for v in (inside, outside)]
    (shape_in, shape_out), scales = (laws[0][0], laws[1][0]), [2 * np.square(v).sum() / v.sum() for _, v in laws]

    def kept(level: float) -> float:
        return float(
            support * gammaincc(shape_in, level / scales[0]) + beside * gammaincc(shape_out, level / scales[1]) - most
        )

    highest = 200 * (scales[0] * (shape_in + 1) + scales[1] * (shape_out + 1))
    level = _root(kept, highest)
    return float(gammaincc(shape_in + 1, level / scales[0])), float(gammaincc(shape_out + 1, level / scales[1]))
