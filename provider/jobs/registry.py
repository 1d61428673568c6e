"""The jobs that this provider serves: each verified here, once, and given the rows it is about.

The analyst's signature is believed and nothing that the coordinator says: the plan is worked out here, from what was
signed.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from secrets import token_hex
from threading import Lock
from typing import Final, Self

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import PartyName
from dpspca.common.plan import Plan
from dpspca.common.privacy import Entropy, PrivacyUnit
from dpspca.common.spec import MAX_COMPONENT_ENTRIES, JobSpec
from dpspca.common.trust import Identity, JobEnvelope, RevocationList, SignedJob, sign_receipt, verify
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import (
    Arrivals,
    CheckedRows,
    DataSet,
    UsableRows,
    WaitingRoom,
    require_unit,
    run_in_row_thread,
)
from dpspca.provider.evaluate import MatrixShard, Shard, Strategy
from dpspca.provider.ledger import ANSWER, Ledger, Limits, MemoryLedger, Named, Opening, PeerReceipts, extent_of
from dpspca.provider.policy import Policy
from dpspca.provider.release import LEAST_INTERVAL, Coin, Responder, Schedule, delay_result, system_coin, system_entropy

from .open_job import OpenJob, Wait, seen
from .permission import Allowing, Permission, Ruling, Sources, WithdrawnError
from .start_checks import decided_at_start, require_own_names

MAX_OPEN_JOBS: Final = 64
"""Jobs that are kept ready; of more, those asked about least recently are opened again when they are asked about. No
more than so many have a query that waits for rows."""
MAX_WAITING_BYTES: Final = 2 * 8 * MAX_COMPONENT_ENTRIES
"""Of the contents of queries that wait for rows, one of each job: as much as two of the largest bases."""
BLIND_BYTES: Final = 16
ENDS: Final = frozenset({"done", "failed", "cancelled"})
"""How a coordinator says that a job ended."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """How a job has rows prepared: all of it follows from what was signed."""

    rows_per_person: int
    limit: int | None  # how many rows it is about, from the first; None if about all there are
    strategy: Strategy  # of dense rows

    @classmethod
    def of(cls, plan: Plan) -> Self:
        spec = plan.spec
        strategy = Strategy.for_plan(spec.schema.dimension, plan, is_sparse=False)
        return cls(spec.rows_per_person, catalogue.rows_of(spec), strategy)


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProviderSetup:
    """What a daemon is told at its start; without a policy, it refuses everything.

    ``entropy`` makes the words of every draw; anything but the default is for tests alone.
    """

    address: str
    identity: Callable[[], Identity]
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    data_sets: Mapping[str, DataSet]
    policy: Callable[[], Allowing] = Policy
    ledger: Ledger = field(default_factory=MemoryLedger)
    entropy: Entropy = system_entropy
    peers: PeerReceipts = field(default_factory=PeerReceipts)
    toss: Coin = system_coin
    """Chooses when answers leave; other than the default is for tests alone, as for ``entropy``."""


class Docket:
    """Jobs by name. Opening one takes a while, and is done in a thread."""

    def __init__(self, settings: ProviderSetup) -> None:
        self._settings = settings
        self._authority = settings.identity().authority_pem  # which is never exchanged, as keys and certificates are
        self._jobs: OrderedDict[str, OpenJob] = OrderedDict()
        self._lock = Lock()  # jobs are opened and closed in threads
        self._openings: dict[str, asyncio.Task[OpenJob]] = {}
        self._shards: dict[str, tuple[_Preparation, Shard | MatrixShard]] = {}
        """Of each data set the rows as the last job used them."""
        self._named_at = {name: rows.count for name, rows in settings.data_sets.items()}
        self._waiting = WaitingRoom(MAX_OPEN_JOBS, MAX_WAITING_BYTES)
        self._digests = {name: rows.digest() for name, rows in settings.data_sets.items()}
        self._fingerprints = {name: rows.fingerprints() for name, rows in settings.data_sets.items()}
        require_own_names(self._fingerprints, self._digests, settings.ledger.data_set_of_rows)
        self._spectral = decided_at_start(settings.data_sets, settings.policy)
        self._tell_of_broken_promises()
        for name, digest in self._digests.items():
            if settings.ledger.data_set_of_rows([digest]) == name:  # as far as an earlier version knew: it has one form
                self._name_rows(name)

    def _tell_of_broken_promises(self) -> None:
        """Tell the operator at the start of data sets on which the ledger will refuse every job for the policy's sake.

        Others are answered as ever.
        """
        for name in self._settings.data_sets:
            with suppress(RefusedError):  # nothing is allowed, and nothing promised
                stated = self._settings.policy().rules(name).promise
                try:
                    if stated:
                        self._settings.ledger.require_promise(name, stated)
                except RefusedError as problem:
                    _log.error("Every job on the data set '%s' is refused: %s", name, problem)

    def find(self, name: str) -> OpenJob | None:
        """Give a job that is open, if it may still be answered: it may have expired, or the policy may have changed."""
        job = self._jobs.get(name)
        if job is None:
            return None
        try:
            job.still()
        except WithdrawnError:
            self._let_go(name)
            raise
        with self._lock:
            if name in self._jobs:
                self._jobs.move_to_end(name)
        return job

    def close(self, name: str, state: str) -> None:
        """End a job for good: nothing further is asked of it, and what it has not spent is free again."""
        self._let_go(name)
        self._settings.ledger.close(name, state if state in ENDS else "ended")

    def _let_go(self, name: str) -> None:
        with self._lock:
            self._jobs.pop(name, None)

    def _drop_expired(self) -> None:
        now = self._settings.clock().timestamp()
        with self._lock:
            for name in [name for name, job in self._jobs.items() if job.envelope.expires_at <= now]:
                del self._jobs[name]

    async def opened(self, signed: SignedJob) -> OpenJob:
        """Find a job, or open it, once whoever asks: two of one job would each make an answer to the same query.

        What is made ready for a job takes a time that depends on the rows; how long opening it takes shows no more of
        that than the time of an answer does.
        """
        job = self.find(signed.job_id)
        if job is not None:
            return job
        opening = self._openings.get(signed.job_id)
        if opening is None:
            work = run_in_row_thread(self.open, signed)
            work.add_done_callback(seen)
            opening = asyncio.create_task(delay_result(work, LEAST_INTERVAL, self._settings.toss))
            self._openings[signed.job_id] = opening
            opening.add_done_callback(partial(self._opening_done, signed.job_id))
        return await asyncio.shield(opening)

    def _opening_done(self, name: str, opening: "asyncio.Future[OpenJob]") -> None:
        del self._openings[name]
        seen(opening)

    def open(self, signed: SignedJob) -> OpenJob:
        """Verify a job, hold it against the policy and the budgets, and make the rows ready for it."""
        settings = self._settings
        me = settings.identity()
        envelope, analyst = verify(
            signed, me.authority_pem, me=me.name, now=settings.clock(), revoked=settings.revocations()
        )
        spec = JobSpec.from_json(envelope.spec)
        permission = self._permission(signed, envelope, spec, analyst)
        rules = permission.rules()
        self._require_decided(envelope.data_set, spec, rules)
        plan = catalogue.plan(spec)
        shard = self._shard(envelope.data_set, plan, rules.least_bound)
        shard.check(spec)
        self._drop_expired()
        settings.ledger.expire(settings.clock().timestamp())
        limits = Limits(*rules.limits(analyst), rules.promise, rules.quotas)
        settings.ledger.open(self._opening(signed, envelope, plan, analyst), limits, self._named(envelope.data_set))
        permission.require_room(rules)
        slot = envelope.audience.index(me.name.name)
        responder = Responder(plan, shard, settings.ledger, settings.entropy, job=signed.job_id, slot=slot)
        schedule = Schedule(
            plan,
            interval=rules.answer_interval,
            is_sparse=shard.is_sparse,
            makes_matrix=shard.makes_matrix,
            toss=settings.toss,
        )
        opened = OpenJob(
            signed,
            envelope,
            plan,
            responder,
            schedule,
            self._receipt,
            Wait(settings.data_sets[envelope.data_set], shard, spec.answer_seconds, permission.require, self._waiting),
            permission.require,
            partial(self._name_rows, envelope.data_set),
        )
        self._keep_ready(opened)
        _log.info(
            "Opened job %.12s of %s over '%s': epsilon %g, delta %g.",
            opened.name,
            analyst.name,
            envelope.data_set,
            spec.budget.epsilon,
            spec.budget.delta,
            extra=about(THE_COORDINATOR),
        )
        return opened

    def _keep_ready(self, opened: OpenJob) -> None:
        """Keep a job ready. Of more than so many, let go of those asked about least recently, but of none at work.

        A job at work that was opened anew would make the same answer once more, and so show twice how long that takes.
        """
        with self._lock:
            self._jobs[opened.name] = opened
            idle = [name for name, job in list(self._jobs.items())[:-1] if not job.is_busy]
            for name in idle[: max(0, len(self._jobs) - MAX_OPEN_JOBS)]:
                del self._jobs[name]

    def _require_decided(self, name: str, spec: JobSpec, rules: Ruling) -> None:
        """Refuse a job of the unit spectral as was decided at the start, whatever its own bound."""
        if spec.unit is not PrivacyUnit.SPECTRAL or rules.least_bound is None:
            return
        decided = self._spectral.get(name)
        if decided is None:
            raise RefusedError(
                "The policy did not allow the unit spectral on this data set when the provider started.",
                "The provider's operator must restart the provider.",
            )
        decided.require(rules.least_bound)

    def _permission(self, signed: SignedJob, envelope: JobEnvelope, spec: JobSpec, analyst: PartyName) -> Permission:
        told = self._settings
        sources = Sources(self._authority, told.revocations, told.clock, told.policy, told.ledger)
        return Permission(sources, signed, envelope, spec, analyst)

    def _name_rows(self, data_set: str) -> None:
        """Have the ledger know rows by what they say, as many of them as there are by now.

        It records them whenever there are more, whatever these say: an entry that is written or not would show in every
        receipt whether a new row is one of zeros.
        """
        count = self._settings.data_sets[data_set].count
        anew = self._named_at.get(data_set, count) != count
        self._named_at[data_set] = count
        self._settings.ledger.name_rows(self._named(data_set), anew=anew)

    def _named(self, data_set: str) -> Named:
        """Name rows by what they say, as many of them as there are by now."""
        rows = self._settings.data_sets[data_set]
        names = rows.fingerprints() if isinstance(rows, Arrivals) else self._fingerprints[data_set]
        return Named(data_set, sorted(names), token_hex(BLIND_BYTES))

    def _receipt(self) -> pb.Receipt | None:
        """Sign how far the ledger has come, if others are to know."""
        head = self._settings.ledger.attested_head()
        return sign_receipt(self._settings.identity(), head) if head else None

    def _opening(self, signed: SignedJob, envelope: JobEnvelope, plan: Plan, analyst: PartyName) -> Opening:
        """Write down what is admitted, and at what price."""
        spec = plan.spec
        return Opening(
            job=signed.job_id,
            data_set=envelope.data_set,
            data_digest=self._digests[envelope.data_set],
            analyst=analyst.uri,
            unit=spec.unit,
            spec_epsilon=spec.budget.epsilon,
            spec_delta=spec.budget.delta,
            units=plan.price.units,
            slack_units=plan.price.slack_units,
            issued_at=envelope.issued_at,
            expires_at=envelope.expires_at,
            signature_hash=sha256(signed.to_bytes()).hexdigest(),
            blind=token_hex(BLIND_BYTES),
            protects=extent_of(spec.unit, spec.rows_per_person, spec.norm_bound),
            queries=len(plan),
            answer_bytes=sum(math.prod(step.shape) for step in plan) * ANSWER.itemsize,
        )

    def _shard(self, name: str, plan: Plan, least_bound: float | None = None) -> Shard | MatrixShard:
        """Make data ready under a job's bounds, or find them so: what the last job used is kept for the next.

        What the job's unit protects says whether the data are rows or a share of a symmetric matrix.
        """
        rows, spec = self._settings.data_sets.get(name), plan.spec
        if rows is None:
            raise RefusedError("This provider has no such data set.", "Run `dpspca datasets` to list what is on offer.")
        # Before rows are left out or found ready: what is left must not show in a refusal, and of a matrix none may be.
        persons, uncut = (rows.persons, rows.uncut) if isinstance(rows, CheckedRows) else (None, None)
        require_unit(spec.unit, persons=persons is not None, cut=uncut is not None)
        preparation = _Preparation.of(plan)
        made, kept = self._shards.get(name, (None, None))
        if kept is None or made != preparation or not kept.fits(spec):
            kept = _prepared(rows, spec, preparation, least_bound)
            self._shards[name] = preparation, kept
        return kept


def _prepared(
    rows: DataSet, spec: JobSpec, preparation: _Preparation, least_bound: float | None
) -> Shard | MatrixShard:
    limit = preparation.limit
    if isinstance(rows, CheckedRows):
        held = rows.bounded(preparation.rows_per_person).first(limit)
        if not spec.unit.is_row:
            return MatrixShard(held, spec.norm_bound, spec.unit, least_bound)
        return _shard_of(held, spec, preparation.strategy)
    if limit is None:
        raise RefusedError(
            "Rows of this data set still arrive, but this job needs all rows at once.",
            "Use method = streaming-power with block_rows: the number of rows of each provider in a round.",
        )
    return _shard_of(rows.first(limit), spec, preparation.strategy)


def _shard_of(rows: UsableRows, spec: JobSpec, strategy: Strategy) -> Shard:
    chosen = Strategy.STREAM if rows.is_sparse else strategy
    return Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=chosen)
