"""The analyst's connection to a federation: sign a job, submit it, watch it, fetch its model.

This client does not trust the coordinator. It computes the privacy statement itself, from the signed job, and checks
that whatever the coordinator sends has a size and shape that the job allows. Whether the numbers of a model are right
depends on the coordinator's honesty alone. ``client/blocking.py`` offers the same without ``await``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Self

from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check, check_list
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.job import AutoCentering, JobSpec, Schema, Terms
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.results import Model, PrivacyStatement
from dpspca.common.storage import Route
from dpspca.common.trust import Identity, JobEnvelope, SignedJob, sign, signer_of
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .connection import (
    NO_TRUST,
    RETRY_SECONDS,
    Attempts,
    AwayError,
    CoordinatorLink,
    DishonestCoordinatorError,
    FederationError,
    JobList,
    JobStatus,
    Notify,
    Offer,
    OfferList,
    Presence,
    RenewableChannel,
    StatementRequests,
    TooMuchError,
    bounds,
    log_warning,
    model_from,
    presences,
    require_admissible,
    require_data_set,
    require_done,
    require_filled,
    require_fit,
    require_in_force,
    require_providers,
    settings,
    validity_of,
    warn_if_outlived,
)
from .described_jobs import attached
from .evidence import collect
from .findings import issue, with_warnings
from .private_bounds import centred
from .sized_jobs import sized_to_terms


@dataclass(frozen=True, slots=True)
class AsyncJob:
    """A submitted job. ``providers`` is its audience, or None if that is not known."""

    name: str
    plan: Plan
    stub: pb_grpc.AnalystServiceStub = field(repr=False)
    link: CoordinatorLink = field(default_factory=CoordinatorLink, repr=False)
    providers: frozenset[str] | None = None
    data_set: str | None = None
    features: Dictionary | None = None
    """The features of a job with a dictionary, if the dictionary is at hand. Its model then prepares raw rows."""

    @property
    def spec(self) -> JobSpec:
        """Return the job spec that was signed."""
        return self.plan.spec

    async def watch(self) -> AsyncIterator[JobStatus]:
        """Yield the job's status now and after every change until the job is over. Reconnect if the connection fails.

        Each status that is not newer than the last one is left out.
        """
        last: JobStatus | None = None
        attempts = Attempts(self.link)
        most = bounds.states_of(self.plan, MAX_PROVIDERS if self.providers is None else len(self.providers))
        while last is None or not last.is_final:
            problem = AwayError("The coordinator ended the watch before the job was over.", "Watch the job again.")
            try:
                call = self.stub.Watch(pb.JobName(job=self.name), timeout=bounds.WATCH_SECONDS)
                async for message in self.link.stream(call, most):
                    status = self._checked(message)
                    if last is None or status.is_news_after(last):
                        last = status
                        yield status
            except AwayError as away:
                problem = away
            if last is None or not last.is_final:
                await attempts.wait(problem)

    async def status(self) -> JobStatus:
        """Return the job's status now."""
        name = pb.JobName(job=self.name)
        return self._checked(await self.link.ask(lambda: self.stub.Get(name, timeout=bounds.ANSWER_SECONDS)))

    async def cancel(self) -> JobStatus:
        """Cancel the job and return its status. A job that is over stays as it is."""
        name = pb.JobName(job=self.name)
        return self._checked(await self.link.ask(lambda: self.stub.Cancel(name, timeout=bounds.ANSWER_SECONDS)))

    async def result(self) -> Model:
        """Wait for the job to end, return its model, and issue the warnings of its privacy statement."""
        model = await self.model()
        issue(model.statement)
        return model

    async def model(self) -> Model:
        """Wait for the job to end and return its model. Issue no warnings: the privacy statement contains them.

        The statement is computed here and not taken from the coordinator.
        """
        last: JobStatus | None = None
        async for each in self.watch():
            last = each
        assert last
        require_done(last)
        content = await self.link.retry(self._content)
        model = await asyncio.to_thread(model_from, self.spec, content)
        statement = PrivacyStatement.of(self.plan, parties=last.answered_by, fresh_noise=True, federated=True)
        return with_warnings(self.plan, self._completed(model, statement, last))

    def _completed(self, model: Model, statement: PrivacyStatement, last: JobStatus) -> Model:
        origin, names = last.origin(self.spec.method, self.data_set), self.spec.schema.names
        return replace(model, statement=statement, feature_names=names, dictionary=self.features, origin=origin)

    async def _content(self) -> bytearray:
        most = bounds.model_of(self.spec)
        content = bytearray()
        call = self.stub.Result(pb.JobName(job=self.name), timeout=bounds.seconds_for(most.size))
        async for frame in self.link.stream(call, most):
            content += frame.content
        return content

    def _checked(self, message: pb.Job) -> JobStatus:
        """Read the job's status. Refuse one with more queries than the plan, or with providers outside the audience."""
        status, queries = JobStatus.of(message), len(self.plan)
        counts = [status.answered, status.queries, *(max(each.asked, each.answered) for each in status.participants)]
        if max(counts) > queries:
            raise TooMuchError.of(f"a status that counts {max(counts)} queries of this job", queries)
        strangers = {each.name for each in status.participants} - (self.providers or set())
        if strangers and self.providers is not None:
            raise FederationError("The coordinator's status lists providers that the job does not name.", NO_TRUST)
        return status


