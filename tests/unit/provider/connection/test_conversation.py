"""What a coordinator with a true certificate can do to a connection: nothing that lasts, grows or spends."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts, names_facts
from local_federation import AllowEverything, Enrolment, now
from numpy.typing import NDArray
from timeouts import TIMEOUT

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RevokedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.plan import prices
from dpspca.common.privacy.keystream import Draw, Entropy, KeyStream, WordSource
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.trust.connection_proof import sign_challenge
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import sign_receipt
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.conversation import Conversation
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup
from dpspca.provider.ledger.ledger import Head, MemoryLedger
from dpspca.provider.ledger.peer_receipts import PeerReceipts
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder

SPEC = JobSpec(
    schema=Schema(6),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 6, "rounds": 3},
    method="dps-pca",
)
QUERY = CovarianceProduct(np.eye(6)[:, :2])


@dataclass
class Table:
    """A provider's end of a connection, and whoever sits at the other."""

    enrolment: Enrolment
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    source: Entropy = system_entropy
    ahead: timedelta = timedelta()
    revoked: RevocationList | None = None
    rows: NDArray[np.float64] = field(default_factory=lambda: np.random.default_rng(1).standard_normal((20, 6)))

    def __post_init__(self) -> None:
        self.hub = self.enrolment.identity(Role.COORDINATOR, "hub")
        self.north = self.enrolment.identity(Role.PROVIDER, "north")
        self.ada = self.enrolment.identity(Role.ANALYST, "ada")
        rows = {"cohort": check_rows(self.rows)}
        self.settings = ProviderSetup(
            "", self.me, self.list, self.clock, rows, AllowEverything, self.ledger, self.entropy
        )
        self.registry = JobRegistry(self.settings)
        self.stream: asyncio.Queue[pb.ToProvider | None] = asyncio.Queue()

    def me(self) -> Identity:
        return self.north

    def list(self) -> RevocationList:
        return self.revoked or self.enrolment.revocations()

    def clock(self) -> datetime:
        return now() + self.ahead

    def entropy(self, draw: Draw) -> WordSource:
        return self.source(draw)

    def job(self, **times: Any) -> SignedJob:
        return self.enrolment.job(SPEC, self.ada, ["north"], **times)

    async def sit(self) -> None:
        """Begin a conversation, and be welcomed."""
        self.conversation = Conversation(self.settings, self.registry, asyncio.Event())
        self.said = self.conversation.outbound()
        self.hearing = asyncio.create_task(self.conversation.handle(self._messages()))
        challenge = (await anext(self.said)).hello.challenge
        proof = sign_challenge(self.hub, challenge, self.north.name)
        await self.stream.put(pb.ToProvider(welcome=pb.Welcome(certificate=self.hub.certificate_pem, proof=proof)))

    async def _messages(self) -> AsyncIterator[pb.ToProvider]:
        while (message := await self.stream.get()) is not None:
            yield message
            self.stream.task_done()

    async def ask(self, job: SignedJob, position: int = 0, query: CovarianceProduct = QUERY) -> None:
        """Ask in one message."""
        await self.announce(job, position, query, bytes(query.content()))

    async def announce(self, job: SignedJob, position: int, query: CovarianceProduct, content: bytes = b"") -> None:
        """Say what is asked; what is left of its content follows."""
        announced = query.announcement
        extent = announced.extent
        ask = pb.Query(
            signed_job=job.to_bytes(),
            position=position,
            kind=announced.kind,
            dimension=extent.dimension,
            columns=extent.columns,
            nonzero_rows=extent.nonzero_rows,
            content=content,
        )
        await self.stream.put(pb.ToProvider(query=ask))

    async def reply(self) -> pb.FromProvider:
        return await asyncio.wait_for(anext(self.said), TIMEOUT)

    async def quiet(self) -> None:
        """Wait until everything that was sent has been dealt with, as far as it can be."""
        await self.stream.join()
        await asyncio.sleep(0.05)


