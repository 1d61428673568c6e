"""The jobs that this provider serves: each verified here, once, and given the rows it is about.

The analyst's signature is believed and nothing that the coordinator says: the plan is worked out here, from what was
signed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Final, Protocol, TypeAlias

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import Filter, cost_units, slack_units
from dpspca.common.privacy.keystream import WordSource
from dpspca.common.spec import MAX_COMPONENT_ENTRIES, JobSpec
from dpspca.common.transport import wire
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName
from dpspca.common.transport.receipts import issue
from dpspca.common.transport.signing import JobEnvelope, SignedJob, require_still, verify
from dpspca.common.transport.trust import RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .arrivals import Arrivals, DataSet, WaitingRoom
from .entropy import SystemEntropy
from .ledger import Ledger, Limits, MemoryLedger, Opening
from .matrix_shard import MatrixShard
from .peers import PeerReceipts
from .policy import Policy
from .preparation import CheckedRows, UsableRows
from .respond import Responder, Room
from .shard import Shard, Strategy

MAX_OPEN_JOBS: Final = 64
"""Jobs that are kept ready; of more, those asked about least recently are opened again when they are asked about. No
more than so many have a question that waits for rows."""
MAX_WAITING_BYTES: Final = 2 * 8 * MAX_COMPONENT_ENTRIES
"""Of the contents of questions that wait for rows, one of each job: as much as two of the largest bases."""
BLIND_BYTES: Final = 16
ENDS: Final = frozenset({"done", "failed", "cancelled"})
"""How a coordinator says that a job ended."""

_Bounds: TypeAlias = tuple[int, int | None]
"""How many rows of each person a job is about, and how many, from the first, in all; None if about all there are."""

_log = logging.getLogger(__name__)


class Ruling(Protocol):
    """What is allowed on one data set."""

    @property
    def least_bound(self) -> float | None:
        """The least norm bound that a job may have, if there is one."""
        ...

    def check(self, spec: JobSpec, analyst: PartyName, audience: tuple[str, ...]) -> None:
        """Refuse a job that breaks a rule."""
        ...

    def limits(self, analyst: PartyName) -> tuple[Filter, Filter | None]:
        """Give the budgets of the data set and of this analyst, with nothing spent in them."""
        ...


class Allowing(Protocol):
    """A policy."""

    def rules(self, data_set: str) -> Ruling:
        """Give the rules of a data set, or refuse."""
        ...


@dataclass(slots=True)
class Settings:
    """What a daemon is told at its start; without a policy, it refuses everything.

    ``words`` makes noise; other than the default is for tests alone.
    """

    address: str
    identity: Callable[[], Identity]
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    data_sets: Mapping[str, DataSet]
    policy: Callable[[], Allowing] = Policy
    ledger: Ledger = field(default_factory=MemoryLedger)
    words: Callable[[], WordSource] = SystemEntropy
    peers: PeerReceipts = field(default_factory=PeerReceipts)


@dataclass(slots=True)
class OpenJob:
    """A verified job and all it needs to be answered, one question after the other."""

    signed: SignedJob
    envelope: JobEnvelope
    plan: tuple[Step, ...]
    responder: Responder
    receipt: Callable[[], pb.Receipt | None]
    """Makes what is handed out with an answer, if anything is."""
    ready: Callable[[Step, int], Awaitable[None]]
    """Waits until the rows that a question of so many bytes is about are there, or refuses; it holds no thread and
    nobody's turn."""
    still: Callable[[], None]
    """Refuses if the job is to be believed no longer."""
    name: str = field(init=False)
    """What the job is called everywhere."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.name = self.signed.job_id

    async def answer(
        self, position: int, question: wire.QuestionReader, asker: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        """Answer in a thread, with a receipt of the ledger that has the answer, once the rows are there.

        ``asker`` refuses if whoever asked may ask no longer.
        Whoever asked may be gone before the thread is done; the next question waits for it all the same, so that no
        number of connections makes more than one answer of a job at once.
        """
        await self.ready(self.plan[position], question.size)
        await self._turn.acquire()
        work = asyncio.get_running_loop().run_in_executor(None, self._answer, position, question, asker)
        work.add_done_callback(self._done)
        return await asyncio.shield(work)

    def _answer(
        self, position: int, question: wire.QuestionReader, asker: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        self.still()  # both may have changed while rows, the turn and a thread were waited for
        asker()
        return wire.answer_content(self.responder.respond(position, question.query())), self.receipt()

    def _done(self, work: "asyncio.Future[tuple[memoryview, pb.Receipt | None]]") -> None:
        self._turn.release()
        if not work.cancelled():
            work.exception()  # seen, even if nobody waits for it any more


@dataclass(frozen=True, slots=True)
class _Wait:
    """Waits for the rows that a question is about where they arrive, before a unit of the budget is touched.

    For as long as the analyst gave for an answer, and no longer than the job is believed. A question about rows that
    are there takes nobody's place among those that wait.
    """

    rows: DataSet
    shard: Shard | MatrixShard
    seconds: int
    still: Callable[[], None]
    room: WaitingRoom

    async def __call__(self, step: Step, size: int) -> None:
        if not isinstance(self.rows, Arrivals) or not isinstance(self.shard, Shard):
            return
        reach = self.shard.reach(step)
        try:
            with nullcontext() if self.rows.count >= reach else self.room.place(size):
                async with asyncio.timeout(self.seconds):
                    await self.rows.until(reach, self.still)
        except TimeoutError:
            what = f"The rows for '{step.name}' were not ready within {self.seconds} seconds."
            raise RefusedError(what, "Give more answer_seconds, or ask about fewer rows.") from None


class Docket:
    """Jobs by name. Opening one takes a while, and is done in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._authority = settings.identity().authority_pem  # which is never exchanged, as keys and certificates are
        self._jobs: OrderedDict[str, OpenJob] = OrderedDict()
        self._shards: dict[str, tuple[_Bounds, Shard | MatrixShard]] = {}
        """Of each data set the rows as the last job used them, and how many of each person's, and in all."""
        self._waiting = WaitingRoom(MAX_OPEN_JOBS, MAX_WAITING_BYTES)
        self._ahead = Room()
        self._digests = {name: rows.digest() for name, rows in settings.data_sets.items()}
        _require_own_names(self._digests, settings.ledger)

    def find(self, name: str) -> OpenJob | None:
        """Give a job that is open, if it is still to be believed: analysts are revoked, and jobs expire, meanwhile."""
        job = self._jobs.get(name)
        if job:
            self._require_still(job.signed, job.envelope)
            self._jobs.move_to_end(name)
        return job

    def _require_still(self, signed: SignedJob, envelope: JobEnvelope) -> None:
        now, revoked = self._settings.clock(), self._settings.revocations()
        require_still(signed, envelope, self._authority, now=now, revoked=revoked)

    def close(self, name: str, state: str) -> None:
        """End a job for good: nothing further is asked of it, and what it has not spent is free again."""
        self._drop(name)
        self._settings.ledger.close(name, state if state in ENDS else "ended")

    def _drop(self, name: str) -> None:
        """Keep a job ready no longer."""
        if job := self._jobs.pop(name, None):
            job.responder.let_go()

    def _drop_expired(self) -> None:
        now = self._settings.clock().timestamp()
        for name in [name for name, job in self._jobs.items() if job.envelope.expires_at <= now]:
            self._drop(name)

    def open(self, signed: SignedJob) -> OpenJob:
        """Verify a job, hold it against the policy and the budgets, and make the rows ready for it."""
        settings = self._settings
        me = settings.identity()
        envelope, analyst = verify(
            signed, me.authority_pem, me=me.name, now=settings.clock(), revoked=settings.revocations()
        )
        spec = JobSpec.from_json(envelope.spec)
        rules = settings.policy().rules(envelope.dataset)
        rules.check(spec, analyst, envelope.audience)
        shard = self._shard(envelope.dataset, spec, rules.least_bound)
        shard.check(spec)
        self._drop_expired()
        settings.ledger.expire(settings.clock().timestamp())
        settings.ledger.open(self._opening(signed, envelope, spec, analyst), Limits(*rules.limits(analyst)))
        slot = envelope.audience.index(me.name.name)
        still = partial(self._require_still, signed, envelope)
        responder = Responder(
            spec, shard, settings.ledger, settings.words(), job=signed.job_id, slot=slot, room=self._ahead
        )
        opened = self._jobs[signed.job_id] = OpenJob(
            signed,
            envelope,
            catalogue.plan(spec),
            responder,
            self._receipt,
            _Wait(settings.data_sets[envelope.dataset], shard, spec.answer_seconds, still, self._waiting),
            still,
        )
        while len(self._jobs) > MAX_OPEN_JOBS:
            self._drop(next(iter(self._jobs)))
        _log.info(
            "Opened job %.12s of %s over '%s': epsilon %g, delta %g.",
            opened.name,
            analyst.name,
            envelope.dataset,
            spec.budget.epsilon,
            spec.budget.delta,
        )
        return opened

    def _receipt(self) -> pb.Receipt | None:
        """Sign how far the ledger has come, if others are to know."""
        head = self._settings.ledger.attested()
        return issue(self._settings.identity(), head) if head else None

    def _opening(self, signed: SignedJob, envelope: JobEnvelope, spec: JobSpec, analyst: PartyName) -> Opening:
        """Write down what is admitted, and at what price."""
        cost = events(catalogue.plan(spec))
        return Opening(
            job=signed.job_id,
            data_set=envelope.dataset,
            data_digest=self._digests[envelope.dataset],
            analyst=analyst.uri,
            unit=spec.unit,
            spec_epsilon=spec.budget.epsilon,
            spec_delta=spec.budget.delta,
            units=cost_units(cost),
            slack_units=slack_units(cost),
            issued_at=envelope.issued_at,
            expires_at=envelope.expires_at,
            signature_hash=sha256(signed.to_bytes()).hexdigest(),
            blind=token_hex(BLIND_BYTES),
        )

    def _shard(self, name: str, spec: JobSpec, least_bound: float | None = None) -> Shard | MatrixShard:
        """Make data ready under a job's bounds, or find them so: what the last job used is kept for the next.

        What the job's unit protects says whether the data are rows or a share of a symmetric matrix.
        """
        rows = self._settings.data_sets.get(name)
        if rows is None:
            raise RefusedError("There is no such data set here.", "Ask for one that this provider offers.")
        bounds = spec.rows_per_person, catalogue.rows_of(spec)
        bounded, kept = self._shards.get(name, (None, None))
        if kept is None or bounded != bounds or not kept.fits(spec):
            kept = _prepared(rows, spec, bounds, least_bound)
            self._shards[name] = bounds, kept
        return kept


