"""The coordinator's messages about jobs and data sets, read with limits."""

import json
from datetime import UTC, datetime

import pytest
from facts import facts
from local_federation import spec

from dpspca.client.connection import require_done
from dpspca.client.connection.errors import JobFailedError, TooMuchError
from dpspca.client.connection.jobs import JobStatus, Offer, OfferList
from dpspca.common.algorithms import catalogue
from dpspca.common.dictionary import MOST_TITLE, PinnedDictionary
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Schema
from dpspca.common.results import PrivacyStatement
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MESSAGE = pb.Job(
    job="abc",
    analyst="dpspca://town/analyst/ada",
    data_set="cohort",
    state="done",
    answered=6,
    queries=6,
    submitted=1e9,
    ended=1e9 + 2,
    participants=[pb.Participant(name="north", asked=6, answered=6), pb.Participant(name="south", asked=2, reason="x")],
)


def test_a_status_has_plain_values() -> None:
    status = JobStatus.of(MESSAGE)
    assert status.is_final
    assert status.ended == datetime.fromtimestamp(1e9 + 2, UTC)
    told = json.loads(json.dumps(status.to_dict()))
    assert told["submitted"] == "2001-09-09T01:46:40+00:00"
    assert told["participants"][1] == {
        "name": "south",
        "asked": 2,
        "answered": 0,
        "reason": "x",
        "awaiting_approval_since": None,
        "awaiting_approval_until": None,
    }


@pytest.mark.parametrize(
    ("state", "reason"),
    [("failed", "No provider is left. Submit a new job when they are."), ("cancelled", "Cancelled by the analyst.")],
)
def test_the_end_of_a_job_repeats_no_advice(state: str, reason: str) -> None:
    status = JobStatus.of(pb.Job(job="abc", state=state, reason=reason))
    with pytest.raises(JobFailedError, match=facts(state)) as caught:
        require_done(status)
    assert str(caught.value).lower().count("submit a new job") == reason.lower().count("submit a new job")


def test_a_status_says_since_when_a_job_waits_and_older_ones_are_no_news() -> None:
    def status(state: str, since: float = 0.0) -> JobStatus:
        until = since and since + 3600
        north = pb.Participant(name="north", awaiting_approval_since=since, awaiting_approval_until=until)
        return JobStatus.of(pb.Job(job="abc", state=state, participants=[north]))

    waiting, held, running = status("waiting"), status("waiting for approval", 1e9), status("running")
    (told,) = held.to_dict()["participants"]
    assert told["awaiting_approval_since"] == "2001-09-09T01:46:40+00:00"
    assert told["awaiting_approval_until"] == "2001-09-09T02:46:40+00:00"
    assert held.is_news_after(waiting)
    assert running.is_news_after(held)
    assert not waiting.is_news_after(held)
    assert not held.is_news_after(running)


def test_a_job_that_runs_has_no_end() -> None:
    running = JobStatus.of(pb.Job(job="abc", state="running"))
    assert not running.is_final
    assert running.ended is None
    assert running.to_dict()["ended"] is None


def test_spent_epsilon_grows_with_the_queries_up_to_the_price() -> None:
    total = PrivacyStatement.of(catalogue.plan(spec()), parties=1).exact_epsilon
    prices = [catalogue.plan(spec()).epsilon_after(count) for count in range(len(catalogue.plan(spec())) + 1)]
    assert prices[0] == 0
    assert prices == sorted(prices)
    assert prices[-1] == pytest.approx(total)
    assert total <= spec().budget.epsilon


def test_an_offer_without_names_has_a_width() -> None:
    bare = OfferList().read(pb.Offer(provider="north", data_set=pb.DataSet(name="cohort", dimension=3)))
    assert bare == Offer("north", "cohort", Schema(3))
    named = OfferList().read(
        pb.Offer(provider="north", data_set=pb.DataSet(name="cohort", dimension=2, columns=["a", "b"]))
    )
    assert named.to_dict() == {
        "provider": "north",
        "data_set": "cohort",
        "dimension": 2,
        "columns": ("a", "b"),
        "dictionary": None,
        "is_sparse": False,
    }
    sparse = pb.Offer(provider="north", data_set=pb.DataSet(name="cohort", dimension=3, sparse=True))
    assert OfferList().read(sparse).is_sparse


def test_an_offer_names_its_dictionary() -> None:
    def offer(digest: str, title: str = "") -> Offer:
        described = pb.DataSet(name="cohort", dimension=3, dictionary=digest, dictionary_title=title)
        return OfferList().read(pb.Offer(provider="north", data_set=described))

    assert offer("ab" * 32, "Three hospitals").dictionary == PinnedDictionary("ab" * 32, "Three hospitals")
    assert offer("ab" * 32).to_dict()["dictionary"] == {"digest": "ab" * 32, "title": ""}
    for digest, title in (("ab", ""), ("AB" * 32, ""), ("ab" * 32, "t" * (MOST_TITLE + 1))):
        with pytest.raises(InvalidParameterError):
            offer(digest, title)


def test_columns_that_several_providers_offer_are_kept_once() -> None:
    offers, columns = OfferList(), [f"column {number}" for number in range(1000)]
    read = [
        offers.read(
            pb.Offer(provider=f"site-{number}", data_set=pb.DataSet(name="cohort", dimension=1000, columns=columns))
        )
        for number in range(1000)  # a million names in all
    ]
    assert len({id(each.schema) for each in read}) == 1


def test_columns_that_all_differ_are_refused_before_they_fill_the_memory() -> None:
    offers = OfferList()

    def offer(number: int) -> pb.Offer:
        columns = [f"{number} {column}" for column in range(10_000)]
        return pb.Offer(provider="north", data_set=pb.DataSet(name="cohort", dimension=10_000, columns=columns))

    for number in range(30):  # each takes 850 kB
        offers.read(offer(number))
    with pytest.raises(TooMuchError, match=facts(2**25)):
        list(map(offers.read, map(offer, range(30, 60))))


@pytest.mark.parametrize("name", ["", "North", "n" * 64, "n\n"])
def test_an_offer_of_an_invalid_provider_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts("provider", repr(name))):
        OfferList().read(pb.Offer(provider=name, data_set=pb.DataSet(name="cohort", dimension=3)))


def test_a_status_with_too_many_participants_is_refused() -> None:
    with pytest.raises(TooMuchError, match=facts(1025, 128)):
        JobStatus.of(pb.Job(job="a", participants=[pb.Participant(name="b")] * 1025))