def at(table: Table, scene: Callable[[Table], Awaitable[None]]) -> None:
    async def perform() -> None:
        await table.sit()
        try:
            await scene(table)
        finally:
            table.hearing.cancel()
            await asyncio.gather(table.hearing, return_exceptions=True)

    asyncio.run(perform())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(Enrolment.create(tmp_path))


def test_t35_repeating_a_query_without_reading_makes_one_answer(table: Table) -> None:
    async def scene(table: Table) -> None:
        job = table.job()
        for _ in range(200):
            await table.ask(job)
        await table.quiet()
        assert len(table.conversation._answers) <= 1
        others = [task for task in asyncio.all_tasks() if task not in {asyncio.current_task(), table.hearing}]
        assert len(others) <= 3  # the answer, its making, and the thread that makes it

    at(table, scene)


def test_a_second_query_is_refused_while_the_first_is_answered(table: Table) -> None:
    async def scene(table: Table) -> None:
        job = table.job()
        await table.ask(job, 0)
        await table.ask(job, 1)
        kinds = sorted([(await table.reply()).WhichOneof("message") or "" for _ in range(2)])
        assert kinds == ["answer", "refusal"]
        await table.ask(job, 1)
        assert (await table.reply()).HasField("answer")

    at(table, scene)


def test_admitting_a_job_reserves_its_price_and_spends_nothing(table: Table) -> None:
    async def scene(table: Table) -> None:
        job = table.job()
        for _ in range(2):  # a coordinator that was restarted asks again
            await table.stream.put(pb.ToProvider(admit=pb.Admit(signed_job=job.to_bytes())))
            assert (await table.reply()).admitted.job == job.job_id
        account = table.ledger._state.data_sets["cohort"]
        assert account.reserved.units == [*prices(catalogue.plan(SPEC))][-1].units
        assert account.spent.units == 0
        await table.ask(job)
        assert (await table.reply()).HasField("answer")

    at(table, scene)


@pytest.mark.parametrize(
    "content", [b"", b"no job", SignedJob(b"{}", b"", b"").to_bytes()], ids=["nothing", "noise", "unsigned"]
)
def test_an_invalid_job_is_refused_and_the_next_one_is_answered(table: Table, content: bytes) -> None:
    async def scene(table: Table) -> None:
        await table.stream.put(pb.ToProvider(admit=pb.Admit(signed_job=content)))
        refusal = (await table.reply()).refusal
        assert refusal.position == 0
        assert refusal.what
        assert not table.ledger._state.jobs
        await table.ask(table.job())
        assert (await table.reply()).HasField("answer")

    at(table, scene)


def test_a_stream_that_ends_before_answers_are_sent_ends_the_conversation(table: Table) -> None:
    async def scene(table: Table) -> None:
        for job in [table.job() for _ in range(20)]:  # more than the queue of what is to be sent takes
            await table.ask(job)
        await table.quiet()
        assert table.conversation._answers
        await table.stream.put(None)
        await asyncio.wait_for(table.hearing, TIMEOUT)

    at(table, scene)


def no_randomness(_: Draw) -> KeyStream:
    """Fail, as a system's source of random bytes may."""
    raise OSError("no entropy")


