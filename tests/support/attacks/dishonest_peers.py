"""Dishonest peers: providers and coordinators whose every message a test chooses, and certificates that no authority
would sign.

They use the same mutual TLS as daemons. Nothing limits what they send.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from coordinator_processes import StableEnrolment
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from local_federation import SHARDS, AllowEverything, Enrolment, now, server_credentials, spec
from numpy.typing import NDArray
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.results import Model
from dpspca.common.transport import rpc, wire
from dpspca.common.trust.connection_proof import new_challenge, sign_challenge
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.ledger import Ledger, MemoryLedger

OFFER = pb.DataSet(name="cohort", dimension=30)

_OPTIONS = [
    ("grpc.ssl_target_name_override", COORDINATOR_HOST),
    ("grpc.use_local_subchannel_pool", 1),  # a separate connection for each channel
    ("grpc.max_send_message_length", -1),
]


def open_channel(address: str, identity: Identity) -> grpc.aio.Channel:
    """Open a channel with any identity, and without limits on what is sent."""
    credentials = grpc.ssl_channel_credentials(identity.authority_pem, identity.key_pem, identity.certificate_pem)
    return grpc.aio.secure_channel(address, credentials, _OPTIONS)


class DishonestProvider:
    """A provider's stream to the coordinator, with messages chosen by the test."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call = pb_grpc.ProviderServiceStub(channel).Connect()

    async def say(self, **message: Any) -> None:
        await self.call.write(pb.FromProvider(**message))

    async def greet(self, *data_sets: pb.DataSet) -> None:
        """Greet as a daemon does, and wait for the welcome: then the provider is on the roster."""
        await self.say(hello=pb.Hello(data_sets=data_sets or (OFFER,), challenge=new_challenge()))
        assert (await self.call.read()).HasField("welcome")

    async def query(self) -> pb.Query:
        """Wait for the next query, and agree to take part in its job. The query's content is not read."""
        while not (message := await self.call.read()).HasField("query"):
            if message.HasField("admit"):
                await self._admit(message.admit)
        return message.query

    async def take_part(self) -> None:
        """Wait for the next job, and agree to take part in it."""
        await self._admit(await self.invitation())

    async def invitation(self) -> pb.Admit:
        """Wait until the coordinator asks to take part in a job."""
        while not (message := await self.call.read()).HasField("admit"):
            pass
        return message.admit

    async def _admit(self, admit: pb.Admit) -> None:
        await self.say(admitted=pb.Admitted(job=SignedJob.from_bytes(admit.signed_job).job_id))

    async def answer(self, ask: pb.Query, *frames: tuple[int, bytes], **changes: Any) -> None:
        """Answer a query with these numbered frames."""
        for sequence, content in frames:
            fields = {"job": SignedJob.from_bytes(ask.signed_job).job_id, "position": ask.position} | changes
            await self.say(answer=pb.AnswerFrame(sequence=sequence, content=content, **fields))

    async def refuse(self, ask: pb.Query, what: str, code: str = "") -> None:
        job = SignedJob.from_bytes(ask.signed_job).job_id
        await self.say(refusal=pb.Refusal(job=job, position=ask.position, what=what, code=code))

    async def ending(self) -> tuple[grpc.StatusCode, str]:
        """Read all messages, and return how the stream ended."""
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        return await self.call.code(), await self.call.details()


@asynccontextmanager
async def dishonest_provider(address: str, identity: Identity) -> AsyncIterator[DishonestProvider]:
    """Connect a provider that has not sent its greeting yet."""
    async with open_channel(address, identity) as channel:
        yield DishonestProvider(channel)


def reissued(
    enrolment: Enrolment, identity: Identity, further: Sequence[str] = (), since: datetime | None = None, days: int = 1
) -> Identity:
    """Return an identity whose certificate has further names or other dates, as the authority would never sign it."""
    honest = x509.load_pem_x509_certificate(identity.certificate_pem)
    start = since or now() - timedelta(minutes=1)
    names = honest.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    every = [*names.value, *map(x509.UniformResourceIdentifier, further)]
    longer = x509.Extension(names.oid, names.critical, x509.SubjectAlternativeName(every))
    builder = x509.CertificateBuilder(
        honest.issuer,
        honest.subject,
        honest.public_key(),
        x509.random_serial_number(),
        start,
        start + timedelta(days=days),
        [longer if each.oid == names.oid else each for each in honest.extensions],
    )
    signed = builder.sign(enrolment.authority._issuer.key, SHA256()).public_bytes(Encoding.PEM)
    return replace(identity, certificate_pem=signed)


