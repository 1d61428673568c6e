"""Adds the providers' answers to one query, plainly or weighed.

They are integers, so that the sum is exact and the same in any order.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import InvalidAnswerError, InvalidParameterError
from dpspca.common.job import Centering, JobSpec
from dpspca.common.plan import Step
from dpspca.common.privacy import MAX_PROVIDERS, largest_answer
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import ColumnSums
from dpspca.common.results import ProviderWeights, Weighed, rows_in, weighted

LARGEST_ANSWER: Final = largest_answer(1)
"""Larger than any answer that rows and noise on the lattice can give."""


def combine(
    spec: JobSpec, step: Step, answers: Sequence[NDArray[np.int64]], parts: Sequence[tuple[int, int]] = ()
) -> Aggregate:
    """Check every answer's form, add them, and convert the sum to the units of the data.

    ``parts`` has each provider's rows and weight, if the answers are to be weighed.
    """
    if not 0 < len(answers) <= MAX_PROVIDERS:
        raise InvalidParameterError(
            f"Cannot add {len(answers)} answers.", f"A job has between 1 and {MAX_PROVIDERS} providers."
        )
    for answer in answers:
        _check(step, answer, largest_answer(len(answers)))
    if not parts:
        return aggregate(spec, step, sum(answers[1:], start=answers[0]), len(answers))
    each = [weighted(answer, weight) for answer, (_, weight) in zip(answers, parts, strict=True)]
    return aggregate(spec, step, sum(each[1:], start=each[0]), len(answers), Weighed.of(parts))


class JobSums:
    """Adds the answers of one job's providers, query by query. Their numbers of rows decide the weights."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._weights = ProviderWeights(spec)
        self._rows: dict[str | int, int] = {}
        self.weighed: Weighed | None = None
        """The providers in the last sum that was weighed, other than that of what the components explain."""

    def add(self, step: Step, answers: Mapping[str | int, NDArray[np.int64]]) -> Aggregate:
        """Add the answers of some providers, by name or number, weighted as if no other had taken part."""
        rows = {name: self._rows[name] for name in answers if name in self._rows}
        weights = self._weights.of(step, rows) if len(rows) == len(answers) else {}
        parts = [(self._rows[name], weights[name]) for name in answers] if weights else []
        aggregate = combine(self._spec, step, [*answers.values()], parts)
        if self._weights.counts(step):
            self._rows = {name: rows_in(answer) for name, answer in answers.items()}
        self.weighed = Weighed.of(parts) if parts and not step.explains else self.weighed
        return aggregate


def aggregate(
    spec: JobSpec, step: Step, total: NDArray[np.int64], parties: int, weighed: Weighed | None = None
) -> Aggregate:
    """Convert a sum of checked answers to the units of the data, with the standard deviation of its noise.

    A weighted sum is scaled, so that it too stands for all rows of its providers, and the number of rows divides it.
    """
    scale, noise = (weighed.scale, weighed.noise) if weighed else (1.0, math.sqrt(parties))
    unit = step.query.unit_value(_bound(spec, step))
    values = np.multiply(total, unit * scale, dtype=np.float64)
    return Aggregate(values, step.noise_std * noise * unit, parties)


def _check(step: Step, answer: NDArray[np.int64], largest: int) -> None:
    if answer.dtype != np.int64 or answer.shape != step.shape:
        raise InvalidAnswerError(
            f"An answer to '{step.name}' is {answer.dtype} of shape {answer.shape}.",
            f"Expected int64 of shape {step.shape}.",
        )
    # Not abs(): the most negative integer has no positive counterpart.
    if answer.size and (answer.max() > largest or answer.min() < -largest):
        raise InvalidAnswerError(
            f"An answer to '{step.name}' has numbers beyond {largest}.", "Ask that provider's operator."
        )


def _bound(spec: JobSpec, step: Step) -> float:
    """Return the bound to which rows are clipped: the mean has its own."""
    if step.query is ColumnSums and spec.centering is Centering.PRIVATE and spec.mean_bound is not None:
        return spec.mean_bound
    return spec.norm_bound
