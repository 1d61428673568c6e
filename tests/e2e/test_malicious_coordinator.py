"""A coordinator with a true certificate and bad intentions, against a real daemon over real mutual TLS.

Whatever it asks, a provider answers the questions that the analyst signed, once each, in their order. Everything else
is refused, and costs nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from town import AnythingGoes

from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import Count, CovarianceProduct
from dpspca.common.question import RowQuery
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.common.transport import identity as identities
from dpspca.common.transport import rpc, wire
from dpspca.common.transport.authority import Authority
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName, Role
from dpspca.common.transport.proof import prove
from dpspca.common.transport.receipts import issue
from dpspca.common.transport.signing import JobEnvelope, SignedJob, sign
from dpspca.common.transport.trust import RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.provider.daemon import Daemon
from dpspca.provider.docket import Settings
from dpspca.provider.entries import Head
from dpspca.provider.ledger import Ledger, MemoryLedger
from dpspca.provider.preparation import check_rows
from dpspca.provider.sqlite_ledger import SqliteLedger

DIMENSION = 12
NORTH = PartyName("town", Role.PROVIDER, "north")
SPEC = JobSpec(
    schema=Schema(DIMENSION),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 5, "rounds": 3},
)


def basis(seed: int, rows: int) -> np.ndarray:
    made = np.zeros((DIMENSION, 2))
    made[:rows], _ = thin_qr(np.random.default_rng(seed).standard_normal((rows, 2)))
    return made


DENSE, SPARSE = CovarianceProduct(basis(0, DIMENSION)), CovarianceProduct(basis(1, 5))


def now() -> datetime:
    return datetime.now(UTC)


class Puppet(pb_grpc.ProviderServiceServicer):
    """A coordinator whose every message is chosen by a test."""

    def __init__(self, hub: Identity) -> None:
        self.hub = hub
        self.welcome = self.honest_welcome
        self.outbound: asyncio.Queue[pb.ToProvider] = asyncio.Queue()
        self.inbound: asyncio.Queue[pb.FromProvider] = asyncio.Queue()

    async def Connect(  # noqa: N802  # the name of the rpc
        self, request_iterator: AsyncIterator[pb.FromProvider], context: Any
    ) -> AsyncIterator[pb.ToProvider]:
        async def read() -> None:
            async for message in request_iterator:
                await self.inbound.put(message)

        hello = await anext(request_iterator)
        self.challenge = hello.hello.challenge
        await self.inbound.put(hello)
        reading = asyncio.ensure_future(read())
        yield pb.ToProvider(welcome=self.welcome(hello.hello.challenge))
        try:
            while True:
                yield await self.outbound.get()
        finally:
            reading.cancel()

    def honest_welcome(self, challenge: bytes) -> pb.Welcome:
        return pb.Welcome(certificate=self.hub.certificate_pem, proof=prove(self.hub, challenge, NORTH))


@dataclass
class Stage:
    """A daemon at the mercy of a puppet."""

    puppet: Puppet
    analyst: Identity
    authority: Authority
    identity: Callable[[Role, str], Identity]
    revoked: RevocationList
    another: Identity | None = None
    home: Identity = field(init=False)
    ledger: Ledger = field(default_factory=MemoryLedger)

    def job(self, spec: JobSpec = SPEC, audience: str = "north", data_set: str = "cohort", **times: Any) -> SignedJob:
        who = [PartyName("town", Role.PROVIDER, audience)]
        drawn = {"now": now(), "life": timedelta(hours=1)} | times
        return sign(JobEnvelope.draw(spec.to_json().encode(), who, data_set, **drawn), self.analyst)

    async def ask(self, signed: bytes, position: int, query: RowQuery, **changes: Any) -> pb.FromProvider:
        announced = wire.announce(query)
        extent = announced.extent
        fields = {
            "signed_job": signed,
            "position": position,
            "kind": announced.kind,
            "dimension": extent.dimension,
            "columns": extent.columns,
            "nonzero_rows": extent.nonzero_rows,
            "centred": announced.centred,
        } | changes
        await self.puppet.outbound.put(pb.ToProvider(ask=pb.Ask(**fields)))
        for sequence, frame in enumerate(wire.frames(wire.content(query))):
            await self.puppet.outbound.put(pb.ToProvider(frame=pb.Frame(sequence=sequence, content=bytes(frame))))
        return await self.reply()

    async def show(self, receipt: pb.Receipt) -> None:
        """Welcome the daemon again, with a receipt."""
        welcome = self.puppet.welcome(self.puppet.challenge)
        welcome.receipt.CopyFrom(receipt)
        await self.puppet.outbound.put(pb.ToProvider(welcome=welcome))

    async def reply(self) -> pb.FromProvider:
        return await asyncio.wait_for(self.puppet.inbound.get(), 20)


def current(authority: Authority) -> RevocationList:
    return RevocationList.read(authority.revocation_list(), authority.certificate_pem)


def play(
    tmp_path: Path,
    scene: Callable[[Stage], Awaitable[None]],
    unproved: str | None = None,
    ledger: SqliteLedger | None = None,
) -> None:
    authority = Authority.init(tmp_path / "authority", "town", now)

    def identity(role: Role, name: str) -> Identity:
        request = identities.request(tmp_path / name, PartyName("town", role, name))
        return identities.install(tmp_path / name, authority.sign(request), authority.certificate_pem)

    async def perform() -> None:
        hub = identity(Role.COORDINATOR, "hub")
        puppet = Puppet(hub)
        stage = Stage(puppet, identity(Role.ANALYST, "ada"), authority, identity, current(authority))
        stage.ledger = ledger or stage.ledger
        if unproved:
            puppet.welcome = UNPROVED[unproved](stage)
        server = rpc.server()
        pb_grpc.add_ProviderServiceServicer_to_server(puppet, server)
        port = server.add_secure_port("127.0.0.1:0", rpc.server_credentials(lambda: hub))
        await server.start()
        home = stage.home = identity(Role.PROVIDER, "north")
        rows = {"cohort": check_rows(np.random.default_rng(2).standard_normal((50, DIMENSION)))}
        daemon = Daemon(
            Settings(f"127.0.0.1:{port}", lambda: home, lambda: stage.revoked, now, rows, AnythingGoes, stage.ledger)
        )
        task = asyncio.create_task(daemon.run())
        try:
            assert (await stage.reply()).hello.data_sets[0].name == "cohort"
            await scene(stage)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop(0)

    asyncio.run(perform())


def test_an_honest_question_is_answered_and_asked_again_gives_the_same_bytes(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        signed = stage.job()
        answers = {
            (await stage.ask(signed.to_bytes(), 0, DENSE)).answer.content for _ in range(50)
        }  # T05: one answer, however often it is asked for
        assert len(answers) == 1
        assert len(answers.pop()) == DIMENSION * 2 * 8
        standing = stage.ledger.standing(signed.job_id)
        assert standing is not None
        assert standing.reached == 1

    play(tmp_path, scene)


def test_t06_t08_t09_other_content_more_rounds_and_another_order_are_refused(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        signed = stage.job()
        carried = signed.to_bytes()
        assert (await stage.ask(carried, 1, SPARSE)).refusal.code == "refused"
        assert stage.ledger.standing(signed.job_id) is None
        assert (await stage.ask(carried, 0, DENSE)).answer.content
        paid = stage.ledger.standing(signed.job_id)
        for position, query in (
            (0, CovarianceProduct(-DENSE.basis)),
            (2, SPARSE),
            (3, SPARSE),
            (2**31, SPARSE),
            (1, DENSE),
            (1, Count()),
        ):
            assert (await stage.ask(carried, position, query)).HasField("refusal")
        assert stage.ledger.standing(signed.job_id) == paid
        for position in (1, 2):
            assert (await stage.ask(carried, position, SPARSE)).answer.content
        assert (await stage.ask(carried, 3, SPARSE)).HasField("refusal")

    play(tmp_path, scene)


def test_t07_t10_a_job_changed_invented_late_or_meant_for_another_is_refused(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        true = stage.job()
        looser = replace(true, payload=true.payload.replace(b'"epsilon":1.0', b'"epsilon":9.0'))
        assert looser.payload != true.payload
        longer = replace(true, payload=true.payload.replace(b'"rounds":3', b'"rounds":9'))
        unsigned = replace(true, signature=bytes(len(true.signature)))
        old = stage.job(now=now() - timedelta(hours=2))
        early = stage.job(now=now() + timedelta(hours=2))
        elsewhere = stage.job(audience="south")
        unknown = stage.job(data_set="other")
        wider = stage.job(replace(SPEC, schema=Schema(DIMENSION + 1)))
        for job in (looser, longer, unsigned, old, early, elsewhere, unknown):
            assert (await stage.ask(job.to_bytes(), 0, DENSE)).HasField("refusal"), job
            assert stage.ledger.standing(job.job_id) is None
        larger = CovarianceProduct(np.eye(DIMENSION + 1)[:, :2])
        assert (await stage.ask(wider.to_bytes(), 0, larger)).HasField("refusal")
        for nonsense in (b"", b"nonsense", true.to_bytes()[:-1], true.to_bytes() + b"\0"):
            assert (await stage.ask(nonsense, 0, DENSE)).HasField("refusal")

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "changes",
    [
        {"nonzero_rows": 2**32 - 1},
        {"columns": 2**32 - 1},
        {"dimension": 2**32 - 1},
        {"centred": True},
        {"kind": "covariance"},
        {"kind": "everything"},
    ],
)
def test_t35_an_announcement_beyond_the_plan_is_refused_before_its_frames(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async def scene(stage: Stage) -> None:
        signed = stage.job()
        reply = await stage.ask(signed.to_bytes(), 0, DENSE, **changes)
        assert reply.HasField("refusal")
        assert stage.ledger.standing(signed.job_id) is None
        assert (await stage.ask(signed.to_bytes(), 0, DENSE)).answer.content

    play(tmp_path, scene)


def test_t01_t03_a_basis_that_is_none_is_refused_and_the_daemon_lives_on(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        signed = stage.job().to_bytes()
        whole = bytes(wire.content(DENSE))
        scaled = bytearray(whole)
        scaled[48:] = (np.frombuffer(whole[48:], "<f8") * 1000).tobytes()
        poisoned = bytearray(whole)
        poisoned[48:56] = np.float64(np.nan).tobytes()
        for content in (bytes(scaled), bytes(poisoned), bytes(len(whole)), whole[:-8], whole + bytes(8)):
            ask = pb.Ask(signed_job=signed, kind=DENSE.kind, dimension=DIMENSION, columns=2, nonzero_rows=DIMENSION)
            await stage.puppet.outbound.put(pb.ToProvider(ask=ask))
            await stage.puppet.outbound.put(pb.ToProvider(frame=pb.Frame(content=content)))
            assert (await stage.reply()).refusal.code == "invalid-query"
        await stage.puppet.outbound.put(pb.ToProvider(frame=pb.Frame(content=whole)))  # of no question
        assert (await stage.ask(signed, 0, DENSE)).answer.content

    play(tmp_path, scene)


SHORTEST_SILENCE = 3.0
"""Seconds: three heartbeats, of which the puppet's welcome promises one every 0 seconds, and a daemon counts 1."""


