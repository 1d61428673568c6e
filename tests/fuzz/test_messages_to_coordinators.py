"""Whatever a provider or an analyst sends, the coordinator serves the others, and each job ends with a reason."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest
from coordinator_harness import HONEST, STRANGER, CoordinatorHarness, Sent
from damage import require_reason
from fuzz_parties import PLAIN, ask, fuzz_parties
from hypothesis import given
from hypothesis import strategies as st
from messages import conversations, few, from_provider, messages, requests
from simulated_federation import OpenAdmission

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.transport.wire import AnswerReader
from dpspca.common.trust.connection_proof import sign_challenge
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs.roster import Link, Roster
from dpspca.server.jobs.sums import LARGEST_ANSWER, JobSums
from dpspca.server.rpc.provider_service import ProviderService, _make_link

QUERIES = len(catalogue.plan(PLAIN))


def model_of(harness: CoordinatorHarness, sites: Sequence[str]) -> bytes:
    """Compute the model from these providers' answers."""
    steps = iter(enumerate(catalogue.plan(PLAIN)))
    sums = JobSums(PLAIN)

    def answer(_: RowQuery) -> Aggregate:
        position, step = next(steps)
        return sums.add(step, {site: harness.ledgers[site].answers[harness.job.job_id, position] for site in sites})

    return drive(catalogue.run(catalogue.plan(PLAIN)), answer).weighed_by(sums.weighed).to_bytes()


@pytest.mark.slow
@few
@given(conversations())
def test_t36_t38_a_job_finishes_whatever_one_provider_sends(
    said: list[list[Sent]],
) -> None:
    harness = CoordinatorHarness()
    ended = harness.run_conversations(said, honest=2)
    counted = {each.name: each.answered for each in ended.participants}
    assert (ended.state, ended.reason) == ("done", "")
    assert all(counted[name] == QUERIES for name in HONEST)
    if not counted[STRANGER]:
        assert harness.model(harness.job.job_id) == model_of(harness, HONEST)


@few
@given(conversations())
def test_t38_with_too_few_honest_providers_a_job_fails_with_the_reason(
    said: list[list[Sent]],
) -> None:
    ended = CoordinatorHarness().run_conversations(said, honest=1)
    whole = [each.name for each in ended.participants if each.answered == QUERIES]
    assert ended.state in {"done", "failed"}
    assert (len(whole) >= PLAIN.minimum_providers) if ended.state == "done" else ended.reason


@given(st.lists(from_provider(), max_size=12))
def test_t36_no_message_stops_the_reading_of_a_provider_s_stream(said: list[pb.FromProvider]) -> None:
    async def speak() -> AsyncIterator[pb.FromProvider]:
        for each in said:
            await asyncio.sleep(0)
            yield fuzz_parties().completed(each)

    harness = CoordinatorHarness()

    async def scene() -> None:
        link, job = Link(STRANGER, {}), fuzz_parties().good[b"plain"].job_id
        readers = [AnswerReader(np.zeros(step.shape, dtype=np.int64), LARGEST_ANSWER) for step in catalogue.plan(PLAIN)]
        asked = [
            asyncio.create_task(link.ask(ask(b"plain", PLAIN, position), job, (), reader))
            for position, reader in enumerate(readers)
        ]
        await asyncio.sleep(0)
        hub, name = fuzz_parties().identities["hub"], fuzz_parties().identities[STRANGER].name
        await ProviderService(OpenAdmission(harness), Roster(), lambda: hub)._read(name, link, speak())  # type: ignore[arg-type]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, DpspcaError) for outcome in outcomes)
        assert [outcome is None for outcome in outcomes] == [reader.complete for reader in readers]
        assert not link._pending

    asyncio.run(scene())


@given(messages("Hello"))
def test_t36_any_greeting_is_accepted_or_refused_with_a_reason(told: pb.Hello) -> None:
    async def greet() -> None:
        hub, name = fuzz_parties().identities["hub"], fuzz_parties().identities[STRANGER].name
        require_reason(lambda: _make_link(name, told, b""))
        require_reason(lambda: sign_challenge(hub, told.challenge, name))

    asyncio.run(greet())


@pytest.mark.slow
@few
@given(st.lists(st.tuples(st.sampled_from(["ada", "bob", "eve"]), requests()), max_size=10))
def test_t36_analysts_see_only_their_jobs_whatever_they_call(
    asked: list[tuple[str, tuple[str, Any]]],
) -> None:
    ended = CoordinatorHarness().run_calls([(who, call, request) for who, (call, request) in asked])
    assert (ended.state, ended.reason) == ("done", "")
