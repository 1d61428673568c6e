"""A query that was paid for is evaluated a few times at most, because each time shows how long that takes."""

import numpy as np
import pytest
from facts import facts
from ledgers import LIMITS, opening

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import JobEndedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.data.memory.scratch import ScratchError
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.attempts import MOST_ATTEMPTS, EvaluationAttempts
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 4, "rounds": 2},
    method="dps-pca",
)
FIRST = CovarianceProduct(np.eye(4)[:, :2])


def test_t22_a_query_that_fails_is_not_evaluated_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was paid for once. A job that was opened again counts on."""
    evaluated = []

    def fail(*_: object, **__: object) -> None:
        evaluated.append(1)
        raise ScratchError("The scratch folder is full.", "Free space.")

    shard, ledger, attempts, plan = (
        Shard(check_rows(np.eye(4)), 4.0),
        MemoryLedger(),
        EvaluationAttempts(),
        catalogue.plan(SPEC),
    )
    ledger.open(opening("a job", units=plan.price.units, slack_units=plan.price.slack_units), LIMITS)
    monkeypatch.setattr(Shard, "_evaluated", fail)
    for each in range(2 * MOST_ATTEMPTS):
        responder = Responder(plan, shard, ledger, system_entropy, job="a job", attempts=attempts)
        with pytest.raises(ScratchError if each < MOST_ATTEMPTS else JobEndedError):
            responder.respond(0, FIRST)
    assert len(evaluated) == MOST_ATTEMPTS


def test_an_answer_that_is_stored_leaves_no_count_behind() -> None:
    attempts, ledger, plan = EvaluationAttempts(), MemoryLedger(), catalogue.plan(SPEC)
    ledger.open(opening("a job", units=plan.price.units, slack_units=plan.price.slack_units), LIMITS)
    shard = Shard(check_rows(np.eye(4)), 4.0)
    Responder(plan, shard, ledger, system_entropy, job="a job", attempts=attempts).respond(0, FIRST)
    assert attempts._begun == {}


def test_only_open_jobs_are_counted() -> None:
    attempts = EvaluationAttempts(2)
    for job in ("one", "two", "two"):
        attempts.begin(job, 3)
    with pytest.raises(JobEndedError, match=facts(4, 2)):
        attempts.begin("two", 3)
    attempts.begin("two", 4)
    attempts.keep(["one"])
    attempts.begin("two", 3)
    assert set(attempts._begun) == {"one", "two"}
