"""What was prepared for jobs is kept for the last few that were asked, and not for all that are open."""

import asyncio
import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from local_federation import AllowEverything, Enrolment, now
from timeouts import TIMEOUT

from dpspca.common.errors import RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.matrix import SymmetricProduct
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.transport.wire import QueryReader
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard
from dpspca.provider.evaluate.moments import StreamedMoments
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.wide_integers import WideIntegers
from dpspca.provider.jobs.last_prepared import MOST_PREPARED, LastPrepared
from dpspca.provider.jobs.open_job import OpenJob
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
ROWS = np.random.default_rng(1).standard_normal((20, 4))
QUERY = CovarianceProduct(np.eye(4)[:, :2])
OpenWith: TypeAlias = Callable[..., OpenJob]


class Prepared:
    def __init__(self) -> None:
        self.forgotten = 0

    def forget(self) -> list[object]:
        self.forgotten += 1
        return []


def test_the_one_used_longest_ago_is_forgotten() -> None:
    last, several = LastPrepared(2), [Prepared() for _ in range(3)]
    for each in (0, 1, 0, 2):
        last.used(several[each])
        last.done(several[each])
    assert [each.forgotten for each in several] == [0, 1, 0]


@pytest.mark.parametrize("ends", [(0, 1), (1, 0)])
def test_t22_what_is_kept_follows_from_the_order_of_queries(ends: tuple[int, int]) -> None:
    """Otherwise two queries that are answered at the same time would be compared by what is kept afterwards."""
    last, several = LastPrepared(1), [Prepared() for _ in range(2)]
    for each in several:
        last.used(each)
    assert [each.forgotten for each in several] == [0, 0]
    for end in ends:
        last.done(several[end])
    assert [each.forgotten for each in several] == [1, 0]


def test_t22_nothing_is_forgotten_between_a_query_and_its_answer() -> None:
    """Otherwise the time of its answer would show whether it got a thread before a later query was asked."""
    last, (mine, other) = LastPrepared(1), (Prepared(), Prepared())
    last.used(mine)
    last.used(other)
    assert mine.forgotten == 0
    last.done(mine)
    assert mine.forgotten == 1


def test_t22_what_is_kept_does_not_depend_on_when_memory_is_freed() -> None:
    """What was prepared for a job that ended goes when its last answer was made. That time must not choose others."""
    last, several = LastPrepared(2), [Prepared() for _ in range(3)]
    for each in several[:2]:
        last.used(each)
        last.done(each)
    del several[1], each
    gc.collect()
    last.used(several[1])
    assert [each.forgotten for each in several] == [1, 0]


@pytest.fixture
def open_job(tmp_path: Path) -> OpenWith:
    """Return what opens a job at a new provider's, of a spec that differs a little."""
    enrolment = Enrolment.create(tmp_path)
    north, ada = enrolment.identity(Role.PROVIDER, "north"), enrolment.identity(Role.ANALYST, "ada")
    registry = JobRegistry(
        ProviderSetup("", lambda: north, enrolment.revocations, now, {"cohort": check_rows(ROWS)}, AllowEverything)
    )
    return lambda **changes: registry.open(enrolment.job(replace(SPEC, **changes), ada, ["north"]))


async def answer(job: OpenJob, query: CovarianceProduct = QUERY) -> None:
    reader = QueryReader(query.announcement, job.plan[0])
    reader.add(0, bytes(query.content()))
    await job.answer(0, reader, lambda: None)


@pytest.mark.parametrize("is_asked_late", [False, True])
def test_t22_no_job_uses_what_was_prepared_for_another(
    is_asked_late: bool, open_job: OpenWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the second job's answer would show whether the first was done when others had pushed it out."""
    begun, let_go, made = threading.Event(), threading.Event(), []
    gram = StreamedMoments.gram

    def slow(self: StreamedMoments) -> WideIntegers:
        made.append(self)
        begun.set()
        assert let_go.wait(TIMEOUT)
        return gram(self)

    async def scene() -> None:
        first, second, *others = (
            open_job(), open_job(), *(open_job(norm_bound=5.0 + each) for each in range(MOST_PREPARED))
        )  # fmt: skip
        monkeypatch.setattr(StreamedMoments, "gram", slow)
        asked = asyncio.create_task(answer(first))
        await asyncio.to_thread(begun.wait, TIMEOUT)
        for other in others:
            other.used()
        if is_asked_late:
            let_go.set()
            await asked
        late = asyncio.create_task(answer(second))
        await asyncio.sleep(0)
        let_go.set()
        await asyncio.gather(asked, late)
        assert len(made) == 2
        assert first.responder._shard._ready is None  # type: ignore[attr-defined]
        assert second.responder._shard._ready is not None  # type: ignore[attr-defined]

    asyncio.run(scene())


def test_t22_of_two_centres_none_depends_on_who_is_first(open_job: OpenWith) -> None:
    """Two jobs of one spec that are asked about different centres: each keeps what it prepared."""
    shards = [open_job().responder._shard for _ in range(2)]
    assert all(isinstance(each, Shard) for each in shards)
    centers = [np.full(4, float(each)) for each in range(2)]
    for order in (0, 1), (1, 0):
        for each in order:
            shards[each].evaluate(CovarianceProduct(np.eye(4)[:, :2], centers[each]))
        kept = [each._ready.center for each in shards]  # type: ignore[attr-defined]
        assert kept == [each.tobytes() for each in centers]


def test_a_query_that_is_repeated_or_refused_holds_nothing(open_job: OpenWith) -> None:
    job, others = open_job(), [open_job(norm_bound=5.0 + each) for each in range(MOST_PREPARED)]

    async def scene() -> None:
        await answer(job)
        await answer(job)
        with pytest.raises(RefusedError):
            await answer(job, CovarianceProduct(np.eye(4)[:, 1:3]))
        for other in others:
            await answer(other)

    asyncio.run(scene())
    assert job.responder._shard._ready is None  # type: ignore[attr-defined]


def test_t35_queries_that_cost_nothing_have_nothing_forgotten(open_job: OpenWith) -> None:
    """Rows are prepared for one query of a job. If they were forgotten, all others of the job would take longer."""
    *others, job = (open_job(norm_bound=4.0 + each) for each in range(MOST_PREPARED + 1))

    async def scene() -> None:
        for each in (*others, job, *others):
            await answer(each)

    asyncio.run(scene())
    assert job.responder._shard._ready is not None  # type: ignore[attr-defined]


def test_t15_many_open_jobs_keep_no_more_matrices_than_a_few(open_job: OpenWith) -> None:
    """Each job is another by a thousandth of its bound, and costs next to nothing."""
    shards = []
    for each in range(2 * MOST_PREPARED):
        job = open_job(norm_bound=4.0 + each / 1000)
        asyncio.run(answer(job))
        shards.append(job.responder._shard)
    assert all(isinstance(each, Shard) for each in shards)
    kept = [each._ready is not None for each in shards if isinstance(each, Shard)]
    assert kept == [False] * MOST_PREPARED + [True] * MOST_PREPARED
    assert (shards[0].evaluate(QUERY) == Shard(check_rows(ROWS), 4.0).evaluate(QUERY)).all()


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
