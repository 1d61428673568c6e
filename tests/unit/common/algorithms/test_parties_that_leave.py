"""No number in a result is of fewer providers than what it is divided by, whenever a provider leaves."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from examples import EXAMPLES
from local_federation import SHARDS

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.steps.row_steps import PartiesChangedError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance, thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.results import Model
from dpspca.common.transport import wire
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Evaluator, Responder
from dpspca.server.jobs.sums import combine

OVER_ROWS = [
    pytest.param(job, id=f"{name} {kind}")
    for name, examples in EXAMPLES.items()
    for kind, job in examples.jobs.items()
    if kind in {"plain", "rows", "private mean", "noisy count"} and job.unit.is_row
]


def fitted(job: JobSpec, shards: Sequence[Evaluator], leaving: int) -> Model:
    """Run a job, the last of whose providers answers so many queries and no more."""
    plan = catalogue.plan(job)
    providers = [
        Responder(catalogue.plan(job), shard, MemoryLedger(), system_entropy, seat=number)
        for number, shard in enumerate(shards)
    ]
    asked = 0

    def ask(query: RowQuery) -> Aggregate:
        nonlocal asked
        step = plan[asked].fit_to(query, job.unit)
        there = providers if asked < leaving else providers[:-1]
        contents = [wire.answer_content(each.respond(asked, query)) for each in there]
        asked += 1
        return combine(job, step, [np.frombuffer(each, dtype="<i8").reshape(step.shape) for each in contents])

    return drive(catalogue.run(catalogue.plan(job)), ask)


@pytest.mark.parametrize("job", OVER_ROWS)
def test_variances_are_left_out_if_a_counted_provider_left(job: JobSpec) -> None:
    """A sum of the others' rows over the count of all would be a smaller variance, or another mean."""
    shards = [Shard(check_rows(rows), job.norm_bound, mean_bound=job.mean_bound) for rows in list(SHARDS.values())[:2]]
    last = len(catalogue.plan(job))
    assert fitted(job, shards, last).explained_variance is not None
    assert fitted(job, shards, 0).explained_variance is not None
    for leaving in {1, (1 + last) // 2, last - 1}:
        try:
            model = fitted(job, shards, leaving)
        except PartiesChangedError:
            assert leaving < last - 1 or job.centering is Centering.PRIVATE
        else:
            assert model.explained_variance is None
            assert model.explained_variance_ratio is None
            assert (model.mean is None) == (job.centering is Centering.NONE)


def iterated(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(40),
        "unit": PrivacyUnit.SPECTRAL,
        "budget": Budget(40.0, 1e-3),
        "norm_bound": 1.0,
        "components": 3,
        "method": "power-iteration",
        "options": {"rounds": 10},
    }
    return JobSpec(**good | changes)


@pytest.mark.parametrize("leaving", [3, 10, 11, 14, 22, 25])
def test_a_component_is_not_found_twice_after_a_provider_left(leaving: int) -> None:
    """Twice as much as is left, taken off along a component, would leave as much again along it, with another sign."""
    axes = thin_qr(np.random.default_rng(1).standard_normal((40, 3)))[0]
    half = axes @ np.diag([4000.0, 2000.0, 1000.0]) @ axes.T
    shards = [MatrixShard(check_rows((half + half.T) / 2), 1.0, PrivacyUnit.SPECTRAL) for _ in range(2)]
    job = iterated()
    model = fitted(job, shards, leaving)
    assert subspace_distance(model.components.T, axes) < 0.05
    together = leaving <= 10 or leaving >= len(catalogue.plan(job))
    assert (model.explained_variance is not None) == together
    if model.explained_variance is not None:
        assert model.explained_variance == pytest.approx([4000.0, 2000.0, 1000.0], rel=0.05)


def test_over_rows_it_is_not_found_again_either() -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, 40)) * np.r_[10.0, 7.0, np.ones(38)]
    job = iterated(unit=PrivacyUnit.ROW_REPLACE_ONE, norm_bound=60.0, components=2)
    model = fitted(job, [Shard(check_rows(half), 60.0) for half in np.array_split(rows, 2)], 13)
    assert subspace_distance(model.components.T, np.eye(40)[:, :2]) < 0.1
    assert math.isclose(abs(model.components[0, 0]), 1.0, rel_tol=0.01)
