"""A federation in a universe of its own: real parties, a network, clocks and disks that misbehave as a seed decides.

The parties are the real ones, down to the messages; only gRPC is replaced, by connections that delay what is sent, send
questions twice, break, or fall silent on one side. Providers die at any step of making an answer, and come back with
what their ledger holds. The same seed gives the same run.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count, takewhile
from random import Random
from typing import Any, Final

import numpy as np
from town import AnythingGoes, Town

from dpspca.common.errors import DpspcaError
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName, Role
from dpspca.common.transport.signing import SignedJob
from dpspca.common.transport.trust import RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.conversation import Conversation
from dpspca.provider.daemon import Daemon
from dpspca.provider.docket import Settings
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.preparation import check_rows
from dpspca.server.analysts import AnalystService
from dpspca.server.keeper import Keeper
from dpspca.server.roster import Roster
from dpspca.server.sqlite_journal import PassingJournal
from dpspca.server.streams import ProviderService

SITES: Final = ("north", "south", "east")
HEARTBEAT: Final = 5
DIMENSION: Final = 6
LEDGER_STEPS: Final = frozenset({"open", "reserve", "store", "close", "expire"})
JOURNAL_STEPS: Final = frozenset({"accept", "ask", "end"})
TICK: Final = 1e-6
"""Seconds between two messages at least: a connection keeps their order."""
LONGEST_ABSENCE: Final = 20.0
"""Seconds that a process is away after it died."""


class ConnectionBrokenError(DpspcaError):
    """A connection ended, as far as one side has noticed."""

    code = "connection-broken"


class Death(BaseException):
    """The end of a process: nothing handles it, nothing is tidied up."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How ill the universe is: chances, each of one message or one step."""

    loss: float = 0.0
    """That a connection breaks at a message, which is lost."""
    half_open: float = 0.0
    """That one side does not notice a break."""
    twice: float = 0.0
    """That a question is delivered twice."""
    death: float = 0.0
    """That a provider dies before or after a step of making an answer."""
    slowest: float = 1.0
    """Seconds that a message may take."""
    skew: float = 0.0
    """Seconds by which a clock may be wrong."""


class Life:
    """A process: alive until it is struck, and from then on unable to do anything that lasts."""

    def __init__(self, universe: "Universe") -> None:
        self._universe = universe
        self._over = asyncio.Event()

    def step(self) -> None:
        """Do one thing that lasts, or die."""
        if not self._over.is_set() and self._universe.happens(self._universe.weather.death):
            self._universe.deaths += 1
            self._over.set()
        if self._over.is_set():
            raise Death

    async def of(self, work: Coroutine[Any, Any, None]) -> None:
        """Work until death."""
        working, dying = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not self._over.is_set():
                working.result()
        finally:
            self._over.set()
            await _ended(working, dying)


class Mortal:
    """What outlives a process, as that process uses it: it may die before any step, or after it and before it knows."""

    def __init__(self, lasting: Any, steps: frozenset[str], life: Life) -> None:
        self._lasting = lasting
        self._steps = steps
        self._strike = life.step

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._lasting, name)
        if name not in self._steps:
            return step

        def mortal(*args: Any) -> Any:
            self._strike()
            result = step(*args)
            self._strike()
            return result

        return mortal


class Direction:
    """One way of a connection: messages arrive in their order, late."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0.0

    def send(self, message: Any) -> None:
        universe = self._connection.universe
        if self._connection.broken:
            return
        if universe.happens(universe.weather.loss):
            self._connection.break_()
            return
        loop = asyncio.get_running_loop()
        self._last = max(self._last + TICK, loop.time() + universe.chance.uniform(0, universe.weather.slowest))
        again = message.WhichOneof("message") == "ask" and universe.happens(universe.weather.twice)
        for _ in range(1 + again):
            loop.call_at(self._last, self._arrive, message)

    def end(self) -> None:
        self._arrived.put_nowait(None)

    def _arrive(self, message: Any) -> None:
        self._connection.universe.note(self._connection.name, message)
        self._arrived.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._arrived.get()) is not None:
            yield message
        raise ConnectionBrokenError("The connection broke.", "Dial again.")


class Connection:
    """A provider's connection to the coordinator."""

    def __init__(self, universe: "Universe", name: PartyName) -> None:
        self.universe = universe
        self.name = name
        self.broken = False
        self.inward, self.outward = Direction(self), Direction(self)

    def break_(self) -> None:
        """Break; each side notices after a while, or not at all."""
        self.broken = True
        loop = asyncio.get_running_loop()
        for side in (self.inward, self.outward):
            if not self.universe.happens(self.universe.weather.half_open):
                loop.call_later(self.universe.chance.uniform(0, 3), side.end)

    # What a service asks of a call:

    async def abort(self, *_: Any) -> None:
        self.break_()
        raise asyncio.CancelledError


