"""The jobs that this provider serves. Each is verified once, when it is opened, and given the rows that it is about.

The provider trusts the analyst's signature and nothing that the coordinator says: it computes the plan from the signed
job.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from secrets import token_hex
from threading import Lock
from typing import Final, NamedTuple

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import DataChangedError
from dpspca.common.job import MAX_COMPONENT_ENTRIES, JobSpec
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import PartyName
from dpspca.common.plan import Plan
from dpspca.common.privacy import Entropy
from dpspca.common.storage import Emit, Route, ignore
from dpspca.common.trust import Identity, JobEnvelope, RevocationList, SignedJob, sign_receipt, verify
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.approval import Approvals, require_approved
from dpspca.provider.data import (
    Arrivals,
    ClusterRows,
    DataSet,
    WaitingQueries,
    free_in_thread,
    run_in_opening_thread,
)
from dpspca.provider.evaluate import MatrixShard, Shard
from dpspca.provider.ledger import (
    Ledger,
    Limits,
    MemoryLedger,
    Named,
    Opening,
    PeerReceipts,
    Quotas,
)
from dpspca.provider.policy import JobRequest, Policy
from dpspca.provider.release import (
    LEAST_INTERVAL,
    Coin,
    EvaluationAttempts,
    Responder,
    Schedule,
    delay_result,
    system_coin,
    system_entropy,
)

from .forms import require_form
from .kept_jobs import SketchLimit, forget_least_used
from .last_prepared import LastPrepared
from .offer import OfferedData
from .open_job import OpenJob, RowWait, retrieve_exception
from .opening import BLIND_BYTES, opening_of
from .permission import WITHDRAWN, DataSetRules, Permission, PermissionSources, PolicyLike, WithdrawnError
from .prepared_rows import PreparedRows
from .row_places import RowPlaces

MAX_OPEN_JOBS: Final = 64
"""Jobs that are kept in memory. Of more jobs, the least recently used are opened again when they are asked about
(``kept_jobs.py``). This is also the most queries that wait for rows; one analyst can have half of them."""
MAX_WAITING_BYTES: Final = 2 * 8 * MAX_COMPONENT_ENTRIES
"""Of the contents of queries that wait for rows, one of each job: as much as two of the largest bases."""
ENDS: Final = frozenset({"done", "failed", "cancelled"})
"""How a coordinator says that a job ended."""


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProviderSetup:
    """Everything that a daemon needs to start. Without a policy, it refuses everything.

    ``entropy`` returns the words of every draw. Only tests use another than the default.
    """

    address: str | Route
    """Where the coordinator is, and the proxy on the way to it if there is one."""
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
    events: Emit = ignore
    """Takes what happens, for programs that watch."""
    memory: int | None = None
    """How many bytes answers may take that are made at once. A job with an answer that takes more is refused."""
    places: int | None = None
    """How many answers may be in progress at once. The default is four more than there are processors."""
    approvals: Approvals | None = None
    """Has jobs wait for a person's approval. Without it, a policy that asks for approval refuses every job."""


class _Admitted(NamedTuple):
    """A job that may be opened, with what its admission found out."""

    signed: SignedJob
    envelope: JobEnvelope
    analyst: PartyName
    plan: Plan
    permission: Permission
    rules: DataSetRules
    limits: Limits
    opening: Opening
    offer: OfferedData
    """The offer when the job was admitted. A reload does not change it for this job."""


