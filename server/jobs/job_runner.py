"""Runs one job's coroutine: sends each query to every provider, and the exact sum of their answers to the coroutine.

If a provider loses its connection, the coordinator waits for it until the query's deadline and sends the same query
again; the provider sends the same bytes. A provider that refuses, sends a malformed answer or stays away is left out
from then on. If the sum already holds part of its answer, the coordinator asks the others again: they send their stored
answers, which costs no privacy. A provider that is not ready is asked again, too, until the deadline. Before the first
query, all providers must admit the job, so that a refusal costs the others nothing. If a person at a provider has to
approve the job, the coordinator waits for the decision until the time that the provider gave, at most until the job
expires, whether the provider is connected or not. With fewer providers than the spec's minimum the job fails and gives
the reasons. It never hangs and never returns a partial result.

If the spec allows it, answers are weighed by the numbers of rows that the providers gave, as
``common/results/weights.py`` says.

The journal records each query before it is sent, and how the job ended before anybody can see it. So a restart feeds
the journal's sums to the same coroutine and continues from the same point. If the coroutine then yields another query
than was recorded, the job fails before any provider is asked. When the journal fails, all work stops.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.job import JobSpec, Schema
from dpspca.common.log_context import about
from dpspca.common.names import PartyName
from dpspca.common.privacy import GaussianEvent, largest_answer
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import RowQuery
from dpspca.common.results import FULL, Model, ProviderWeights, Weighed, rows_in
from dpspca.common.transport import wire
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.server.events import asked_facts
from dpspca.server.job_states import Event, JobParticipant, JobRecord, State
from dpspca.server.journal import JournalError, JournalThread, Sum

from .job_errors import PlanExceededError, ReplayError, TooFewProvidersError
from .outgoing_query import OutgoingQuery
from .provider_call import ask_until_replied
from .roster import Link, Roster
from .sums import aggregate

CANCELLED: Final = "Cancelled by the analyst."
SMALL_SUM: Final = 2**13
"""Numbers in a sum from which the next query is computed in about a millisecond."""

_log = logging.getLogger(__name__)


class JobRunner:
    """One job from its first query to its model."""

    def __init__(  # noqa: PLR0913, PLR0917  # a job and its surroundings
        self,
        signed: SignedJob,
        envelope: JobEnvelope,
        analyst: PartyName,
        roster: Roster,
        journal: JournalThread,
        clock: Callable[[], datetime],
        notify: Callable[[JobRecord], None],
    ) -> None:
        self.signed = signed.to_bytes()
        self.signed_bytes = len(self.signed)
        self.model_bytes = 0
        self._data_set = envelope.data_set
        self._expires_at = envelope.expires_at
        self._spec = _without_names(JobSpec.from_json(envelope.spec))
        self.asked = asked_facts(envelope, self._spec)
        self._plan = catalogue.plan(self._spec)
        small = self._spec.components * self._spec.schema.dimension <= SMALL_SUM
        self._weights = ProviderWeights(self._spec)
        self._last_weighed: Weighed | None = None
        self._is_quick = small and all(isinstance(step.event, GaussianEvent | None) for step in self._plan)
        self._roster = roster
        self._journal = journal
        self._notify = notify
        self._clock = clock
        self._recorded = 0
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self.job = JobRecord(
            signed.job_id,
            analyst.uri,
            envelope.data_set,
            len(self._plan),
            submitted=clock().timestamp(),
            participants={name: JobParticipant() for name in envelope.audience},
        )

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def analyst(self) -> str:
        """The analyst who signed the job."""
        return self.job.analyst

    def resume(self, job: JobRecord, queries: int) -> None:
        """Continue a job from the journal, which has recorded ``queries`` of its queries."""
        self.job, self._recorded = job, queries

    async def run(self) -> None:
        """Run until the job has ended, unless the journal fails or the coordinator stops."""
        ended, model = await self._outcome()
        receipts = self._roster.receipts_of(ended.participants)
        await self._journal.run(lambda journal: journal.end(ended, model, receipts))
        self.model_bytes = len(model or b"")
        reason = f": {ended.reason}" if ended.reason else "."
        _log.info("Job %.12s is %s%s", ended.name, ended.state, reason, extra=about(self.analyst))
        self._roster.events("ended", job=ended.name, state=str(ended.state), reason=ended.reason or None)
        self._update(ended)
        for link in self._links():
            link.send_farewell(ended.name, ended.state, self._roster.receipts_of_others(link.name, ended.participants))

    def cancel(self) -> None:
        """Cancel the job, unless its end is already being recorded."""
        self._cancelled = True
        if self._task:
            self._task.cancel()

    async def _outcome(self) -> tuple[JobRecord, bytes | None]:
        """Run the job and return how it ended, which counts only once the journal has recorded it."""
        self._task = asyncio.current_task()
        try:
            model = await self._run_to_model()
        except asyncio.CancelledError:
            if not self._cancelled:
                raise  # the coordinator stops; the job continues after a restart
            return self._after(Event.CANCEL, CANCELLED), None
        except JournalError:
            raise
        except DpspcaError as problem:
            return self._after(Event.FAIL, str(problem)), None
        except Exception as problem:  # noqa: BLE001  # a job always ends
            _log.exception("Job %.12s failed because of a bug.", self.job.name, extra=about(self.analyst))
            return self._after(Event.FAIL, f"A bug in the coordinator: {type(problem).__name__}."), None
        finally:
            self._task = None
        return self._after(Event.FINISH), model

    async def _run_to_model(self) -> bytes:
        if self._cancelled:
            raise asyncio.CancelledError
        if not self._recorded:
            await self._wait_for_enough()
            await self._admit_all()
        if self.job.state is not State.RUNNING:
            self._update(self._after(Event.BEGIN))
        model = await self._run_method()
        return await asyncio.to_thread(model.to_bytes)

    async def _run_method(self) -> Model:
        """Run the method's coroutine. Long arithmetic runs in a thread, everything else on the event loop."""
        method = catalogue.run(self._plan)
        previous: Sum | None = None
        current: OutgoingQuery | Model = await asyncio.to_thread(lambda: self._outgoing(0, next(method)))
        while isinstance(current, OutgoingQuery):
            previous = await self._sum(current, previous)
            current = await self._advance(method, current, previous)
        return current

    async def _advance(self, method: Algorithm, asked: OutgoingQuery, found: Sum) -> OutgoingQuery | Model:
        """Advance the coroutine by one step, in a thread unless the step is so small that a thread costs more.

        If some noise is not Gaussian, computing the price of a job takes seconds. If components are long, so does the
        step after a short answer.
        """
        if self._is_quick and found.total.size <= SMALL_SUM:
            return self._advance_now(method, asked, found)
        return await asyncio.to_thread(self._advance_now, method, asked, found)

    def _advance_now(self, method: Algorithm, asked: OutgoingQuery, found: Sum) -> OutgoingQuery | Model:
        """Advance the coroutine; return the model at its end, because StopIteration cannot leave a thread."""
        answer = aggregate(self._spec, asked.step, found.total, found.parties, found.weighed)
        self._last_weighed = (not asked.step.explains and found.weighed) or self._last_weighed
        try:
            query = method.send(answer)
        except StopIteration as end:
            model: Model = end.value
            return model.weighed_by(self._last_weighed)
        return self._outgoing(asked.message.position + 1, query)

    def _outgoing(self, position: int, query: RowQuery) -> OutgoingQuery:
        if position == len(self._plan):
            raise PlanExceededError(
                f"The method {self._spec.method} asked for more than the {position} queries of its plan.",
                "Report this as a bug.",
            )
        return OutgoingQuery.of(self.signed, position, self._plan[position].fit_to(query, self._spec.unit), query)

    async def _sum(self, query: OutgoingQuery, previous: Sum | None) -> Sum:
        """Return a query's sum from the journal, or record the query and ask the providers."""
        position = query.message.position
        if position < self._recorded:
            recorded = await self._recorded_sum(query)
            if recorded:
                return recorded
        else:
            job, receipts = self.job, self._roster.receipts_of(self.job.participants)
            await self._journal.run(lambda journal: journal.ask(job, position, query.digest, previous, receipts))
            self._update(self.job)
        return await self._ask_all(query)

    async def _recorded_sum(self, query: OutgoingQuery) -> Sum | None:
        """Read a query's sum from the journal; None if the journal has the query but no sum."""
        name, position = self.job.name, query.message.position
        asked = await self._journal.run(lambda journal: journal.query(name, position))
        if asked is None or asked.digest != query.digest:
            raise ReplayError(
                f"After a restart, query {position + 1} differs from the one that the journal recorded.",
                "The software was changed, or the journal is damaged. Submit a new job.",
            )
        if asked.parties is None:
            return None
        shape = query.step.shape
        total = await self._journal.run(lambda journal: journal.total(name, position, shape))
        return Sum(total, asked.parties, asked.weighed)

    async def _ask_all(self, query: OutgoingQuery) -> Sum:
        """Ask until the sum holds complete answers only, weighted as if no other provider had taken part."""
        position = query.message.position
        step = query.step
        weights, whole = dict[str, int](), False
        while not whole:
            weights = self._weights.of(step, self._rows)
            total = np.zeros(step.shape, dtype=np.int64)
            whole = await self._gather(query, total, weights)
            self._require_enough(len(self._remaining))  # some may have dropped out
            whole = whole and weights == self._weights.of(step, self._rows)
        moved = len(self._remaining) * (query.size + total.nbytes)
        self.job = replace(self.job, answered=position + 1, step=step.name, bytes_moved=self.job.bytes_moved + moved)
        parts = [(self._rows[name], weights[name]) for name in self._remaining] if weights else []
        return Sum(total, len(self._remaining), Weighed.of(parts) if parts else None)

    async def _gather(self, query: OutgoingQuery, total: Integers, weights: Mapping[str, int]) -> bool:
        """Ask every provider; false if one dropped out after part of its answer was added to the sum."""
        counts = {name: np.zeros_like(total) for name in self._remaining} if self._weights.counts(query.step) else {}
        largest = largest_answer(len(self._remaining))
        readers = {
            name: wire.AnswerReader(counts.get(name, total), largest, weights.get(name, FULL))
            for name in self._remaining
        }
        outcomes = await asyncio.gather(*(self._ask_one(name, query, reader) for name, reader in readers.items()))
        clean = True
        for (name, reader), problem in zip(readers.items(), outcomes, strict=True):
            if problem is None:
                self._record(name, answered=query.message.position + 1)
            else:
                self._drop(name, problem)
                clean = clean and not reader.started
        for name in self._remaining if counts else ():
            total += counts[name]
            self._record(name, rows=rows_in(counts[name]))
        return clean and bool(self._remaining)

    @property
    def _rows(self) -> dict[str, int]:
        """How many rows each provider that is left said that it has; nothing if one was not asked."""
        rows = {name: self.job.participants[name].rows for name in self._remaining}
        return {} if None in rows.values() else {name: count for name, count in rows.items() if count is not None}

    async def _ask_one(self, name: str, query: OutgoingQuery, reader: wire.AnswerReader) -> str | None:
        """Ask one provider a query; return the reason if it drops out."""
        number = query.message.position + 1

        def ask(link: Link, _: asyncio.Timeout) -> Awaitable[None]:
            self._record(name, asked=number)
            return link.ask(query.message, self.job.name, query.frames, reader)

        return await self._ask_until_replied(name, ask, f"No answer to query {number}")

    async def _ask_until_replied(
        self, name: str, ask: Callable[[Link, asyncio.Timeout], Awaitable[None]], missing: str
    ) -> str | None:
        """Ask a provider until it replies or the deadline passes; return the reason if it drops out."""

        def wait() -> Awaitable[Link]:
            return self._roster.wait_for(name, self._data_set, self._offered_columns)

        def no_reply() -> str:
            if self.job.participants[name].awaiting_since:
                return "Nobody there approved the job in time."
            return f"{missing} within {self._spec.answer_seconds} seconds."

        return await ask_until_replied(wait, ask, self._spec.answer_seconds, no_reply)

    @property
    def _offered_columns(self) -> int | None:
        """How many columns an offer must have, or None if the job takes some of them by name."""
        return self._spec.schema.dimension if self._spec.dictionary is None else None

    async def _wait_for_enough(self) -> None:
        """Wait for the whole audience until the deadline, and begin with the providers that are connected."""
        columns = self._offered_columns
        absent = set(self._remaining)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._spec.answer_seconds):
                await self._roster.wait_for_all(absent, self._data_set, columns)
        of = "" if columns is None else f" of {columns} columns"
        self._drop_all(sorted(absent), f"Not connected with the data set '{self._data_set}'{of}.")
        self._require_enough(len(self._remaining))

    async def _admit_all(self) -> None:
        """Have all providers admit or refuse the job before any query costs privacy; fail if too few are left."""
        asking = [asyncio.ensure_future(self._admit_one(name)) for name in self._remaining]
        try:
            await asyncio.gather(*asking)
        finally:
            for each in asking:
                each.cancel()

    async def _admit_one(self, name: str) -> None:
        """Ask one provider to admit the job, and continue without it if it does not."""

        def ask(link: Link, deadline: asyncio.Timeout) -> Awaitable[None]:
            return link.admit(self.signed, self.job.name, lambda *times: self._await_approval(name, deadline, *times))

        problem = await self._ask_until_replied(name, ask, "No reply about the job")
        if self.job.participants[name].awaiting_since:
            self._record(name, awaiting_since=0.0, awaiting_until=0.0)
            self._update(self.job)
        if problem:
            self._drop(name, problem)
            self._update(self.job)
            self._require_enough(len(self._remaining))

    def _await_approval(self, name: str, deadline: asyncio.Timeout, since: float, until: float) -> None:
        """Wait for a person at a provider, at most until the job expires, and ``answer_seconds`` for the reply."""
        now, ends = self._clock().timestamp(), min(until, self._expires_at)
        waits = ends + self._spec.answer_seconds - now
        if waits > 0 and not deadline.expired():
            deadline.reschedule(asyncio.get_running_loop().time() + waits)
        if self.job.state is State.WAITING:
            self.job = self._after(Event.AWAIT)
        if not self.job.participants[name].awaiting_since:
            self._record(name, awaiting_since=min(max(since, 1.0), now), awaiting_until=max(ends, now))
            self._update(self.job)

    def _require_enough(self, count: int) -> None:
        if count < max(1, self._spec.minimum_providers):
            left = f"{count or 'No'} provider{'s are' if count > 1 else ' is'} left"
            raise TooFewProvidersError(
                f"{left}; the job needs at least {max(1, self._spec.minimum_providers)}. {self.job.losses}",
                "Submit a new job when these problems are solved and the providers are connected.",
            )

    @property
    def _remaining(self) -> list[str]:
        """The names of the providers that are left."""
        return [name for name, each in self.job.participants.items() if not each.reason]

    def _drop(self, name: str, reason: str) -> None:
        """Continue without a provider."""
        self._drop_all([name], reason)

    def _drop_all(self, names: Sequence[str], reason: str) -> None:
        """Continue without some providers, for one reason."""
        if names:
            without, who = ", ".join(names), about(self.analyst)
            _log.warning("Job %.12s continues without %s: %s", self.job.name, without, reason, extra=who)
            for name in names:
                self._roster.events("left-out", job=self.job.name, party=name, reason=reason)
            left_out = {name: replace(self.job.participants[name], reason=reason) for name in names}
            self.job = replace(self.job, participants={**self.job.participants, **left_out})

    def _record(self, name: str, **changes: float | str) -> None:
        changed: JobParticipant = replace(self.job.participants[name], **changes)  # type: ignore[arg-type]
        self.job = self.job.with_participant(name, changed)

    def _links(self) -> list[Link]:
        return [link for link in self._roster.links if link.name in self.job.participants]

    def _after(self, event: Event, reason: str = "") -> JobRecord:
        return self.job.after(event, reason, now=self._clock().timestamp())

    def _update(self, job: JobRecord) -> None:
        """Replace the job's record, and notify those who watch it."""
        self.job = job
        self._notify(job)


def _without_names(spec: JobSpec) -> JobSpec:
    """Leave out the column names, which take several times as much memory as in the signed job.

    No query depends on them, and the analyst has them in the job.
    """
    return replace(spec, schema=Schema(spec.schema.dimension))
