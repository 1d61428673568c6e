"""DPS-PCA on the model of the paper's section 5.1 (d = 1000, n = 100,000, k = 5), over twelve starts and noises.

Reference means and their spread over seeds come from an independent implementation in floating point: as published,
.61 at epsilon 1.5 and .40 at 2 (delta .3), about 2.1 at (1, 1e-6); exact accounting and dense start, .27 and .058
with ten rounds, .22 and .038 with four. Everything here is seeded, so that no run of the test differs from another.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder
from dpspca.server.jobs.sums import combine

pytestmark = pytest.mark.slow

SQUARED_NORM = 5500.0
SEEDS = range(12)
PUBLISHED = {"accounting": "published", "options": {"sparsity": 50, "rounds": 10, "start": "published"}}
OURS = {"options": {"sparsity": 50}}

Errors = Callable[..., FloatArray]


@pytest.fixture(scope="module")
def errors() -> Errors:
    """Give a function from a budget and settings to the subspace errors over all seeds, on one set of rows."""
    made = spiked_rows(SpikedModel(), 100_000, np.random.default_rng(2018))
    shard = Shard(check_rows(made.rows), SQUARED_NORM**0.5, strategy=Strategy.GRAM)

    def of(epsilon: float, delta: float, **settings: Any) -> FloatArray:
        specs = [_spec(epsilon, delta, seed, **settings) for seed in SEEDS]
        return np.array([subspace_distance(_fit(spec, shard), made.basis) for spec in specs])

    return of


def _spec(epsilon: float, delta: float, seed: int, **settings: Any) -> JobSpec:
    return JobSpec(
        schema=Schema(1000),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, delta),
        norm_bound=SQUARED_NORM**0.5,
        components=5,
        explained_variance="accounting" not in settings,
        seed=seed,
        **settings,
        method="dps-pca",
    )


def _fit(spec: JobSpec, shard: Shard) -> FloatArray:
    responder = Responder(catalogue.plan(spec), shard, MemoryLedger(), repeatable_entropy(spec.seed))
    steps = list(enumerate(catalogue.plan(spec)))

    def ask(query: RowQuery) -> Aggregate:
        position, step = steps.pop(0)
        return combine(spec, step, [responder.respond(position, query)])

    components: FloatArray = drive(catalogue.run(catalogue.plan(spec)), ask).components.T
    return components


@pytest.mark.parametrize(("epsilon", "reference"), [pytest.param(1.5, 0.61, marks=pytest.mark.nightly), (2.0, 0.40)])
def test_as_published_the_error_is_what_it_was(errors: Errors, epsilon: float, reference: float) -> None:
    """A start that misses the support until late makes single seeds much worse: the median is the stable figure."""
    found = errors(epsilon, 0.3, **PUBLISHED)
    assert np.median(found) == pytest.approx(reference, abs=0.1)
    assert reference - 0.1 < found.mean() < reference + 0.25


def test_as_published_a_strict_budget_finds_nothing(errors: Errors) -> None:
    assert 2.0 < errors(1.0, 1e-6, **PUBLISHED).mean() < 2.236


def test_ours_finds_the_components_at_a_strict_budget(errors: Errors) -> None:
    assert errors(1.0, 1e-6, **OURS).mean() <= 0.35


def test_ours_is_near_the_floor_at_the_paper_s_budget(errors: Errors) -> None:
    assert errors(0.5, 0.3, **OURS).mean() <= 0.06


@pytest.mark.parametrize(("rounds", "strict", "loose"), [(10, 0.266, 0.058), (4, 0.22, 0.038)])
def test_ours_meets_the_reference_at_the_same_number_of_rounds(
    errors: Errors, rounds: int, strict: float, loose: float
) -> None:
    options = {"sparsity": 50, "rounds": rounds}
    assert errors(1.0, 1e-6, options=options).mean() == pytest.approx(strict, rel=0.35)
    assert errors(0.5, 0.3, options=options).mean() == pytest.approx(loose, rel=0.35)
