"""A real federation from the analyst's side: sign a job, submit it, watch it, fetch its model.

The coordinator is not believed: the privacy statement is worked out here, from the job that was signed, and what it
sends is held to the size and shape that the job allows. That a model is the right one, only the coordinator's honesty
vouches for. ``client/blocking.py`` is the same without ``await``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.model import Model
from dpspca.common.privacy.lattice import MAX_PARTIES
from dpspca.common.spec import JobSpec, Schema, check
from dpspca.common.statement import PrivacyStatement
from dpspca.common.transport import rpc
from dpspca.common.transport.config import AnalystConfig, read_config
from dpspca.common.transport.errors import NotNowError
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName, Role, check_name
from dpspca.common.transport.signing import MAX_JOB_LIFE, JobEnvelope, SignedJob, sign, signer_of
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from . import bounds
from .bounds import ANSWER_SECONDS, LIST_SECONDS, WATCH_SECONDS
from .calls import PATIENCE, Attempts, Line, Tell, in_the_log
from .errors import AwayError, FederationError, TooMuchError
from .findings import issue, with_warnings
from .jobs import JobStatus, Listed, Offer, Offers

__all__ = [
    "AsyncFederation",
    "AsyncJob",
    "FederationError",
    "JobFailedError",
    "life_of",
    "require_done",
    "require_in_force",
    "settings",
]

NO_TRUST: Final = "Do not trust it, and tell its operator."
LIFE: Final = timedelta(hours=12)
"""That a job is signed for, unless its answers may take longer."""


class JobFailedError(FederationError):
    """The job ended without a model."""

    code = "job-failed"


@dataclass(frozen=True, slots=True)
class AsyncJob:
    """A submitted job; ``providers`` are those that it was signed for, where that is known."""

    name: str
    spec: JobSpec
    stub: pb_grpc.AnalystServiceStub = field(repr=False)
    line: Line = field(default_factory=Line, repr=False)
    providers: frozenset[str] | None = None

    async def watch(self) -> AsyncIterator[JobStatus]:
        """Give the job's state now and after every change, until it is over; the coordinator may go and come back."""
        told: JobStatus | None = None
        attempts = Attempts(self.line)
        most = bounds.states_of(self.spec, MAX_PARTIES if self.providers is None else len(self.providers))
        while told is None or not told.is_final:
            problem = AwayError("The coordinator ended the watch before the job was over.", "Watch it again.")
            try:
                call = self.stub.Watch(pb.JobName(job=self.name), timeout=WATCH_SECONDS)
                async for message in self.line.hear(call, most):
                    status = self._held(message)
                    if told is None or status.is_news_after(told):
                        told = status
                        yield status
            except AwayError as away:
                problem = away
            if told is None or not told.is_final:
                await attempts.wait(problem)

    async def status(self) -> JobStatus:
        """Give the job's state now."""
        name = pb.JobName(job=self.name)
        return self._held(await self.line.ask(lambda: self.stub.Get(name, timeout=ANSWER_SECONDS)))

    async def cancel(self) -> JobStatus:
        """End the job; one that is over stays as it is."""
        name = pb.JobName(job=self.name)
        return self._held(await self.line.ask(lambda: self.stub.Cancel(name, timeout=ANSWER_SECONDS)))

    async def result(self) -> Model:
        """Wait for the end, and give the model; what has to be known of it comes as warnings of Python's as well."""
        model = await self.model()
        issue(model.statement)
        return model

    async def model(self) -> Model:
        """Do the same and warn of nothing: the statement, which is of our own making, carries all that there is."""
        last: JobStatus | None = None
        async for each in self.watch():
            last = each
        assert last
        require_done(last)
        content = await self.line.persist(self._content)
        model = await asyncio.to_thread(_model, self.spec, content)
        # A job may end before all that was planned was asked; whoever answered all that was asked took part.
        parties = sum(each.answered == last.answered for each in last.participants)
        statement = PrivacyStatement.of(
            self.spec, catalogue.plan(self.spec), parties=parties, fresh_noise=True, federated=True
        )
        return with_warnings(self.spec, replace(model, statement=statement, feature_names=self.spec.schema.names))

    async def _content(self) -> bytearray:
        most = bounds.model_of(self.spec)
        content = bytearray()
        call = self.stub.Result(pb.JobName(job=self.name), timeout=bounds.seconds_for(most.size))
        async for frame in self.line.hear(call, most):
            content += frame.content
        return content

    def _held(self, message: pb.Job) -> JobStatus:
        """Read how the job stands, and hold it to the job: no more questions, and no other providers."""
        status, questions = JobStatus.of(message), len(catalogue.plan(self.spec))
        counts = [status.answered, status.questions, *(max(each.asked, each.answered) for each in status.participants)]
        if max(counts) > questions:
            raise TooMuchError.of(f"word of {max(counts)} questions of this job", questions)
        strangers = {each.name for each in status.participants} - (self.providers or set())
        if strangers and self.providers is not None:
            raise FederationError("The coordinator sent word of providers that the job does not ask.", NO_TRUST)
        return status


