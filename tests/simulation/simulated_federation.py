"""A simulated federation: real parties on a network, clocks and disks whose faults follow from a seed.

The code of the parties is the real one, including messages; only gRPC is replaced, by the connections of
``network.py``. One to three jobs of two analysts run at the same time, on budgets that may be too small for all of
them. Providers and the coordinator crash at any step of their stores, and restart with what is left. In about a quarter
of the runs with faults, that is what ``faulty_disks.py`` leaves of the real ledgers, head files and journal. In the
others it is in memory that outlasts processes, which is several times as fast. Equal seeds give equal runs.
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
from crashing_processes import JOURNAL_STEPS, LEDGER_STEPS, CrashingProcess, CrashingStore, ProcessCrash, cancel_all
from fault_rates import FaultRates
from faulty_disks import FaultSource, PartyDisk
from grpc import StatusCode
from network import Connection, ConnectionBrokenError, Direction
from partitions import partitions
from party_identities import DIMENSION, SITES, PartyIdentities
from party_state import (
    FinalState,
    JournalInMemory,
    JournalOnDisk,
    JournalStore,
    LedgerInMemory,
    LedgerOnDisk,
    LedgerStore,
)
from planned_jobs import BudgetPolicy, PlannedJob

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName
from dpspca.common.privacy.keystream import Draw, KeyStream, keyed_stream
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.conversation import Conversation
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.entries import Head
from dpspca.server.jobs.roster import Roster
from dpspca.server.journal.journal_thread import JournalThread
from dpspca.server.rpc.analyst_service import AnalystService
from dpspca.server.rpc.call_interceptor import report_failures
from dpspca.server.rpc.provider_service import ProviderService

__all__ = [
    "Call",
    "Connection",
    "ConnectionBrokenError",
    "FaultRates",
    "PartyIdentities",
    "SimulatedFederation",
    "run_to_end",
]

HEARTBEAT: Final = 8
TIMEOUT: Final = 30.0
"""Timeout of an analyst's call, in seconds."""
SHORT_TIMEOUT: Final = 0.05
"""Timeout of a call that is to be cancelled: less than most calls take."""
LONGEST_ABSENCE: Final = 20.0
"""Longest time until a crashed process restarts, in seconds."""
LONGEST: Final = 2 * 3600.0
"""Time in which every job must end, in seconds: several times longer than any job took."""
FINAL: Final = frozenset({"done", "failed", "cancelled"})


class SimulatedProvider(Daemon):
    """A real daemon on simulated connections."""

    def __init__(self, settings: ProviderSetup, simulated: "SimulatedFederation") -> None:
        super().__init__(settings)
        self._simulated = simulated

    async def _serve(self) -> None:
        me = self._settings.identity().name
        self._simulated.require_reach(me)
        connection = Connection(self._simulated, me)
        conversation = Conversation(self._settings, self._registry, self.connected)
        sending = asyncio.create_task(_pump(conversation.outbound(), connection.inward))
        serving = asyncio.create_task(self._simulated.serve(connection))
        try:
            await conversation.handle(aiter(connection.outward))
        finally:
            connection.break_()
            await cancel_all(sending, serving)


async def _pump(messages: AsyncIterator[Any], direction: Direction) -> None:
    async for message in messages:
        direction.send(message)


class OpenAdmission:
    """Admits every connection. Other tests check certificates."""

    def __init__(self, simulated: "SimulatedFederation") -> None:
        self._simulated = simulated

    async def admit(self, context: Any, _: str) -> PartyName:
        return context.name  # type: ignore[no-any-return]

    def identify(self, *_: Any) -> None:
        pass

    def certificate(self, *_: Any) -> bytes:
        return b""

    def clock(self) -> datetime:
        return self._simulated.clock("hub")

    def revocations(self) -> RevocationList:
        return self._simulated.identities.revoked

    @property
    def authority_pem(self) -> bytes:
        return self._simulated.identities.hub.authority_pem


@dataclass(frozen=True)
class Call:
    """The context of an analyst's call."""

    name: PartyName

    async def abort(self, code: Any, words: str, *_: Any) -> None:
        if code is StatusCode.INTERNAL:  # a bug, not a refusal
            raise RuntimeError(words)
        raise ConnectionBrokenError(f"{code}: {words}", "Ask again.")


@dataclass
class CoordinatorProcess:
    """A coordinator's process."""

    providers: ProviderService
    analysts: AnalystService
    journal_thread: JournalThread