class AsyncFederation:
    """A connection to a coordinator. If the coordinator goes away, calls are retried for ``retry_seconds``.

    ``identity`` may be a function that returns the identity as it is now. After a renewal, new calls use the new one.
    ``notify`` is called with a sentence when the coordinator goes away and when it is back. By default both are logged.
    """

    def __init__(
        self,
        address: str | Route,
        identity: Identity | Callable[[], Identity],
        clock: Callable[[], datetime] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        notify: Notify = log_warning,
    ) -> None:
        self._clock = clock or (lambda: datetime.now(UTC))
        self._notify = notify
        read = (lambda: identity) if isinstance(identity, Identity) else identity
        require_in_force(read(), self._clock())
        self._channel = RenewableChannel(address, read)
        self._link = CoordinatorLink(retry_seconds, notify, lambda: require_in_force(self._identity, self._clock()))
        self.stub = pb_grpc.AnalystServiceStub(bounds.Bounded(self._channel))
        self._parties = pb_grpc.PartyServiceStub(bounds.Bounded(self._channel))

    @property
    def _identity(self) -> Identity:
        return self._channel.identity()

    @classmethod
    def connect(
        cls,
        where: str | PathLike[str],
        identity: str | PathLike[str] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        notify: Notify = log_warning,
    ) -> Self:
        """Connect with a settings file (see docs/jobs.md), or to an address with the folder of an identity."""
        return cls(*settings(where, identity), retry_seconds=retry_seconds, notify=notify)

    async def data_sets(self) -> list[Offer]:
        """List the data sets that the connected providers offer now."""

        async def listed() -> list[Offer]:
            offers = OfferList()
            call = self.stub.DataSets(pb.DataSetsRequest(), timeout=bounds.LIST_SECONDS)
            return [offers.read(each) async for each in self._link.stream(call, bounds.OFFERS)]

        return await self._link.retry(listed)

    async def terms(self, data_set: str | None = None, providers: Sequence[str] | None = None) -> list[Terms]:
        """Return the terms of a data set, or of all, as the connected providers state them to this analyst.

        A provider states its terms to analysts whom its policy names. Any other is left out, whether it lacks the data
        set or does not open it to you. Each provider's signature of its terms is verified here.
        """
        offers = [
            each
            for each in await self.data_sets()
            if data_set in {None, each.data_set} and (providers is None or each.provider in providers)
        ]
        return await StatementRequests(self.stub, self._link, self._identity, self._clock).terms(offers)

    async def presence(self, providers: Sequence[str]) -> list[Presence]:
        """Return who of these providers is connected, since when, and why the others are not.

        The coordinator says so, and is not trusted: no promise depends on it. One of an earlier version says nothing.
        """
        return await presences(self._parties, self._link, providers)

    async def only_data_set(self) -> str:
        """Return the name of the only data set on offer now. Raise if there is none, or more than one."""
        known = sorted({offer.data_set for offer in await self.data_sets()})
        if not known:
            raise InvalidParameterError(
                "No data set was named, and no connected provider offers one now.",
                "Check that the providers are running.",
            )
        if len(known) > 1:
            raise InvalidParameterError(
                f"No data set was named, and {len(known)} are on offer now. Available: {', '.join(known)}.",
                "Name one of these.",
            )
        return known[0]

    async def describe(self, data_set: str, providers: Sequence[str] | None = None) -> tuple[Schema, list[str]]:
        """Return the columns of a data set, and the providers to ask: those named, or all that offer it now."""
        offers = await self.data_sets()
        require_data_set(data_set, {offer.data_set for offer in offers})
        chosen = {each.provider: each.schema for each in offers if each.data_set == data_set}
        names = sorted(chosen) if providers is None else check_list("providers", providers)
        require_providers(data_set, names, chosen.keys())
        schemas = {chosen[name] for name in names}
        check(
            len(schemas) == 1,
            f"The providers of {data_set!r} do not offer the same columns.",
            "Name only providers whose columns agree.",
        )
        return schemas.pop(), names

    async def offers_of(self, data_set: str) -> list[Offer]:
        """List the offers of a data set by providers that are connected now, in the order of their names."""
        offered = {each.provider: each for each in await self.data_sets() if each.data_set == data_set}
        return [offered[name] for name in sorted(offered)]

    async def submit(  # noqa: PLR0913  # the job, and how to submit it
        self,
        spec: JobSpec | Plan,
        data_set: str | None = None,
        providers: Sequence[str] | None = None,
        *,
        dictionary: Dictionary | None = None,
        centering: AutoCentering | None = None,
        life: timedelta | None = None,
    ) -> AsyncJob:
        """Sign a job for these providers, or for all that offer the data set now, and submit it.

        The job may be planned already. ``data_set`` may be left out if only one is on offer. If the job does not name
        its columns, it is signed with the names on offer. With its ``dictionary``, the model can prepare raw rows. With
        ``centering``, that is chosen by public facts, such as the number of these providers. ``sized_jobs.py`` says
        when a matrix is left out. A job is valid for ``life``, if that is longer than ``validity_of``.
        """
        plan = spec if isinstance(spec, Plan) else catalogue.plan(spec)  # raises before anything is sent
        spec = plan.spec
        features = None if dictionary is None else attached(spec, dictionary)
        data_set = await self.only_data_set() if data_set is None else check_name("the data set", data_set)
        spec.schema.require_named()
        require_admissible(await self.presence(check_list("providers", providers or ())))
        names = await self._names(spec, data_set) if providers is None else check_list("providers", providers)
        asked = [each for each in await self.offers_of(data_set) if each.provider in names]
        if centering is not None:
            spec = centred(spec, centering, len(names), sparse=any(each.is_sparse for each in asked))
        require_fit(spec, data_set, names, asked)
        spec = await sized_to_terms(spec, plan.answer_bytes, partial(self.terms, data_set, names), self._notify)
        if spec.dictionary is None:
            spec = spec.with_names({each.provider: each.schema.names for each in asked})
        plan = plan if spec == plan.spec else catalogue.plan(spec)  # with what was just found
        audience = [PartyName(self._identity.name.federation, Role.PROVIDER, name) for name in names]
        life = max(validity_of(plan), life or timedelta())
        envelope = JobEnvelope.draw(spec.to_json().encode(), audience, data_set, now=self._clock(), life=life)
        warn_if_outlived(self._identity, self._clock() + life, self._notify)
        return replace(await self._submitted(sign(envelope, self._identity), plan), features=features)

    async def _names(self, spec: JobSpec, data_set: str) -> list[str]:
        """Name the providers to ask: all that offer the data set. Without a dictionary, their columns must agree."""
        if spec.dictionary is None:
            return (await self.describe(data_set))[1]
        return [each.provider for each in await self.offers_of(data_set)] or (await self.describe(data_set))[1]

    async def submit_signed(self, signed: SignedJob, spec: JobSpec) -> AsyncJob:
        """Submit a job that is already signed. Submitting the same bytes again does not create another job."""
        return await self._submitted(signed, catalogue.plan(spec))

    async def _submitted(self, signed: SignedJob, plan: Plan) -> AsyncJob:
        request = pb.SubmitRequest(signed_job=signed.to_bytes())
        job = await self._link.ask(lambda: self.stub.Submit(request, timeout=bounds.ANSWER_SECONDS))
        if job.job != signed.job_id:
            raise RefusedError("The coordinator replied about another job than the one submitted.", NO_TRUST)
        _, providers, data_set = _contents(signed)
        return AsyncJob(job.job, plan, self.stub, self._link, providers, data_set)

    async def fit(
        self,
        spec: JobSpec,
        data_set: str | None = None,
        providers: Sequence[str] | None = None,
        *,
        dictionary: Dictionary | None = None,
        centering: AutoCentering | None = None,
    ) -> Model:
        """Submit a job and wait for its model."""
        job = await self.submit(spec, data_set, providers, dictionary=dictionary, centering=centering)
        return await job.result()

    async def jobs(self) -> list[JobStatus]:
        """List this analyst's jobs, oldest first."""

        async def listed() -> list[JobStatus]:
            known = JobList()
            call = self.stub.List(pb.ListRequest(), timeout=bounds.LIST_SECONDS)
            return [known.read(each) async for each in self._link.stream(call, bounds.JOBS)]

        return sorted(await self._link.retry(listed), key=lambda job: job.submitted)

    async def job(self, name: str, *, dictionary: Dictionary | None = None) -> AsyncJob:
        """Return a job that was submitted before, by its name or the first characters of it.

        With the job's ``dictionary``, its model can prepare raw rows.

        The signature is checked, because the privacy statement of a model is computed from the job. A coordinator that
        could pass off another analyst's job, or one of its own making, could attach a false promise to a model.
        """
        require_filled("the job", name)  # every name begins with the empty text
        reply = await self._link.ask(lambda: self.stub.Get(pb.JobName(job=name), timeout=bounds.ANSWER_SECONDS))
        signed = SignedJob.from_bytes(reply.signed_job)
        if signed.job_id != reply.job or not reply.job.startswith(name):
            raise DishonestCoordinatorError(f"The coordinator replied with another job than {name:.12}.", NO_TRUST)
        if signer_of(signed, self._identity.authority_pem) != self._identity.name:
            raise DishonestCoordinatorError("The coordinator replied with a job that you did not sign.", NO_TRUST)
        spec, providers, about = _contents(signed)
        features = None if dictionary is None else attached(spec, dictionary)
        return AsyncJob(reply.job, catalogue.plan(spec), self.stub, self._link, providers, about, features)

    async def evidence(self, job: str, *, model: bytes | None = None, bill_of_materials: bytes | None = None) -> bytes:
        """Return a file that shows, also years later, what this job asked and what its providers state about it.

        ``model`` is the stored model; if it is left out, the job's model is fetched if the coordinator still has it.
        """
        taken = await self.job(job)
        status = await taken.status()
        if model is None and status.state == "done":
            with suppress(FederationError):  # the result may be gone
                model = (await taken.model()).to_bytes()
        promised = PrivacyStatement.of(taken.plan, parties=status.answered_by, fresh_noise=True, federated=True)
        requests = StatementRequests(self.stub, self._link, self._identity, self._clock)
        return await collect(requests, taken.name, promised, model, bill_of_materials)

    async def close(self) -> None:
        """Close the connection. Jobs continue."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _contents(signed: SignedJob) -> tuple[JobSpec, frozenset[str], str]:
    """Return the spec of a signed job, the names of the providers in its audience, and its data set."""
    envelope = JobEnvelope.from_bytes(signed.payload)
    return JobSpec.from_json(envelope.spec), frozenset(envelope.audience), envelope.data_set