def test_a_coordinator_that_falls_silent_is_dialled_again(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        begun = asyncio.get_running_loop().time()
        assert (await stage.reply()).HasField("hello")
        assert asyncio.get_running_loop().time() - begun > SHORTEST_SILENCE - 0.5  # it began with the welcome
        assert (await stage.ask(stage.job().to_bytes(), 0, DENSE)).answer.content

    play(tmp_path, scene)


def test_a_coordinator_that_gives_a_sign_of_life_now_and_then_is_not_left(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(4):
            await asyncio.sleep(SHORTEST_SILENCE / 3)
            await stage.puppet.outbound.put(pb.ToProvider(heartbeat=pb.Heartbeat()))
            assert (await stage.reply()).HasField("heartbeat")

    play(tmp_path, scene)


def shown(certificate: bytes, proof: bytes) -> pb.Welcome:
    return pb.Welcome(certificate=certificate, proof=proof)


def as_another(stage: Stage) -> Identity:
    """Take the identity of another party, made the first time it is asked for."""
    if stage.another is None:
        stage.another = stage.identity(Role.PROVIDER, "east")
    return stage.another


EAST = PartyName("town", Role.PROVIDER, "east")

UNPROVED: dict[str, Callable[[Stage], Callable[[bytes], pb.Welcome]]] = {
    "nothing": lambda _: lambda _: pb.Welcome(),
    "no proof": lambda stage: lambda _: shown(stage.puppet.hub.certificate_pem, b""),
    "a provider's certificate": lambda stage: (
        lambda challenge: shown((east := as_another(stage)).certificate_pem, prove(east, challenge, NORTH))
    ),
    "another's key": lambda stage: (
        lambda challenge: shown(stage.puppet.hub.certificate_pem, prove(as_another(stage), challenge, NORTH))
    ),
    "a proof for another provider": lambda stage: (
        lambda challenge: shown(stage.puppet.hub.certificate_pem, prove(stage.puppet.hub, challenge, EAST))
    ),
    "a proof of another challenge": lambda stage: (
        lambda challenge: shown(stage.puppet.hub.certificate_pem, prove(stage.puppet.hub, bytes(len(challenge)), NORTH))
    ),
}


@pytest.mark.parametrize("way", UNPROVED)
def test_t33_who_does_not_prove_to_be_a_coordinator_is_not_listened_to(tmp_path: Path, way: str) -> None:
    async def scene(stage: Stage) -> None:
        signed = stage.job()
        assert (await stage.ask(signed.to_bytes(), 0, DENSE)).HasField("hello")  # it hung up, and dialled again
        assert stage.ledger.standing(signed.job_id) is None

    play(tmp_path, scene, way)


def test_t33_a_coordinator_that_is_revoked_meanwhile_is_asked_nothing_more_of(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        signed = stage.job()
        assert (await stage.ask(signed.to_bytes(), 0, DENSE)).HasField("answer")
        stage.authority.revoke(stage.puppet.hub.name)
        stage.revoked = current(stage.authority)
        assert (await stage.ask(signed.to_bytes(), 1, SPARSE)).HasField("hello")
        standing = stage.ledger.standing(signed.job_id)
        assert standing is not None
        assert standing.reached == 1

    play(tmp_path, scene)


FAR = Head("5" * 32, 10**6, "ab" * 32)
"""Of a ledger that the provider never had."""


def strangers(stage: Stage, folder: Path) -> list[pb.Receipt]:
    """Receipts that would stop the provider, if it took them for its own."""
    elsewhere = Authority.init(folder / "elsewhere", "town", now)
    request = identities.request(folder / "north elsewhere", NORTH)
    other = identities.install(folder / "north elsewhere", elsewhere.sign(request), elsewhere.certificate_pem)
    true = issue(stage.home, Head(FAR.ledger, 1, FAR.hash))
    raised = pb.Receipt(**{each.name: getattr(true, each.name) for each in true.DESCRIPTOR.fields})
    raised.entries = FAR.entries
    east = issue(as_another(stage), FAR)
    return [
        pb.Receipt(),
        pb.Receipt(ledger="x" * 10**6, certificate=b"\xff" * 100, signature=b"\0" * 100, entries=2**64 - 1),
        east,
        pb.Receipt(ledger=FAR.ledger, entries=1, certificate=stage.home.certificate_pem, signature=east.signature),
        issue(other, FAR),
        issue(stage.puppet.hub, FAR),
        raised,
    ]


def test_t12_a_coordinator_cannot_stop_a_provider_with_what_it_has_not_signed(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "kept" / "ledger", tmp_path / "second" / "head") as ledger:

        async def scene(stage: Stage) -> None:
            signed = stage.job().to_bytes()
            answers = set()
            for receipt in strangers(stage, tmp_path):
                await stage.show(receipt)
                answers.add((await stage.ask(signed, 0, DENSE)).answer.content)
            assert len(answers) == 1
            assert answers.pop()
            assert ledger.quarantine is None

        play(tmp_path, scene, ledger=ledger)


def test_t12_an_answer_comes_with_a_receipt_that_stops_whoever_lacks_what_it_says(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "kept" / "ledger", tmp_path / "second" / "head") as ledger:

        async def scene(stage: Stage) -> None:
            signed = stage.job().to_bytes()
            receipt = (await stage.ask(signed, 0, DENSE)).answer.receipt
            assert Head(receipt.ledger, receipt.entries, receipt.hash) == ledger.head()
            for _ in range(3):
                await stage.show(receipt)
                assert (await stage.ask(signed, 1, SPARSE)).HasField("answer")
            await stage.show(issue(stage.home, FAR))
            for position, query in ((0, DENSE), (1, SPARSE), (2, SPARSE)):
                assert (await stage.ask(signed, position, query)).refusal.code == "quarantined"
            assert (await stage.ask(stage.job().to_bytes(), 0, DENSE)).refusal.code == "quarantined"

        play(tmp_path, scene, ledger=ledger)


def test_a_ledger_that_is_gone_with_its_process_gives_no_receipts_and_minds_none(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.show(issue(stage.home, FAR))
        answer = (await stage.ask(stage.job().to_bytes(), 0, DENSE)).answer
        assert answer.content
        assert not answer.HasField("receipt")

    play(tmp_path, scene)
