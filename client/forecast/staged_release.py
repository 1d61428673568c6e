"""The forecast for ``auto``: two releases of the whole matrix, or stage by stage, as ``staged_release`` goes.

Also for the improved loop of ``dps-pca``, which ends as these stages do.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import gammaincc, ndtr, ndtri

from dpspca.common.algorithms import (
    CHOICES,
    CLEAR,
    LEAST_KEPT,
    SPARSE_FRACTION,
    WORTH,
    Lengths,
    ReleasedFacts,
    Spectrum,
    best_clip,
    best_scale,
    kept_part,
    noise_at,
)
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import ChoiceEvent
from dpspca.common.queries import SignPairs, ViewCovariance, ViewProduct

from .loops import Loop, of_loop, products_of
from .population import Population, length_quantile, length_quantiles
from .spectra import joined, part_missed
from .whole_matrix import Outlook, limit_of, of_whole, on_support, over_all, planned_noise, signals_of, within

_HALF: Final = 0.5
_CLEAR_SCORE: Final = 4.0
"""As in the wide release: how far above noise a product must be for more products to be asked."""
_PAIRED: Final = 1.5
"""Columns that a chosen pair adds, on average: the first pairs two, later ones mostly one."""
OUTLYING: Final = 2.5
"""A column is a candidate if its sum of squares is this many deviations above the median, as in the staged release."""
_PLACES: Final = 400
"""Squared lengths that stand for those of all rows."""
MOST_OF_DIAGONAL: Final = 800
"""As there: candidates that the diagonal names where there are too many columns for a matrix."""


def of_automatic(plan: Plan, population: Population) -> Outlook:
    """Expect what the stages that the plan has will show."""
    steps = {step.name: step for step in plan}
    if "diagonal" in steps:
        stages = _Stages if "whole matrix" in steps else _WideStages
        return stages(plan, population, steps).outlook()
    whole = _Release.of(plan, population, steps["norms"], steps["whole matrix"])
    if "scaled release" in steps:
        return of_last(plan, whole, steps["norms"], steps["scaled release"])
    return of_whole(whole.population, whole.noise, limit_of(plan), prunes=True)


def of_improved(plan: Plan, population: Population) -> Outlook:
    """Expect what the improved loop shows, whose end is the release of a block and its release at its own scale."""
    return _LoopStages(plan, population, {step.name: step for step in plan}).outlook()


@dataclass(frozen=True, eq=False, slots=True)
class _Release:
    """The second moments of some columns, clipped where the histogram before it said; noise is that on an entry."""

    population: Population
    noise: float
    clip: float

    @classmethod
    def of(cls, plan: Plan, population: Population, norms: Step, step: Step, columns: int | None = None) -> "_Release":
        """``columns`` are those of a block that holds the whole support; None for all of them."""
        beside, squares = 1 - float(population.leading.sum()), population.squares
        if columns is not None:
            beside = (columns - population.components) * population.usual
            squares = float(np.square(population.leading).sum()) + beside * population.usual
        mean = float(population.leading.sum()) + beside
        size = population.dimension if columns is None else columns
        hidden = LEAST_KEPT if columns is None else 1.0  # as ``ask_reach`` has it for all columns, and for a block
        kept = hidden if _hides(norms, population) else _kept(plan, population, size)
        clip = min(population.limit, length_quantile(kept, mean, squares))
        return cls(population.clipped(clip + 1 - mean), planned_noise(step, population) * clip / math.sqrt(2), clip)


def of_last(plan: Plan, before: _Release, norms: Step, step: Step) -> Outlook:
    """Expect what the last release shows, in the columns and at the scale that promise most (``last_release``)."""
    population = before.population
    size, count, rows, support = population.dimension, population.components, population.rows, population.support
    noises = before.noise, planned_noise(step, population) * before.clip / math.sqrt(2)
    if _hides(norms, population):
        return of_whole(population, joined(*noises), limit_of(plan), prunes=True)
    spectrum = Spectrum.among(rows * population.leading, rows * population.usual, before.noise, size)
    total = rows * float(population.leading.sum() + population.counts @ population.others)
    whole = best_scale(spectrum, size, total, noises, np.arange(size))
    dense = of_whole(population, noise_at(spectrum, total, noises, whole).between, limit_of(plan), prunes=True)
    if spectrum.clear < count or not count < support < size:
        return dense
    part = rows * float(population.leading.sum() + (support - count) * population.usual) / total
    noises = before.noise, part * noises[1]
    fewer = best_scale(spectrum, support, part * total, noises, np.arange(support))
    noise = noise_at(spectrum, part * total, noises, fewer).between
    missed = part_missed(signals_of(population, before.noise), size, support)
    sines = on_support(population, noise, missed)
    if float(sines.sum()) >= WORTH * float(dense.sines.sum()):
        return dense
    return within(Outlook(sines, float(noise.max()), support), population, limit_of(plan))


def _kept(plan: Plan, population: Population, columns: int) -> float:
    return kept_part(ReleasedFacts(plan.spec, None, population.rows, None), columns)


def _hides(norms: Step, population: Population) -> bool:
    """Tell whether a histogram of norms is all noise."""
    return population.rows / 2 < CLEAR * norms.noise_std * math.sqrt(population.providers)


class _WideStages:
    """The stages where the diagonal and pairs name candidates: too many columns for a matrix of all of them."""

    def __init__(self, plan: Plan, population: Population, steps: dict[str, Step]) -> None:
        self._plan, self._population, self._steps = plan, population, steps

    def outlook(self) -> Outlook:
        """Release the block of the columns with the largest sums of squares and of pairs, and what is tied to it."""
        joint = self._of_products()
        if joint is not None:
            return joint
        outstanding = min(self._by_diagonal(), MOST_OF_DIAGONAL / self._population.support)
        most = max(1, round(MOST_OF_DIAGONAL - outstanding * self._population.support))
        by_mistake = min(float(ndtr(-OUTLYING)) * self._population.dimension, most)
        held = max(outstanding, self._by_pairs())
        return self._of_block(held, round(held * self._population.support + by_mistake), None)

    def _of_products(self) -> Outlook | None:
        """Follow the products of all columns, if there are any and most columns take part (``wide_release``).

        A product with a basis of squared cosine c has signals of n l sqrt(c). Those of bases before it add to it.
        """
        population, steps = self._population, self._steps
        if "product" not in steps or population.support <= population.dimension / 2:
            return None
        size = population.dimension
        block = max(20, min(MOST_OF_DIAGONAL, round(float(ndtr(-OUTLYING)) * size)))
        first = _Release.of(self._plan, population, steps["norms on candidates"], steps["candidates"], block)
        signals = population.rows * population.leading
        inside = np.maximum(1 - block * np.square(first.noise * size / block / signals), 0.0)
        cosines = block / size * inside
        clip = _Release.of(self._plan, population, steps["norms"], steps["product"]).noise * math.sqrt(2)
        clip /= planned_noise(steps["product"], population)
        noise = planned_noise(steps["product"], population) * clip
        score = float(np.square(signals) @ cosines) / noise**2 / math.sqrt(2 * population.components * size)
        if score < _CLEAR_SCORE:
            return None
        precision = np.zeros(population.components)
        along = float(population.leading.sum())
        scales = clip, clip, min(clip, 2 * math.sqrt(along * max(1 - along, 0.0)))
        for name, scale in zip(("product", "tied columns", "scaled release"), scales, strict=True):
            step = steps[name].of_kind(ViewProduct.kind)
            precision = precision + cosines / (planned_noise(step, population) * scale) ** 2
            cosines = 1 / (1 + size / np.square(signals) / np.maximum(precision, 1e-300))
        return of_whole(population, float(np.max(precision) ** -0.5), limit_of(self._plan), prunes=True)

    def _by_diagonal(self, least: float = OUTLYING, most: int = MOST_OF_DIAGONAL) -> float:
        """Return which part of the energy is in columns with outstanding sums of squares.

        That is at least so many deviations above the median, and for at most so many columns that are usual.
        """
        population, step = self._population, self._steps["diagonal"]
        if population.support > population.dimension / 2:
            return 0.0  # none stands out where most take part
        shared = float(population.leading.sum()) / population.support
        columns = population.support * (shared + population.usual) ** 2
        columns += (population.dimension - population.support) * population.usual**2
        clip = min(population.limit, math.sqrt(3 * columns))  # squares of normal numbers have a mean square of 3
        spread = math.hypot(planned_noise(step, population) * clip, math.sqrt(2 * population.rows) * population.usual)
        deviations = max(least, -float(ndtri(min(0.5, most / population.dimension))))
        return self._above(deviations * spread / population.rows / shared)

    def _above(self, level: float) -> float:
        """Return which part of the energy is in rows of the support with more than ``level`` times a row's average."""
        count = self._population.components
        return float(gammaincc(count / 2 + 1, level * count / 2))

    def _of_block(self, held: float, candidates: int, whole: "_Release | None") -> Outlook:
        """Release the candidates' block, prune it, and release it at the scale of what was found."""
        population, count = self._population, self._population.components
        size = max(candidates, count)
        starts = (held, size), self._start_from_pairs()
        block = _Release.of(self._plan, population, self._steps["norms on candidates"], self._steps["candidates"], size)
        first = joined(block.noise, whole.noise) if whole else block.noise
        clear = first / population.rows / float(block.population.leading[-1])
        if not any(part > max(clear * math.sqrt(columns), 1 / population.support) for part, columns in starts):
            return Outlook(np.ones(count), first, size)
        held *= 1 - part_missed(signals_of(block.population, first), size, population.support, held)
        held = max(held, self._by_ties(held))
        known = max(count, round(held * population.support))
        noise = joined(first, self._scaled(known))
        sines = on_support(block.population, noise, 1 - held)
        return within(Outlook(sines, noise, known), population, limit_of(self._plan))

    def _scaled(self, columns: int) -> float:
        """Return the noise between the components and the rest after the scaled release: sqrt(2) s q a b.

        Rows are clipped to q times their mean squared length, as the method chooses it. What that leaves of the cross
        block makes the noise larger.
        """
        population, count = self._population, self._population.components
        along = float(population.leading.sum())
        rest = max((columns - count) * population.usual, 0.02 * along)
        parts = count, max(1, columns - count)
        places = (np.arange(_PLACES) + 0.5) / _PLACES
        kept = np.array([*CHOICES, _kept(self._plan, population, columns)])
        squares, bounds = (length_quantiles(each, 1.0, 0.25 / parts[0] + 0.25 / parts[1]) for each in (places, kept))
        lengths = Lengths(np.full(_PLACES, population.rows / _PLACES), squares)
        noise = planned_noise(self._steps["scaled release"], population)
        clip = best_clip(bounds, lengths, parts, noise / math.sqrt(2))
        return math.sqrt(2) * noise * clip.square / clip.left / clip.turn * math.sqrt(along * rest)

    def _by_ties(self, held: float) -> float:
        """Return the part that is held once providers chose columns whose signs go with the components."""
        event, population = self._event("tied columns"), self._population
        if event is None:
            return held
        shared = float(population.leading[-1]) / population.support
        correlation = math.sqrt(held * shared / (population.components * shared + population.usual))
        return min(1.0, held + event.picks / population.support) if self._clear(event, correlation, 1) else held

    def _by_pairs(self) -> float:
        """Return which part of the energy is in pairs of columns that the providers choose, where they choose any."""
        event, population = self._event("pairs of columns"), self._population
        if event is None:
            return 0.0
        shared = float(population.leading.sum()) / population.support
        clear = self._clear(event, shared / (shared + population.usual), 2)
        among = SignPairs.columns_of(self._steps["pairs of columns"].extent)
        part = 1.0 if among == population.dimension else max(among / population.dimension, self._by_diagonal(0, among))
        return min(part, _PAIRED * event.picks / population.support) if clear else 0.0

    def _start_from_pairs(self) -> tuple[float, float]:
        """Return which part of the energy is in the columns of chosen pairs, and how many columns these are."""
        event = self._event("pairs of columns")
        return self._by_pairs(), _PAIRED * event.picks * self._population.providers if event else 1.0

    def _event(self, name: str) -> ChoiceEvent | None:
        """Return the event of a choice, if the plan has it."""
        event = self._steps[name].event if name in self._steps else None
        return event if isinstance(event, ChoiceEvent) else None

    def _clear(self, event: ChoiceEvent, correlation: float, power: int) -> bool:
        """Tell whether a score of this correlation stands out among d columns, or d^2/2 pairs of them."""
        choices = self._population.dimension**power / power
        score = self._population.rows / self._population.providers * 2 / math.pi * math.asin(min(1.0, correlation))
        return score > event.scale * math.log(choices)


