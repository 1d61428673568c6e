"""The jobs that this provider serves. Each is verified once, when it is opened, and given the rows that it is about.

The provider trusts the analyst's signature and nothing that the coordinator says: it computes the plan from the signed
job.
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
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import PartyName
from dpspca.common.plan import Plan
from dpspca.common.privacy import Entropy, PrivacyUnit
from dpspca.common.spec import MAX_COMPONENT_ENTRIES, JobSpec
from dpspca.common.trust import Identity, JobEnvelope, RevocationList, SignedJob, sign_receipt, verify
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.approval import ApprovalDesk, require_approved
from dpspca.provider.data import (
    Arrivals,
    CheckedRows,
    DataSet,
    UsableRows,
    WaitingQueries,
    columns_of,
    run_in_row_thread,
)
from dpspca.provider.evaluate import MatrixShard, Shard, Strategy, keeps_integers
from dpspca.provider.ledger import (
    ANSWER,
    Ledger,
    Limits,
    MemoryLedger,
    Named,
    Opening,
    PeerReceipts,
    Quotas,
    extent_of,
)
from dpspca.provider.policy import Policy
from dpspca.provider.release import LEAST_INTERVAL, Coin, Responder, Schedule, delay_result, system_coin, system_entropy

from .forms import require_form
from .held_dictionary import HeldDictionary
from .open_job import OpenJob, RowWait, retrieve_exception
from .permission import DataSetRules, Permission, PermissionSources, PolicyLike, WithdrawnError
from .start_checks import check_spectral_matrices, require_one_name

MAX_OPEN_JOBS: Final = 64
"""Jobs that are kept in memory. Of more jobs, the least recently used are opened again when they are asked about. This
is also the most queries that wait for rows."""
MAX_WAITING_BYTES: Final = 2 * 8 * MAX_COMPONENT_ENTRIES
"""Of the contents of queries that wait for rows, one of each job: as much as two of the largest bases."""
BLIND_BYTES: Final = 16
ENDS: Final = frozenset({"done", "failed", "cancelled"})
"""How a coordinator says that a job ended."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """How the rows are prepared for a job. It follows from the signed job alone."""

    columns: tuple[str, ...] | None  # the job is about these in this order, or about all as they stand if None
    rows_per_person: int
    limit: int | None  # the job is about so many rows from the first, or about all rows if None
    strategy: Strategy  # for dense rows
    keeps: bool
    memory: int | None

    @classmethod
    def of(cls, plan: Plan, memory: int | None = None) -> Self:
        spec = plan.spec
        strategy = Strategy.for_plan(spec.schema.dimension, plan, is_sparse=False, memory=memory)
        columns = None if spec.dictionary is None else spec.schema.names
        return cls(columns, spec.rows_per_person, catalogue.rows_of(spec), strategy, keeps_integers(plan), memory)


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProviderSetup:
    """What a daemon needs to start. Without a policy, it refuses everything.

    ``entropy`` returns the words of every draw. Only tests use another than the default.
    """

    address: str
    identity: Callable[[], Identity]
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    data_sets: Mapping[str, DataSet]
    policy: Callable[[], PolicyLike] = Policy
    ledger: Ledger = field(default_factory=MemoryLedger)
    entropy: Entropy = system_entropy
    peers: PeerReceipts = field(default_factory=PeerReceipts)
    dictionaries: Mapping[str, Preparation] = field(default_factory=dict)
    """The shared dictionaries by which the rows of data sets were prepared, by the names of the data sets."""
    toss: Coin = system_coin
    """The coin that chooses when answers leave. Only tests use another than the default."""
    memory: int | None = None
    """How many bytes the largest answer of a job may take. A job that takes more is refused."""
    desk: ApprovalDesk | None = None
    """Has jobs wait for a person's approval. Without it, a policy that asks for approval refuses every job."""


