"""All parties of a federation but one work together: what they have of that one is as private as it promised alone.

They have every sum, and their own answers in it. The audit that looks at the bytes of one provider
(``client/audit/answers.py``) looks here at what is left of sums when the colluders have taken out their own.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpspca.client.audit.answers import Provider, answer_locally, audit, default_job
from dpspca.common.algorithms import catalogue
from dpspca.common.job import JobSpec
from dpspca.common.privacy.audit import AuditKind
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.queries.base import RowQuery
from dpspca.common.transport.wire import AnswerReader, answer_content, frames
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release import responder
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder
from dpspca.server.jobs.sums import LARGEST_ANSWER

COLLUDERS = 2
PARTIES = COLLUDERS + 1
JOB = replace(default_job(), explained_variance=False, minimum_providers=PARTIES, options={"sparsity": 20, "rounds": 2})


def colluding(spec: JobSpec, about: Any, job: str) -> Provider:
    """Have a provider answer beside others, who then take what is theirs out of the coordinator's sum."""
    plan = catalogue.plan(spec)
    rows = np.random.default_rng(0).standard_normal((COLLUDERS, 50, spec.schema.dimension))
    shards = [Shard(check_rows(each), spec.norm_bound, mean_bound=spec.mean_bound) for each in rows]
    others = [Responder(catalogue.plan(spec), each, MemoryLedger(), system_entropy, job=job) for each in shards]
    honest = answer_locally(spec, about, job)

    def left(position: int, query: RowQuery) -> memoryview:
        total = np.zeros(plan[position].shape, dtype=np.int64)
        theirs = [each.respond(position, query) for each in others]
        for answer in (honest(position, query), *map(answer_content, theirs)):
            reader = AnswerReader(total, LARGEST_ANSWER)
            for sequence, frame in enumerate(frames(answer)):
                reader.add(sequence, bytes(frame))
        return answer_content(total - sum(theirs))

    return left


@pytest.mark.slow
def test_t27_t28_what_colluders_learn_of_an_answer_passes_its_audit() -> None:
    """False alarm 1e-6: of the whole audit. It would find noise that parties share: a test of width says how much."""
    found = audit(JOB, opening=colluding)
    assert found.passed, [each for each in found.findings if not each.passed]
    widths = [each for each in found.findings if each.name.startswith("width ")]
    assert len(widths) == sum(step.event is not None for step in catalogue.plan(JOB)) + 1
    assert all(each.catches is not None and each.catches > PARTIES**-0.5 for each in widths)


@pytest.mark.nightly
def test_t27_noise_that_parties_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that their sum has what is planned for one: colluders would be left with less."""

    class Shared:
        @staticmethod
        def with_std_at_least(std: float) -> DiscreteGaussian:
            return DiscreteGaussian(std * PARTIES**-0.5)

    monkeypatch.setattr(responder, "DiscreteGaussian", Shared)
    found = audit(JOB, opening=colluding)
    assert {AuditKind.WIDTH} <= {each.kind for each in found.findings if not each.passed}
