"""Coordinators in processes that tests kill. The other parties run in the test's process."""

import asyncio
import json
import math
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from local_federation import NOISE_SEED, SHARDS, Enrolment, RunningFederation, seeded_noise, spec
from numpy.typing import NDArray
from timeouts import TIMEOUT

from dpspca.client.connection import FederationError
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.client.simulation import simulate
from dpspca.common.arrays import Integers
from dpspca.common.job import JobSpec
from dpspca.common.names import Role
from dpspca.common.privacy.keystream import Draw, Entropy, WordSource
from dpspca.common.results import Model
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope, SignedJob
from dpspca.provider.ledger.ledger import MemoryLedger

CRASHING_PROGRAM = """
import os, sys
from dpspca.cli import main
from dpspca.cli.commands import daemons
from dpspca.server.journal.sqlite import SqliteJournal

written, fatal, moment = 0, int(sys.argv.pop(1)), sys.argv.pop(1)

class Mortal(SqliteJournal):
    def _run(self, statement, *values):
        global written
        if statement != "COMMIT" or not hasattr(self, "_opened"):  # the file is being made
            return super()._run(statement, *values)
        written += 1
        if (written, moment) == (fatal, "before"):
            os._exit(9)
        done = super()._run(statement, *values)
        if (written, moment) == (fatal, "after"):
            os._exit(9)
        return done

daemons.SqliteJournal = Mortal
main.main()
"""
"""The program, which dies right before or after it commits its n-th write to the journal."""

SHORT_LEASE_PROGRAM = """
import sys
from functools import partial
from dpspca.cli import main
from dpspca.cli.commands import daemons
daemons.PostgresJournal = partial(daemons.PostgresJournal, lease_seconds=float(sys.argv.pop(1)))
main.main()
"""
"""The program, which loses its lease on the journal after the given seconds of silence."""

SMALL_FILES_PROGRAM = """
import resource, sys
from dpspca.cli import main
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
main.main()
"""
"""The program with a limit on the size of each file, in bytes, as on a full disk."""


class StableEnrolment(Enrolment):
    """An enrolment in which a party that comes back keeps its identity."""

    def identity(self, role: Role, name: str, days: int = 30) -> Identity:
        home = self.folder / f"{role}-{name}"
        return Identity.load(home) if home.exists() else super().identity(role, name, days)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class CoordinatorProcess:
    """A coordinator in a separate process, always at the same address."""

    enrolment: Enrolment
    name: str = "hub"
    journal: str = "journal.db"
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = self.enrolment.folder / f"{self.name}.toml"
        hub_identity(self.enrolment)
        (self.enrolment.folder / "revoked.pem").write_bytes(self.enrolment.authority.revocation_list())
        told = {
            "listen": self.address,
            "identity": "coordinator-hub",
            "revocations": "revoked.pem",
            "journal": self.journal,
        }
        self.settings.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items()))

    @property
    def file(self) -> Path:
        return self.enrolment.folder / self.journal

    async def start(self, program: str = "from dpspca.cli import main\nmain.main()", *words: object) -> None:
        """Start the program, and wait until it listens."""
        self.log.clear()
        command = (sys.executable, "-c", program, *map(str, words), "coordinator", "start", "--config", self.settings)
        self.process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        self._reading = asyncio.create_task(self._read())
        await self.says("listening on")

    async def says(self, words: str) -> None:
        """Wait until the log contains these words since the last start."""
        async with asyncio.timeout(TIMEOUT):
            while not any(words in line for line in self.log):
                assert not self._reading.done(), self.log
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        """Wait until the process ends, and return its exit code."""
        async with asyncio.timeout(TIMEOUT):
            code = await self.process.wait()
        await self._reading
        return code

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def stop(self, grace: float = 0) -> None:
        """Kill the process, whatever its state."""
        await self.kill()

    async def _read(self) -> None:
        assert self.process.stderr
        async for line in self.process.stderr:
            self.log.append(line.decode())


class WordCount:
    """Number of random words that one set of providers drew for noise."""

    def __init__(self) -> None:
        self.drawn = 0


class CountedNoise:
    """Seeded noise that counts every random word drawn.

    Each set of providers has its own count, because a thread of earlier providers may still draw after they are gone.
    """

    tally = WordCount()

    def __init__(self, entropy: Entropy, tally: WordCount, stream: WordSource | None = None) -> None:
        self._entropy = entropy
        self._tally = tally
        self._stream = stream

    def __call__(self, draw: Draw) -> "CountedNoise":
        return CountedNoise(self._entropy, self._tally, self._entropy(draw))

    def words(self, count: int) -> NDArray[np.uint32]:
        assert self._stream
        self._tally.drawn += count
        return self._stream.words(count)


