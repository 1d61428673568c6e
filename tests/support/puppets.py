"""Peers that no honest program would be: providers whose every message a test chooses, certificates nobody would sign.

A puppet speaks over the same mutual TLS as a daemon, with no limit of its own on what it sends.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from town import SHARDS, AnythingGoes, Town, now, spec

from dpspca.client.federation import AsyncFederation
from dpspca.common.model import Model
from dpspca.common.spec import JobSpec
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import COORDINATOR_HOST, Role
from dpspca.common.transport.proof import new_challenge
from dpspca.common.transport.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.provider.daemon import Daemon
from dpspca.provider.docket import Settings
from dpspca.provider.preparation import check_rows

OFFER = pb.DataSet(name="cohort", dimension=30)

_OPTIONS = [
    ("grpc.ssl_target_name_override", COORDINATOR_HOST),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each channel
    ("grpc.max_send_message_length", -1),
]


def line(address: str, identity: Identity) -> grpc.aio.Channel:
    """Connect as anybody, with no limits of our own."""
    credentials = grpc.ssl_channel_credentials(identity.authority_pem, identity.key_pem, identity.certificate_pem)
    return grpc.aio.secure_channel(address, credentials, _OPTIONS)


class Puppet:
    """One stream to the coordinator, as a provider that says whatever a test wants said."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call = pb_grpc.ProviderServiceStub(channel).Connect()

    async def say(self, **message: Any) -> None:
        await self.call.write(pb.FromProvider(**message))

    async def greet(self, *data_sets: pb.DataSet) -> None:
        """Greet as a daemon does, and wait until we are welcome and on the roster."""
        await self.say(hello=pb.Hello(data_sets=data_sets or (OFFER,), challenge=new_challenge()))
        assert (await self.call.read()).HasField("welcome")

    async def question(self) -> pb.Ask:
        """Wait for the next question; its content does not matter to a liar."""
        while True:
            message = await self.call.read()
            if message.HasField("ask"):
                return message.ask

    async def answer(self, ask: pb.Ask, *frames: tuple[int, bytes], **changes: Any) -> None:
        """Answer a question with these numbered frames."""
        for sequence, content in frames:
            fields = {"job": SignedJob.from_bytes(ask.signed_job).job_id, "position": ask.position} | changes
            await self.say(answer=pb.AnswerFrame(sequence=sequence, content=content, **fields))

    async def refuse(self, ask: pb.Ask, what: str) -> None:
        job = SignedJob.from_bytes(ask.signed_job).job_id
        await self.say(refusal=pb.Refusal(job=job, position=ask.position, what=what))

    async def ending(self) -> tuple[grpc.StatusCode, str]:
        """Hear everything out, and say how the stream ended."""
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        return await self.call.code(), await self.call.details()


@asynccontextmanager
async def puppet(address: str, identity: Identity) -> AsyncIterator[Puppet]:
    """Connect a puppet; it has not greeted yet."""
    async with line(address, identity) as channel:
        yield Puppet(channel)


def reissued(
    town: Town, identity: Identity, further: Sequence[str] = (), since: datetime | None = None, days: int = 1
) -> Identity:
    """Have the true authority sign what it never would: the same certificate for further names, or at another time."""
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
    signed = builder.sign(town.authority._issuer.key, SHA256()).public_bytes(Encoding.PEM)
    return replace(identity, certificate_pem=signed)


@dataclass(frozen=True)
class Siege:
    """A coordinator in a process of its own, whose memory can be read, with honest providers and an honest analyst."""

    address: str
    process: int
    analyst: AsyncFederation
    providers: Sequence[str]

    async def fit(self, what: JobSpec | None = None) -> Model:
        """Run an honest job."""
        return await self.analyst.fit(what or spec(), "cohort", self.providers)

    def most_memory(self) -> int:
        """Give the most memory that the coordinator has had so far, in bytes."""
        told = Path(f"/proc/{self.process}/status").read_text(encoding="ascii")
        return 1024 * int(next(row for row in told.splitlines() if row.startswith("VmHWM")).split()[1])


@asynccontextmanager
async def besieged(town: Town, shards: Mapping[str, Any] = SHARDS, **limits: int) -> AsyncIterator[Siege]:
    """Run a coordinator as an operator does, and everybody honest beside it."""
    async with coordinator_process(town, limits) as (address, process), AsyncExitStack() as open_things:
        analyst = AsyncFederation(address, town.identity(Role.ANALYST, "ada"))
        await open_things.enter_async_context(analyst)
        for name, rows in shards.items():
            home, revoked = town.identity(Role.PROVIDER, name), town.revocations()
            daemon = Daemon(
                Settings(
                    address, lambda h=home: h, lambda r=revoked: r, now, {"cohort": check_rows(rows)}, AnythingGoes
                )
            )
            task = asyncio.create_task(daemon.run())
            open_things.push_async_callback(ended, task)
            await asyncio.wait_for(daemon.connected.wait(), 10)
        yield Siege(address, process, analyst, list(shards))


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


WITHIN = """
import json, sys
from functools import partial
from dpspca.cli import daemons, main
daemons.Coordinator = partial(daemons.Coordinator, **json.loads(sys.argv.pop(1)))
main.main()
"""
"""The program, with a coordinator within limits that its settings do not name."""


@asynccontextmanager
async def coordinator_process(town: Town, limits: Mapping[str, int]) -> AsyncIterator[tuple[str, int]]:
    """Start the program; give its address and number."""
    town.identity(Role.COORDINATOR, "hub")
    (town.folder / "revoked.pem").write_bytes(town.authority.revocation_list())
    settings = town.folder / "hub.toml"
    settings.write_text('listen = "127.0.0.1:0"\nidentity = "coordinator-hub"\nrevocations = "revoked.pem"\n')
    command = (sys.executable, "-c", WITHIN, json.dumps(limits), "coordinator", "start", "--config", settings)
    frugal = os.environ | {"MALLOC_ARENA_MAX": "2"}  # else glibc keeps what each of gRPC's threads has freed
    process = await asyncio.create_subprocess_exec(
        *command, cwd=town.folder, env=frugal, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr
    address = (await process.stderr.readline()).decode().split()[-1]
    rest = asyncio.create_task(process.stderr.read())  # or it would stand still when the pipe is full
    try:
        yield address, process.pid
    finally:
        process.terminate()
        await rest
        assert await process.wait() == 0
