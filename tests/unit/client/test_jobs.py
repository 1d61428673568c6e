import json
from datetime import UTC, datetime

import pytest
from town import spec

from dpspca.client.jobs import JobStatus, Offer, spent
from dpspca.common.algorithms import catalogue
from dpspca.common.spec import Schema
from dpspca.common.statement import PrivacyStatement
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MESSAGE = pb.Job(
    job="abc",
    analyst="dpspca://town/analyst/ada",
    data_set="cohort",
    state="done",
    answered=6,
    questions=6,
    submitted=1e9,
    ended=1e9 + 2,
    participants=[pb.Participant(name="north", asked=6, answered=6), pb.Participant(name="south", asked=2, reason="x")],
)


def test_a_status_is_told_in_plain_values() -> None:
    status = JobStatus.of(MESSAGE)
    assert status.is_final
    assert status.ended == datetime.fromtimestamp(1e9 + 2, UTC)
    told = json.loads(json.dumps(status.to_dict()))
    assert told["submitted"] == "2001-09-09T01:46:40+00:00"
    assert told["participants"][1] == {"name": "south", "asked": 2, "answered": 0, "reason": "x"}


def test_a_job_that_runs_has_no_end() -> None:
    running = JobStatus.of(pb.Job(job="abc", state="running"))
    assert not running.is_final
    assert running.ended is None
    assert running.to_dict()["ended"] is None


def test_what_was_spent_grows_with_the_questions_up_to_the_job_s_price() -> None:
    total = PrivacyStatement.of(spec(), catalogue.plan(spec()), parties=1).exact_epsilon
    prices = [spent(spec(), count) for count in range(len(catalogue.plan(spec())) + 1)]
    assert prices[0] == 0
    assert prices == sorted(prices)
    assert prices[-1] == pytest.approx(total)
    assert total <= spec().budget.epsilon


def test_an_offer_without_names_has_a_width() -> None:
    bare = Offer.of(pb.Offer(provider="north", data_set=pb.DataSet(name="cohort", dimension=3)))
    assert bare == Offer("north", "cohort", Schema(3))
    named = Offer.of(pb.Offer(provider="north", data_set=pb.DataSet(name="cohort", dimension=2, columns=["a", "b"])))
    assert named.to_dict() == {"provider": "north", "data_set": "cohort", "dimension": 2, "columns": ("a", "b")}
