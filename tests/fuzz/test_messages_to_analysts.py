"""Any message of a coordinator to an analyst is read, or refused with a reason."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from damage import damaged, require_reason
from facts import facts
from fuzz_parties import fuzz_parties
from hypothesis import given
from hypothesis import strategies as st
from local_federation import spec
from messages import messages

from dpspca.client.connection.calls import CoordinatorLink
from dpspca.client.connection.errors import TooMuchError
from dpspca.client.connection.job_models import model_from
from dpspca.client.connection.jobs import JobStatus, OfferList
from dpspca.client.connection.presence import Presence
from dpspca.client.connection.statements import StatementRequests
from dpspca.client.federation import AsyncJob
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.trust import StatementKind
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

SPEC = spec()


@given(messages("Job"))
def test_t36_any_status_of_a_job_is_read_or_refused_with_a_reason(told: Any) -> None:
    require_reason(lambda: JobStatus.of(told).to_dict())


@given(messages("Party"))
def test_t36_any_message_about_a_party_is_read_or_refused_with_a_reason(told: Any) -> None:
    require_reason(lambda: Presence.of(told).absence)


@given(messages("Offer"))
def test_t36_any_offer_of_a_data_set_is_read_or_refused_with_a_reason(told: Any) -> None:
    require_reason(lambda: OfferList().read(told).to_dict())


@given(st.lists(messages("Statement"), max_size=3))
def test_t36_t39_no_statement_that_a_coordinator_makes_up_is_believed(told: list[Any]) -> None:
    """Whatever is sent, nothing is kept: no provider signed anything in reply to this request."""

    class Teller:
        async def Statements(self, _: Any, timeout: float) -> AsyncIterator[pb.Statement]:  # noqa: ASYNC109, N802
            for each in told:
                yield each

    teller: Any = Teller()
    ada = fuzz_parties().identities["ada"]

    def read() -> None:
        requests = StatementRequests(teller, CoordinatorLink(retry_seconds=0), ada, lambda: fuzz_parties().started_at)
        assert not asyncio.run(requests.ask(StatementKind.TERMS, "cohort", ["north", "west"])).statements

    require_reason(read)


class Teller:
    """A coordinator that replies with these frames of a result."""

    def __init__(self, frames: Sequence[pb.Frame]) -> None:
        self._frames = frames

    async def Result(self, _: pb.JobName, timeout: float) -> AsyncIterator[pb.Frame]:  # noqa: ASYNC109, N802  # of the rpc
        for each in self._frames:
            yield each


@cache
def stored() -> bytes:
    rows = np.random.default_rng(1).standard_normal((50, SPEC.schema.dimension))
    return simulate([rows], SPEC, noise_seed=2).to_bytes()


def cut(content: bytes, at: int) -> list[pb.Frame]:
    """Divide the bytes of a model into two frames."""
    return [pb.Frame(content=content[:at]), pb.Frame(sequence=1, content=content[at:])]


def fetched(frames: Sequence[pb.Frame]) -> None:
    """Fetch a result as an analyst does."""

    async def fetch() -> bytearray:
        teller: Any = Teller(frames)
        return await AsyncJob("0" * 64, catalogue.plan(SPEC), teller, CoordinatorLink())._content()

    model_from(SPEC, asyncio.run(fetch()))


def test_a_true_model_is_read_from_its_frames() -> None:
    fetched(cut(stored(), 100))


@given(st.lists(messages("Frame"), max_size=4))
def test_t36_any_frames_of_a_model_are_read_or_refused_with_a_reason(frames: Sequence[pb.Frame]) -> None:
    require_reason(lambda: fetched(frames))


@given(st.deferred(lambda: damaged(stored())), st.integers(0, 2000))
def test_t36_a_model_damaged_in_transit_is_read_or_refused_with_a_reason(content: bytes, at: int) -> None:
    require_reason(lambda: fetched(cut(content, at)))


def test_t35_endless_frames_are_refused_once_they_exceed_a_model() -> None:
    frames = [pb.Frame(sequence=number, content=bytes(2**20)) for number in range(50)]
    with pytest.raises(TooMuchError, match=facts("model frames")):
        fetched(frames)
