"""A federation in a universe of its own: real parties, a network, clocks and disks that misbehave as a seed decides.

The parties are the real ones, down to the messages; only gRPC is replaced, by the connections of ``network.py``. One to
three jobs of two analysts run at once, on budgets that may not do for all of them. Providers and the coordinator die
at any step of what they keep, and come back with what is left of it. In about a quarter of all ill universes that is
what ``drives.py`` leaves of the real ledgers, head files and journal; in the others all of it lies in memory that
outlasts processes, which is several times as fast. The same seed gives the same run.
"""

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
from drives import Accidents, Home
from errands import Errand, Purse
from grpc import StatusCode
from homes import Inheritance, JournalHome, JournalInMemory, JournalOnDisk, LedgerHome, LedgerInMemory, LedgerOnDisk
from inhabitants import DIMENSION, SITES, Inhabitants
from lives import JOURNAL_STEPS, LEDGER_STEPS, Death, Life, Mortal, ended
from network import Connection, ConnectionBrokenError, Direction
from partitions import partitions
from weather import Weather

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName
from dpspca.common.privacy.keystream import Draw, KeyStream, keyed_stream
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.conversation import Conversation
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.preparation import check_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.entries import Head
from dpspca.server.jobs.roster import Roster
from dpspca.server.journal.journal_thread import JournalThread
from dpspca.server.rpc.analyst_service import AnalystService
from dpspca.server.rpc.call_interceptor import report_failures
from dpspca.server.rpc.provider_service import ProviderService

__all__ = ["Call", "Connection", "ConnectionBrokenError", "Inhabitants", "Universe", "Weather", "lived"]

HEARTBEAT: Final = 8
PATIENCE: Final = 30.0
"""Seconds that an analyst waits for an answer."""
IMPATIENCE: Final = 0.05
"""Seconds that he waits who hangs up: fewer than most calls take."""
LONGEST_ABSENCE: Final = 20.0
"""Seconds that a process is away after it died."""
LONGEST: Final = 2 * 3600.0
"""Seconds in which every job has to end: several times as many as any ever took."""
FINAL: Final = frozenset({"done", "failed", "cancelled"})


class Site(Daemon):
    """A real daemon on connections of this universe."""

    def __init__(self, settings: ProviderSetup, universe: "Universe") -> None:
        super().__init__(settings)
        self._universe = universe

    async def _serve(self) -> None:
        me = self._settings.identity().name
        self._universe.require_reach(me)
        connection = Connection(self._universe, me)
        conversation = Conversation(self._settings, self._registry, self.connected)
        sending = asyncio.create_task(_pump(conversation.outbound(), connection.inward))
        serving = asyncio.create_task(self._universe.serve(connection))
        try:
            await conversation.handle(aiter(connection.outward))
        finally:
            connection.break_()
            await ended(sending, serving)


async def _pump(messages: AsyncIterator[Any], direction: Direction) -> None:
    async for message in messages:
        direction.send(message)


class Door:
    """Lets in whoever has a connection; that certificates are looked at is seen elsewhere."""

    def __init__(self, universe: "Universe") -> None:
        self._universe = universe

    async def admit(self, context: Any, _: str) -> PartyName:
        return context.name  # type: ignore[no-any-return]

    def identify(self, *_: Any) -> None:
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
    """A call of an analyst's."""

    name: PartyName

    async def abort(self, code: Any, words: str, *_: Any) -> None:
        if code is StatusCode.INTERNAL:  # a fault, and no refusal
            raise RuntimeError(words)
        raise ConnectionBrokenError(f"{code}: {words}", "Ask again.")


@dataclass
class Hub:
    """A coordinator's process."""

    providers: ProviderService
    analysts: AnalystService
    journal_thread: JournalThread


