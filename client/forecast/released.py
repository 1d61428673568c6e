"""What to expect of methods that release second moments: the whole matrix at once, or in stages."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import gammaincc
from scipy.stats import chi2

from dpspca.common.algorithms import SPARSE_FRACTION, ReleasedFacts, kept_part
from dpspca.common.arrays import FloatArray
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import ChoiceEvent

from .population import Population, length_quantile
from .spectra import joined, part_missed, sines_of

DENSE_FRACTION: Final = 4
"""As in the methods: a support of more than a fourth of all columns is no sparse structure."""
_HALF: Final = 0.5
_BY_MISTAKE: Final = 0.006
"""Part of the columns that are candidates by mistake: a normal law's beyond 2.5 deviations."""
_PAIRED: Final = 1.5
"""Columns that a chosen pair adds, on average: the first pairs two, later ones mostly one."""
OUTLYING: Final = 2.5
"""As in the staged release: columns whose sum of squares is so many deviations above the median are candidates."""


@dataclass(frozen=True, eq=False, slots=True)
class Outlook:
    """Squared sines of the angles of the components, the noise on an entry of the sum, and the columns of the result.

    The noise is in units of the mean squared length of a row. ``seen`` says whether anything is above the noise.
    """

    sines: FloatArray
    noise: float
    columns: int
    seen: bool = True


def of_matrix(plan: Plan, population: Population, step: Step, *, averaged: bool, prunes: bool) -> Outlook:
    """Expect what the one release of the whole matrix shows; rows are clipped to the job's own bound."""
    noise = _planned(step, population) * population.limit / (math.sqrt(2) if averaged else 1.0)
    return _of_whole(population.clipped(population.limit), noise, limit_of(plan), prunes=prunes)


def of_automatic(plan: Plan, population: Population) -> Outlook:
    """Expect what ``auto`` shows: the whole matrix at once or in stages, clipped at a quantile that it asks for."""
    steps = {step.name: step for step in plan}
    if "scaled release" in steps:
        return _Stages(plan, population, steps).outlook()
    whole = _Release.of(plan, population, steps["norms"], steps["whole matrix"])
    return _of_whole(whole.population, whole.noise, limit_of(plan), prunes=True)


def limit_of(plan: Plan) -> int | None:
    """Return the job's own limit on the number of columns that take part, if it sets one."""
    given = plan.spec.options.get("sparsity")
    return given if isinstance(given, int) else None


def _planned(step: Step, population: Population) -> float:
    """Return the noise of a step on a sum over all providers, for rows of norm one."""
    return step.noise_std * step.query.unit_value(1.0) * math.sqrt(population.providers)


def _of_whole(population: Population, noise: float, limit: int | None, *, prunes: bool) -> Outlook:
    """Expect the leading eigenvectors of the matrix, on the columns that stand out where the method looks for them."""
    dimension = population.dimension
    dense = _dense(population, noise)
    seen = bool((dense < 1).any())
    outlook = Outlook(dense, noise, dimension, seen)
    if prunes and seen and population.support <= dimension // DENSE_FRACTION:
        missed = part_missed(_signals(population, noise), dimension, population.support)
        sparse = _on_support(population, noise, missed)
        if missed < _HALF and float(sparse.sum()) < float(dense.sum()):
            outlook = Outlook(sparse, noise, population.support, seen)
    return _within(outlook, population, limit)


def _within(outlook: Outlook, population: Population, limit: int | None) -> Outlook:
    """Leave out the columns beyond the job's limit, which are those that explain least."""
    if limit is None or limit >= outlook.columns:
        return outlook
    count = population.components
    part = limit / population.support
    level = chi2.isf(min(part, 1.0), count) if part < 1 else 0.0
    lost = float(1 - gammaincc(count / 2 + 1, level / 2))
    return replace(outlook, sines=np.minimum(1.0, lost + (1 - lost) * outlook.sines), columns=limit)


def _dense(population: Population, noise: float) -> FloatArray:
    """Return the squared sines over all columns."""
    return sines_of(population.leading, population.others, population.counts, population.rows, noise)