@dataclass(frozen=True)
class MeasuredCoordinator:
    """A coordinator in a separate process, whose memory can be read, with honest providers and an honest analyst."""

    address: str
    process: int
    analyst: AsyncFederation
    providers: Sequence[str]

    async def fit(self, what: JobSpec | None = None) -> Model:
        """Run an honest job."""
        return await self.analyst.fit(what or spec(), "cohort", self.providers)

    def most_memory(self) -> int:
        """Return the coordinator's peak memory so far, in bytes."""
        return self._bytes("VmHWM")

    def memory(self) -> int:
        """Return the coordinator's memory now, in bytes."""
        return self._bytes("VmRSS")

    def _bytes(self, what: str) -> int:
        told = Path(f"/proc/{self.process}/status").read_text(encoding="ascii")
        return 1024 * int(next(row for row in told.splitlines() if row.startswith(what)).split()[1])


@asynccontextmanager
async def measured_coordinator(
    enrolment: Enrolment, shards: Mapping[str, Any] = SHARDS, **limits: int
) -> AsyncIterator[MeasuredCoordinator]:
    """Run a coordinator as an operator does, with honest providers and an honest analyst."""
    async with coordinator_process(enrolment, limits) as (address, process), AsyncExitStack() as open_things:
        analyst = AsyncFederation(address, enrolment.identity(Role.ANALYST, "ada"))
        await open_things.enter_async_context(analyst)
        for name, rows in shards.items():
            home, revoked = enrolment.identity(Role.PROVIDER, name), enrolment.revocations()
            daemon = Daemon(
                ProviderSetup(
                    address, lambda h=home: h, lambda r=revoked: r, now, {"cohort": check_rows(rows)}, AllowEverything
                )
            )
            task = asyncio.create_task(daemon.run())
            open_things.push_async_callback(ended, task)
            await asyncio.wait_for(daemon.connected.wait(), TIMEOUT)
        yield MeasuredCoordinator(address, process, analyst, list(shards))


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


LIMITED_PROGRAM = """
import json, sys
from functools import partial
from dpspca.cli import main
from dpspca.cli.commands import daemons
daemons.Coordinator = partial(daemons.Coordinator, **json.loads(sys.argv.pop(1)))
main.main()
"""
"""The program, with limits of the coordinator that its settings cannot express."""


DESCRIPTORS = 512
"""How many a coordinator may have open when it starts. It raises this itself."""