class SimulatedFederation:
    """One run. All its faults follow from the seed. With a ``folder`` it may have disks."""

    def __init__(
        self,
        identities: PartyIdentities,
        seed: int,
        rates: FaultRates,
        folder: Path | None = None,
        lying: frozenset[str] = frozenset(),
    ) -> None:
        """Disks of parties in ``lying`` report success for each sync, but sync nothing."""
        self.identities = identities
        self.rates = rates
        self.chance = Random(seed)
        self.trace = hashlib.sha256()
        self.faults: Counter[str] = Counter()
        self.skews = {name: self.chance.uniform(-rates.skew, rates.skew) for name in ("hub", "ada", *SITES)}
        self.budgets = {name: BudgetPolicy.drawn(self.chance, rates.scarce) for name in SITES}
        self.partitions = partitions((*SITES, "ada", "bob"), seed, rates)
        self.disks: list[PartyDisk] = []
        self.ledgers: Mapping[str, LedgerStore] = {name: LedgerInMemory() for name in SITES}
        self.journal: JournalStore = JournalInMemory()
        if self.happens(rates.disks) and folder:
            self._use_disks(folder, lying)
        self.answers: dict[tuple[str, str, int], set[bytes]] = {}
        """The bytes of all answers that were sent, by provider, job and query."""
        self.heads = defaultdict[str, set[Head]](set)
        """The heads of each ledger after each step that it confirmed."""
        self.ends: dict[str, dict[str, pb.Job]] = {}
        """The final states that analysts received for each job. There should be only one."""
        self._hub: CoordinatorProcess | None = None

    def _use_disks(self, folder: Path, lying: frozenset[str]) -> None:
        """Give each party a disk."""
        faults = FaultSource(self.rates, self.chance, self.record_fault)
        disks = {name: PartyDisk(folder / name, faults, syncs_nothing=name in lying) for name in ("hub", *SITES)}
        self.disks = list(disks.values())
        self.ledgers = {name: LedgerOnDisk(disks[name]) for name in SITES}
        self.journal = JournalOnDisk(disks["hub"])

    # --- Randomness, time and records ---------------------------------------------------------------------------------

    def happens(self, likelihood: float, what: str = "") -> bool:
        found = self.chance.random() < likelihood
        if found and what:
            self.record_fault(what)
        return found

    def record_fault(self, what: str) -> None:
        """Record a fault."""
        self.faults[what] += 1
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {what}".encode())

    def is_cut_off(self, name: PartyName) -> bool:
        """Return whether a partition separates this party from the coordinator now."""
        partition = self.partitions.get(name.name)
        found = partition is not None and partition.is_on(asyncio.get_running_loop().time())
        if found:
            self.record_fault("partition")
        return found

    def require_reach(self, name: PartyName) -> None:
        """Refuse a party that is cut off."""
        if self.is_cut_off(name):
            raise ConnectionBrokenError("The coordinator cannot be reached.", "Try again.")

    def clock(self, name: str) -> datetime:
        seconds = asyncio.get_running_loop().time() + self.skews[name]
        return self.identities.started_at + timedelta(seconds=seconds)

    def note_sent(self, name: PartyName, message: Any) -> None:
        """Record an answer that a provider sends, whether it arrives or not."""
        if message.WhichOneof("message") == "answer":
            piece = message.answer
            self.answers.setdefault((name.name, piece.job, piece.position), set()).add(piece.content)

    def note(self, name: PartyName, message: Any) -> None:
        """Record a message that arrived, without its signatures, which differ between runs."""
        kind = message.WhichOneof("message")
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {name.name} {kind}".encode())
        if kind == "answer":
            self.trace.update(message.answer.content)

    def model(self, job: str) -> bytes:
        """Return the model of a job from the journal as it is stored."""
        return self.journal.left().models.get(job, b"")

    # --- Processes ----------------------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
        """Serve the coordinator's side of a connection, if a coordinator is running."""
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

    async def run_provider(self, name: str) -> None:
        """Run a provider. After each crash, restart it with what is left of its ledger."""
        number = SITES.index(name)
        rows = check_rows(np.random.default_rng(number).standard_normal((30, DIMENSION)))
        await self._restart_forever(lambda process: self._run_provider_once(name, {"cohort": rows}, process))

    async def run_coordinator(self) -> None:
        """Run a coordinator. After each crash, restart it with what is left of the journal."""
        await self._restart_forever(self._run_coordinator_once)

    async def _restart_forever(self, work: Callable[[CrashingProcess], Any]) -> None:
        """Restart a process after each crash, and after each start that failed because of its disk."""
        while True:
            process = CrashingProcess(partial(self.happens, self.rates.death, "death"))
            with suppress(DpspcaError, ProcessCrash):
                await work(process)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_ABSENCE))

    async def _run_provider_once(self, name: str, rows: dict[str, Any], process: CrashingProcess) -> None:
        me, clock, budget = self.identities.sites[name], partial(self.clock, name), self.budgets[name]
        with self.ledgers[name].opened(process, lambda: clock().timestamp()) as store:
            ledger: Any = CrashingStore(store, LEDGER_STEPS, process, lambda: self.heads[name].add(store.head()))
            settings = ProviderSetup(
                "",
                lambda: me,
                lambda: self.identities.revoked,
                clock,
                rows,
                lambda: budget,
                ledger,
                self._entropy,
                toss=self.chance.random,
            )
            await process.run(SimulatedProvider(settings, self).run())

    def _entropy(self, draw: Draw) -> KeyStream:
        """Return new random words for each draw, repeatable by the seed of the run.

        The name of a job differs between processes and must not influence the run, so it is replaced.
        """
        return keyed_stream(self.chance.randbytes(32), replace(draw, job="a job"))

    async def _run_coordinator_once(self, process: CrashingProcess) -> None:
        roster, door = Roster(), OpenAdmission(self)
        with self.journal.opened(process) as store:
            journal: Any = CrashingStore(store, JOURNAL_STEPS, process)
            journal_thread = JournalThread(journal)
            analysts = AnalystService(door, roster, journal_thread, lambda: self.identities.hub)  # type: ignore[arg-type]
            providers = ProviderService(door, roster, lambda: self.identities.hub, HEARTBEAT, analysts.final_state)  # type: ignore[arg-type]
            try:
                await process.run(self._serve_until_failure(CoordinatorProcess(providers, analysts, journal_thread)))
            finally:
                self._hub = None
                await analysts.stop()
                await roster.close_all()

    async def _serve_until_failure(self, hub: CoordinatorProcess) -> None:
        """Serve until the journal fails, as a coordinator does."""
        assert await hub.journal_thread.run(lambda journal: journal.hold())
        await hub.analysts.resume()
        self._hub = hub
        await hub.journal_thread.failed.wait()

    # --- Analysts -----------------------------------------------------------------------------------------------------

    async def call(self, call: str, request: Any, analyst: Identity | None = None) -> pb.Job:
        """Make an analyst's call until it is answered. The analyst may cancel it and call again."""
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2))
            hangs_up = self.happens(self.rates.hang_up, "hung up")
            patience = self.chance.uniform(0, SHORT_TIMEOUT) if hangs_up else TIMEOUT
            try:
                async with asyncio.timeout(patience):
                    answer = await self._call(call, request, Call((analyst or self.identities.ada).name))
            except (AssertionError, ConnectionBrokenError, TimeoutError):
                continue
            except (asyncio.CancelledError, ProcessCrash):
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                continue
            if answer.state in FINAL:
                self.ends.setdefault(answer.job, {})[answer.state] = answer
            return answer

    async def _call(self, call: str, request: Any, context: Call) -> pb.Job:
        """Call, and return the answer. The call takes effect even if the answer is lost."""
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
        """Submit a job, sometimes more than once, and wait for its end."""
        while True:
            job = await self.call("Submit", pb.SubmitRequest(signed_job=signed.to_bytes()), analyst)
            for _ in range(10):
                if job.state in FINAL:
                    return job
                call = self.chance.choice(["Get", "Get", "Watch"])
                job = await self.call(call, pb.JobName(job=job.job), analyst)
                await asyncio.sleep(self.chance.uniform(0, 10))

    async def run_job(self, planned: PlannedJob) -> pb.Job:
        """Run a job to its end. Cancel it or submit it again if that was planned."""
        await asyncio.sleep(planned.begin)
        result, *_ = await asyncio.gather(
            self.result(planned.signed, planned.analyst),
            self._later(planned.cancel, "Cancel", pb.JobName(job=planned.signed.job_id), planned.analyst),
            self._later(
                planned.again, "Submit", pb.SubmitRequest(signed_job=planned.signed.to_bytes()), planned.analyst
            ),
        )
        return result

    async def _later(self, moment: float | None, call: str, request: Any, analyst: Identity) -> None:
        if moment is not None:
            await asyncio.sleep(moment)
            await self.call(call, request, analyst)

    # --- The end ------------------------------------------------------------------------------------------------------

    def final_state(self) -> FinalState:
        """Return the final state, after all processes have ended."""
        return FinalState.of(self.ledgers.items(), self.journal)


async def run_to_end(simulated: SimulatedFederation, planned_jobs: Sequence[PlannedJob]) -> list[pb.Job]:
    """Run all parties until all jobs have ended. Then cut the power of all parties."""
    everybody = [
        asyncio.create_task(simulated.run_coordinator()),
        *(asyncio.create_task(simulated.run_provider(n)) for n in SITES),
    ]
    try:
        async with asyncio.timeout(LONGEST):
            return list(await asyncio.gather(*map(simulated.run_job, planned_jobs)))
    except TimeoutError:
        raise AssertionError("A job never ended.") from None  # I3
    finally:
        for party_disk in simulated.disks:
            party_disk.is_last = True
        await cancel_all(*everybody)
