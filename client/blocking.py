"""A connection to a federation without ``await``, for scripts and notebooks. Each call blocks until it has its result.

A separate thread runs the connection, so it also works where an event loop is running already.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from datetime import timedelta
from os import PathLike
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from dpspca.common.dictionary import Dictionary
from dpspca.common.job import AutoCentering, JobSpec, Schema, Terms
from dpspca.common.plan import Plan
from dpspca.common.results import Model

from .connection import RETRY_SECONDS, FederationError, JobStatus, Offer, Presence, settings
from .federation import AsyncFederation, AsyncJob
from .findings import issue
from .simulation import Progress

Result = TypeVar("Result")


class EventLoopThread:
    """An event loop in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="dpspca-federation", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop was stopped."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and return its result. Cancel it if the caller is interrupted."""
        if self.closed:
            work.close()
            raise FederationError("The connection was closed.", "Connect again with Federation.connect.")
        running: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except CancelledError:
            raise FederationError(
                "The connection was closed while this call was waiting.", "Connect again with Federation.connect."
            ) from None
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        """Cancel all running coroutines, and end the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job."""

    _job: AsyncJob
    _loop: EventLoopThread = field(repr=False)

    @property
    def name(self) -> str:
        """Return the job's name: the digest of the signed bytes."""
        return self._job.name

    @property
    def spec(self) -> JobSpec:
        """Return the job spec that was signed."""
        return self._job.spec

    @property
    def plan(self) -> Plan:
        """Return all queries that the job may ask."""
        return self._job.plan

    def watch(self) -> Iterator[JobStatus]:
        """Yield the job's status now and after every change, until the job is over."""
        states = self._job.watch()
        while (state := self._loop.run(_next(states))) is not None:
            yield state

    def status(self) -> JobStatus:
        """Return the job's status now."""
        return self._loop.run(self._job.status())

    def cancel(self) -> JobStatus:
        """Cancel the job and return its status. A job that is over stays as it is."""
        return self._loop.run(self._job.cancel())

    def result(self) -> Model:
        """Wait for the job to end, return its model, and issue the warnings of its privacy statement."""
        model = self._loop.run(self._job.model())
        issue(model.statement)  # in this thread, not the loop's, so that the warning points to the caller
        return model


class Federation:
    """A connection to a coordinator. Close it after use, or use it in a ``with`` statement."""

    def __init__(self, federation: AsyncFederation, loop: EventLoopThread) -> None:
        self._federation = federation
        self._loop = loop

    @classmethod
    def connect(
        cls,
        where: str | PathLike[str],
        identity: str | PathLike[str] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
    ) -> Self:
        """Connect with a settings file (see docs/jobs.md), or to an address with the folder of an identity.

        If the coordinator goes away, calls are retried for ``retry_seconds``.
        """
        address, me = settings(where, identity)
        loop = EventLoopThread()

        async def connected() -> AsyncFederation:
            return AsyncFederation(address, me, retry_seconds=retry_seconds)

        try:
            return cls(loop.run(connected()), loop)
        except BaseException:
            loop.stop()
            raise

    def data_sets(self) -> list[Offer]:
        """List the data sets that the connected providers offer now."""
        return self._loop.run(self._federation.data_sets())

    def terms(self, data_set: str | None = None, providers: Sequence[str] | None = None) -> list[Terms]:
        """Return the terms of a data set, or of all, as the connected providers state them to this analyst."""
        return self._loop.run(self._federation.terms(data_set, providers))

    def presence(self, providers: Sequence[str]) -> list[Presence]:
        """Return who of these providers is connected, since when, and why the others are not."""
        return self._loop.run(self._federation.presence(providers))

    def only_data_set(self) -> str:
        """Return the name of the only data set on offer now. Raise if there is none, or more than one."""
        return self._loop.run(self._federation.only_data_set())

    def describe(self, data_set: str, providers: Sequence[str] | None = None) -> tuple[Schema, list[str]]:
        """Return the columns of a data set, and the providers to ask: those named, or all that offer it now."""
        return self._loop.run(self._federation.describe(data_set, providers))

    def offers_of(self, data_set: str) -> list[Offer]:
        """List the offers of a data set by providers that are connected now, in the order of their names."""
        return self._loop.run(self._federation.offers_of(data_set))

    def submit(  # noqa: PLR0913  # the job, and how to submit it
        self,
        spec: JobSpec | Plan,
        data_set: str | None = None,
        providers: Sequence[str] | None = None,
        *,
        dictionary: Dictionary | None = None,
        centering: AutoCentering | None = None,
        life: timedelta | None = None,
    ) -> Job:
        """Sign a job for these providers, or for all that offer the data set now, and submit it.

        ``data_set`` may be left out if only one is on offer. With the job's ``dictionary``, the model can prepare raw
        rows. With ``centering``, the job's centring is chosen by public facts, such as the number of these providers.
        ``life`` is how long the job is valid, if it may have to wait long for a person's approval.
        """
        submitted = self._federation.submit(
            spec, data_set, providers, dictionary=dictionary, centering=centering, life=life
        )
        return Job(self._loop.run(submitted), self._loop)

    def fit(
        self,
        spec: JobSpec,
        data_set: str | None = None,
        providers: Sequence[str] | None = None,
        *,
        dictionary: Dictionary | None = None,
        centering: AutoCentering | None = None,
    ) -> Model:
        """Submit a job and wait for its model."""
        return self.submit(spec, data_set, providers, dictionary=dictionary, centering=centering).result()

    def jobs(self) -> list[JobStatus]:
        """List this analyst's jobs, oldest first."""
        return self._loop.run(self._federation.jobs())

    def job(self, name: str, *, dictionary: Dictionary | None = None) -> Job:
        """Return a job that was submitted before, by its name or the first characters of it."""
        return Job(self._loop.run(self._federation.job(name, dictionary=dictionary)), self._loop)

    def evidence(self, job: str, *, model: bytes | None = None, bill_of_materials: bytes | None = None) -> bytes:
        """Return a file that shows, also years later, what this job asked and what its providers state about it."""
        work = self._federation.evidence(job, model=model, bill_of_materials=bill_of_materials)
        return self._loop.run(work)

    def close(self) -> None:
        """Close the connection. Jobs continue."""
        if not self._loop.closed:
            self._loop.run(self._federation.close())
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def progress_of(job: Job) -> Iterator[Progress]:
    """Yield a job's progress once for every query, as a simulation does. A job that fails raises nothing here."""
    plan, reported = job.plan, 0
    for status in job.watch():
        for done in range(reported + 1, status.answered + 1):
            parties = sum(each.answered >= done for each in status.participants)
            yield Progress(done, len(plan), plan[done - 1], parties)
        reported = status.answered


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(states: Any) -> JobStatus | None:  # noqa: ANN401  # an asynchronous generator
    return await anext(states, None)
