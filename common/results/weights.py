"""How much each provider counts in a sum: more rows, less noise for each.

Every provider adds noise of the same size to its answer, however few rows it has. So the plain sum is not the best one
where sizes differ. Let provider i have n_i rows, v be the sampling variance that each row adds to a number of the
answer, and s^2 the variance of the noise on it. Then weights in proportion to n_i / (n_i + t), with t = s^2 / v, give
the least variance. Where noise is small they are equal: every row counts the same. Where it rules, they follow n_i.

The guess of t may be wrong. A guess that is too small is never worse than equal weights, because the variance of a
weighted mean is convex along the way from equal weights to the best ones. So v is rather guessed too large.

Privacy: weights follow from the signed job and from the providers' answers to the query for their numbers of rows.
Weighing an answer, and rounding it, is post-processing: it needs no budget, and no provider needs to know the weights.

Exactness: a weight is an integer from 1 to ``FULL``, which stands for 1. An answer times its weight is rounded to the
lattice by itself, so that sums stay exact and the same in any order. It is never larger than the answer, so that sums
stay in range as well.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self, TypeAlias, TypeVar

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.decoding import STORED, between, decode, parse_json
from dpspca.common.job import JobSpec
from dpspca.common.plan import Step
from dpspca.common.privacy import MAX_PROVIDERS, MAX_ROWS, GaussianEvent, usable_mu
from dpspca.common.queries import Count, SecondMomentQuery

FULL_BITS: Final = 16
FULL: Final = 2**FULL_BITS
"""The weight of one; no weight is larger."""

Provider = TypeVar("Provider")


class ProviderWeights:
    """The weights of one job's providers in each of its sums, from their numbers of rows."""

    def __init__(self, spec: JobSpec) -> None:
        self._mu = usable_mu(spec.budget.epsilon, spec.budget.delta) if spec.weighs_providers else None

    def counts(self, step: Step) -> bool:
        """Tell whether a step asks for the numbers of rows that later sums are weighed by."""
        return self._mu is not None and step.query is Count

    def of(self, step: Step, rows: Mapping[Provider, int]) -> dict[Provider, int]:
        """Give each provider's weight in a step's sum; nothing if its answers are added up as they are."""
        even = 0.0 if self._mu is None else even_rows(step, self._mu)
        if not even or not rows:
            return {}
        most = max(rows.values())
        largest = most / (most + even)
        return {name: max(1, round(FULL * (count / (count + even)) / largest)) for name, count in rows.items()}


def even_rows(step: Step, mu: float) -> float:
    """Return the number of rows t whose sampling variance is that of a provider's noise; 0 if there is no such thing.

    Several releases of second moments are about the same rows, and are used together. So their noise counts as what it
    would be for the whole budget.
    """
    variance = step.query.row_variance(step.extent)
    if not variance:
        return 0.0
    noise = step.noise_std
    if isinstance(step.event, GaussianEvent) and issubclass(step.query, SecondMomentQuery):
        noise = step.event.sensitivity / mu
    return noise**2 / variance


def rows_in(answer: Integers) -> int:
    """Read a provider's number of rows from its answer. Noise or a false answer may have put it out of range."""
    return min(max(int(answer[0]), 1), MAX_ROWS)


def weighted(answer: Integers, weight: int) -> Integers:
    """Multiply an answer by a weight, rounded to the nearest integer, halves up: (a w + FULL / 2) // FULL, exactly.

    It is done for the high and the low bits of an answer separately, because a w may have 72 bits.
    """
    if weight == FULL:
        return answer
    high, low = answer >> FULL_BITS, answer & (FULL - 1)
    product: Integers = high * weight + ((low * weight + FULL // 2) >> FULL_BITS)
    return product


Part: TypeAlias = tuple[Annotated[int, between(1, MAX_ROWS)], Annotated[int, between(1, FULL)]]
Parts: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Weighed:
    """The providers in one weighted sum: the rows and the weight of each, the most rows first."""

    parts: Parts

    @classmethod
    def of(cls, parts: Iterable[tuple[int, int]]) -> Self:
        """Take the rows and the weight of each provider, in any order."""
        return cls(tuple(sorted(parts, reverse=True)))

    @property
    def is_even(self) -> bool:
        """Whether every row counts the same."""
        return len({weight for _, weight in self.parts}) == 1

    @property
    def scale(self) -> float:
        """The factor that turns a weighted sum into an estimate of the sum over all rows of these providers."""
        return FULL * sum(rows for rows, _ in self.parts) / sum(rows * weight for rows, weight in self.parts)

    @property
    def noise(self) -> float:
        """Noise of that sum, in units of the noise of one answer."""
        return math.sqrt(sum(weight**2 for _, weight in self.parts)) / FULL * self.scale

    @property
    def shares(self) -> FloatArray:
        """For each provider its part of all rows, and its part of the weighted sum."""
        rows = np.array([rows for rows, _ in self.parts], dtype=np.float64)
        weighted_rows = np.array([rows * weight for rows, weight in self.parts], dtype=np.float64)
        return np.column_stack([rows / rows.sum(), weighted_rows / weighted_rows.sum()])

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(self.parts)

    @classmethod
    def from_json(cls, text: str, parties: int) -> Self:
        """Read what ``to_json`` wrote for this many providers; ``ValueError`` if it is anything else."""
        parts = decode(Parts, parse_json(text, "The weights"), STORED)
        if len(parts) != parties or not 0 < parties <= MAX_PROVIDERS:
            raise ValueError(parties)
        return cls(parts)