def test_t23_an_unexpected_error_is_refused_in_a_constant_text(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(table: Table) -> None:
        table.source = no_randomness
        await table.ask(table.job())
        refusal = (await table.reply()).refusal
        assert (refusal.what, "entropy" in refusal.remedy) == ("The provider had an internal error.", False)
        assert "no entropy" in caplog.text
        table.source = system_entropy
        await table.ask(table.job())
        assert (await table.reply()).HasField("answer")

    at(table, scene)


def test_t22_a_query_is_answered_once_if_its_job_was_forgotten(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two open copies of one job would each make the answer, and show twice how long that takes."""
    monkeypatch.setattr("dpspca.provider.jobs.registry.MAX_OPEN_JOBS", 2)
    made = []
    evaluate = Responder.evaluate
    monkeypatch.setattr(Responder, "evaluate", lambda self, paid: made.append(self) or evaluate(self, paid))

    async def scene(table: Table) -> None:
        job = table.job()
        await table.announce(job, 0, QUERY)
        await table.quiet()
        forgotten = table.registry._jobs[job.job_id]
        for _ in range(2):
            await table.registry.find_or_open(table.job())
        assert job.job_id not in table.registry._jobs
        await table.stream.put(pb.ToProvider(frame=WHOLE))
        assert (await table.reply()).HasField("answer")
        assert made == [table.registry._jobs[job.job_id].responder]
        assert forgotten.responder not in made

    at(table, scene)


def test_many_unfinished_jobs_do_not_block_other_jobs(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpspca.provider.jobs.registry.MAX_OPEN_JOBS", 3)

    async def scene(table: Table) -> None:
        jobs = [table.job() for _ in range(7)]
        answers = []
        for job in [*jobs, *jobs]:  # the second time, most have to be opened again
            await table.ask(job)
            answers.append((await table.reply()).answer.content)
            assert len(table.registry._jobs) <= 3
        assert all(answers)
        assert answers[:7] == answers[7:]  # T05

    at(table, scene)


def test_a_job_that_expired_since_it_was_opened_is_refused(table: Table) -> None:
    async def scene(table: Table) -> None:
        job = table.job()
        await table.ask(job)
        assert (await table.reply()).HasField("answer")
        table.ahead = timedelta(hours=2)
        await table.ask(job, 1)
        assert "is valid from" in (await table.reply()).refusal.what

    at(table, scene)


def test_jobs_of_an_analyst_who_was_revoked_get_no_more_answers(table: Table) -> None:
    async def scene(table: Table) -> None:
        job = table.job()
        await table.ask(job)
        assert (await table.reply()).HasField("answer")
        table.enrolment.authority.revoke(table.ada.name)
        await table.ask(job, 1)
        assert "revoked" in (await table.reply()).refusal.what
        standing = table.ledger.standing(job.job_id)
        assert standing is not None
        assert standing.reached == 1

    at(table, scene)


WHOLE = pb.Frame(sequence=0, content=bytes(QUERY.content()))


@pytest.mark.parametrize(
    "word", [pb.ToProvider(), pb.ToProvider(frame=WHOLE)], ids=["a word of nothing", "its content"]
)
def test_t33_a_coordinator_revoked_before_a_query_s_content_is_refused(table: Table, word: pb.ToProvider) -> None:
    async def scene(table: Table) -> None:
        job = table.job()
        await table.announce(job, 0, QUERY)
        await table.quiet()
        assert table.conversation._query
        table.enrolment.authority.revoke(table.hub.name)
        await table.stream.put(word)
        with pytest.raises(RevokedError, match=facts("dpspca://town/coordinator/hub")):
            await asyncio.wait_for(table.hearing, TIMEOUT)
        assert table.ledger.standing(job.job_id) is None

    at(table, scene)


def test_t33_a_coordinator_revoked_during_an_answer_does_not_get_it(table: Table) -> None:
    revoked = iter([table.hub.name])

    def late(draw: Draw) -> KeyStream:
        """Take so long over the noise that the coordinator is revoked meanwhile."""
        for name in revoked:
            table.enrolment.authority.revoke(name)
        return system_entropy(draw)

    async def scene(table: Table) -> None:
        job = table.job()
        await table.ask(job)
        await table.quiet()
        await asyncio.gather(*table.conversation._answers.values())
        assert not [*revoked]
        assert table.conversation._outbound.empty()  # not even a refusal, which a new certificate would not undo
        assert table.ledger.standing(job.job_id) is not None  # what was drawn for is paid for, and is nobody's
        await table.stream.put(pb.ToProvider(heartbeat=pb.Heartbeat()))
        with pytest.raises(RevokedError, match=facts("dpspca://town/coordinator/hub")):
            await asyncio.wait_for(table.hearing, TIMEOUT)

    table.source = late
    at(table, scene)


def test_t25_t26_neighbours_look_alike_in_the_log_and_in_the_greeting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One row more, and that one far beyond the bound: no number of rows, of long ones or of anything is told."""
    seen = []
    rows = np.random.default_rng(1).standard_normal((20, 6))
    for number, held in enumerate((rows, np.vstack([rows, 1e6 * np.ones((1, 6))]))):
        table = Table(Enrolment.create(tmp_path / str(number)), rows=held)
        caplog.clear()

        async def scene(table: Table) -> None:
            job = table.job()
            for position in range(3):
                await table.ask(job, position)
                assert (await table.reply()).HasField("answer")
            await table.ask(job, 7)
            refusal = (await table.reply()).refusal
            offer = table.conversation.greeting.data_sets[0].SerializeToString()
            told = [each.getMessage().replace(job.job_id[:12], "JOB") for each in caplog.records]
            seen.append((told, refusal.what, refusal.remedy, offer))

        with caplog.at_level("DEBUG", "dpspca"):
            at(table, scene)
    assert seen[0] == seen[1]
    assert any("Answered query 3 of 3" in line for line in seen[0][0])


def test_receipts_of_others_that_cannot_be_written_down_end_nothing(
    table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full, say, or is there no more: whoever says farewell must not be able to end a daemon by it."""
    folder = tmp_path / "gone"
    folder.mkdir()
    table.settings.peers = peers = PeerReceipts(folder / "peers")
    folder.rmdir()
    south = table.enrolment.identity(Role.PROVIDER, "south")
    held = pb.HeldReceipt(provider="south", receipt=sign_receipt(south, Head("a" * 32, 5, "b" * 64)))

    async def scene(table: Table) -> None:
        farewell = pb.Farewell(job="whatever", state="done", receipts=[held])
        await table.stream.put(pb.ToProvider(farewell=farewell))
        await table.ask(table.job())
        assert (await table.reply()).HasField("answer")
        assert peers.held() == [held]

    at(table, scene)
    assert names_facts(caplog.text, folder / "peers", os.strerror(errno.ENOENT))


def test_t35_long_foreign_text_is_shortened_in_logs_and_refusals(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(table: Table) -> None:
        ask = pb.Query(signed_job=table.job().to_bytes(), kind="\n" * 3_000_000, dimension=6, columns=2, nonzero_rows=6)
        await table.stream.put(pb.ToProvider(query=ask))
        refused = await table.reply()
        assert names_facts(refused.refusal.what, f"'{catalogue.plan(SPEC)[0].query.kind}'")
        assert refused.ByteSize() < 1000

    at(table, scene)
    assert max(map(len, caplog.messages)) < 1000


JUMPS = [timedelta(hours=1), -timedelta(hours=1), timedelta(days=3652), -timedelta(days=3652)]


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_t15_a_clock_jump_in_any_round_changes_no_balance(table: Table, jump: timedelta, before: int) -> None:
    job = table.job()

    async def answered(position: int) -> bytes:
        await table.ask(job, position)
        return (await table.reply()).answer.content

    async def scene(table: Table) -> None:
        answers = [await answered(position) for position in range(before)]
        standing = table.ledger.standing(job.job_id)
        table.ahead = jump
        await table.ask(job, before)
        refused = asyncio.ensure_future(table.reply())  # or the connection ends: nobody's certificate is in force
        await asyncio.wait({refused, table.hearing}, return_when=asyncio.FIRST_COMPLETED)
        assert table.hearing.done() or refused.result().HasField("refusal")
        refused.cancel()
        await asyncio.gather(refused, return_exceptions=True)
        assert table.ledger.standing(job.job_id) == standing
        table.ahead = timedelta()
        if table.hearing.done():
            await asyncio.gather(table.hearing, return_exceptions=True)
            table.stream = asyncio.Queue()
            await table.sit()
        answers += [await answered(position) for position in range(before, 3)]
        assert all(answers)
        assert [await answered(position) for position in range(3)] == answers
        spent = table.ledger.standing(job.job_id)
        assert spent is not None
        assert spent.spent == [*prices(catalogue.plan(SPEC))][-1]

    at(table, scene)
