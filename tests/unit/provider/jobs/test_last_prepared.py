"""What was prepared for jobs is kept for the last few that were asked, and not for all that are open."""

import asyncio
import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
from local_federation import AllowEverything, Enrolment, now

from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.matrix import SymmetricProduct
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.transport.wire import QueryReader
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.jobs.last_prepared import MOST_PREPARED, LastPrepared
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(0.1, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 4, "rounds": 30},
    method="dps-pca",
)


class Prepared:
    def __init__(self) -> None:
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


def test_the_one_used_longest_ago_is_forgotten() -> None:
    last, several = LastPrepared(2), [Prepared() for _ in range(3)]
    for each in (0, 1, 0, 2):
        last.used(several[each])
    assert [each.forgotten for each in several] == [0, 1, 0]


def test_t22_what_is_kept_follows_from_the_order_of_queries() -> None:
    """Otherwise two queries that are answered at the same time would be compared by what is kept afterwards."""
    for ends in ((0, 1), (1, 0)):
        last, several = LastPrepared(1), [Prepared() for _ in range(2)]
        for each in several:
            last.used(each)
        before = [each.forgotten for each in several]
        for end in ends:
            last.done(several[end])
        assert [each.forgotten for each in several] == [before[0] + 1, before[1]] == [2, 0]


def test_what_no_job_uses_any_more_takes_no_place() -> None:
    last, several = LastPrepared(2), [Prepared() for _ in range(3)]
    last.used(several[0])
    last.used(several[1])
    del several[1]
    gc.collect()
    last.used(several[1])
    assert [each.forgotten for each in several] == [0, 0]


def test_t15_many_open_jobs_keep_no_more_matrices_than_a_few(tmp_path: Path) -> None:
    """Each job is another by a thousandth of its bound, and costs next to nothing."""
    enrolment = Enrolment.create(tmp_path)
    north, ada = enrolment.identity(Role.PROVIDER, "north"), enrolment.identity(Role.ANALYST, "ada")
    rows = check_rows(np.random.default_rng(1).standard_normal((20, 4)))
    registry = JobRegistry(
        ProviderSetup("", lambda: north, enrolment.revocations, now, {"cohort": rows}, AllowEverything)
    )
    query, shards = CovarianceProduct(np.eye(4)[:, :2]), []
    for each in range(2 * MOST_PREPARED):
        spec = replace(SPEC, norm_bound=4.0 + each / 1000)
        job = registry.open(enrolment.job(spec, ada, ["north"]))
        reader = QueryReader(query.announcement, job.plan[0])
        reader.add(0, bytes(query.content()))
        asyncio.run(job.answer(0, reader, lambda: None))
        shards.append(job.responder._shard)
    assert all(isinstance(each, Shard) for each in shards)
    kept = [each._ready is not None for each in shards if isinstance(each, Shard)]
    assert kept == [False] * MOST_PREPARED + [True] * MOST_PREPARED
    assert (shards[0].evaluate(query) == Shard(rows, 4.0).evaluate(query)).all()


def test_a_matrix_is_made_into_integers_when_it_is_asked_about_and_again() -> None:
    matrix = np.random.default_rng(2).standard_normal((5, 5))
    shard, query = (
        MatrixShard(check_rows(matrix + matrix.T), 9.0, PrivacyUnit.ENTRY),
        SymmetricProduct(np.eye(5)[:, :2]),
    )
    assert shard._made is None
    first = shard.evaluate(query)
    shard.forget()
    assert shard._made is None
    assert (shard.evaluate(query) == first).all()
