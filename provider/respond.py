"""The only way a number leaves: gate, reserve, draw the noise, evaluate, add, store, and only then hand over.

Privacy rests on this order. The reservation precedes everything, so that a crash can lose an answer but never forget
its price. The noise is drawn whole before the rows are looked at, so that its timing tells nothing about them. The
answer is stored before it is handed over, so that the same question gets the same bytes again, never fresh noise:
averaging re-asked answers yields nothing. An answer that was paid for and lost before it was stored never left, and so
the question may be answered after all: of all answers that are ever made to it, one leaves.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import InvalidAnswerError, InvalidQueryError, RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy.events import Event, GaussianEvent, LaplaceEvent
from dpspca.common.privacy.keystream import WordSource
from dpspca.common.privacy.noise import DiscreteGaussian, DiscreteLaplace
from dpspca.common.question import RowQuery
from dpspca.common.sketch_queries import SketchQuery
from dpspca.common.spec import JobSpec

from .gate import Gate, Standing
from .ledger import Ledger
from .moments import Integers

DRAWN_AHEAD: Final = 2**16
"""Numbers that a job draws ahead, for as many questions as need no more; for one question, however many it needs."""
ROOM_AHEAD: Final = 2**25
"""Numbers that all jobs of a provider have drawn ahead at most: a quarter of a gigabyte."""


class Room:
    """Room for what is drawn ahead, which all jobs share: who finds none draws when it is asked, and no later."""

    def __init__(self, numbers: int = ROOM_AHEAD) -> None:
        self._left = numbers
        self._lock = Lock()

    def take(self, numbers: int) -> bool:
        """Take room for so many numbers, if there is."""
        with self._lock:
            enough = numbers <= self._left
            self._left -= numbers if enough else 0
            return enough

    def give(self, numbers: int) -> None:
        """Give room back."""
        with self._lock:
            self._left += numbers


class Evaluator(Protocol):
    """Data that can be asked."""

    def check(self, spec: JobSpec) -> None:
        """Refuse a job that these rows, as they were prepared, do not fit."""
        ...

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly; what comes back must not leave without noise."""
        ...

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer a question that is a private mechanism by itself, at the price of the event."""
        ...


class Remembering(Protocol):
    """One job's answers about data, of which later ones go with what was drawn for earlier ones."""

    def admit(self, query: RowQuery) -> None:
        """Refuse a question that does not go with what was answered before; nothing has happened then."""
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
        """Begin to answer a job's questions about a sketch, which build on each other."""
        ...


@runtime_checkable
class Spanned(Protocol):
    """Data that have nothing to say in some rows of an answer."""

    def silent(self, query: RowQuery) -> NDArray[np.bool_] | None:
        """Mark the rows that are zero whatever the data are, and all their neighbours; None where there are none."""
        ...


