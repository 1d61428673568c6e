"""Drives one job's coroutine: each query to every provider, the exact sum of their answers back.

A provider that loses its connection is waited for, until the query's deadline, and asked the same again: it sends
the same bytes. One that refuses, answers out of form or stays away is left out from then on, by name. If part of its
answer is in the sum already, the sum is made anew from the others' stored answers, which costs nobody any privacy.
All say that they take part before the first is asked a query: what one refuses then has cost the others nothing.
Below the spec's least number of providers the job fails, with the reason: it never hangs and is never done in part.

What is about to be asked, and how the job ended, is in the journal before anybody outside can know of it. So a restart
drives the same coroutine with the journal's sums to the same point, and goes on from there; where it would ask another
query than was asked, the job fails before anybody is asked. When the journal fails nothing more happens at all.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.log_context import about
from dpspca.common.model import Model
from dpspca.common.names import PartyName
from dpspca.common.privacy import GaussianEvent
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import RowQuery
from dpspca.common.spec import JobSpec, Schema
from dpspca.common.transport import wire
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.server.job import Event, JobRecord, Participant, State
from dpspca.server.journal import JournalError, Keeper, Sum

from .outgoing import OutgoingQuery
from .roster import Link, ProviderLostError, Roster
from .rounds import LARGEST_ANSWER, aggregate

CANCELLED: Final = "Cancelled by the analyst."
SMALL_SUM: Final = 2**13
"""Numbers in a sum from which the next query is made in about a millisecond."""

_log = logging.getLogger(__name__)


class TooFewProvidersError(DpspcaError):
    """Not enough providers are left to go on."""

    code = "too-few-providers"


class ReplayError(DpspcaError):
    """What the journal knows of a job does not lead to what was asked."""

    code = "replay"


class Conductor:
    """One job from its first query to its model."""

    def __init__(  # noqa: PLR0913, PLR0917  # a job, and all that it meets
        self,
        signed: SignedJob,
        envelope: JobEnvelope,
        analyst: PartyName,
        roster: Roster,
        keeper: Keeper,
        clock: Callable[[], datetime],
        tell: Callable[[JobRecord], None],
    ) -> None:
        self.signed = signed.to_bytes()
        self.signed_bytes = len(self.signed)
        self.model_bytes = 0
        self._data_set = envelope.data_set
        self._spec = _without_names(JobSpec.from_json(envelope.spec))
        self._plan = catalogue.plan(self._spec)
        small = self._spec.components * self._spec.schema.dimension <= SMALL_SUM
        self._is_quick = small and all(isinstance(step.event, GaussianEvent | None) for step in self._plan)
        self._roster = roster
        self._keeper = keeper
        self._tell_watchers = tell
        self._clock = clock
        self._recorded = 0
        self._leading: asyncio.Task[None] | None = None
        self._cancelled = False
        self.job = JobRecord(
            signed.job_id,
            analyst.uri,
            envelope.data_set,
            len(self._plan),
            submitted=clock().timestamp(),
            participants={name: Participant() for name in envelope.audience},
        )

    @property
    def name(self) -> str:
        """What the job is called everywhere."""
        return self.job.name

    @property
    def analyst(self) -> str:
        """Whose job it is."""
        return self.job.analyst

    def resume(self, job: JobRecord, queries: int) -> None:
        """Go on where the journal says that the job stands, with so many queries recorded."""
        self.job, self._recorded = job, queries

    async def run(self) -> None:
        """Run to a final state, whatever happens; unless the journal fails or the coordinator stops."""
        ended, model = await self._outcome()
        receipts = self._roster.receipts_of(ended.participants)
        await self._keeper.do(lambda journal: journal.end(ended, model, receipts))
        self.model_bytes = len(model or b"")
        reason = f": {ended.reason}" if ended.reason else "."
        _log.info("Job %.12s is %s%s", ended.name, ended.state, reason, extra=about(self.analyst))
        self._tell(ended)
        for link in self._links():
            link.farewell(ended.name, ended.state, self._roster.receipts_beside(link.name, ended.participants))

    def cancel(self) -> None:
        """End the job, unless its end is being recorded already."""
        self._cancelled = True
        if self._leading:
            self._leading.cancel()

    async def _outcome(self) -> tuple[JobRecord, bytes | None]:
        """Lead the job to its end, and say what that is; it has not come about before it is recorded."""
        self._leading = asyncio.current_task()
        try:
            model = await self._lead()
        except asyncio.CancelledError:
            if not self._cancelled:
                raise  # the coordinator stops, and the job goes on when it is back
            return self._after(Event.CANCEL, CANCELLED), None
        except JournalError:
            raise
        except DpspcaError as problem:
            return self._after(Event.FAIL, str(problem)), None
        except Exception as problem:  # noqa: BLE001  # a job ends, whatever happens
            _log.exception("Job %.12s met a fault.", self.job.name, extra=about(self.analyst))
            return self._after(Event.FAIL, f"A fault of the coordinator's: {type(problem).__name__}."), None
        finally:
            self._leading = None
        return self._after(Event.FINISH), model

    async def _lead(self) -> bytes:
        if self._cancelled:
            raise asyncio.CancelledError
        if not self._recorded:
            await self._wait_for_enough()
            await self._have_all_admit()
        if self.job.state is State.WAITING:
            self._tell(self._after(Event.BEGIN))
        model = await self._drive()
        return await asyncio.to_thread(model.to_bytes)

    async def _drive(self) -> Model:
        """Keep long arithmetic off the event loop, and everything else on it."""
        method = catalogue.run(self._plan)
        before: Sum | None = None
        following: OutgoingQuery | Model = await asyncio.to_thread(lambda: self._query(0, next(method)))
        while isinstance(following, OutgoingQuery):
            before = await self._sum(following, before)
            following = await self._advanced(method, following, before)
        return following

    async def _advanced(self, method: Algorithm, asked: OutgoingQuery, found: Sum) -> OutgoingQuery | Model:
        """Take one step, in a thread unless it is so small that going there and back would cost as much.

        Where not all noise is Gaussian, saying what a job costs takes seconds; and where components are long, so does
        the step after a short answer.
        """
        if self._is_quick and found.total.size <= SMALL_SUM:
            return self._advance(method, asked, found)
        return await asyncio.to_thread(self._advance, method, asked, found)

    def _advance(self, method: Algorithm, asked: OutgoingQuery, found: Sum) -> OutgoingQuery | Model:
        """Take one step of the coroutine; its end is a value here, as StopIteration cannot cross a thread."""
        answer = aggregate(self._spec, asked.step, found.total, found.parties)
        try:
            query = method.send(answer)
        except StopIteration as end:
            model: Model = end.value
            return model
        return self._query(asked.ask.position + 1, query)

    def _query(self, position: int, query: RowQuery) -> OutgoingQuery:
        if position == len(self._plan):
            raise TooFewProvidersError("The algorithm asked more than it planned.", "Report this as a bug.")
        return OutgoingQuery.of(self.signed, position, self._plan[position].fitted(query, self._spec.unit), query)

    async def _sum(self, query: OutgoingQuery, before: Sum | None) -> Sum:
        """Give a query's sum: the journal's, or one that is asked for, when the journal knows of the query."""
        position = query.ask.position
        if position < self._recorded:
            recalled = await self._recall(query)
            if recalled:
                return recalled
        else:
            job, receipts = self.job, self._roster.receipts_of(self.job.participants)
            await self._keeper.do(lambda journal: journal.ask(job, position, query.digest, before, receipts))
            self._tell(self.job)
        return Sum(await self._ask_all(query), len(self._names))

    async def _recall(self, query: OutgoingQuery) -> Sum | None:
        """Find a query's sum in the journal; None if it was recorded without one."""
        name, position = self.job.name, query.ask.position
        asked = await self._keeper.do(lambda journal: journal.query(name, position))
        if asked is None or asked.digest != query.digest:
            raise ReplayError(
                f"After a restart, query {position + 1} is not the one that was asked before it.",
                "The software was changed, or the journal is damaged: submit a new job.",
            )
        if asked.parties is None:
            return None
        shape = query.step.shape
        return Sum(await self._keeper.do(lambda journal: journal.total(name, position, shape)), asked.parties)

    async def _ask_all(self, query: OutgoingQuery) -> Integers:
        """Ask until the sum holds whole answers and nothing else."""
        position = query.ask.position
        step = query.step
        whole = False
        while not whole:
            total = np.zeros(step.shape, dtype=np.int64)
            whole = await self._gather(query, total)
            self._require_enough(len(self._names))  # who dropped out may have been one too many
        moved = len(self._names) * (query.size + total.nbytes)
        self.job = replace(self.job, answered=position + 1, step=step.name, bytes_moved=self.job.bytes_moved + moved)
        return total

    async def _gather(self, query: OutgoingQuery, total: Integers) -> bool:
        """Ask everybody; false when somebody dropped out with part of an answer in the sum."""
        readers = {name: wire.AnswerReader(total, LARGEST_ANSWER) for name in self._names}
        outcomes = await asyncio.gather(*(self._ask_one(name, query, reader) for name, reader in readers.items()))
        clean = True
        for (name, reader), problem in zip(readers.items(), outcomes, strict=True):
            if problem is None:
                self._record(name, answered=query.ask.position + 1)
            else:
                self._drop(name, problem)
                clean = clean and not reader.started
        return clean and bool(self._names)

    async def _ask_one(self, name: str, query: OutgoingQuery, reader: wire.AnswerReader) -> str | None:
        """Ask one provider a query; give the reason if it drops out."""
        number = query.ask.position + 1

        def ask(link: Link) -> Awaitable[None]:
            self._record(name, asked=number)
            return link.ask(query.ask, self.job.name, query.frames, reader)

        return await self._insist(name, ask, f"No answer to query {number}")

    async def _insist(self, name: str, ask: Callable[[Link], Awaitable[None]], otherwise: str) -> str | None:
        """Ask a provider until it has replied, or for as long as it may take; give the reason if it drops out."""
        try:
            async with asyncio.timeout(self._spec.answer_seconds):
                while True:
                    link = await self._roster.wait_for(name, self._data_set, self._spec.schema.dimension)
                    with suppress(ProviderLostError):  # it is waited for, and asked again
                        await ask(link)
                        return None
        except TimeoutError:
            return f"{otherwise} within {self._spec.answer_seconds} seconds."
        except DpspcaError as problem:
            return str(problem)

    async def _wait_for_enough(self) -> None:
        """Wait for the whole audience until the deadline, and begin with those that are there."""
        dimension = self._spec.schema.dimension
        absent = set(self._names)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._spec.answer_seconds):
                await self._roster.wait_for_all(absent, self._data_set, dimension)
        self._drop_all(sorted(absent), f"Not connected with the data set '{self._data_set}' of {dimension} columns.")
        self._require_enough(len(self._names))

    async def _have_all_admit(self) -> None:
        """Begin with those that take part, before a query costs anybody anything; or end as soon as too few may."""
        asking = [asyncio.ensure_future(self._admit_one(name)) for name in self._names]
        try:
            await asyncio.gather(*asking)
        finally:
            for each in asking:
                each.cancel()

    async def _admit_one(self, name: str) -> None:
        """Ask one provider to take part, and go on without it if it does not."""
        problem = await self._insist(name, lambda link: link.admit(self.signed, self.job.name), "No word on the job")
        if problem:
            self._drop(name, problem)
            self._tell(self.job)
            self._require_enough(len(self._names))

    def _require_enough(self, count: int) -> None:
        if count < max(1, self._spec.minimum_parties):
            reasons = " ".join(f"{name}: {each.reason}" for name, each in self.job.participants.items() if each.reason)
            raise TooFewProvidersError(
                f"{count} of at least {self._spec.minimum_parties} provider(s) are left. {reasons}",
                "Submit a new job when that is mended, or when they are back.",
            )

    @property
    def _names(self) -> list[str]:
        """Name the providers that are left."""
        return [name for name, each in self.job.participants.items() if not each.reason]

    def _drop(self, name: str, reason: str) -> None:
        """Go on without a provider."""
        self._drop_all([name], reason)

    def _drop_all(self, names: Sequence[str], reason: str) -> None:
        """Go on without some providers, for the same reason."""
        if names:
            without, who = ", ".join(names), about(self.analyst)
            _log.warning("Job %.12s goes on without %s: %s", self.job.name, without, reason, extra=who)
            left_out = {name: replace(self.job.participants[name], reason=reason) for name in names}
            self.job = replace(self.job, participants={**self.job.participants, **left_out})

    def _record(self, name: str, **changes: int | str) -> None:
        changed: Participant = replace(self.job.participants[name], **changes)  # type: ignore[arg-type]
        self.job = self.job.with_participant(name, changed)

    def _links(self) -> list[Link]:
        return [link for link in self._roster.links if link.name in self.job.participants]

    def _after(self, event: Event, reason: str = "") -> JobRecord:
        return self.job.after(event, reason, now=self._clock().timestamp())

    def _tell(self, job: JobRecord) -> None:
        self.job = job
        self._tell_watchers(job)


def _without_names(spec: JobSpec) -> JobSpec:
    """Leave out the columns' names, which take several times as much memory as they did when they were signed.

    Nothing that is asked depends on them, and whoever fetches the model has them in the job.
    """
    return replace(spec, schema=Schema(spec.schema.dimension))