class Barrier:
    """Holds back the answers to query ``number`` and later ones until it is moved or lifted.

    It keeps a job from finishing before the test has done its part. Without a number it holds back nothing.
    """

    def __init__(self, number: int | None = None) -> None:
        self._number = math.inf if number is None else number
        self._within = 0
        self._changed = threading.Condition()

    @contextmanager
    def passing(self, number: int) -> Iterator[None]:
        """Wait until the answer may pass. It has passed at the end of the block."""
        with self._changed:
            self._within += 1
            assert self._changed.wait_for(lambda: number < self._number, 10 * TIMEOUT)
        try:
            yield
        finally:
            with self._changed:
                self._within -= 1

    def open(self, number: float = math.inf) -> None:
        """Let the answers to queries before ``number`` pass."""
        with self._changed:
            self._number = number
            self._changed.notify_all()

    async def lift(self) -> None:
        """Let all answers pass, and wait until those that were held back have passed."""
        await self.move(math.inf)

    async def move(self, number: float) -> None:
        """Hold back answers from another query on. That query must not have been sent to anybody yet."""
        self.open(number)
        async with asyncio.timeout(TIMEOUT):
            while self._within:  # noqa: ASYNC110  # the threads tell nobody
                await asyncio.sleep(0.02)


class SlowLedger(MemoryLedger):
    """A ledger that delays every answer, or waits at a barrier, so that a test finds a job that is not finished.

    A delay alone does not guarantee that. Use a barrier if the job must be unfinished.
    """

    def __init__(self, seconds: float, barrier: Barrier | None = None) -> None:
        super().__init__()
        self._seconds = seconds
        self._barrier = barrier or Barrier()

    def store(self, job: str, position: int, answer: Integers) -> None:
        time.sleep(self._seconds)
        with self._barrier.passing(position + 1):
            super().store(job, position, answer)


@asynccontextmanager
async def with_providers(
    enrolment: Enrolment,
    hub: Any,
    seconds: float = 0.0,
    names: Mapping[str, Any] = SHARDS,
    barrier: Barrier | None = None,
) -> AsyncIterator[RunningFederation]:
    """Run providers with slow answers and an analyst in this process, with a coordinator that is running."""
    tally = CountedNoise.tally = WordCount()
    async with AsyncFederation(hub.address, ada(enrolment)) as analyst:
        running = RunningFederation(
            enrolment,
            hub,
            analyst,
            [enrolment.revocations()],
            SHARDS,
            lambda number: CountedNoise(seeded_noise(number), tally),
        )
        try:
            for name in names:
                await running.start(name, ledger=SlowLedger(seconds, barrier))
            yield running
        finally:
            if barrier:
                barrier.open()
            await running.stop()


def signed(enrolment: Enrolment, **changes: Any) -> SignedJob:
    """Sign the usual job as ada, with an answer timeout that is long enough for every party to restart."""
    return enrolment.job(spec(**{"answer_seconds": TIMEOUT} | changes), ada(enrolment), list(SHARDS))


def ada(enrolment: Enrolment) -> Identity:
    """Return the analyst's identity."""
    return enrolment.identity(Role.ANALYST, "ada")


def hub_identity(enrolment: Enrolment) -> Identity:
    """Return the coordinator's identity: the same one for all coordinators."""
    return enrolment.identity(Role.COORDINATOR, "hub")


Found = TypeVar("Found")


async def retry_while_away(work: Callable[[], Awaitable[Found]]) -> Found:
    """Retry while the coordinator cannot be reached."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await work()
            except FederationError as problem:
                if "UNAVAILABLE" not in str(problem):
                    raise
            await asyncio.sleep(0.1)


async def submit(running: RunningFederation, job: SignedJob) -> AsyncJob:
    asked = JobSpec.from_json(JobEnvelope.from_bytes(job.payload).spec)
    return await retry_while_away(lambda: running.analyst.submit_signed(job, asked))


async def wait_for_answers(job: AsyncJob, least: int) -> None:
    """Wait until at least ``least`` queries are answered."""
    async for state in job.watch():
        if state.answered >= least:
            return


def assert_same_as_undisturbed(model: Model) -> None:
    """Check that a model equals the one of a run without any disturbance."""
    inside = simulate(list(SHARDS.values()), spec(), noise_seed=NOISE_SEED)
    assert model.components.tobytes() == inside.components.tobytes()
    assert model.explained_variance is not None
    assert inside.explained_variance is not None
    assert model.explained_variance.tobytes() == inside.explained_variance.tobytes()
    assert model.weights is not None
    assert inside.weights is not None
    assert model.weights.tobytes() == inside.weights.tobytes()
    assert model.statement.parties == len(SHARDS)


class Forwarder:
    """A fixed address that forwards connections to the current target."""

    def __init__(self) -> None:
        self.target = ""
        self.address = ""
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def redirect(self, target: str) -> None:
        """Forward new connections to ``target``, and close the open ones."""
        self.target = target
        for writer in self._open:
            writer.close()

    async def stop(self, grace: float = 0) -> None:
        self._server.close()
        self.redirect("")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host, port = self.target.split(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        self._open |= {writer, far_writer}
        await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        self._open -= {writer, far_writer}


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while content := await reader.read(2**16):
            writer.write(content)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def random_times(seed: int, count: int, longest: float) -> list[float]:
    """Draw random moments for events; they are the same in every test run."""
    drawn = random.Random(seed)
    return [drawn.uniform(0, longest) for _ in range(count)]
