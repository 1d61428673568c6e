"""The only way a number leaves: gate, reserve, draw the noise, evaluate, add, store, and only then hand over.

Privacy rests on this order. The reservation precedes everything, so that a crash can lose an answer but never forget
its price. The noise is drawn whole before the rows are looked at, so that its timing tells nothing about them. The
answer is stored before it is handed over, so that the same query gets the same bytes again, never fresh noise:
averaging re-asked answers yields nothing. An answer that was paid for and lost before it was stored never left, and so
the query may be answered after all: of all answers that are ever made to it, one leaves.

No noise exists before its query is known. A draw takes its words from fresh system randomness and from its full
name: job, slot, position, query, purpose. So two copies of this process, say two virtual machines that were resumed
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
from dpspca.common.spec import JobSpec
from dpspca.provider.ledger import JobPosition, Ledger

from .gate import Gate


class Evaluator(Protocol):
    """Data that can be asked."""

    def check(self, spec: JobSpec) -> None:
        """Refuse a job that these rows, as they were prepared, do not fit."""
        ...

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly; what comes back must not leave without noise."""
        ...

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer a query that is a private mechanism by itself, at the price of the event."""
        ...


class Remembering(Protocol):
    """One job's answers about data, of which later ones go with what was drawn for earlier ones."""

    def admit(self, query: RowQuery) -> None:
        """Refuse a query that does not go with what was answered before; nothing has happened then."""
        ...

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly, as an ``Evaluator`` does."""
        ...

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer a private mechanism, as an ``Evaluator`` does."""
        ...


@runtime_checkable
class Sketchable(Protocol):
    """Data that can be sketched as well."""

    def sketching(self, spec: JobSpec, slot: int) -> Remembering:
        """Begin to answer a job's queries about a sketch, which build on each other."""
        ...