class Universe:
    """One run, whose every accident follows from its seed. Where there is a ``folder``, it may have disks."""

    def __init__(
        self,
        town: Inhabitants,
        seed: int,
        weather: Weather,
        folder: Path | None = None,
        lying: frozenset[str] = frozenset(),
    ) -> None:
        """Disks of parties that are ``lying`` sync nothing, and say that they did."""
        self.town = town
        self.weather = weather
        self.chance = Random(seed)
        self.trace = hashlib.sha256()
        self.accidents: Counter[str] = Counter()
        self.skews = {name: self.chance.uniform(-weather.skew, weather.skew) for name in ("hub", "ada", *SITES)}
        self.purses = {name: Purse.drawn(self.chance, weather.scarce) for name in SITES}
        self.partitions = partitions((*SITES, "ada", "bob"), seed, weather)
        self.homes: list[Home] = []
        self.ledgers: Mapping[str, LedgerHome] = {name: LedgerInMemory() for name in SITES}
        self.journal: JournalHome = JournalInMemory()
        if self.happens(weather.disks) and folder:
            self._furnish(folder, lying)
        self.answers: dict[tuple[str, str, int], set[bytes]] = {}
        """Every answer that ever left: of which provider, job and query, and its bytes."""
        self.heads = defaultdict[str, set[Head]](set)
        """How far each ledger had come whenever it had promised something."""
        self.ends: dict[str, dict[str, pb.Job]] = {}
        """How analysts were told that jobs ended, by state: there should be one."""
        self._hub: Hub | None = None

    def _furnish(self, folder: Path, lying: frozenset[str]) -> None:
        """Give everybody a disk."""
        accidents = Accidents(self.weather, self.chance, self.tell)
        homes = {name: Home(folder / name, accidents, lies=name in lying) for name in ("hub", *SITES)}
        self.homes = list(homes.values())
        self.ledgers = {name: LedgerOnDisk(homes[name]) for name in SITES}
        self.journal = JournalOnDisk(homes["hub"])

    # --- Chance, time and what was seen -------------------------------------------------------------------------------

    def happens(self, likelihood: float, what: str = "") -> bool:
        found = self.chance.random() < likelihood
        if found and what:
            self.tell(what)
        return found

    def tell(self, what: str) -> None:
        """Note an accident."""
        self.accidents[what] += 1
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {what}".encode())

    def is_cut_off(self, name: PartyName) -> bool:
        """Tell whether a provider or an analyst and the coordinator are apart now."""
        partition = self.partitions.get(name.name)
        found = partition is not None and partition.holds(asyncio.get_running_loop().time())
        if found:
            self.tell("partition")
        return found

    def require_reach(self, name: PartyName) -> None:
        """Refuse a party that is cut off."""
        if self.is_cut_off(name):
            raise ConnectionBrokenError("The coordinator cannot be reached.", "Try again.")

    def clock(self, name: str) -> datetime:
        seconds = asyncio.get_running_loop().time() + self.skews[name]
        return self.town.born + timedelta(seconds=seconds)

    def note_sent(self, name: PartyName, message: Any) -> None:
        """Note what a provider lets out, whether it arrives or not."""
        if message.WhichOneof("message") == "answer":
            piece = message.answer
            self.answers.setdefault((name.name, piece.job, piece.position), set()).add(piece.content)

    def note(self, name: PartyName, message: Any) -> None:
        """Note a message that arrived, in its essence: signatures differ from run to run."""
        kind = message.WhichOneof("message")
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {name.name} {kind}".encode())
        if kind == "answer":
            self.trace.update(message.answer.content)

    def model(self, job: str) -> bytes:
        """Give the model in a journal that nobody has to open."""
        return self.journal.left().models.get(job, b"")

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
        """Run a provider, and after each death another on what is left of its ledger."""
        number = SITES.index(name)
        rows = check_rows(np.random.default_rng(number).standard_normal((30, DIMENSION)))
        await self._again_and_again(lambda life: self._provide(name, {"cohort": rows}, life))

    async def preside(self) -> None:
        """Run a coordinator, and after each death another on what is left of the journal."""
        await self._again_and_again(self._coordinate)

    async def _again_and_again(self, living: Callable[[Life], Any]) -> None:
        """Start a process whenever one has died, or could not start for a fault of its disk."""
        while True:
            life = Life(partial(self.happens, self.weather.death, "death"))
            with suppress(DpspcaError, Death):
                await living(life)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_ABSENCE))

    async def _provide(self, name: str, rows: dict[str, Any], life: Life) -> None:
        me, clock, purse = self.town.sites[name], partial(self.clock, name), self.purses[name]
        with self.ledgers[name].used(life, lambda: clock().timestamp()) as lasting:
            ledger: Any = Mortal(lasting, LEDGER_STEPS, life, lambda: self.heads[name].add(lasting.head()))
            settings = ProviderSetup(
                "",
                lambda: me,
                lambda: self.town.revoked,
                clock,
                rows,
                lambda: purse,
                ledger,
                self._entropy,
                toss=self.chance.random,
            )
            await life.of(Site(settings, self).run())

    def _entropy(self, draw: Draw) -> KeyStream:
        """Read fresh randomness for each draw, as a real process does; the universe's seed repeats it.

        A job has another name in each process, which must not show in what happens.
        """
        return keyed_stream(self.chance.randbytes(32), replace(draw, job="a job"))

    async def _coordinate(self, life: Life) -> None:
        roster, door = Roster(), Door(self)
        with self.journal.used(life) as lasting:
            journal: Any = Mortal(lasting, JOURNAL_STEPS, life)
            journal_thread = JournalThread(journal)
            analysts = AnalystService(door, roster, journal_thread, lambda: self.town.hub)  # type: ignore[arg-type]
            providers = ProviderService(door, roster, lambda: self.town.hub, HEARTBEAT, analysts.final_state)  # type: ignore[arg-type]
            try:
                await life.of(self._act(Hub(providers, analysts, journal_thread)))
            finally:
                self._hub = None
                await analysts.stop()
                await roster.close_all()

    async def _act(self, hub: Hub) -> None:
        """Act until the journal fails, as a coordinator does."""
        assert await hub.journal_thread.run(lambda journal: journal.hold())
        await hub.analysts.resume()
        self._hub = hub
        await hub.journal_thread.failed.wait()

    # --- Analysts -----------------------------------------------------------------------------------------------------

    async def told(self, call: str, request: Any, analyst: Identity | None = None) -> pb.Job:
        """Make a call of an analyst's until it is answered; he may hang up in its midst, and call again."""
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2))
            hangs_up = self.happens(self.weather.hang_up, "hung up")
            patience = self.chance.uniform(0, IMPATIENCE) if hangs_up else PATIENCE
            try:
                async with asyncio.timeout(patience):
                    answer = await self._call(call, request, Call((analyst or self.town.ada).name))
            except (AssertionError, ConnectionBrokenError, TimeoutError):
                continue
            except (asyncio.CancelledError, Death):
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                continue
            if answer.state in FINAL:
                self.ends.setdefault(answer.job, {})[answer.state] = answer
            return answer

    async def _call(self, call: str, request: Any, context: Call) -> pb.Job:
        """Call, and hear the answer: what was asked is done whether it is heard or not."""
        self.require_reach(context.name)
        answer = await self._answer(call, request, context)
        self.require_reach(context.name)
        return answer

    async def _answer(self, call: str, request: Any, context: Call) -> pb.Job:
        assert self._hub
        answering = getattr(self._hub.analysts, call)(request, context)
        async with report_failures(call, context):  # type: ignore[arg-type]
            if call != "Watch":
                return await answering  # type: ignore[no-any-return]
            async with aclosing(answering) as states:
                async for job in states:
                    if job.state in FINAL or self.happens(0.5):
                        return job  # type: ignore[no-any-return]
        raise ConnectionBrokenError("There is nothing more to see.", "Watch again.")

    async def result(self, signed: SignedJob, analyst: Identity | None = None) -> pb.Job:
        """Submit a job, now and then once more, and wait for its end."""
        while True:
            job = await self.told("Submit", pb.SubmitRequest(signed_job=signed.to_bytes()), analyst)
            for _ in range(10):
                if job.state in FINAL:
                    return job
                call = self.chance.choice(["Get", "Get", "Watch"])
                job = await self.told(call, pb.JobName(job=job.job), analyst)
                await asyncio.sleep(self.chance.uniform(0, 10))

    async def pursue(self, errand: Errand) -> pb.Job:
        """Have a job done; change one's mind, or submit it once more, where that is so decided."""
        await asyncio.sleep(errand.begin)
        result, *_ = await asyncio.gather(
            self.result(errand.signed, errand.analyst),
            self._later(errand.cancel, "Cancel", pb.JobName(job=errand.signed.job_id), errand.analyst),
            self._later(errand.again, "Submit", pb.SubmitRequest(signed_job=errand.signed.to_bytes()), errand.analyst),
        )
        return result

    async def _later(self, moment: float | None, call: str, request: Any, analyst: Identity) -> None:
        if moment is not None:
            await asyncio.sleep(moment)
            await self.told(call, request, analyst)

    # --- The end ------------------------------------------------------------------------------------------------------

    def inheritance(self) -> Inheritance:
        """Read all that is left, once everybody has gone."""
        return Inheritance.of(self.ledgers.items(), self.journal)


async def lived(universe: Universe, errands: Sequence[Errand]) -> list[pb.Job]:
    """Let everybody live until all jobs are over, and then be gone at once; at the end, all power fails."""
    everybody = [asyncio.create_task(universe.preside()), *(asyncio.create_task(universe.live(n)) for n in SITES)]
    try:
        async with asyncio.timeout(LONGEST):
            return list(await asyncio.gather(*map(universe.pursue, errands)))
    except TimeoutError:
        raise AssertionError("A job never ended.") from None  # I3
    finally:
        for home in universe.homes:
            home.is_last = True
        await ended(*everybody)
