"""Sums are exact and the same in any order, and a malformed answer is refused."""

import itertools
import math

import numpy as np
import pytest
from facts import facts

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidAnswerError, InvalidParameterError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.lattice import MAX_PROVIDERS, largest_answer
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.server.jobs.sums import LARGEST_ANSWER, combine

SPEC = JobSpec(
    schema=Schema(6),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=3.0,
    components=2,
    centering=Centering.PRIVATE,
    mean_bound=5.0,
    options={"sparsity": 4},
    method="dps-pca",
)
COUNT, MEAN, ROUND = catalogue.plan(SPEC)[:3]


def test_a_sum_has_the_units_of_the_data_and_the_deviation_of_its_noise() -> None:
    answers = [np.full((6, 2), 2**30 * factor, dtype=np.int64) for factor in (1, 2, 4)]
    aggregate = combine(SPEC, ROUND, answers)
    assert aggregate.values.tolist() == np.full((6, 2), 7 * 9.0).tolist()
    assert aggregate.noise_std == pytest.approx(ROUND.noise_std * math.sqrt(3) * 9 / 2**30)
    assert aggregate.parties == 3


def test_the_mean_has_its_own_unit() -> None:
    aggregate = combine(SPEC, MEAN, [np.full(6, 2**17, dtype=np.int64)])
    assert aggregate.values.tolist() == [5.0] * 6


def test_an_exact_count_has_no_noise() -> None:
    aggregate = combine(SPEC, COUNT, [np.array([3]), np.array([4])])
    assert (aggregate.values.tolist(), aggregate.noise_std) == ([7.0], 0.0)


def test_the_order_of_answers_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    answers = [rng.integers(-(2**55), 2**55, (6, 2)) for _ in range(4)]
    sums = [combine(SPEC, ROUND, order).values.tobytes() for order in itertools.permutations(answers)]
    assert len(set(sums)) == 1


def test_t24_the_most_and_largest_answers_do_not_overflow() -> None:
    answers = [np.full((6, 2), largest_answer(MAX_PROVIDERS), dtype=np.int64)] * MAX_PROVIDERS
    assert (combine(SPEC, ROUND, answers).values > 0).all()
    with pytest.raises(InvalidParameterError, match=facts(MAX_PROVIDERS)):
        combine(SPEC, ROUND, [*answers, answers[0]])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (np.zeros((6, 2)), "float64"),
        (np.zeros((6, 2), dtype=np.int32), "int32"),
        (np.zeros((6, 3), dtype=np.int64), "(6, 3)"),
        (np.zeros(12, dtype=np.int64), "(12,)"),
        (np.full((6, 2), LARGEST_ANSWER + 1), str(LARGEST_ANSWER)),
        (np.full((6, 2), np.iinfo(np.int64).min), str(LARGEST_ANSWER)),
    ],
)
def test_a_malformed_answer_is_refused(answer: np.ndarray, reason: str) -> None:
    with pytest.raises(InvalidAnswerError, match=facts("'round 1 of 5'", reason)):
        combine(SPEC, ROUND, [np.zeros((6, 2), dtype=np.int64), answer])


def test_a_sum_of_no_answers_is_refused() -> None:
    with pytest.raises(InvalidParameterError):
        combine(SPEC, ROUND, [])