@runtime_checkable
class Spanned(Protocol):
    """Data that have nothing to say in some rows of an answer."""

    def silent(self, query: RowQuery) -> NDArray[np.bool_] | None:
        """Mark the rows that are zero whatever the data are, and all their neighbours; None where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """An answer that was paid for, and is not to be handed out before it is stored."""

    position: int
    answer: Integers
    is_stored: bool = False


class Responder:
    """Answers one job's queries over one shard, from any number of threads.

    The guarantee: for every coordinator, however it chooses its queries, all answers of a job together are
    (epsilon, delta)-differentially private for the spec's unit and budget. Each answer is a release whose sensitivity
    and noise come from the plan, which was held against the budget as a whole and fixes every event before the first
    answer (``plan.price``); what was asked is always a beginning of it. Trusted: this process and its source of random
    words.

    Where data are ``Spanned`` no noise is added to silent rows. An answer is then the release of the other rows, beside
    constants that are the same for neighbours. Neighbours differ in the other rows alone, and there by the whole of
    their difference; so its length, in L2 as in L1, is what it was, and bounded by the same sensitivity, under the same
    noise: the event, and the price, stay true. Noise fitted to a basis X is that of its two largest rows, whichever
    these are; a change within a span moves by one own row of X and one of the columns, never by more.
    """

    def __init__(  # noqa: PLR0913  # a job, and all that it meets
        self,
        plan: Plan,
        shard: Evaluator,
        ledger: Ledger,
        entropy: Entropy,
        *,
        job: str | None = None,
        slot: int = 0,
    ) -> None:
        """``job`` names what was signed; two jobs of the same content are two jobs. Unsigned, the content names it.

        ``slot`` is this provider's place in the job's audience, from 0 on. ``entropy`` makes the words for each draw.
        """
        spec = plan.spec
        shard.check(spec)
        self._gate = Gate(plan)
        self._job = job or spec.digest()
        self._shard = shard
        self._unit = spec.unit
        self._remembering = self._begin_to_remember(spec, slot)
        self._slot = slot
        self._entropy = entropy
        self._ledger = ledger
        self._turn = Lock()

    def respond(self, position: int, query: RowQuery) -> Integers:
        """Answer, answer again with the same bytes, or refuse at no cost.

        One query at a time: whoever lost a connection and asks again waits for the answer that is being made.
        """
        with self._turn:
            return self.keep(self.make(position, query))

    def make(self, position: int, query: RowQuery) -> "Made":
        """Do all but the last step: pay, draw, evaluate and add; or find the answer that was given before.

        A caller that holds answers back does so here, before they are stored: nothing that the ledger does then, and
        nothing that it tells of itself, depends on when an answer was made.
        """
        digest = query.digest()
        while self._ledger.asked(self._job, position) is None:
            before = self._ledger.standing(self._job)
            granted = self._gate.grant(position, query, before or JobPosition())
            if self._remembering and isinstance(query, SketchQuery):
                self._remembering.admit(query)
            # False: another responder on this ledger went ahead. Look again at what has become of the query.
            if self._ledger.reserve(self._job, granted.step.name, digest, before, granted.after):
                return self._made(position, query, digest)
        return self._again(position, query, digest)

    def keep(self, made: "Made") -> Integers:
        """Store an answer, and hand it out; should another have been stored meanwhile, that one is it."""
        if made.is_stored:
            return made.answer
        try:
            self._ledger.store(self._job, made.position, made.answer)
        except RefusedError:
            stored = self._ledger.stored(self._job, made.position)
            if stored is None:
                raise
            return stored
        return made.answer

    def _begin_to_remember(self, spec: JobSpec, slot: int) -> Remembering | None:
        """Remember between answers only where the plan needs it; what is forgotten is never made anew."""
        if not any(issubclass(step.query, SketchQuery) for step in self._gate.plan):
            return None
        if not isinstance(self._shard, Sketchable):
            raise InvalidQueryError("These data cannot be sketched.", "Ask it of rows.")
        return self._shard.sketching(spec, slot)

    def _again(self, position: int, query: RowQuery, digest: str) -> "Made":
        if self._ledger.asked(self._job, position) != digest:
            raise RefusedError(
                f"Query {position + 1} was already asked, with other content.", "A query can be asked once."
            )
        stored = self._ledger.stored(self._job, position)
        return self._made(position, query, digest) if stored is None else Made(position, stored, is_stored=True)

    def _made(self, position: int, query: RowQuery, digest: str) -> "Made":
        """Make the answer to a query that was paid for."""
        step = self._gate.plan[position]
        asked = self._remembering if self._remembering and isinstance(query, SketchQuery) else self._shard
        purpose = Purpose.MECHANISM if step.query.is_private else Purpose.NOISE
        draw = Draw(self._job, self._slot, position, digest, purpose)
        if step.query.is_private:
            answer = asked.release(query, step.event, self._entropy(draw))
            _require_form(step, answer)
        else:
            answer = self._noise(step.fitted(query, self._unit), draw)
            exact = asked.evaluate(query)
            # Were the shapes to differ, one draw could be spread over many entries, and cancel in their differences.
            _require_form(step, exact)
            _keep_silent(answer, exact, asked.silent(query) if isinstance(asked, Spanned) else None)
            answer += exact
        return Made(position, answer)

    def _noise(self, step: Step, draw: Draw) -> Integers:
        """Draw a step's noise, whole; no row has a part in it."""
        if step.event is None:
            return np.zeros(step.shape, dtype=np.int64)
        return _law(step).sample(math.prod(step.shape), self._entropy(draw)).reshape(step.shape)


def _law(step: Step) -> DiscreteGaussian | DiscreteLaplace:
    """Choose the integer noise that is as private as the step's event says."""
    match step.event:
        case GaussianEvent():
            return DiscreteGaussian.with_std_at_least(step.noise_std)
        case LaplaceEvent(scale=scale):
            return DiscreteLaplace.with_scale_at_least(scale)
        case _:
            raise InvalidAnswerError(f"No noise is known for '{step.name}'.", "Report this as a bug.")


def _keep_silent(noise: Integers, exact: Integers, silent: NDArray[np.bool_] | None) -> None:
    """Take the noise off silent rows, after it was drawn whole; refuse an answer that would show there."""
    if silent is None:
        return
    if exact[silent].any():
        raise InvalidAnswerError("The data gave an answer in rows that are not theirs.", "Report this as a bug.")
    noise[silent] = 0


def _require_form(step: Step, answer: Integers) -> None:
    if answer.shape != step.shape or answer.dtype != np.int64:
        raise InvalidAnswerError("The data gave an answer of another form than planned.", "Report this as a bug.")
