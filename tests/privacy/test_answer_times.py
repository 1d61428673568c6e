"""The time of an answer discloses almost nothing about neighbouring data sets: real daemons over mutual TLS.

The coordinator's clock measures from its query until the whole answer has arrived. One daemon answers about both
neighbours, in an order that a coin chooses for each pair of queries, so that in the long run only the rows can make one
of them take longer.
"""

import math
import time
from random import SystemRandom
from typing import Any, Final

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from dpspca.client.audit.answers import Neighbour
from dpspca.client.audit.daemons import daemons
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CovarianceProduct

PAIRS: Final = 1500
MOST_AREA: Final = 0.55
FALSE_ALARM: Final = 3e-6
"""If times have one law, the area is normal around 1/2 with a variance of (2 n + 1)/(12 n^2): 0.05 are 4.7 standard
deviations, in either direction."""


def job(dimension: int, components: int, unit: PrivacyUnit, rounds: int) -> JobSpec:
    return JobSpec(
        schema=Schema(dimension),
        unit=unit,
        budget=Budget(0.01, 1e-9),
        norm_bound=10.0,
        components=components,
        explained_variance=False,
        options={"sparsity": dimension, "rounds": rounds},
        method="dps-pca",
    )


def basis(dimension: int, columns: int, support: int) -> CovarianceProduct:
    made = np.zeros((dimension, columns))
    made[:support], _ = thin_qr(np.random.default_rng(0).standard_normal((support, columns)))
    return CovarianceProduct(made)


def area(spec: JobSpec, pair: dict[str, Any], query: RowQuery, pairs: int, interval: float | None = None) -> float:
    """Return the area under the ROC curve of the times of single answers, whichever neighbour takes longer."""
    names, chance = list(pair), SystemRandom()
    asked = [at for at, step in enumerate(catalogue.plan(spec)) if step.admits(query)]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with daemons(spec, pair, interval=interval) as opening:
        while len(seconds[names[0]]) < pairs:
            jobs = {name: opening(spec, Neighbour(name, pair[name], None), name) for name in names}  # type: ignore[arg-type]
            for at in range(asked[-1] + 1):
                for name in chance.sample(names, 2):
                    begun = time.perf_counter()
                    jobs[name](at, query)
                    if at:  # for the first of a daemon's life rows are made ready
                        seconds[name].append(time.perf_counter() - begun)
    found = float(stats.mannwhitneyu(seconds[names[0]], seconds[names[1]]).statistic)
    found /= len(seconds[names[0]]) * len(seconds[names[1]])
    return max(found, 1 - found)


def one_hot(rows: int, dimension: int) -> Any:
    places = np.random.default_rng(1).integers(dimension, size=rows)
    return scipy.sparse.csr_array((np.ones(rows), (np.arange(rows), places)), shape=(rows, dimension))


def with_full_rows(sparse: Any, count: int = 1) -> Any:
    """Have so many of the last rows use every column."""
    full = scipy.sparse.csr_array(np.random.default_rng(2).standard_normal((count, sparse.shape[1])))
    return scipy.sparse.vstack([sparse[:-count], full], format="csr")


def test_the_false_alarm_is_as_stated() -> None:
    spread = math.sqrt((2 * PAIRS + 1) / (12 * PAIRS**2))
    assert 2 * stats.norm.sf((MOST_AREA - 0.5) / spread) < FALSE_ALARM


@pytest.mark.nightly
@pytest.mark.parametrize("support", [200, 201])
def test_answer_times_do_not_disclose_one_more_row(support: int) -> None:
    """False alarm 3e-6 each. The coordinator asks about as many columns as there are rows, and about one more."""
    rows = np.random.default_rng(3).standard_normal((201, 400))
    spec = job(400, 4, PrivacyUnit.ROW_ADD_REMOVE, rounds=60)
    assert area(spec, {"first": rows[:-1], "second": rows}, basis(400, 4, support), PAIRS) <= MOST_AREA


@pytest.mark.nightly
def test_answer_times_do_not_disclose_a_full_row_among_sparse_ones() -> None:
    """False alarm 3e-6."""
    sparse = one_hot(2000, 10_000)
    spec = job(10_000, 1, PrivacyUnit.ROW_REPLACE_ONE, rounds=60)
    pair = {"first": sparse, "second": with_full_rows(sparse)}
    assert area(spec, pair, basis(10_000, 1, 10_000), PAIRS) <= MOST_AREA


@pytest.mark.nightly
def test_answers_that_leave_without_a_schedule_are_found() -> None:
    """The tables differ by a thousand full rows, so that even a busy machine shows it."""
    sparse = one_hot(2000, 10_000)
    spec = job(10_000, 4, PrivacyUnit.ROW_REPLACE_ONE, rounds=40)
    pair = {"first": sparse, "second": with_full_rows(sparse, 1000)}
    assert area(spec, pair, basis(10_000, 4, 10_000), 100, interval=0.0) > MOST_AREA + 0.1
