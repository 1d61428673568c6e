"""The forecast for methods that release the whole matrix of second moments at once."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import chdtri, gammaincc

from dpspca.common.arrays import FloatArray
from dpspca.common.plan import Plan, Step

from .population import Population
from .spectra import part_missed, sines_of

DENSE_FRACTION: Final = 4
"""As in the methods: a support of more than a fourth of all columns is not a sparse structure."""
_HALF: Final = 0.5


@dataclass(frozen=True, eq=False, slots=True)
class Outlook:
    """Squared sines of the angles of the components, the noise on an entry of the sum, and the columns of the result.

    The noise is in units of the mean squared length of a row; it is not a number where none is added to an entry.
    """

    sines: FloatArray
    noise: float
    columns: int


def of_matrix(plan: Plan, population: Population, step: Step, *, averaged: bool, prunes: bool) -> Outlook:
    """Expect what the one release of the whole matrix shows; rows are clipped to the job's own bound."""
    noise = planned_noise(step, population) * population.limit / (math.sqrt(2) if averaged else 1.0)
    return of_whole(population.clipped(population.limit), noise, limit_of(plan), prunes=prunes)


def limit_of(plan: Plan) -> int | None:
    """Return the job's own limit on the number of columns that take part, if it sets one."""
    given = plan.spec.options.get("sparsity")
    return given if isinstance(given, int) else None


def planned_noise(step: Step, population: Population) -> float:
    """Return the noise of a step on a sum over all providers, for rows of norm one."""
    return step.noise_std * step.query.unit_value(1.0) * math.sqrt(population.providers)


def of_whole(population: Population, noise: float | FloatArray, limit: int | None, *, prunes: bool) -> Outlook:
    """Expect the leading eigenvectors of the matrix, on the columns that stand out where the method looks for them."""
    dimension = population.dimension
    dense, most = over_all(population, noise), float(np.max(noise))
    outlook = Outlook(dense, most, dimension)
    if prunes and (dense < 1).any() and population.support <= dimension // DENSE_FRACTION:
        missed = part_missed(signals_of(population, most), dimension, population.support)
        sparse = on_support(population, noise, missed)
        if missed < _HALF and float(sparse.sum()) < float(dense.sum()):
            outlook = Outlook(sparse, most, population.support)
    return within(outlook, population, limit)


def within(outlook: Outlook, population: Population, limit: int | None) -> Outlook:
    """Leave out the columns beyond the job's limit, which are those that explain least."""
    if limit is None or limit >= outlook.columns:
        return outlook
    count = population.components
    part = limit / population.support
    level = float(chdtri(count, min(part, 1.0))) if part < 1 else 0.0
    lost = float(1 - gammaincc(count / 2 + 1, level / 2))
    return replace(outlook, sines=np.minimum(1.0, lost + (1 - lost) * outlook.sines), columns=limit)


def over_all(population: Population, noise: float | FloatArray) -> FloatArray:
    """Return the squared sines over all columns."""
    return sines_of(population.leading, population.others, population.counts, population.rows, noise)


def signals_of(population: Population, noise: float) -> FloatArray:
    """Return, for each component, how much the products of a row of the support vary, in units of noise."""
    rows, support, leading = population.rows, population.support, population.leading
    variance = float(leading.sum()) / support + population.usual
    return np.asarray((rows * leading) ** 2 / support / (noise**2 + rows * variance * leading))


def on_support(population: Population, noise: float | FloatArray, missed: float) -> FloatArray:
    """Return the squared sines on the support alone, where a part of the components was missed."""
    beside = float(max(0, population.support - population.components))
    inside = sines_of(population.leading, np.array([population.usual]), np.array([beside]), population.rows, noise)
    return np.asarray(np.minimum(1.0, missed + (1 - missed) * inside))
