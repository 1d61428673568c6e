"""Jobs whose random draws are in memory alone are not pushed out by others, and one analyst has few of them."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from facts import facts
from local_federation import AllowEverything, Enrolment, now

from dpspca.common.errors import RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.costs import Price
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.sketch import SEATS, Commit, Reveal, Sketch
from dpspca.common.transport.wire import QueryReader, frames
from dpspca.common.trust.signing import SignedJob
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.kept_jobs import MOST_SKETCHES
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup

SKETCHED = JobSpec(
    schema=Schema(6),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(0.1, 1e-6),
    norm_bound=4.0,
    components=1,
    explained_variance=False,
    method="range-projection",
)
FREE = replace(SKETCHED, method="dps-pca", options={"sparsity": 6, "rounds": 2})


class Scene:
    """A provider, and analysts who sign jobs for it."""

    def __init__(self, folder: Path) -> None:
        self._enrolment = Enrolment.create(folder)
        north, revocations = self._enrolment.identity(Role.PROVIDER, "north"), self._enrolment.revocations
        rows = check_rows(np.random.default_rng(1).standard_normal((30, 6)))
        self.registry = JobRegistry(
            ProviderSetup("", lambda: north, revocations, now, {"cohort": rows}, AllowEverything)
        )
        self._analysts = {name: self._enrolment.identity(Role.ANALYST, name) for name in ("ada", "eve")}

    def signed(self, analyst: str, spec: JobSpec = SKETCHED) -> SignedJob:
        return self._enrolment.job(spec, self._analysts[analyst], ["north"])

    def ask(self, signed: SignedJob, position: int, query: RowQuery) -> np.ndarray:
        """Ask as a coordinator does, which opens the job if it is not open."""

        async def answered() -> memoryview:
            job = await self.registry.find_or_open(signed)
            reader = QueryReader(query.announcement, job.plan[position])
            for sequence, frame in enumerate(frames(query.content())):
                reader.add(sequence, bytes(frame))
            content, _ = await job.answer(position, reader, lambda: None)
            return content

        return np.frombuffer(asyncio.run(answered()), "<i8")

    def spent(self, signed: SignedJob) -> Price:
        standing = self.registry._settings.ledger.standing(signed.job_id)
        return Price() if standing is None else standing.spent


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def listed(answer: np.ndarray) -> np.ndarray:
    return answer.astype("<u4").reshape(SEATS, -1)


def test_t15_free_jobs_of_another_analyst_end_no_job_that_has_draws(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paid for, and could not go on without them."""
    monkeypatch.setattr("dpspca.provider.jobs.registry.MAX_OPEN_JOBS", 2)
    job = scene.signed("ada")
    nonces = scene.ask(job, 1, Reveal(listed(scene.ask(job, 0, Commit()))))
    assert scene.spent(job) != Price()
    for spec in 3 * [FREE, SKETCHED]:
        scene.registry.open(scene.signed("eve", spec))
    methods = [each.plan.spec.method for each in scene.registry._jobs.values()]
    assert methods.count(FREE.method) == 0
    assert len(methods) == 4
    columns = scene.registry._jobs[job.job_id].plan[2].extent.columns
    assert scene.ask(job, 2, Sketch(listed(nonces), 6, columns)).any()


def test_t15_one_analyst_has_few_jobs_with_draws(scene: Scene) -> None:
    jobs = [scene.signed("ada") for _ in range(MOST_SKETCHES + 1)]
    for job in jobs[:-1]:
        scene.ask(job, 0, Commit())
    with pytest.raises(RefusedError, match=facts(MOST_SKETCHES, "ada", "range-projection")):
        scene.ask(jobs[-1], 0, Commit())
    assert scene.spent(jobs[-1]) == Price()
    scene.ask(scene.signed("eve"), 0, Commit())
    scene.registry.open(scene.signed("ada", FREE))
    scene.registry.end(jobs[0].job_id, "done")
    scene.ask(jobs[-1], 0, Commit())


def test_t35_a_sketch_beyond_the_limit_reserves_nothing(scene: Scene) -> None:
    """And a job that was opened keeps its room until it is over, so that what it was reserved for can be asked."""
    jobs = [scene.signed("ada") for _ in range(MOST_SKETCHES + 1)]
    for job in jobs[:-1]:
        scene.registry.open(job)
    with pytest.raises(RefusedError, match=facts(MOST_SKETCHES, "ada")):
        scene.registry.open(jobs[-1])
    assert scene.registry._settings.ledger.standing(jobs[-1].job_id) is None
    for job in jobs[:-1]:
        scene.ask(job, 0, Commit())


def test_t35_sketches_that_are_being_opened_count(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise jobs that are opened at the same time would not see each other."""
    registry, held = scene.registry, []
    prepare = registry._prepare

    def with_others(*of: object) -> object:
        if len(held) <= MOST_SKETCHES:
            held.append(of)
            registry.open(scene.signed("ada"))
        return prepare(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "_prepare", with_others)
    with pytest.raises(RefusedError, match=facts(MOST_SKETCHES, "ada")):
        registry.open(scene.signed("ada"))
    assert len(held) == MOST_SKETCHES