class _LoopStages(_WideStages):
    """Rounds of products name the candidates. If all columns may take part, all of them are."""

    def outlook(self) -> Outlook:
        """Follow the rounds, and release the block of what stands out."""
        population, limit, rounds = self._population, limit_of(self._plan), products_of(self._plan)
        size = population.dimension
        most = self._steps["candidates"].extent.nonzero_rows
        if most >= size:
            return self._of_block(1.0, size, None)
        found = of_loop(self._plan, population, Loop(population.components, limit or most))
        signals = np.square(population.rows * population.leading) * (1 - found.sines) * len(rounds)
        held = 1 - part_missed(signals / population.support / found.noise**2, size, population.support)
        return self._of_block(held, min(most, round(held * population.support)), None)


class _Stages(_WideStages):
    """The stages that begin with part of the budget on the whole matrix."""

    def __init__(self, plan: Plan, population: Population, steps: dict[str, Step]) -> None:
        super().__init__(plan, population, steps)
        self._whole = _Release.of(plan, population, steps["norms"], steps["whole matrix"])
        self._dense = over_all(self._whole.population, self._whole.noise)

    def outlook(self) -> Outlook:
        """Take the path that the method would take."""
        held = self._found()
        candidates = self._candidates(held)
        components, size = self._population.components, self._population.dimension
        if not components <= candidates <= size // SPARSE_FRACTION or self._falls_short(held):
            return self._of_dense()
        return self._of_block(held, candidates, self._whole)

    def _candidates(self, held: float) -> int:
        """Return how many columns are candidates: those of the support that were found, and some by mistake."""
        return round(held * self._population.support + float(ndtr(-OUTLYING)) * self._population.dimension)

    def _found(self) -> float:
        """Return which part of the components' energy the candidates hold, after each source of candidates."""
        population, whole = self._population, self._whole
        signals = signals_of(whole.population, whole.noise)
        held = max(self._by_diagonal(), self._by_energy(), self._by_pairs())
        if population.support <= population.dimension // SPARSE_FRACTION and (self._dense < 1).any():
            held = max(held, 1 - part_missed(signals, population.dimension, population.support))
        for _ in range(2):
            edge = 2 * whole.noise * math.sqrt(max(self._candidates(held), 1))
            if population.rows * float(whole.population.leading[-1]) * held > edge:
                held = max(held, 1 - part_missed(signals, population.dimension, population.support, held))
        return held

    def _by_energy(self) -> float:
        """Return which part of the energy is in rows of the matrix that are outstandingly long."""
        population, noise = self._population, self._whole.noise
        size = population.dimension
        level = math.sqrt(2 * math.log(size)) * math.sqrt(2 * size) * noise**2
        typical = float(np.square(population.rows * self._whole.population.leading).sum()) / population.support
        return self._above(level / typical)

    def _falls_short(self, held: float) -> bool:
        """Tell whether the whole matrix shows more than the candidates hold (``staged_release._decide``)."""
        population, noise, count = self._population, self._whole.noise, self._population.components
        shown = population.rows * float((self._whole.population.leading * (self._dense < 1)).sum())
        tolerance = 3 * noise * math.sqrt(2 * count) + 0.02 * shown + count * population.dimension * population.usual
        return shown * (1 - held) > tolerance

    def _of_dense(self) -> Outlook:
        """Average three releases of the whole matrix, and end with the last release."""
        noise, norms = self._whole.noise, self._steps["norms on candidates"]
        for name in ("candidates", "tied columns"):
            step = self._steps[name].of_kind(ViewCovariance.kind)
            noise = joined(noise, _Release.of(self._plan, self._population, norms, step).noise)
        last = self._steps["scaled release"]
        return of_last(self._plan, replace(self._whole, noise=noise), self._steps["norms"], last)
