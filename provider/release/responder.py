"""The only way a number leaves a provider: gate, reserve, draw the noise, evaluate, add, store, hand over.

Privacy rests on this order:

- The reservation comes first, so a crash can lose an answer but never its price.
- All noise is drawn before the rows are read, so the time of the draw reveals nothing about them.
- The answer is stored before it is handed over, so the same query gets the same bytes and never fresh noise. Averaging
  repeated answers gains nothing.
- An answer that was paid for but lost before it was stored never left. So its query may be answered again: of all
  answers that are ever made to one query, one leaves.

No noise exists before its query is known. A draw takes its words from fresh system randomness and from its full name:
job, seat, position, query, purpose. So two copies of this process, for example two virtual machines that were resumed
from one snapshot, never use the same noise for different queries (``provider/release/entropy.py``).
"""

import math
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import Integers
from dpspca.common.errors import InvalidAnswerError, InvalidQueryError, RefusedError
from dpspca.common.job import JobSpec
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import (
    DiscreteGaussian,
    DiscreteLaplace,
    Draw,
    Entropy,
    Event,
    GaussianEvent,
    LaplaceEvent,
    Purpose,
    WordSource,
)
from dpspca.common.queries import RowQuery, SketchQuery
from dpspca.provider.ledger import JobPosition, Ledger

from .attempts import EvaluationAttempts
from .gate import Gate
from .schedule import first_of_moments


class Evaluator(Protocol):
    """Data that can answer queries."""

    def check(self, spec: JobSpec) -> None:
        """Refuse a job that does not fit the way these rows were prepared."""
        ...

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly. The result must not leave without noise."""
        ...

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer by a private mechanism, at the price of the event."""
        ...


class SketchSession(Protocol):
    """One job's queries about a sketch. Later answers use what was drawn for earlier ones."""

    def admit(self, query: RowQuery) -> None:
        """Refuse a query that does not fit the earlier answers. A refusal changes nothing."""
        ...

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly, as an ``Evaluator`` does."""
        ...

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer by a private mechanism, as an ``Evaluator`` does."""
        ...


@runtime_checkable
class SketchSource(Protocol):
    """Data that can answer queries about a sketch."""

    def start_sketch(self, spec: JobSpec, seat: int) -> SketchSession:
        """Start a job's queries about a sketch. Each query builds on the ones before."""
        ...


@runtime_checkable
class HasSilentRows(Protocol):
    """Data whose answers are always zero in some rows."""

    def silent(self, query: RowQuery) -> NDArray[np.bool_] | None:
        """Mark the rows that are zero for these data and all their neighbours. Return None if there are none."""
        ...


@runtime_checkable
class PreparesRows(Protocol):
    """Data that ``evaluate`` prepares for a job's first query about second moments. Its other queries do without."""

    def evaluate_as_prepared(self, query: RowQuery) -> Integers:
        """Answer exactly, with what was prepared or from the rows."""
        ...


@dataclass(frozen=True, slots=True)
class PaidQuery:
    """A query that was paid for, and has no answer yet."""

    position: int
    query: RowQuery
    digest: str


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """An answer that was paid for. It must be stored before it is handed out."""

    position: int
    answer: Integers
    is_stored: bool = False