class Site(Daemon):
    """A real daemon on connections of this universe."""

    def __init__(self, settings: Settings, universe: "Universe") -> None:
        super().__init__(settings)
        self._universe = universe

    async def _serve(self) -> None:
        connection = Connection(self._universe, self._settings.identity().name)
        conversation = Conversation(self._settings, self._docket, self.connected)
        sending = asyncio.create_task(_pump(conversation.outbound(), connection.inward))
        serving = asyncio.create_task(self._universe.serve(connection))
        try:
            await conversation.hear(aiter(connection.outward))
        finally:
            connection.break_()
            await _ended(sending, serving)


async def _pump(messages: AsyncIterator[Any], direction: Direction) -> None:
    async for message in messages:
        direction.send(message)


async def _ended(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Door:
    """Lets in whoever has a connection; that certificates are looked at is seen elsewhere."""

    def __init__(self, universe: "Universe") -> None:
        self._universe = universe

    async def admit(self, context: Any, _: str) -> PartyName:
        return context.name  # type: ignore[no-any-return]

    def judge(self, *_: Any) -> None:
        pass

    def clock(self) -> datetime:
        return self._universe.clock("hub")

    def revocations(self) -> RevocationList:
        return self._universe.town.revoked

    @property
    def authority_pem(self) -> bytes:
        return self._universe.town.hub.authority_pem


@dataclass(frozen=True)
class Call:
    """A call of the analyst's."""

    name: PartyName

    async def abort(self, code: Any, words: str, *_: Any) -> None:
        raise ConnectionBrokenError(f"{code}: {words}", "Ask again.")


@dataclass
class Hub:
    """A coordinator's process."""

    providers: ProviderService
    analysts: AnalystService
    keeper: Keeper


@dataclass(frozen=True)
class Inhabitants:
    """Identities, made once: certificates take long to make, and say nothing about a run."""

    authority_pem: bytes
    revoked: RevocationList
    born: datetime
    hub: Identity
    ada: Identity
    sites: dict[str, Identity]

    @classmethod
    def of(cls, town: Town, born: datetime) -> "Inhabitants":
        return cls(
            town.authority.certificate_pem,
            town.revocations(),
            born,
            town.identity(Role.COORDINATOR, "hub"),
            town.identity(Role.ANALYST, "ada"),
            {name: town.identity(Role.PROVIDER, name) for name in SITES},
        )


class Universe:
    """One run, whose every accident follows from its seed."""

    def __init__(self, town: Inhabitants, seed: int, weather: Weather) -> None:
        self.town = town
        self.weather = weather
        self.chance = Random(seed)
        self.trace = hashlib.sha256()
        self.skews = {name: self.chance.uniform(-weather.skew, weather.skew) for name in ("hub", "ada", *SITES)}
        self.ledgers = {name: MemoryLedger(lambda: 0.0) for name in SITES}
        self.journal = PassingJournal()
        self.answers: dict[tuple[str, str, int], set[bytes]] = {}
        """Every answer that ever left: of which provider, job and question, and its bytes."""
        self.deaths = 0
        self._hub: Hub | None = None

    # --- Chance, time and what was seen -------------------------------------------------------------------------------

    def happens(self, likelihood: float) -> bool:
        return self.chance.random() < likelihood

    def clock(self, name: str) -> datetime:
        seconds = asyncio.get_running_loop().time() + self.skews[name]
        return self.town.born + timedelta(seconds=seconds)

    def note(self, name: PartyName, message: Any) -> None:
        """Note a message that arrived, in its essence: signatures differ from run to run."""
        kind = message.WhichOneof("message")
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {name.name} {kind}".encode())
        if kind == "answer":
            piece = message.answer
            self.answers.setdefault((name.name, piece.job, piece.position), set()).add(piece.content)
            self.trace.update(piece.content)

    def model(self, job: str) -> bytes:
        """Give the model in the journal."""
        pieces = (self.journal.model(job, number) for number in count())
        return b"".join(takewhile(len, pieces))

    # --- Processes ----------------------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
        """Hold the coordinator's side of a connection, if there is a coordinator."""
        hub = self._hub
        if hub is None:
            connection.break_()
            return
        try:
            async for message in hub.providers.Connect(aiter(connection.inward), connection):  # type: ignore[arg-type]
                connection.outward.send(message)
        except DpspcaError:
            pass
        finally:
            connection.break_()

    async def live(self, name: str) -> None:
        """Run a provider, and after each death another on what its ledger holds."""
        me, number = self.town.sites[name], SITES.index(name)
        rows = {"cohort": check_rows(np.random.default_rng(number).standard_normal((30, DIMENSION)))}
        while True:
            life = Life(self)
            ledger: Any = Mortal(self.ledgers[name], LEDGER_STEPS, life)
            words = partial(self._words, name, count())
            settings = Settings(
                "", lambda: me, lambda: self.town.revoked, partial(self.clock, name), rows, AnythingGoes, ledger, words
            )
            await life.of(Site(settings, self).run())
            await asyncio.sleep(self.chance.uniform(0, LONGEST_ABSENCE))

    def _words(self, name: str, draws: Iterator[int]) -> KeyStream:
        """Give noise that no two answers share: a process that comes back draws afresh, as a real one does."""
        return KeyStream.repeatable(self.chance.getrandbits(64), f"{name} {next(draws)}")

    async def preside(self) -> None:
        """Run a coordinator, and after each death another on what the journal holds."""
        while True:
            life, roster, door = Life(self), Roster(), Door(self)
            journal: Any = Mortal(self.journal, JOURNAL_STEPS, life)
            keeper = Keeper(journal)
            analysts = AnalystService(door, roster, keeper, lambda: self.town.hub)  # type: ignore[arg-type]
            providers = ProviderService(door, roster, lambda: self.town.hub, HEARTBEAT, analysts.ended)  # type: ignore[arg-type]
            await life.of(self._act(Hub(providers, analysts, keeper)))
            self._hub = None
            await analysts.stop()
            await roster.dismiss()
            await asyncio.sleep(self.chance.uniform(0, LONGEST_ABSENCE))

    async def _act(self, hub: Hub) -> None:
        await hub.keeper.do(lambda journal: journal.hold())
        await hub.analysts.resume()
        self._hub = hub
        await asyncio.Event().wait()

    # --- The analyst --------------------------------------------------------------------------------------------------

    async def told(self, call: str, request: Any) -> pb.Job:
        """Make a call of the analyst's until it is answered."""
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2))
            try:
                async with asyncio.timeout(30):
                    assert self._hub
                    answer: pb.Job = await getattr(self._hub.analysts, call)(request, Call(self.town.ada.name))
                    return answer
            except (AssertionError, ConnectionBrokenError, TimeoutError):
                pass
            except (asyncio.CancelledError, Death):
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise

    async def result(self, signed: SignedJob) -> pb.Job:
        """Submit a job, now and then once more, and wait for its end."""
        while True:
            job = await self.told("Submit", pb.SubmitRequest(signed_job=signed.to_bytes()))
            for _ in range(10):
                job = await self.told("Get", pb.JobName(job=job.job))
                if job.state in {"done", "failed", "cancelled"}:
                    return job
                await asyncio.sleep(self.chance.uniform(0, 10))


async def lived(universe: Universe, signed: SignedJob) -> pb.Job:
    """Let everybody live until the job is over."""
    everybody = [asyncio.create_task(universe.preside()), *(asyncio.create_task(universe.live(n)) for n in SITES)]
    try:
        return await universe.result(signed)
    finally:
        await _ended(*everybody)
