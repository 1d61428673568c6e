"""Adds the providers' answers to one query. They are integers, so that the sum is exact and the same in any order."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import InvalidAnswerError, InvalidParameterError
from dpspca.common.plan import Step
from dpspca.common.privacy import MAX_PARTIES
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import ColumnSums
from dpspca.common.spec import Centering, JobSpec

LARGEST_ANSWER: Final = 2**56 - 1
"""Larger than any answer that rows and noise on the lattice can give; the sum of 128 of these fits in 64 bits."""


def combine(spec: JobSpec, step: Step, answers: Sequence[NDArray[np.int64]]) -> Aggregate:
    """Check every answer's form, add them, and convert the sum to the units of the data."""
    if not 0 < len(answers) <= MAX_PARTIES:
        raise InvalidParameterError(
            f"Cannot add {len(answers)} answers.", f"A job has between 1 and {MAX_PARTIES} providers."
        )
    for answer in answers:
        _check(step, answer)
    return aggregate(spec, step, sum(answers[1:], start=answers[0]), len(answers))


def aggregate(spec: JobSpec, step: Step, total: NDArray[np.int64], parties: int) -> Aggregate:
    """Convert a sum of checked answers to the units of the data, with the standard deviation of its noise."""
    unit = step.query.unit_value(_bound(spec, step))
    values = np.multiply(total, unit, dtype=np.float64)
    return Aggregate(values, step.noise_std * math.sqrt(parties) * unit, parties)


def _check(step: Step, answer: NDArray[np.int64]) -> None:
    if answer.dtype != np.int64 or answer.shape != step.shape:
        raise InvalidAnswerError(
            f"An answer to '{step.name}' is {answer.dtype} of shape {answer.shape}.",
            f"Expected int64 of shape {step.shape}.",
        )
    # Not abs(): the most negative integer has no positive counterpart.
    if answer.size and (answer.max() > LARGEST_ANSWER or answer.min() < -LARGEST_ANSWER):
        raise InvalidAnswerError(
            f"An answer to '{step.name}' has numbers beyond {LARGEST_ANSWER}.", "Ask that provider's operator."
        )


def _bound(spec: JobSpec, step: Step) -> float:
    """Return the bound to which rows are clipped: the mean has its own."""
    if step.query is ColumnSums and spec.centering is Centering.PRIVATE and spec.mean_bound is not None:
        return spec.mean_bound
    return spec.norm_bound