class JobRegistry:
    """The open jobs by name. Opening a job takes a while, and is done in a thread."""

    def __init__(self, settings: ProviderSetup) -> None:
        self._settings = settings
        self._authority = settings.identity().authority_pem  # unlike keys and certificates, it is never replaced
        self._jobs: OrderedDict[str, OpenJob] = OrderedDict()
        self._lock = Lock()  # jobs are opened and closed in threads
        self._openings: dict[str, asyncio.Task[OpenJob]] = {}
        self._shards: dict[str, tuple[_Preparation, Shard | MatrixShard]] = {}
        """For each data set, the rows as they were prepared for the last job."""
        self._named_at = {name: rows.count for name, rows in settings.data_sets.items()}
        self._held = {name: HeldDictionary.of(name, held) for name, held in settings.dictionaries.items()}
        self._waiting = WaitingQueries(MAX_OPEN_JOBS, MAX_WAITING_BYTES)
        self._digests = {name: rows.digest() for name, rows in settings.data_sets.items()}
        self._fingerprints = {name: rows.fingerprints() for name, rows in settings.data_sets.items()}
        require_one_name(self._fingerprints, self._digests, settings.ledger.data_set_of_rows)
        self._spectral = check_spectral_matrices(settings.data_sets, settings.policy)
        self._report_broken_promises()
        for name, digest in self._digests.items():
            if settings.ledger.data_set_of_rows([digest]) == name:  # an earlier version recorded the digest alone
                self._name_rows(name)

    def _report_broken_promises(self) -> None:
        """Log, at the start, data sets whose policy promises more than earlier jobs protected.

        The ledger refuses every job on these. Other data sets are not affected.
        """
        for name in self._settings.data_sets:
            with suppress(RefusedError):  # no rules: nothing is allowed, and nothing promised
                stated = self._settings.policy().rules(name).promise
                try:
                    if stated:
                        self._settings.ledger.require_promise(name, stated)
                except RefusedError as problem:
                    _log.error("Every job on the data set '%s' is refused: %s", name, problem)

    def find(self, name: str) -> OpenJob | None:
        """Return an open job, or None. Refuse it if it has expired or the policy no longer allows it."""
        job = self._jobs.get(name)
        if job is None:
            return None
        try:
            job.require_permission()
        except WithdrawnError:
            self._forget(name)
            raise
        with self._lock:
            if name in self._jobs:
                self._jobs.move_to_end(name)
        return job

    def close(self, name: str, state: str) -> None:
        """End a job for good. Nothing more of it is answered, and what it has not spent is free again."""
        self._forget(name)
        if self._settings.desk:
            self._settings.desk.close(name)
        self._settings.ledger.close(name, state if state in ENDS else "ended")

    def _forget(self, name: str) -> None:
        with self._lock:
            self._jobs.pop(name, None)

    def _drop_expired(self) -> None:
        now = self._settings.clock().timestamp()
        with self._lock:
            for name in [name for name, job in self._jobs.items() if job.envelope.expires_at <= now]:
                del self._jobs[name]

    async def find_or_open(self, signed: SignedJob) -> OpenJob:
        """Return a job, and open it first if necessary. Callers that ask at once share one opening.

        Otherwise two copies of one job could each make an answer to the same query. Preparing the rows takes a time
        that depends on them, so opening ends on a schedule too, and shows no more than the time of an answer does.
        """
        job = self.find(signed.job_id)
        if job is not None:
            return job
        opening = self._openings.get(signed.job_id)
        if opening is None:
            work = run_in_row_thread(self.open, signed)
            work.add_done_callback(retrieve_exception)
            opening = asyncio.create_task(delay_result(work, LEAST_INTERVAL, self._settings.toss))
            self._openings[signed.job_id] = opening
            opening.add_done_callback(partial(self._opening_done, signed.job_id))
        return await asyncio.shield(opening)

    def _opening_done(self, name: str, opening: "asyncio.Future[OpenJob]") -> None:
        del self._openings[name]
        retrieve_exception(opening)

    def open(self, signed: SignedJob) -> OpenJob:
        """Verify a job, check it against the policy and the budgets, and prepare the rows for it."""
        settings = self._settings
        me = settings.identity()
        envelope, analyst = verify(
            signed, me.authority_pem, me=me.name, now=settings.clock(), revoked=settings.revocations()
        )
        spec = JobSpec.from_json(envelope.spec)
        permission = self._permission(signed, envelope, spec, analyst)
        rules = permission.rules()
        self._require_spectral_check(envelope.data_set, spec, rules)
        self._held_dictionary(envelope.data_set).require(spec)
        require_form(settings.data_sets, envelope.data_set, spec)
        plan = catalogue.plan(spec)
        self._drop_expired()
        settings.ledger.expire(settings.clock().timestamp())
        limits = Limits(*rules.limits(analyst), rules.promise, rules.quotas)
        opening = self._opening(signed, envelope, plan, analyst)
        settings.ledger.require_admissible(opening, limits)  # nobody is asked about a job that would be refused
        if settings.ledger.standing(opening.job) is None:
            self._require_approval(signed, envelope, opening.analyst, rules)
        shard = self._shard(envelope.data_set, plan, rules.least_bound)
        shard.check(spec)
        if isinstance(shard, Shard):
            shard.require_sums(plan, len(envelope.audience))
        settings.ledger.open(opening, limits, self._named(envelope.data_set))
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
            RowWait(
                settings.data_sets[envelope.data_set], shard, spec.answer_seconds, permission.require, self._waiting
            ),
            permission.require,
            partial(self._name_rows, envelope.data_set),
        )
        self._keep_open(opened)
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

    def _keep_open(self, opened: OpenJob) -> None:
        """Keep a job open. If there are too many, forget the least recently used ones, but none that is busy.

        If a busy job were opened again, it would make the same answer once more, and so show twice how long that takes.
        """
        with self._lock:
            self._jobs[opened.name] = opened
            idle = [name for name, job in list(self._jobs.items())[:-1] if not job.is_busy]
            for name in idle[: max(0, len(self._jobs) - MAX_OPEN_JOBS)]:
                del self._jobs[name]

    def _require_approval(self, signed: SignedJob, envelope: JobEnvelope, analyst: str, rules: DataSetRules) -> None:
        """Have a job wait in the queue if persons have to approve it and have not. Nothing is reserved for it."""
        if desk := self._settings.desk:
            desk.require(signed, envelope, analyst, rules.approval_rule, rules.quotas or Quotas())
        else:
            require_approved(self._settings.ledger.decisions(signed.job_id), rules.approval_rule)

    def _require_spectral_check(self, name: str, spec: JobSpec, rules: DataSetRules) -> None:
        """Refuse a job with the unit spectral if its matrix failed the check at the start, whatever the job's bound."""
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
        setup = self._settings
        sources = PermissionSources(self._authority, setup.revocations, setup.clock, setup.policy, setup.ledger)
        bound = self._held_dictionary(envelope.data_set).public_bound(spec)
        return Permission(sources, signed, envelope, spec, analyst, public_bound=bound)

    def _held_dictionary(self, data_set: str) -> HeldDictionary:
        return self._held.get(data_set) or HeldDictionary.of(data_set, None)

    def _name_rows(self, data_set: str) -> None:
        """Record fingerprints of the rows that are there by now in the ledger.

        They are recorded whenever there are more rows, whatever the new ones contain. Otherwise every receipt would
        show, by one entry more or less, whether a new row is a row of zeros.
        """
        count = self._settings.data_sets[data_set].count
        anew = self._named_at.get(data_set, count) != count
        self._named_at[data_set] = count
        self._settings.ledger.name_rows(self._named(data_set), anew=anew)

    def _named(self, data_set: str) -> Named:
        """Make the entry with the fingerprints of the rows that are there by now."""
        rows = self._settings.data_sets[data_set]
        names = rows.fingerprints() if isinstance(rows, Arrivals) else self._fingerprints[data_set]
        return Named(data_set, sorted(names), token_hex(BLIND_BYTES))

    def _receipt(self) -> pb.Receipt | None:
        """Sign how far the ledger has come, or return None if it ends with this process."""
        head = self._settings.ledger.attested_head()
        return sign_receipt(self._settings.identity(), head) if head else None

    def _opening(self, signed: SignedJob, envelope: JobEnvelope, plan: Plan, analyst: PartyName) -> Opening:
        """Make the entry that says what is admitted, and at what price."""
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
        """Prepare a data set for a job's bounds, or reuse it if the last job had the same.

        The job's unit says whether the data are rows or a share of a symmetric matrix.
        """
        rows, spec = self._settings.data_sets[name], plan.spec
        preparation = _Preparation.of(plan, self._settings.memory)
        made, kept = self._shards.get(name, (None, None))
        if kept is None or made != preparation or not kept.fits(spec):
            kept = _prepared(rows, spec, preparation, least_bound)
            self._shards[name] = preparation, kept
        return kept


def _prepared(
    rows: DataSet, spec: JobSpec, preparation: _Preparation, least_bound: float | None
) -> Shard | MatrixShard:
    limit, columns = preparation.limit, preparation.columns
    if isinstance(rows, CheckedRows):
        held = rows.bounded(preparation.rows_per_person).first(limit).with_columns(columns)
        if not spec.unit.is_row:
            return MatrixShard(held, spec.norm_bound, spec.unit, least_bound)
        return _shard_of(held, spec, preparation)
    if limit is None:
        raise RefusedError(
            "Rows of this data set still arrive, but this job needs all rows at once.",
            "Use the method streaming-power, and set block_rows to the rows of each provider in a round.",
        )
    return _shard_of(columns_of(rows.first(limit), columns), spec, preparation)


def _shard_of(rows: UsableRows, spec: JobSpec, how: _Preparation) -> Shard:
    chosen = Strategy.STREAM if rows.is_sparse else how.strategy
    return Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=chosen, keeps=how.keeps, memory=how.memory)
