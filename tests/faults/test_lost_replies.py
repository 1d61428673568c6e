"""A reply to an analyst is lost after the call took effect. The call is repeated, which does no harm."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from coordinator_processes import Barrier, Forwarder, SlowLedger, StableEnrolment, wait_for_answers
from local_federation import SHARDS, Enrolment, RunningFederation, federation, now, spec
from timeouts import TIMEOUT

from dpspca.client.connection.statements import StatementRequests
from dpspca.client.federation import AsyncFederation
from dpspca.common.names import Role
from dpspca.common.results import Model
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.server.rpc.analyst_service import AnalystService
from dpspca.server.rpc.party_service import PartyService

Found = TypeVar("Found")
Replies = list[list[Any]]
"""All replies to each of some calls."""

SPEC = spec()


class ReplyDropper(Forwarder):
    """A forwarder to the coordinator that can drop everything that comes back, until the connection is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.steals = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.target.split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._open |= {writer, far_writer}
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer, back=True))
        self._open -= {writer, far_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        try:
            while content := await reader.read(2**16):
                if not (back and self.steals):
                    writer.write(content)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        """Close the open connections. Dropped replies stay lost; later connections work."""
        self.redirect(self.target)
        self.steals = False


@dataclass
class Handled:
    """The replies to each method that the coordinator sent, whether they arrived or not."""

    replies: dict[str, Replies] = field(default_factory=lambda: defaultdict(list))

    async def of(self, method: str, count: int) -> None:
        """Wait until there are this many replies."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.replies[method]) < count:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.01)


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Handled:
    """Record the replies to analysts before they are sent."""
    noted = Handled()
    for method in ("Submit", "Get", "Cancel"):
        monkeypatch.setattr(AnalystService, method, noting(noted.replies[method], getattr(AnalystService, method)))
    for method in ("List", "DataSets", "Result", "Statements"):
        monkeypatch.setattr(AnalystService, method, noting_all(noted.replies[method], getattr(AnalystService, method)))
    monkeypatch.setattr(PartyService, "Parties", noting_all(noted.replies["Parties"], PartyService.Parties))
    return noted


def noting(replies: Replies, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(*whole: Any) -> Any:
        reply = await method(*whole)
        replies.append([reply])
        return reply

    return call


def noting_all(
    replies: list[list[Any]], method: Callable[..., AsyncIterator[Any]]
) -> Callable[..., AsyncIterator[Any]]:
    async def call(*whole: Any) -> AsyncIterator[Any]:
        told = [reply async for reply in method(*whole)]
        replies.append(told)
        for reply in told:
            yield reply

    return call


@asynccontextmanager
async def connect_via_dropper(
    enrolment: Enrolment, running: RunningFederation
) -> AsyncIterator[tuple[AsyncFederation, ReplyDropper]]:
    """Connect the analyst through a forwarder that drops replies, and check the connection."""
    dropper = ReplyDropper()
    dropper.target = running.coordinator.address
    await dropper.start()
    async with AsyncFederation(dropper.address, enrolment.identity(Role.ANALYST, "ada")) as analyst:
        await analyst.data_sets()
        yield analyst, dropper
    await dropper.stop()


async def with_lost_reply(dropper: ReplyDropper, handled: Handled, method: str, call: Awaitable[Found]) -> Found:
    """Make a call whose reply is lost. Return the reply to the repeated call, which must be the same."""
    replies = handled.replies[method]
    before, dropper.steals = len(replies), True
    asking = asyncio.ensure_future(call)
    await handled.of(method, before + 1)
    assert not asking.done()
    dropper.cut()
    found = await asyncio.wait_for(asking, TIMEOUT)
    first, second = replies[before:]
    assert first == second
    return found


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


def test_a_reply_lost_while_a_job_waits_is_repeated_without_effect(enrolment: Enrolment, handled: Handled) -> None:
    async def scenario() -> None:
        async with (
            federation(enrolment, ["site-0"]) as running,
            connect_via_dropper(enrolment, running) as (analyst, dropper),
        ):
            signed = enrolment.job(SPEC, enrolment.identity(Role.ANALYST, "ada"), list(SHARDS))
            job = await with_lost_reply(dropper, handled, "Submit", analyst.submit_signed(signed, SPEC))
            assert (await with_lost_reply(dropper, handled, "Get", job.status())).state == "waiting"
            assert (await with_lost_reply(dropper, handled, "Get", analyst.job(job.name))).name == job.name
            assert [each.job for each in await with_lost_reply(dropper, handled, "List", analyst.jobs())] == [job.name]
            offers = await with_lost_reply(dropper, handled, "DataSets", analyst.data_sets())
            assert [each.provider for each in offers] == ["site-0"]
            (there,) = await with_lost_reply(dropper, handled, "Parties", analyst.presence(["site-0"]))
            assert there.is_connected
            requests = StatementRequests(analyst.stub, job.link, analyst._identity, now)
            assert await with_lost_reply(dropper, handled, "Statements", requests.terms(offers)) == []
            ended = await with_lost_reply(dropper, handled, "Cancel", job.cancel())
            assert (ended.state, {each.asked for each in ended.participants}) == ("cancelled", {0})
            assert [each.state for each in await analyst.jobs()] == ["cancelled"]

    asyncio.run(scenario())


def test_a_lost_reply_to_cancel_ends_the_job_once(enrolment: Enrolment, handled: Handled) -> None:
    async def scenario() -> None:
        barrier = Barrier(3)
        ledgers = {name: SlowLedger(0, barrier) for name in SHARDS}
        async with (
            federation(enrolment, ()) as running,
            connect_via_dropper(enrolment, running) as (analyst, dropper),
        ):
            for name, ledger in ledgers.items():
                await running.start(name, ledger=ledger)
            job = await analyst.submit(SPEC, "cohort", list(SHARDS))
            await wait_for_answers(job, 2)
            try:
                ended = await with_lost_reply(dropper, handled, "Cancel", job.cancel())
            finally:
                barrier.open()
            assert (ended.state, ended.reason) == ("cancelled", "Cancelled by the analyst.")
            async with asyncio.timeout(TIMEOUT):  # for answers that were being made, and for the farewell
                while any(ledger.open_jobs() for ledger in ledgers.values()):  # noqa: ASYNC110  # it tells nobody
                    await asyncio.sleep(0.05)
            paid = [ledger.standing(job.name) for ledger in ledgers.values()]
            heads = [ledger.head() for ledger in ledgers.values()]
            assert await job.cancel() == ended == await job.status()
            for each, standing in zip(ended.participants, paid, strict=True):
                assert standing is not None
                assert each.answered <= standing.reached <= each.asked
            assert [ledger.standing(job.name) for ledger in ledgers.values()] == paid
            assert [ledger.head() for ledger in ledgers.values()] == heads

    asyncio.run(scenario())


def test_a_lost_result_is_sent_again_without_new_queries(enrolment: Enrolment, handled: Handled) -> None:
    async def scenario() -> None:
        ledgers = {name: MemoryLedger() for name in SHARDS}
        async with (
            federation(enrolment, ()) as running,
            connect_via_dropper(enrolment, running) as (analyst, dropper),
        ):
            for name, ledger in ledgers.items():
                await running.start(name, ledger=ledger)
            job = await analyst.submit(SPEC, "cohort", list(SHARDS))
            model = await job.result()
            async with asyncio.timeout(TIMEOUT):
                while any(ledger.open_jobs() for ledger in ledgers.values()):  # noqa: ASYNC110  # it tells nobody
                    await asyncio.sleep(0.05)
            heads = [ledger.head() for ledger in ledgers.values()]
            content = await with_lost_reply(dropper, handled, "Result", job.link.retry(job._content))
            assert Model.from_bytes(bytes(content)).components.tobytes() == model.components.tobytes()
            assert [each.state for each in await with_lost_reply(dropper, handled, "List", analyst.jobs())] == ["done"]
            assert (await with_lost_reply(dropper, handled, "Cancel", job.cancel())).state == "done"
            assert [ledger.head() for ledger in ledgers.values()] == heads

    asyncio.run(scenario())