class Responder:
    """Answers one job's queries over one shard, from any number of threads.

    The guarantee: for every coordinator, however it chooses its queries, all answers of a job together are (epsilon,
    delta)-differentially private for the job's unit and budget. The sensitivity and the noise of each answer come from
    the plan. The plan was compared with the budget as a whole, and fixes every event before the first answer
    (``plan.price``); the queries of a job are always the first ones of its plan. Trusted: this process and its source
    of random words.

    For data that are ``HasSilentRows``, silent rows get no noise. An answer then consists of the release of the other
    rows and of constants that are the same for neighbours. Neighbours differ in the other rows alone. So the length of
    their difference, in L2 and in L1, is unchanged and bounded by the same sensitivity under the same noise: the event
    and the price stay true. Noise that is fitted to a basis X is sized for the two largest rows of X. A change within a
    span moves the answer by one own row of X and one row for the columns, never by more.
    """

    def __init__(  # noqa: PLR0913  # a job, and all that it meets
        self,
        plan: Plan,
        shard: Evaluator,
        ledger: Ledger,
        entropy: Entropy,
        *,
        job: str | None = None,
        seat: int = 0,
        attempts: EvaluationAttempts | None = None,
    ) -> None:
        """``job`` identifies the signed job, so that two jobs can have equal specs. The default is the spec's digest.

        ``seat`` is this provider's index in the job's audience, from 0. ``entropy`` returns the words for each draw.
        ``attempts`` counts evaluations, over all responders of a job.
        """
        spec = plan.spec
        shard.check(spec)
        self._gate = Gate(plan)
        self._preparing = first_of_moments(plan)
        self._job = job or spec.digest()
        self._shard = shard
        self._unit = spec.unit
        self._sketch = self._start_sketch(spec, seat)
        self._seat = seat
        self._entropy = entropy
        self._ledger = ledger
        self._turn = Lock()
        self._attempts = attempts or EvaluationAttempts()

    def respond(self, position: int, query: RowQuery) -> Integers:
        """Answer, repeat the same bytes, or refuse at no cost.

        Queries are answered one at a time: a requester that lost its connection and asks again waits for the answer in
        progress.
        """
        with self._turn:
            return self.store(self.make(position, query))

    def make(self, position: int, query: RowQuery) -> "PaidAnswer":
        """Pay, draw, evaluate and add, or find the earlier answer. Only storing it is left to do.

        A caller that delays answers waits between ``make`` and ``store``. So nothing that the ledger writes or reports
        depends on when an answer was made.
        """
        asked = self.pay(position, query)
        return asked if isinstance(asked, PaidAnswer) else self.evaluate(asked)

    def pay(self, position: int, query: RowQuery) -> "PaidQuery | PaidAnswer":
        """Pay for a query, or find that it was paid for, or that its answer is stored. No row is looked at."""
        digest = query.digest()
        while self._ledger.query_digest(self._job, position) is None:
            before = self._ledger.standing(self._job)
            granted = self._gate.grant(position, query, before or JobPosition())
            if self._sketch and isinstance(query, SketchQuery):
                self._sketch.admit(query)
            # If reserve returns False, another responder on this ledger was faster. Read the query's state again.
            if self._ledger.reserve(self._job, granted.step.name, digest, before, granted.after):
                return PaidQuery(position, query, digest)
        return self._repeat(position, query, digest)

    def store(self, made: "PaidAnswer") -> Integers:
        """Store an answer and return it. If another answer was stored in the meantime, return that one."""
        if made.is_stored:
            return made.answer
        try:
            self._ledger.store(self._job, made.position, made.answer)
            self._attempts.end(self._job, made.position)
        except RefusedError:
            stored = self._ledger.stored(self._job, made.position)
            if stored is None:
                raise
            return stored
        return made.answer

    def _start_sketch(self, spec: JobSpec, seat: int) -> SketchSession | None:
        """Keep state between answers only if the plan needs it. State that was lost is never made again."""
        if not any(issubclass(step.query, SketchQuery) for step in self._gate.plan):
            return None
        if not isinstance(self._shard, SketchSource):
            raise InvalidQueryError("A matrix cannot answer queries about a sketch.", "Use a data set of rows.")
        return self._shard.start_sketch(spec, seat)

    def _repeat(self, position: int, query: RowQuery, digest: str) -> "PaidQuery | PaidAnswer":
        if self._ledger.query_digest(self._job, position) != digest:
            raise RefusedError(
                f"Query {position + 1} was already asked with other content.",
                "Ask the same query again, or sign a new job.",
            )
        stored = self._ledger.stored(self._job, position)
        if stored is None:
            return PaidQuery(position, query, digest)
        return PaidAnswer(position, stored, is_stored=True)

    def evaluate(self, paid: "PaidQuery") -> "PaidAnswer":
        """Compute the answer to a query that was paid for. Refuse if that was tried too often without a stored answer.

        Each attempt takes a time that may depend on rows, and one price pays for few of them.
        """
        position, query, digest = paid.position, paid.query, paid.digest
        self._attempts.begin(self._job, position)
        step = self._gate.plan[position].fit_to(query, self._unit)
        asked = self._sketch if self._sketch and isinstance(query, SketchQuery) else self._shard
        purpose = Purpose.MECHANISM if step.query.is_private else Purpose.NOISE
        draw = Draw(self._job, self._seat, position, digest, purpose)
        if step.query.is_private:
            answer = asked.release(query, step.event, self._entropy(draw))
            _require_form(step, answer)
        else:
            answer = self._noise(step, draw)
            exact = self._exact(asked, position, query)
            # If the shapes differed, one draw could be broadcast over many entries and cancel in their differences.
            _require_form(step, exact)
            _clear_silent_rows(answer, exact, asked.silent(query) if isinstance(asked, HasSilentRows) else None)
            answer += exact
        return PaidAnswer(position, answer)

    def _exact(self, asked: Evaluator | SketchSession, position: int, query: RowQuery) -> Integers:
        """Answer exactly. Rows are prepared for only one query of a job, and its interval counts that."""
        if isinstance(asked, PreparesRows) and position != self._preparing:
            return asked.evaluate_as_prepared(query)
        return asked.evaluate(query)

    def _noise(self, step: Step, draw: Draw) -> Integers:
        """Draw all noise of a step. No row is looked at."""
        if step.event is None:
            return np.zeros(step.shape, dtype=np.int64)
        return _noise_distribution(step).sample(math.prod(step.shape), self._entropy(draw)).reshape(step.shape)


def _noise_distribution(step: Step) -> DiscreteGaussian | DiscreteLaplace:
    """Return the integer noise that gives the privacy of the step's event."""
    match step.event:
        case GaussianEvent():
            return DiscreteGaussian.with_std_at_least(step.noise_std)
        case LaplaceEvent(scale=scale):
            return DiscreteLaplace.with_scale_at_least(scale)
        case _:
            raise InvalidAnswerError(f"No noise is defined for the step '{step.name}'.", "Report this as a bug.")


def _clear_silent_rows(noise: Integers, exact: Integers, silent: NDArray[np.bool_] | None) -> None:
    """Remove the noise from silent rows, once all noise was drawn. Refuse an answer that is not zero there.

    The error names no number: which rows are silent may follow from how many rows there are.
    """
    if silent is None:
        return
    if exact[silent].any():
        raise InvalidAnswerError(
            "The answer is not zero in rows that are not this provider's own.", "Report this as a bug."
        )
    noise[silent] = 0


def _require_form(step: Step, answer: Integers) -> None:
    if answer.shape != step.shape or answer.dtype != np.int64:
        raise InvalidAnswerError(
            f"The answer does not have the form of its plan: int64 of shape {step.shape}.", "Report this as a bug."
        )