class JobRegistry:
    """The open jobs by name. Opening a job takes a while, and is done in a thread."""

    def __init__(self, settings: ProviderSetup) -> None:
        self._settings = settings
        self._authority = settings.identity().authority_pem  # unlike keys and certificates, it is never replaced
        self._jobs: OrderedDict[str, OpenJob] = OrderedDict()
        self._lock = Lock()  # jobs are opened and closed in threads
        self._openings: dict[str, asyncio.Task[OpenJob]] = {}
        self._sketches = SketchLimit(self._jobs)
        self.rows = PreparedRows(settings.memory)
        self.places = RowPlaces(settings.places, settings.memory)
        self._last = LastPrepared()
        self._attempts = EvaluationAttempts()
        self._named_at: dict[str, int] = {}
        self._waiting = WaitingQueries(MAX_OPEN_JOBS, MAX_WAITING_BYTES)
        settings.ledger.key_names()
        self.offer = self.make_offer(settings.data_sets, settings.dictionaries, settings.policy)
        self._record_rows(self.offer)

    def make_offer(
        self,
        data_sets: Mapping[str, DataSet],
        dictionaries: Mapping[str, Preparation],
        policy: Callable[[], PolicyLike],
    ) -> OfferedData:
        """Check data sets that are to be offered under a policy. Nothing changes yet."""
        return OfferedData.of(data_sets, dictionaries, policy, self._settings.ledger)

    def take_offer(self, offer: OfferedData) -> None:
        """Offer these data sets from now on. A job ends here if its data set is gone or has other rows.

        What such a job spent stays spent, and the rest of its reservation is free. The other jobs go on.
        """
        settings = self._settings
        with self._lock:
            before, self.offer = self.offer, offer
            settings.data_sets, settings.dictionaries = offer.data_sets, offer.dictionaries
            for name in [name for name in before.data_sets if not offer.has_same(name, before)]:
                self._named_at.pop(name, None)
        self._record_rows(offer)
        for job in settings.ledger.open_jobs():
            recorded = settings.ledger.past_job(job)
            if recorded and offer.digests.get(recorded.opening.data_set) != recorded.opening.data_digest:
                _log.warning("Job %.12s ends here: its data set is gone or has other rows now.", job)
                self.end(job, WITHDRAWN)

    def _record_rows(self, offer: OfferedData) -> None:
        """Note how many rows there are, and report promises that earlier jobs did not keep."""
        for name, rows in offer.data_sets.items():
            self._named_at.setdefault(name, rows.count)
        offer.report_broken_promises(self._settings.policy, self._settings.ledger)
        for name, digest in offer.digests.items():
            if self._settings.ledger.data_set_of_rows([digest]) == name:  # an earlier version recorded it alone
                self._name_rows(offer, name)

    def find(self, name: str) -> OpenJob | None:
        """Return an open job, or None. Refuse it if it has expired or the policy no longer allows it."""
        job = self._jobs.get(name)
        if job is None:
            return None
        try:
            job.require_permission()
        except WithdrawnError:
            del job  # the error's traceback would keep it
            self._forget(name)
            raise
        with self._lock:
            if name in self._jobs:
                self._jobs.move_to_end(name)
        return job

    def close(self, name: str, state: str) -> None:
        """End a job as a coordinator says that it ended."""
        self.end(name, state if state in ENDS else "ended")

    def end(self, name: str, state: str) -> None:
        """End a job for good. Nothing more of it is answered, and what it was not asked is free again.

        The ledger comes first: if it cannot write, the job stays open here, too, and is not opened a second time.
        """
        if self._settings.approvals:
            self._settings.approvals.close(name)
        self._settings.ledger.close(name, state)
        with self._lock:
            job = self._jobs.pop(name, None)
        if job:
            job.stop()

    def _forget(self, name: str) -> None:
        """Forget a job, unless it is busy."""
        with self._lock:
            if name in self._jobs and self._jobs[name].retire():
                free_in_thread([self._jobs.pop(name)])

    def _drop_expired(self) -> None:
        now = self._settings.clock().timestamp()
        with self._lock:
            for name in [name for name, job in self._jobs.items() if job.envelope.expires_at <= now]:
                if self._jobs[name].retire():
                    free_in_thread([self._jobs.pop(name)])
        self._attempts.keep(self._settings.ledger.open_jobs())

    async def find_or_open(self, signed: SignedJob) -> OpenJob:
        """Return a job, and open it first if necessary. Callers that ask at once share one opening.

        Otherwise two copies of one job could each make an answer to the same query. No row is copied, and opening ends
        on a schedule too: it costs nothing, so it could be repeated until its time shows anything that it depends on.
        """
        job = self.find(signed.job_id)
        if job is not None:
            return job
        opening = self._openings.get(signed.job_id)
        if opening is None:
            work = run_in_opening_thread(self.open, signed)
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
        job = self._admit(signed, self.offer)
        data_set, spec = job.envelope.data_set, job.plan.spec
        shard = self.rows.of(job.offer, data_set, job.plan, job.rules.least_bound)
        shard.check(spec)
        if isinstance(shard, Shard):
            shard.require_sums(job.plan, len(job.envelope.audience))
        else:
            shard.require_memory(job.plan)
        with self._lock:
            self._sketches.take(signed.job_id, job.envelope.analyst, job.plan)
        try:
            self._settings.ledger.open(job.opening, job.limits, self._named(job.offer, data_set))
            job.permission.require_room(job.rules)
            opened = self._prepare(job, shard)
            self._keep_open(opened, job.offer)
        finally:
            with self._lock:
                self._sketches.opened(signed.job_id)
        _log.info(
            "Opened job %.12s of %s over '%s': epsilon %g, delta %g.",
            opened.name,
            job.analyst.name,
            data_set,
            spec.budget.epsilon,
            spec.budget.delta,
            extra=about(THE_COORDINATOR),
        )
        return opened

    def _admit(self, signed: SignedJob, offer: OfferedData) -> _Admitted:
        """Refuse a job that its signature, the policy, the ledger or a person does not allow. Nothing is reserved."""
        settings = self._settings
        me = settings.identity()
        envelope, analyst = verify(
            signed, me.authority_pem, me=me.name, now=settings.clock(), revoked=settings.revocations()
        )
        spec = JobSpec.from_json(envelope.spec)
        bound = offer.dictionary_of(envelope.data_set).public_bound(spec)
        request = JobRequest(spec, analyst, envelope.audience, bound)
        permission = self._permission(signed, envelope, request)
        rules = permission.rules()
        offer.require_spectral_check(envelope.data_set, spec, rules.least_bound)
        offer.dictionary_of(envelope.data_set).require(spec)
        require_form(offer.data_sets, envelope.data_set, spec)
        plan = request.plan
        self._drop_expired()
        settings.ledger.expire(settings.clock().timestamp())
        limits = Limits(*rules.limits(analyst), rules.promise, rules.quotas)
        opening = opening_of(signed, envelope, plan, analyst, offer.digests[envelope.data_set])
        settings.ledger.require_admissible(opening, limits)  # do not ask for approval of a job that would be refused
        if settings.ledger.standing(opening.job) is None:
            self._require_approval(signed, envelope, opening.analyst, rules)
        return _Admitted(signed, envelope, analyst, plan, permission, rules, limits, opening, offer)

    def _prepare(self, job: _Admitted, shard: Shard | MatrixShard) -> OpenJob:
        settings, plan, data_set, name = self._settings, job.plan, job.envelope.data_set, job.signed.job_id
        rows = job.offer.data_sets[data_set]
        seat = job.envelope.audience.index(settings.identity().name.name)
        schedule = Schedule(
            plan,
            interval=lambda: job.permission.answer_interval,
            is_sparse=shard.is_sparse,
            makes_matrix=shard.makes_matrix,
            read_columns=rows.read_columns if isinstance(rows, ClusterRows | Arrivals) else 0,
            copied_columns=shard.copied_columns,
            kept_columns=shard.kept_columns,
            rows_together=plan.spec.rows_per_person,
            toss=settings.toss,
        )
        return OpenJob(
            job.signed,
            job.envelope,
            plan,
            Responder(plan, shard, settings.ledger, settings.entropy, job=name, seat=seat, attempts=self._attempts),
            schedule,
            self._receipt,
            RowWait(rows, shard, job.envelope.analyst, plan.spec.answer_seconds, job.permission.require, self._waiting),
            job.permission.require,
            partial(self._name_rows, job.offer, data_set),
            partial(self._last.used, shard),
            partial(self._last.done, shard),
            self.places,
            shard.memory_of,
        )

    def _keep_open(self, opened: OpenJob, offer: OfferedData) -> None:
        """Keep a job open. If there are too many, forget the least recently used ones that lose nothing by that."""
        with self._lock:
            is_current = offer.has_same(opened.envelope.data_set, self.offer)
            if is_current:
                self._jobs[opened.name] = opened
                free_in_thread(forget_least_used(self._jobs, MAX_OPEN_JOBS))
        if not is_current:
            self.end(opened.name, WITHDRAWN)
            raise DataChangedError("The data set changed while this job was opened.", "Sign a new job.")

    def _require_approval(self, signed: SignedJob, envelope: JobEnvelope, analyst: str, rules: DataSetRules) -> None:
        """Have a job wait in the queue if persons have to approve it and have not. Nothing is reserved for it."""
        if approvals := self._settings.approvals:
            approvals.require(signed, envelope, analyst, rules.approval_rule, rules.quotas or Quotas())
        else:
            require_approved(self._settings.ledger.decisions(signed.job_id), rules.approval_rule)

    def _permission(self, signed: SignedJob, envelope: JobEnvelope, request: JobRequest) -> Permission:
        setup = self._settings
        sources = PermissionSources(self._authority, setup.revocations, setup.clock, setup.policy, setup.ledger)
        return Permission(sources, signed, envelope, request)

    def _name_rows(self, offer: OfferedData, data_set: str) -> None:
        """Record fingerprints of all current rows in the ledger.

        They are recorded whenever there are more rows, whatever the new ones contain. Otherwise every receipt would
        show, by one entry more or less, whether a new row is a row of zeros.
        """
        count = offer.data_sets[data_set].count
        anew = self._named_at.get(data_set, count) != count
        self._named_at[data_set] = count
        self._settings.ledger.name_rows(self._named(offer, data_set), anew=anew)

    def _named(self, offer: OfferedData, data_set: str) -> Named:
        """Make the entry with the fingerprints of all current rows."""
        rows = offer.data_sets[data_set]
        names = offer.fingerprints[data_set]
        if isinstance(rows, Arrivals):
            names = frozenset(map(self._settings.ledger.name_of, rows.fingerprints()))
        return Named(data_set, sorted(names), token_hex(BLIND_BYTES))

    def _receipt(self) -> pb.Receipt | None:
        """Sign how far the ledger has come, or return None if it ends with this process."""
        head = self._settings.ledger.attested_head()
        return sign_receipt(self._settings.identity(), head) if head else None
