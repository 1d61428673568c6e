"""The federation without ``await``: the same calls, each waiting for its answer. For scripts and notebooks.

One thread of its own runs the connection, so that it also works where an event loop is running already.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from os import PathLike
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from dpspca.common.algorithms import catalogue
from dpspca.common.model import Model
from dpspca.common.spec import JobSpec, Schema

from .calls import PATIENCE
from .federation import AsyncFederation, AsyncJob, FederationError, settings
from .findings import issue
from .jobs import JobStatus, Offer
from .simulation import Progress

Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="dpspca-federation", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Tell whether it was stopped."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to the end and give the result; interrupted, the work is cancelled."""
        if self.closed:
            work.close()
            raise FederationError("The connection was closed.", "Connect anew.")
        running: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except CancelledError:
            raise FederationError("The connection was closed meanwhile.", "Connect anew.") from None
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job."""

    _job: AsyncJob
    _loop: Loop = field(repr=False)

    @property
    def name(self) -> str:
        """Name the job: the digest of what was signed."""
        return self._job.name

    @property
    def spec(self) -> JobSpec:
        """Give what was signed."""
        return self._job.spec

    def watch(self) -> Iterator[JobStatus]:
        """Give the job's state now and after every change, until it is over."""
        states = self._job.watch()
        while (state := self._loop.run(_next(states))) is not None:
            yield state

    def status(self) -> JobStatus:
        """Give the job's state now."""
        return self._loop.run(self._job.status())

    def cancel(self) -> JobStatus:
        """End the job; one that is over stays as it is."""
        return self._loop.run(self._job.cancel())

    def result(self) -> Model:
        """Wait for the end, and give the model; what has to be known of it comes as warnings of Python's as well."""
        model = self._loop.run(self._job.model())
        issue(model.statement)  # here, and not in the loop's thread: a warning points to whoever called
        return model


class Federation:
    """A connection to a coordinator; close it, or use it in a ``with`` statement."""

    def __init__(self, federation: AsyncFederation, loop: Loop) -> None:
        self._federation = federation
        self._loop = loop

    @classmethod
    def connect(
        cls,
        where: str | PathLike[str],
        identity: str | PathLike[str] | None = None,
        *,
        patience: float = PATIENCE,
    ) -> Self:
        """Connect as a settings file says (see docs/federation.md), or to an address with an identity's folder.

        A coordinator that goes away is tried again for ``patience`` seconds.
        """
        told = settings(where, identity)
        loop = Loop()

        async def connected() -> AsyncFederation:
            return AsyncFederation(*told, patience=patience)

        try:
            return cls(loop.run(connected()), loop)
        except BaseException:
            loop.stop()
            raise

    def data_sets(self) -> list[Offer]:
        """List what the providers that are connected now offer."""
        return self._loop.run(self._federation.data_sets())

    def only_data_set(self) -> str:
        """Name the data set that is on offer, if there is one and no other."""
        return self._loop.run(self._federation.only_data_set())

    def describe(self, data_set: str, providers: Sequence[str] | None = None) -> tuple[Schema, list[str]]:
        """Give the columns of a data set, and the providers to ask: those named, or all that offer it now."""
        return self._loop.run(self._federation.describe(data_set, providers))

    def submit(self, spec: JobSpec, data_set: str | None = None, providers: Sequence[str] | None = None) -> Job:
        """Sign a job for these providers, or for all that offer the data set now, and submit it.

        Where one data set is on offer, and no other, it need not be named.
        """
        return Job(self._loop.run(self._federation.submit(spec, data_set, providers)), self._loop)

    def fit(self, spec: JobSpec, data_set: str | None = None, providers: Sequence[str] | None = None) -> Model:
        """Submit a job and wait for its model."""
        return self.submit(spec, data_set, providers).result()

    def jobs(self) -> list[JobStatus]:
        """List this analyst's jobs, oldest first."""
        return self._loop.run(self._federation.jobs())

    def job(self, name: str) -> Job:
        """Take up a job that was submitted before."""
        return Job(self._loop.run(self._federation.job(name)), self._loop)

    def close(self) -> None:
        """End the connection. Jobs go on."""
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
    """Give a job's progress as a simulation tells it, once for every question; an end without a model is left out."""
    plan = catalogue.plan(job.spec)
    told = 0
    for status in job.watch():
        for done in range(told + 1, status.answered + 1):
            parties = sum(each.answered >= done for each in status.participants)
            yield Progress(done, len(plan), plan[done - 1], parties)
        told = status.answered


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(states: Any) -> JobStatus | None:  # noqa: ANN401  # an asynchronous generator
    return await anext(states, None)