def _require_own_names(digests: Mapping[str, str], ledger: Ledger) -> None:
    """Refuse rows under another name than the one under which they were spent on: that would be a budget anew.

    Rows that differ in a single bit nobody can tell from others. Before anybody connects, so that what rows are shows
    in no answer and no refusal.
    """
    first: dict[str, str] = {}
    for name, digest in digests.items():
        known = ledger.rows_called(digest) or first.setdefault(digest, name)
        if known != name:
            raise RefusedError(
                f"The rows of '{name}' are those of '{known}', whose budget they have.",
                f"Offer them as '{known}' alone: what was spent on rows stays spent whatever they are called.",
            )


def _prepared(rows: DataSet, spec: JobSpec, bounds: _Bounds, least_bound: float | None) -> Shard | MatrixShard:
    a_person, limit = bounds
    if isinstance(rows, CheckedRows):
        if rows.persons is not None and not spec.unit.is_row:
            # Before rows are left out: what is left must not show in a refusal, and of a matrix none may be.
            raise RefusedError("Rows of this data set are persons', and no matrix.", "Ask for a unit of rows.")
        held = rows.bounded(a_person).first(limit)
        if not spec.unit.is_row:
            return MatrixShard(held, spec.norm_bound, spec.unit, least_bound)
        return _shard_of(held, spec)
    if limit is None:
        raise RefusedError(
            "Rows of this data set still arrive, and this job is about all there will ever be.",
            "Ask streaming-power with block_rows: how many rows of each provider a round is about.",
        )
    return _shard_of(rows.first(limit), spec)


def _shard_of(rows: UsableRows, spec: JobSpec) -> Shard:
    return Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=Strategy.SETTLE)