def life_of(spec: JobSpec) -> timedelta:
    """Say for how long a job is signed: for all the time that it gives for answers, within what anybody believes.

    Rounds may wait for rows that arrive over days; a job that runs out meanwhile would end without a model, when some
    of it is spent. So one that says how many rows a round is about is refused if it might. Answers of others come as
    fast as they are worked out, and what their many rounds might take together says nothing.
    """
    waits = len(catalogue.plan(spec)) + 2  # before the first answer, for providers to be there and to take part
    check(
        waits * spec.answer_seconds <= MAX_JOB_LIFE or catalogue.rows_of(spec) is None,
        f"The job may wait {waits} times {spec.answer_seconds} seconds, twice for its providers and once for each "
        f"answer; it holds {MAX_JOB_LIFE} seconds, {MAX_JOB_LIFE // 86_400} days, at most.",
        f"Give answer_seconds of at most {MAX_JOB_LIFE // waits}, or ask fewer rounds.",
    )
    return max(LIFE, timedelta(seconds=min(waits * spec.answer_seconds, MAX_JOB_LIFE)))


class AsyncFederation:
    """A connection to a coordinator; one that goes away is tried again for so many seconds, its ``patience``.

    ``tell`` is given a sentence when it goes away, and when it is back; left out, these go to the log.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        clock: Callable[[], datetime] | None = None,
        *,
        patience: float = PATIENCE,
        tell: Tell = in_the_log,
    ) -> None:
        self._identity = identity
        self._clock = clock or (lambda: datetime.now(UTC))
        require_in_force(identity, self._clock())
        self._line = Line(patience, tell, lambda: require_in_force(identity, self._clock()))
        self._channel = rpc.dial(address, identity)
        self.stub = pb_grpc.AnalystServiceStub(bounds.Bounded(self._channel))

    @classmethod
    def connect(
        cls,
        where: str | PathLike[str],
        identity: str | PathLike[str] | None = None,
        *,
        patience: float = PATIENCE,
        tell: Tell = in_the_log,
    ) -> Self:
        """Connect as a settings file says (see docs/federation.md), or to an address with an identity's folder."""
        return cls(*settings(where, identity), patience=patience, tell=tell)

    async def data_sets(self) -> list[Offer]:
        """List what the providers that are connected now offer."""

        async def listed() -> list[Offer]:
            offers = Offers()
            call = self.stub.DataSets(pb.DataSetsRequest(), timeout=LIST_SECONDS)
            return [offers.read(each) async for each in self._line.hear(call, bounds.OFFERS)]

        return await self._line.persist(listed)

    async def only_data_set(self) -> str:
        """Name the data set that is on offer, if there is one and no other."""
        known = sorted({offer.data_set for offer in await self.data_sets()})
        if len(known) != 1:
            raise InvalidParameterError(
                f"No data set is named, and {f'there are {len(known)}: ' + ', '.join(known) if known else 'none is'} "
                "on offer now.",
                "Name one of these." if known else "See that the providers are up.",
            )
        return known[0]

    async def describe(self, data_set: str, providers: Sequence[str] | None = None) -> tuple[Schema, list[str]]:
        """Give the columns of a data set, and the providers to ask: those named, or all that offer it now."""
        offers = await self.data_sets()
        chosen = {each.provider: each.schema for each in offers if each.data_set == data_set}
        if not chosen:
            known = ", ".join(sorted({offer.data_set for offer in offers})) or "none"
            raise InvalidParameterError(
                f"Nobody who is connected offers the data set {data_set!r}; on offer: {known}.",
                "Name one of these, or see that the providers are up.",
            )
        names = sorted(chosen) if providers is None else list(providers)
        absent = [name for name in names if name not in chosen]
        check(not absent, f"{', '.join(absent)} do not offer {data_set!r} now.", "Leave them out, or wait for them.")
        schemas = {chosen[name] for name in names}
        check(len(schemas) == 1, "The providers' columns differ.", "Name providers that agree, or have them agree.")
        return schemas.pop(), names

    async def submit(
        self, spec: JobSpec, data_set: str | None = None, providers: Sequence[str] | None = None
    ) -> AsyncJob:
        """Sign a job for these providers, or for all that offer the data set now, and submit it.

        Where one data set is on offer, and no other, it need not be named. A job that does not say what its columns
        are called is signed with the names on offer, so that they are in its model.
        """
        catalogue.plan(spec)  # what is wrong with it is said before anything is sent
        federation = self._identity.name.federation
        data_set = await self.only_data_set() if data_set is None else check_name("the data set", data_set)
        spec.schema.require_named()
        names = (await self.describe(data_set))[1] if providers is None else list(providers)
        asked = [each for each in await self.data_sets() if each.data_set == data_set and each.provider in names]
        _require_fit(spec, data_set, names, asked)
        spec = spec.with_names({each.provider: each.schema.names for each in asked})
        audience = [PartyName(federation, Role.PROVIDER, name) for name in names]
        envelope = JobEnvelope.draw(spec.to_json().encode(), audience, data_set, now=self._clock(), life=life_of(spec))
        return await self.submit_signed(sign(envelope, self._identity), spec)

    async def submit_signed(self, signed: SignedJob, spec: JobSpec) -> AsyncJob:
        """Submit a job that was signed before; the same bytes are the same job."""
        request = pb.SubmitRequest(signed_job=signed.to_bytes())
        job = await self._line.ask(lambda: self.stub.Submit(request, timeout=ANSWER_SECONDS))
        if job.job != signed.job_id:
            raise RefusedError("The coordinator speaks of another job.", NO_TRUST)
        return AsyncJob(job.job, spec, self.stub, self._line, _asked(signed)[1])

    async def fit(self, spec: JobSpec, data_set: str | None = None, providers: Sequence[str] | None = None) -> Model:
        """Submit a job and wait for its model."""
        return await (await self.submit(spec, data_set, providers)).result()

    async def jobs(self) -> list[JobStatus]:
        """List this analyst's jobs, oldest first."""

        async def listed() -> list[JobStatus]:
            known = Listed()
            call = self.stub.List(pb.ListRequest(), timeout=LIST_SECONDS)
            return [known.read(each) async for each in self._line.hear(call, bounds.JOBS)]

        return sorted(await self._line.persist(listed), key=lambda job: job.submitted)

    async def job(self, name: str) -> AsyncJob:
        """Take up a job that was submitted before. That this analyst signed it is checked, not believed.

        A model is stated to be as private as its job promised: whoever could show another's job, or one of his own
        making, could put a false promise to a model.
        """
        _require_filled("the job", name)  # every name begins with nothing
        told = await self._line.ask(lambda: self.stub.Get(pb.JobName(job=name), timeout=ANSWER_SECONDS))
        signed = SignedJob.from_bytes(told.signed_job)
        if signed.job_id != told.job or not told.job.startswith(name):
            raise RefusedError("The coordinator speaks of another job.", NO_TRUST)
        if signer_of(signed, self._identity.authority_pem) != self._identity.name:
            raise RefusedError("The coordinator shows a job that you did not sign.", NO_TRUST)
        spec, providers = _asked(signed)
        return AsyncJob(told.job, spec, self.stub, self._line, providers)

    async def close(self) -> None:
        """End the connection. Jobs go on."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def settings(where: str | PathLike[str], identity: str | PathLike[str] | None) -> tuple[str, Identity]:
    """Read a settings file, or take an address and the folder of an identity."""
    _require_filled("the coordinator's address" if identity is not None else "the settings' path", where)
    if identity is not None:
        _require_filled("the identity's folder", identity)
        return str(where), Identity.load(Path(identity))
    read = read_config(AnalystConfig, Path(where))
    return read.coordinator, Identity.load(read.identity)


def _require_filled(what: str, given: str | PathLike[str]) -> None:
    """Refuse empty text: as a path it would be the folder one is in, and as the beginning of a name, every name."""
    check(bool(str(given).strip()), f"{what} is {given!r}, which is empty.", "Give one.")


def _require_fit(spec: JobSpec, data_set: str, names: Sequence[str], asked: Sequence[Offer]) -> None:
    """Refuse a job that could do nothing but wait, as far as can be seen now; who is not there yet may still come."""
    check(
        len(names) >= spec.minimum_parties,
        f"The job needs {spec.minimum_parties} providers, and {len(names)} would be asked.",
        "Ask more, or lower its minimum_parties.",
    )
    columns = spec.schema.dimension
    for each in asked:
        check(
            each.schema.dimension == columns,
            f"The job is about {columns} columns, and {data_set!r} of {each.provider} has {each.schema.dimension}.",
            "Describe the columns as they are on offer, or leave that provider out.",
        )


def require_in_force(me: Identity, now: datetime) -> None:
    """Say so at once if the certificate has run out: of a handshake that fails, gRPC does not tell why."""
    if me.not_after <= now:
        raise NotNowError(
            f"The certificate of {me.name} ended at {me.not_after:%Y-%m-%d %H:%M} UTC.",
            "Renew it, beginning with `dpspca identity renew`, or correct the clock.",
        )


def require_done(status: JobStatus) -> None:
    """Refuse to go on with a job that is over and has no model."""
    if status.state != "done":
        asked = any(each.asked for each in status.participants)
        nothing = "by the coordinator's word nobody was asked a question, so this one cost nothing"
        cost = "what was answered stays spent" if asked else nothing
        raise JobFailedError(
            f"The job is {status.state}: {status.reason}", f"Mend what stood in its way and submit a new job; {cost}."
        )


def _model(spec: JobSpec, content: bytearray) -> Model:
    """Read a model, and hold it to the job."""
    heading = bounds.heading_of(spec)
    if content.find(b"\n", 0, heading) < 0:
        raise TooMuchError.of(f"a model whose heading is longer than {heading} bytes", heading)
    model = Model.from_bytes(bytes(content))
    if model.components.shape != (spec.components, spec.schema.dimension):
        raise FederationError("The coordinator sent a model of another shape than the job's.", NO_TRUST)
    return model


def _asked(signed: SignedJob) -> tuple[JobSpec, frozenset[str]]:
    """Give the job that was signed, and the providers that it asks."""
    envelope = JobEnvelope.from_bytes(signed.payload)
    return JobSpec.from_json(envelope.spec), frozenset(envelope.audience)
