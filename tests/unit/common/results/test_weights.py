"""Providers with more rows count for more: exactly, in any order, and by weights that make the result less noisy."""

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common import queries
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.job import Accounting, Budget, JobSpec, Schema, Weights
from dpspca.common.plan import Step
from dpspca.common.privacy import MAX_PROVIDERS, MAX_ROWS, PrivacyUnit, largest_answer, usable_mu
from dpspca.common.queries import Count, Extent, RowQuery, ViewCovariance
from dpspca.common.results import FULL, ProviderWeights, Weighed, even_rows, rows_in, weighted
from dpspca.server.jobs.sums import JobSums, combine

LIMIT = 2**56 - 1


def job(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(20),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 2.0,
        "components": 2,
    }
    return JobSpec(**good | changes)


COUNT, NORMS, MATRIX, *_ = catalogue.plan(job(explained_variance=False))


def weights(rows: list[int], step: Step = MATRIX, **changes: Any) -> list[int]:
    return list(ProviderWeights(job(**changes)).of(step, dict(enumerate(rows))).values())


# --- Exact sums -------------------------------------------------------------------------------------------------------


@given(st.integers(-LIMIT, LIMIT), st.integers(1, FULL))
def test_a_weighted_answer_is_the_exact_product_rounded_once(number: int, weight: int) -> None:
    (found,) = weighted(np.array([number], dtype=np.int64), weight)
    assert int(found) == (number * weight + FULL // 2) // FULL
    assert abs(int(found)) <= LIMIT


def test_a_full_weight_changes_nothing() -> None:
    answer = np.array([-LIMIT, -1, 0, 1, LIMIT], dtype=np.int64)
    assert weighted(answer, FULL).tolist() == answer.tolist()


def test_weighted_sums_are_the_same_in_any_order() -> None:
    rng = np.random.default_rng(0)
    given = [(rng.integers(-(2**55), 2**55, MATRIX.shape), (rows, 1 + rows)) for rows in (9, 700, 3, 50_000)]
    sums = {
        combine(job(), MATRIX, [answer for answer, _ in order], [part for _, part in order]).values.tobytes()
        for order in permutations(given)
    }
    assert len(sums) == 1


def test_t24_the_most_and_largest_weighted_answers_do_not_overflow() -> None:
    answers = [np.full(MATRIX.shape, largest_answer(MAX_PROVIDERS))] * MAX_PROVIDERS
    for weight in (1, FULL - 1, FULL):
        assert (combine(job(), MATRIX, answers, [(MAX_ROWS, weight)] * MAX_PROVIDERS).values > 0).all()


@pytest.mark.parametrize("parties", [1, 3, 4, MAX_PROVIDERS])
def test_even_weights_give_the_bits_of_a_plain_sum(parties: int) -> None:
    rng = np.random.default_rng(parties)
    answers = [rng.integers(-(2**50), 2**50, MATRIX.shape) for _ in range(parties)]
    parts = [(1234, weight) for weight in weights([1234] * parties)]
    plain, weighed = combine(job(), MATRIX, answers), combine(job(), MATRIX, answers, parts)
    assert plain.values.tobytes() == weighed.values.tobytes()
    assert plain.noise_std == weighed.noise_std


# --- Which weights ----------------------------------------------------------------------------------------------------


def test_weights_follow_the_rows_where_noise_rules_and_are_even_elsewhere() -> None:
    few = weights([10_000, 500], budget=Budget(0.1, 1e-6))
    assert few[0] == FULL
    assert few[1] / FULL == pytest.approx(0.05, rel=0.1)
    many = weights([10_000, 5000], budget=Budget(40.0, 1e-6))
    assert min(many) > 0.99 * FULL


@given(st.lists(st.integers(1, MAX_ROWS), min_size=1, max_size=20), st.sampled_from([0.1, 1, 8]), st.floats(1e-3, 1))
def test_weights_are_never_worse_than_equal_ones_if_rows_vary_less(
    rows: list[int], epsilon: float, part: float
) -> None:
    """Only the rounding of weights to integers is left, which is a part of 1e-4 at most."""
    budget = Budget(epsilon, 1e-6)
    chosen, counts = np.array(weights(rows, budget=budget), dtype=float), np.array(rows, dtype=float)
    even = even_rows(catalogue.plan(job(budget=budget))[2], usable_mu(epsilon, 1e-6)) / part

    def variance(given: FloatArray) -> float:
        return float((given**2 * (counts + even)).sum() / (given @ counts) ** 2)

    assert variance(chosen) <= variance(np.ones(len(rows))) * (1 + 1e-4)


def test_second_moments_count_the_noise_of_the_whole_budget() -> None:
    """They are released several times, about the same rows: t = (D / mu)^2 / v, whatever the share of one release."""
    plan, mu = catalogue.plan(job(schema=Schema(150))), usable_mu(1.0, 1e-6)
    found = {even_rows(step, mu) for step in plan if step.query is ViewCovariance and step.extent.nonzero_rows == 150}
    assert [round(even * mu**2 / 150**1.5, 3) for even in found] == [2.0]


def test_equal_weights_matrices_and_published_noise_are_never_weighed() -> None:
    assert weights([10, 1000], weights=Weights.EQUAL) == []
    published = job(method="dps-pca", accounting=Accounting.PUBLISHED, options={"sparsity": 5})
    assert not published.weighs_providers
    assert not job(unit=PrivacyUnit.ENTRY, norm_bound=1.0).weighs_providers


def test_only_sums_over_rows_are_weighed() -> None:
    kinds = [each for each in vars(queries).values() if isinstance(each, type) and issubclass(each, RowQuery)]
    weighed = {each.kind for each in kinds if getattr(each, "kind", None) and each.row_variance(Extent(9, 2, 5)) > 0}
    assert weighed == {
        *("column-sizes", "column-sums", "compressed-covariance", "covariance", "covariance-product"),
        *("covariance-triangle", "norm-histogram", "norm-range", "view-covariance", "view-product"),
        "view-squares",
    }


def test_numbers_of_rows_are_of_the_first_question_and_bounded() -> None:
    assert ProviderWeights(job()).counts(COUNT)
    assert not any(ProviderWeights(job()).counts(step) for step in (NORMS, MATRIX))
    assert not ProviderWeights(job(weights="equal")).counts(COUNT)
    assert [rows_in(np.array([said])) for said in (-5, 0, 1, 7, LIMIT)] == [1, 1, 1, 7, MAX_ROWS]
    assert min(weights([1, MAX_ROWS], budget=Budget(0.01, 1e-9))) == 1


# --- What a weighted sum stands for -----------------------------------------------------------------------------------


def test_a_weighted_sum_stands_for_all_rows_of_its_providers() -> None:
    """Where each row adds the same, weights change nothing, up to a unit of the lattice for each provider."""
    rows = [10_000, 500, 20]
    sums = JobSums(job())
    sums.add(COUNT, {name: np.array([count]) for name, count in enumerate(rows)})
    each: dict[int | str, Integers] = {name: np.full(MATRIX.shape, 2**20 * count) for name, count in enumerate(rows)}
    total = sums.add(MATRIX, each).values
    assert total == pytest.approx(sum(rows) * 4.0 / 2**10, rel=1e-7)
    sums.add(MATRIX, {name: each[name] for name in (1, 2)})
    alone = weights(rows[1:])  # as if the first had never been there
    assert sums.weighed == Weighed.of(zip(rows[1:], alone, strict=True))


def test_the_stated_weights_are_those_of_the_sum_that_shows_components() -> None:
    """With one component, less noise is on what it explains, so that providers are weighed less for that."""
    spec = job(components=1, explained_variance=True)
    plan = catalogue.plan(spec)
    count, matrix, explaining = plan[0], plan[-3], plan[-1]
    rows, sums = [10_000, 500], JobSums(spec)
    sums.add(count, {name: np.array([each]) for name, each in enumerate(rows)})
    for step in (matrix, explaining):
        sums.add(step, {name: np.zeros(step.shape, dtype=np.int64) for name in range(2)})
    weighed = [ProviderWeights(spec).of(step, dict(enumerate(rows))) for step in (matrix, explaining)]
    assert weighed[0] != weighed[1]
    assert sums.weighed == Weighed.of(zip(rows, weighed[0].values(), strict=True))
    assert [step.explains for step in plan] == [False] * 6 + [True]


def test_the_stated_noise_is_that_of_the_weighted_sum() -> None:
    """False alarm: 1e-6. With m = 40,000 numbers, the variance has a standard deviation of sqrt(2 / m)."""
    step = catalogue.plan(job(schema=Schema(60)))[2]
    rng = np.random.default_rng(7)
    rows = [10_000, *[500] * 9]
    parts = [*zip(rows, weights(rows, step), strict=True)]
    found = []
    while sum(map(len, found)) < 40_000:
        noise = [np.rint(rng.normal(0, step.noise_std, step.shape)).astype(np.int64) for _ in rows]
        aggregate = combine(job(schema=Schema(60)), step, noise, parts)
        found.append(aggregate.values.ravel() / aggregate.noise_std)
    every = np.concatenate(found)
    assert abs(every.var() - 1) < 4.9 * np.sqrt(2 / len(every))


def test_shares_are_those_of_the_rows_and_of_the_weights() -> None:
    weighed = Weighed.of([(100, FULL // 2), (300, FULL)])
    assert weighed.shares.tolist() == [[0.75, 6 / 7], [0.25, 1 / 7]]
    assert not weighed.is_even
    assert Weighed.of([(1, 7), (2, 7)]).is_even


# --- On paper ---------------------------------------------------------------------------------------------------------


def test_weights_are_read_as_they_were_written() -> None:
    weighed = Weighed.of([(1, 1), (MAX_ROWS, FULL), (5, 3)])
    assert Weighed.from_json(weighed.to_json(), 3) == weighed


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "{}", "[]", "[[1, 2], 3]", "[[1, 2], [3]]", "[[1, 2], [0, 1]]", "[[1, 2], [1, 65537]]", "[[1, 2]]"),
        *("[[1, 2], [1, 1.5]]", "[[1, 2], [true, 1]]", "[[1, 2], [2147483649, 1]]", '[[1, 2], ["1", 1]]'),
    ],
)
def test_other_weights_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of any kind
        Weighed.from_json(text, 2)


def test_a_job_that_says_nothing_of_weights_is_written_as_before() -> None:
    assert "weights" not in json.loads(job().to_json())
    equal = job(weights="equal")
    assert json.loads(equal.to_json())["weights"] == "equal"
    for each in (job(), equal):
        assert JobSpec.from_json(each.to_json()) == each
    assert equal.digest() != job().digest()


def test_a_count_is_not_weighed() -> None:
    sums = JobSums(job())
    total = sums.add(COUNT, {"north": np.array([7]), "south": np.array([900])})
    assert total.values.tolist() == [907.0]
    assert (sums.weighed, COUNT.query) == (None, Count)


# --- Never worse than equal weights -----------------------------------------------------------------------------------

POPULATIONS = {
    "P": (100_000, 1000, 100.0, 5.0),
    "P4": (10_000, 1000, 100.0, 5.0),
    "H1": (20_000, 5000, 15.0, 5.0),
    "H3": (100_000, 1000, 6.4, 1.0),
    "S": (20_000, 40, 20.0, 2.0),
    "D": (20_000, 200, 40.0, 2.0),
    "M": (5000, 400, 40.0, 1.0),
}
"""Rows, columns, the largest eigenvalue and the usual one, as in ``bench/designs/samples.py``."""
PARTS = {"one large": np.r_[20.0, np.ones(9)], "four equal": np.ones(4), "geometric": 0.7 ** np.arange(16)}


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", POPULATIONS)
def test_weights_never_add_two_percent_to_the_error(name: str, parts: str, epsilon: float) -> None:
    """Of an entry between a component and another direction: its sampling variance and the noise on it, exactly."""
    total, columns, leading, usual = POPULATIONS[name]
    spec = JobSpec(
        schema=Schema(columns),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, 1e-6),
        norm_bound=1.0,
        components=1,
        method="analyze-gauss",
    )
    step = catalogue.plan(spec)[-1]
    rows = np.rint(total * PARTS[parts] / PARTS[parts].sum())
    found = ProviderWeights(spec).of(step, dict(enumerate(rows.astype(int).tolist())))
    sampling = 4.0**30 * leading * usual / (columns * usual) ** 2

    def error(weights: np.ndarray) -> float:
        variances = rows * sampling + step.noise_std**2
        return float(np.sqrt((weights**2 * variances).sum()) / (weights * rows).sum())

    weighted = error(np.array([found[place] for place in range(len(rows))], dtype=float))
    assert weighted <= 1.02 * error(np.ones(len(rows)))