def _signals(population: Population, noise: float) -> FloatArray:
    """Return, for each component, how much the products of a row of the support vary, in units of noise."""
    rows, support, leading = population.rows, population.support, population.leading
    variance = float(leading.sum()) / support + population.usual
    return np.asarray((rows * leading) ** 2 / support / (noise**2 + rows * variance * leading))


def _on_support(population: Population, noise: float, missed: float) -> FloatArray:
    """Return the squared sines on the support alone, where a part of the components was missed."""
    beside = float(max(0, population.support - population.components))
    inside = sines_of(population.leading, np.array([population.usual]), np.array([beside]), population.rows, noise)
    return np.asarray(np.minimum(1.0, missed + (1 - missed) * inside))


@dataclass(frozen=True, eq=False, slots=True)
class _Release:
    """The second moments of some columns, clipped where the histogram before it said; noise is that on an entry."""

    population: Population
    noise: float

    @classmethod
    def of(cls, plan: Plan, population: Population, norms: Step, step: Step, columns: int | None = None) -> "_Release":
        """``columns`` are those of a block that holds the whole support; None for all of them."""
        beside, squares = 1 - float(population.leading.sum()), population.squares
        if columns is not None:
            beside = (columns - population.components) * population.usual
            squares = float(np.square(population.leading).sum()) + beside * population.usual
        mean = float(population.leading.sum()) + beside
        size = population.dimension if columns is None else columns
        clip = _clip(population, norms, length_quantile(_kept(plan, population, size), mean, squares))
        return cls(population.clipped(clip + 1 - mean), _planned(step, population) * clip / math.sqrt(2))


def _kept(plan: Plan, population: Population, columns: int) -> float:
    return kept_part(ReleasedFacts(plan.spec, None, population.rows, None), columns)


def _clip(population: Population, norms: Step, wanted: float) -> float:
    """Return the squared length at which rows are clipped: the bound itself where the histogram is all noise."""
    blurred = norms.noise_std * math.sqrt(population.providers)
    return population.limit if population.rows / 2 < 3 * blurred else min(population.limit, wanted)