@asynccontextmanager
async def coordinator_process(enrolment: Enrolment, limits: Mapping[str, int]) -> AsyncIterator[tuple[str, int]]:
    """Start the program, and yield its address and process id."""
    enrolment.identity(Role.COORDINATOR, "hub")
    (enrolment.folder / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
    settings = enrolment.folder / "hub.toml"
    settings.write_text('listen = "127.0.0.1:0"\nidentity = "coordinator-hub"\nrevocations = "revoked.pem"\n')
    program = (sys.executable, "-c", LIMITED_PROGRAM, json.dumps(limits), "coordinator", "start", "--config", settings)
    command = ("sh", "-c", f'ulimit -Sn {DESCRIPTORS}; exec "$0" "$@"', *program)
    frugal = os.environ | {"MALLOC_ARENA_MAX": "2"}  # else glibc keeps what each of gRPC's threads has freed
    process = await asyncio.create_subprocess_exec(
        *command, cwd=enrolment.folder, env=frugal, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr
    address = (await process.stderr.readline()).decode().split()[-1]
    rest = asyncio.create_task(process.stderr.read())  # or the process would block when the pipe is full
    try:
        yield address, process.pid
    finally:
        process.terminate()
        await rest
        assert await process.wait() == 0


# --- A coordinator ----------------------------------------------------------------------------------------------------

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
    method="dps-pca",
)
"""A job of three queries: the first basis may be dense, the other two are sparse."""


def basis(seed: int, rows: int = DIMENSION) -> NDArray[np.float64]:
    """Return an orthonormal basis with zeros below its first ``rows`` rows."""
    made = np.zeros((DIMENSION, 2))
    made[:rows], _ = thin_qr(np.random.default_rng(seed).standard_normal((rows, 2)))
    return made


DENSE, SPARSE = CovarianceProduct(basis(0)), CovarianceProduct(basis(1, 5))


def rows_of(count: int, seed: int = 2) -> NDArray[np.float64]:
    """Return rows for a provider."""
    return np.random.default_rng(seed).standard_normal((count, DIMENSION))


class DishonestCoordinator(pb_grpc.ProviderServiceServicer):
    """A coordinator with one provider, and with messages chosen by the test."""

    def __init__(self, hub: Identity, provider: PartyName) -> None:
        self.hub = hub
        self.provider = provider
        self.welcome: Callable[[bytes], pb.Welcome] = self.honest_welcome
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
        return pb.Welcome(
            certificate=self.hub.certificate_pem, proof=sign_challenge(self.hub, challenge, self.provider)
        )


@dataclass
class Exchange:
    """A provider's daemon that is connected to a dishonest coordinator."""

    enrolment: Enrolment
    coordinator: DishonestCoordinator
    analyst: Identity
    revoked: RevocationList
    home: Identity
    ledger: Ledger

    def job(
        self, what: JobSpec = SPEC, audience: Sequence[str] = (), data_set: str = "cohort", **times: Any
    ) -> SignedJob:
        """Return a job signed by the analyst. Its audience is this provider alone, unless others are named."""
        return self.enrolment.job(what, self.analyst, audience or (self.home.name.name,), data_set, **times)

    async def admit(self, signed: bytes) -> pb.FromProvider:
        """Ask the daemon to take part in a job."""
        await self.say(admit=pb.Admit(signed_job=signed))
        return await self.reply()

    async def ask(self, signed: bytes, position: int, query: RowQuery, **changes: Any) -> pb.FromProvider:
        """Send a query. ``changes`` replaces fields of its announcement."""
        announced = query.announcement
        extent = announced.extent
        fields = {
            "position": position,
            "kind": announced.kind,
            "dimension": extent.dimension,
            "columns": extent.columns,
            "nonzero_rows": extent.nonzero_rows,
            "centred": announced.centred,
            "threshold": announced.threshold,
            "power": announced.power,
        } | changes
        return await self.ask_in_bytes(query.content(), signed_job=signed, **fields)

    async def ask_in_bytes(self, content: bytes | memoryview, **announced: Any) -> pb.FromProvider:
        """Send a query with arbitrary content."""
        await self.say(query=pb.Query(**announced))
        for sequence, frame in enumerate(wire.frames(content)):
            await self.say(frame=pb.Frame(sequence=sequence, content=bytes(frame)))
        return await self.reply()

    async def say(self, **message: Any) -> None:
        await self.coordinator.outbound.put(pb.ToProvider(**message))

    async def show(self, receipt: pb.Receipt) -> None:
        """Send the daemon another welcome, with a receipt."""
        welcome = self.coordinator.welcome(self.coordinator.challenge)
        welcome.receipt.CopyFrom(receipt)
        await self.say(welcome=welcome)

    async def reply(self) -> pb.FromProvider:
        return await asyncio.wait_for(self.coordinator.inbound.get(), TIMEOUT)


@asynccontextmanager
async def exchange_with_provider(
    enrolment: Enrolment,
    name: str,
    data_sets: Mapping[str, Any],
    ledger: Ledger | None = None,
    welcome: "Callable[[Exchange], Callable[[bytes], pb.Welcome]] | None" = None,
    setup: "Callable[[Exchange], Mapping[str, Any]] | None" = None,
) -> AsyncIterator[Exchange]:
    """Run a daemon with a dishonest coordinator. ``welcome`` replaces the honest welcome; the test sends the rest.

    ``setup`` replaces settings of the daemon.
    """
    hub, ada, home = (
        enrolment.identity(*who) for who in ((Role.COORDINATOR, "hub"), (Role.ANALYST, "ada"), (Role.PROVIDER, name))
    )
    coordinator = DishonestCoordinator(hub, home.name)
    exchange = Exchange(enrolment, coordinator, ada, enrolment.revocations(), home, ledger or MemoryLedger())
    if welcome:
        coordinator.welcome = welcome(exchange)
    server = rpc.server()
    pb_grpc.add_ProviderServiceServicer_to_server(coordinator, server)
    port = server.add_secure_port("127.0.0.1:0", server_credentials(hub))
    await server.start()
    rows = {data_set: check_rows(each) for data_set, each in data_sets.items()}
    settings = ProviderSetup(
        f"127.0.0.1:{port}", lambda: home, lambda: exchange.revoked, now, rows, AllowEverything, exchange.ledger
    )
    daemon = Daemon(replace(settings, **setup(exchange)) if setup else settings)
    task = asyncio.create_task(daemon.run())
    try:
        assert [each.name for each in (await exchange.reply()).hello.data_sets] == sorted(data_sets)
        yield exchange
    finally:
        await ended(task)
        await server.stop(0)


def run_exchange(
    tmp_path: Path, scenario: Callable[[Exchange], Awaitable[None]], rows: Any = None, **others: Any
) -> None:
    """Run a scenario with the daemon of the provider north. By default its rows have as many columns as ``SPEC``."""

    async def run() -> None:
        data_sets = {"cohort": rows_of(50) if rows is None else rows}
        async with exchange_with_provider(
            StableEnrolment.create(tmp_path), NORTH.name, data_sets, **others
        ) as exchange:
            await scenario(exchange)

    asyncio.run(run())
