"""What the power loop makes of answers that are not all of the same providers."""

from typing import Any

import numpy as np
import pytest

from dpspca.common.algorithms import catalogue, dps_pca
from dpspca.common.algorithms.steps.row_steps import PartiesChangedError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import ColumnSums, CompressedCovariance, Count
from dpspca.common.results import Model
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.server.jobs.sums import aggregate

ROWS = np.random.default_rng(0).standard_normal((400, 6)) * [5, 3, 1, 1, 1, 1]


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(6),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(4.0, 1e-6),
        "norm_bound": 20.0,
        "components": 2,
        "options": {"sparsity": 6, "rounds": 3},
        "method": "dps-pca",
    }
    return JobSpec(**good | changes)


def run(job: JobSpec, parties: dict[type[RowQuery], int]) -> Model:
    """Answer exactly; ``parties`` says of how many providers each kind of answer is."""
    steps = iter(dps_pca.steps_of(job))
    shard = Shard(check_rows(ROWS), job.norm_bound, mean_bound=job.mean_bound)

    def ask(query: RowQuery) -> Aggregate:
        step = next(steps)
        return aggregate(job, step, shard.evaluate(query), parties.get(type(query), 3))

    return drive(dps_pca.run(catalogue.plan(job)), ask)


def test_variances_are_given_if_no_provider_left() -> None:
    model = run(spec(), {})
    assert model.explained_variance is not None
    assert model.explained_variance[0] == pytest.approx(25, rel=0.2)


def test_variances_are_left_out_and_axes_kept_if_a_provider_left() -> None:
    """The sum of fewer rows over the number of all would be a variance several times too small."""
    whole, fewer = run(spec(), {}), run(spec(), {CompressedCovariance: 2})
    assert fewer.explained_variance is None
    assert fewer.explained_variance_ratio is None
    assert fewer.explained_variance_std is None
    assert (fewer.components == whole.components).all()


def test_a_mean_of_other_rows_than_were_counted_ends_the_job() -> None:
    job = spec(centering=Centering.PRIVATE, mean_bound=20.0)
    assert run(job, {}).mean is not None
    with pytest.raises(PartiesChangedError):
        run(job, {ColumnSums: 2})
    with pytest.raises(PartiesChangedError):
        run(job, {Count: 4})