class _Stages:
    """The staged release of ``auto``, stage by stage; see ``dpspca.common.algorithms.staged_release``."""

    def __init__(self, plan: Plan, population: Population, steps: dict[str, Step]) -> None:
        self._plan, self._population, self._steps = plan, population, steps
        self._whole = _Release.of(plan, population, steps["norms"], steps["whole matrix"])
        self._dense = _dense(self._whole.population, self._whole.noise)

    def outlook(self) -> Outlook:
        """Take the path that the method would take."""
        held = self._found()
        candidates = self._candidates(held)
        components, size = self._population.components, self._population.dimension
        blind = not bool((self._dense < 1).any())
        if not components <= candidates <= size // SPARSE_FRACTION or self._falls_short(held, blind=blind):
            return self._of_dense()
        if held < 1 / self._population.support:
            return Outlook(np.ones(components), self._whole.noise, candidates, seen=False)
        return self._of_sparse(held, candidates, seen=not blind or held > _HALF)

    def _candidates(self, held: float) -> int:
        """Return how many columns are candidates: those of the support that were found, and some by mistake."""
        return round(held * self._population.support + _BY_MISTAKE * self._population.dimension)

    def _found(self) -> float:
        """Return which part of the components' energy the candidates hold, after each source of candidates."""
        population, whole = self._population, self._whole
        signals = _signals(whole.population, whole.noise)
        held = max(self._by_diagonal(), self._by_energy(), self._by_pairs())
        if population.support <= population.dimension // SPARSE_FRACTION:
            seen = 1 - float(np.mean(self._dense))
            if seen > 0:
                held = max(held, 1 - part_missed(signals, population.dimension, population.support))
        for _ in range(2):
            size = self._candidates(held)
            visible = population.rows * float(whole.population.leading[-1]) * held > 2 * whole.noise * math.sqrt(
                max(size, 1)
            )
            if visible:
                held = max(held, 1 - part_missed(signals, population.dimension, population.support, held))
        return held

    def _by_diagonal(self) -> float:
        """Return which part of the energy is in columns with outstanding sums of squares."""
        population = self._population
        step, rows = self._steps["diagonal"], population.rows
        clip = math.sqrt(3 * population.squares) if population.limit > 1 else population.limit
        blurred = _planned(step, population) * clip
        spread = math.hypot(blurred, math.sqrt(2 * rows) * population.usual)
        level = OUTLYING * spread / rows * population.support / max(float(population.leading.sum()), 1e-300)
        return self._above(level)

    def _by_energy(self) -> float:
        """Return which part of the energy is in rows of the matrix that are outstandingly long."""
        population, noise = self._population, self._whole.noise
        size = population.dimension
        level = math.sqrt(2 * math.log(size)) * math.sqrt(2 * size) * noise**2
        typical = float(np.square(population.rows * self._whole.population.leading).sum()) / population.support
        return self._above(level / typical)

    def _above(self, level: float) -> float:
        """Return which part of the energy is in rows of the support with more than ``level`` times a row's average."""
        count = self._population.components
        return float(gammaincc(count / 2 + 1, level * count / 2))

    def _by_pairs(self) -> float:
        """Return which part of the energy is in pairs of columns that the providers choose, where they choose any."""
        step = self._steps.get("pairs of columns")
        population = self._population
        if step is None or not isinstance(step.event, ChoiceEvent):
            return 0.0
        shared = float(population.leading.sum()) / population.support
        tied = shared / (shared + population.usual)
        rows = population.rows / population.providers
        clear = rows * 2 / math.pi * math.asin(min(1.0, tied)) > step.event.scale * math.log(
            population.dimension**2 / 2
        )
        return min(1.0, _PAIRED * step.event.picks / population.support) if clear else 0.0

    def _falls_short(self, held: float, *, blind: bool) -> bool:
        """Tell whether the whole matrix shows more than the candidates hold (``staged_release._decide``)."""
        if blind:
            return False
        population, noise = self._population, self._whole.noise
        shown = population.rows * float((self._whole.population.leading * (self._dense < 1)).sum())
        count = population.components
        tolerance = 3 * noise * math.sqrt(2 * count) + 0.02 * shown + count * population.dimension * population.usual
        return shown * (1 - held) > tolerance

    def _of_dense(self) -> Outlook:
        """Average three releases of the whole matrix."""
        noise = self._whole.noise
        for norms, name in (("norms on candidates", "candidates"), ("norms along components", "scaled release")):
            again = _Release.of(self._plan, self._population, self._steps[norms], self._steps[name])
            noise = joined(noise, again.noise)
        return _of_whole(self._whole.population, noise, limit_of(self._plan), prunes=True)

    def _of_sparse(self, held: float, candidates: int, *, seen: bool) -> Outlook:
        """Release the candidates' block, prune it, and release it at the scale of what was found."""
        population = self._population
        size = max(candidates, population.components)
        block = _Release.of(self._plan, population, self._steps["norms on candidates"], self._steps["candidates"], size)
        first = joined(block.noise, self._whole.noise)
        held *= 1 - part_missed(_signals(block.population, first), size, population.support, held)
        known = max(population.components, round(held * population.support))
        noise = joined(first, self._scaled(known))
        sines = _on_support(block.population, noise, 1 - held)
        visible = population.rows * float(block.population.leading[-1]) * held > noise * math.sqrt(size)
        sines = sines if visible else np.ones_like(sines)
        return _within(Outlook(sines, noise, known, seen), population, limit_of(self._plan))

    def _scaled(self, columns: int) -> float:
        """Return the noise between the components and the rest after the scaled release: sqrt(2) s q a b."""
        population, count = self._population, self._population.components
        along = float(population.leading.sum())
        rest = max((columns - count) * population.usual, 0.02 * along)
        squares = 0.25 / count + 0.25 / max(1, columns - count)
        quantile = length_quantile(_kept(self._plan, population, columns), 1.0, squares)
        step = self._steps["scaled release"]
        return math.sqrt(2) * _planned(step, population) * quantile * math.sqrt(along * rest)