class Responder:
    """Answers one job's questions over one shard, from any number of threads.

    The guarantee: for every coordinator, however it chooses its questions, all answers of a job together are
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
        spec: JobSpec,
        shard: Evaluator,
        ledger: Ledger,
        words: WordSource,
        *,
        job: str | None = None,
        slot: int = 0,
        room: Room | None = None,
    ) -> None:
        """``job`` names what was signed; two jobs of the same content are two jobs. Unsigned, the content names it.

        ``slot`` is this provider's place in the job's audience, from 0 on. ``room`` is for noise drawn ahead.
        """
        shard.check(spec)
        self._gate = Gate(spec)
        self._job = job or spec.digest()
        self._shard = shard
        self._unit = spec.unit
        self._remembering = self._begin_to_remember(spec, slot)
        self._words = words
        self._ledger = ledger
        self._noise = _Noise(spec, self._gate.plan, words, room or Room())
        self._turn = Lock()

    def respond(self, position: int, query: RowQuery) -> Integers:
        """Answer, answer again with the same bytes, or refuse at no cost.

        One question at a time: whoever lost a connection and asks again waits for the answer that is being made.
        """
        with self._turn:
            return self._respond(position, query)

    def let_go(self) -> None:
        """Let go of what was drawn ahead, for nobody asks any more; should somebody, it is drawn anew."""
        self._noise.let_go()

    def _begin_to_remember(self, spec: JobSpec, slot: int) -> Remembering | None:
        """Remember between answers only where the plan needs it; what is forgotten is never made anew."""
        if not any(issubclass(step.question, SketchQuery) for step in self._gate.plan):
            return None
        if not isinstance(self._shard, Sketchable):
            raise InvalidQueryError("These data cannot be sketched.", "Ask it of rows.")
        return self._shard.sketching(spec, slot)

    def _respond(self, position: int, query: RowQuery) -> Integers:
        while self._ledger.asked(self._job, position) is None:
            before = self._ledger.standing(self._job)
            granted = self._gate.grant(position, query, before or Standing())
            if self._remembering and isinstance(query, SketchQuery):
                self._remembering.admit(query)
            # False: another responder on this ledger went ahead. Look again at what has become of the question.
            if self._ledger.reserve(self._job, granted.step.name, query.digest(), before, granted.after):
                return self._answer(position, query)
        return self._again(position, query)

    def _again(self, position: int, query: RowQuery) -> Integers:
        if self._ledger.asked(self._job, position) != query.digest():
            raise RefusedError(
                f"Question {position + 1} was already asked, with other content.", "A question can be asked once."
            )
        stored = self._ledger.stored(self._job, position)
        return self._answer(position, query) if stored is None else stored

    def _answer(self, position: int, query: RowQuery) -> Integers:
        """Make the answer to a question that was paid for; should another be stored meanwhile, that one is it."""
        step = self._gate.plan[position]
        asked = self._remembering if self._remembering and isinstance(query, SketchQuery) else self._shard
        if step.question.is_private:
            self._noise.rest()
            answer = asked.release(query, step.event, self._words)
            _require_form(step, answer)
        else:
            answer = self._noise.take(position, query)
            exact = asked.evaluate(query)
            # Were the shapes to differ, one draw could be spread over many entries, and cancel in their differences.
            _require_form(step, exact)
            _keep_silent(answer, exact, asked.silent(query) if isinstance(asked, Spanned) else None)
            answer += exact
        try:
            self._ledger.store(self._job, position, answer)
        except RefusedError:
            stored = self._ledger.stored(self._job, position)
            if stored is None:
                raise
            return stored
        self._noise.prepare(position + 1)
        return answer


class _Noise:
    """Noise as planned, drawn ahead while the answer before is on its way: no row has a part in it.

    Small questions' is drawn together, for the tables that it comes from are in the processor's cache only once then.
    """

    def __init__(self, spec: JobSpec, plan: Sequence[Step], words: WordSource, room: Room) -> None:
        self._unit = spec.unit
        self._plan = plan
        self._words = words
        self._room = room
        self._changing = Lock()
        self._is_over = False
        self._drawing: Thread | None = None
        self._ahead: dict[int, Future[Integers]] = {}

    def prepare(self, position: int) -> None:
        """Begin to draw what the next questions will need, as far as that is known before they are."""
        with self._changing:
            foreseen = [] if self._ahead or self._is_over else list(self._foreseen(position))
            if foreseen and self._room.take(sum(map(self._numbers, foreseen))):
                self._ahead = {each: Future() for each in foreseen}
                self._drawing = Thread(target=self._fulfil, args=(self._ahead.copy(),), name="noise", daemon=True)
                self._drawing.start()

    def take(self, position: int, query: RowQuery) -> Integers:
        """Give noise that was never given before."""
        if drawing := self._taken(position):
            return drawing.result()
        self.rest()
        return self._draw(self._plan[position].fitted(query, self._unit))

    def rest(self) -> None:
        """Wait until nothing is being drawn, for one drawing follows the other."""
        if self._drawing:
            self._drawing.join()

    def let_go(self) -> None:
        """Let go of everything, for good."""
        with self._changing:
            self._is_over = True
            begun, self._ahead = self._ahead, {}
        for position, drawing in begun.items():
            drawing.cancel()
            # What is being drawn at this moment cannot be stopped, and takes its room until it is done.
            drawing.add_done_callback(partial(self._leave, position))

    def _taken(self, position: int) -> "Future[Integers] | None":
        """Take out what was begun for a question, whose room is free then; whoever comes second finds nothing."""
        with self._changing:
            drawing = self._ahead.pop(position, None)
        if drawing:
            self._leave(position)
        return drawing

    def _leave(self, position: int, _: object = None) -> None:
        """Give back the room of what was drawn for a question."""
        self._room.give(self._numbers(position))

    def _numbers(self, position: int) -> int:
        return math.prod(self._plan[position].shape)

    def _foreseen(self, position: int) -> Iterator[int]:
        """List the questions from here on whose noise depends on the plan alone, while it is little in all."""
        drawn = 0
        for later, step in enumerate(self._plan[position:], position):
            drawn += self._numbers(later)
            if step.question.fits_noise or step.question.is_private or (later > position and drawn > DRAWN_AHEAD):
                return
            yield later

    def _fulfil(self, drawings: Mapping[int, "Future[Integers]"]) -> None:
        for position, drawing in drawings.items():
            if not drawing.set_running_or_notify_cancel():
                continue  # nobody wants it any more
            try:
                drawing.set_result(self._draw(self._plan[position]))
            except Exception as problem:  # noqa: BLE001  # for whoever takes it
                drawing.set_exception(problem)

    def _draw(self, step: Step) -> Integers:
        if step.event is None:
            return np.zeros(step.shape, dtype=np.int64)
        return _law(step).sample(math.prod(step.shape), self._words).reshape(step.shape)


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
