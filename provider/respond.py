"""The only way a number leaves: gate, reserve, draw the noise, evaluate, add, store, and only then hand over.

Privacy rests on this order. The reservation precedes everything, so that a crash can lose an answer but never forget
its price. The noise is drawn whole before the rows are looked at, so that its timing tells nothing about them. The
answer is stored before it is handed over, so that the same question gets the same bytes again, never fresh noise:
averaging re-asked answers yields nothing. An answer that was paid for and lost before it was stored never left, and so
the question may be answered after all: of all answers that are ever made to it, one leaves.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Final, Protocol

import numpy as np

from dpspca.common.errors import InvalidAnswerError, RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy.keystream import WordSource
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.question import RowQuery
from dpspca.common.spec import JobSpec

from .gate import Gate, Standing
from .ledger import Ledger
from .moments import Integers

DRAWN_AHEAD: Final = 2**16
"""Draws from which on they are made ahead: a millisecond's work."""


class Evaluator(Protocol):
    """Rows that can be asked."""

    def check(self, spec: JobSpec) -> None:
        """Refuse a job that these rows, as they were prepared, do not fit."""
        ...

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly; what comes back must not leave without noise."""
        ...


class Responder:
    """Answers one job's questions over one shard, from any number of threads.

    The guarantee: for every coordinator, however it chooses its questions, all answers of a job together are
    (epsilon, delta)-differentially private for the spec's unit and budget. Each answer is a Gaussian release whose
    sensitivity and noise come from the plan; the filter stops the sum of mu squared at the budget, which is valid
    under full adaptivity (Smith & Thakurta 2022). Trusted: this process and its source of random words.
    """

    def __init__(
        self, spec: JobSpec, shard: Evaluator, ledger: Ledger, words: WordSource, *, job: str | None = None
    ) -> None:
        """``job`` names what was signed; two jobs of the same content are two jobs. Unsigned, the content names it."""
        shard.check(spec)
        self._gate = Gate(spec)
        self._start = Standing.at_start(spec)
        self._job = job or spec.digest()
        self._shard = shard
        self._ledger = ledger
        self._noise = _Noise(self._gate.plan, words)
        self._turn = Lock()

    def respond(self, position: int, query: RowQuery) -> Integers:
        """Answer, answer again with the same bytes, or refuse at no cost.

        One question at a time: whoever lost a connection and asks again waits for the answer that is being made.
        """
        with self._turn:
            return self._respond(position, query)

    def _respond(self, position: int, query: RowQuery) -> Integers:
        while self._ledger.asked(self._job, position) is None:
            before = self._ledger.standing(self._job)
            granted = self._gate.grant(position, query, before or self._start)
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
        answer = self._noise.take(position)
        exact = self._shard.evaluate(query)
        # Were the shapes to differ, one draw could be spread over many entries, and cancel in their differences.
        if exact.shape != answer.shape or exact.dtype != answer.dtype:
            raise InvalidAnswerError("The rows gave an answer of another form than planned.", "Report this as a bug.")
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
    """Noise as planned. Much of it is drawn ahead, while the answer before is on its way: no row has a part in it."""

    def __init__(self, plan: Sequence[Step], words: WordSource) -> None:
        self._plan = plan
        self._words = words
        self._ahead: tuple[int, Future[Integers]] | None = None

    def prepare(self, position: int) -> None:
        """Begin to draw what the next question will need, if that takes long."""
        if position < len(self._plan) and math.prod(self._plan[position].shape) >= DRAWN_AHEAD:
            drawing: Future[Integers] = Future()
            self._ahead = position, drawing
            Thread(target=self._fulfil, args=(drawing, position), name="noise", daemon=True).start()

    def take(self, position: int) -> Integers:
        """Give noise that was never given before; one drawing follows the other, as the source of words demands."""
        ahead, self._ahead = self._ahead, None
        if ahead:
            drawn = ahead[1].result()
            if ahead[0] == position:
                return drawn
        return self._draw(position)

    def _fulfil(self, drawing: "Future[Integers]", position: int) -> None:
        try:
            drawing.set_result(self._draw(position))
        except Exception as problem:  # noqa: BLE001  # for whoever takes it
            drawing.set_exception(problem)

    def _draw(self, position: int) -> Integers:
        step = self._plan[position]
        if step.event is None:
            return np.zeros(step.shape, dtype=np.int64)
        sampler = DiscreteGaussian.with_std_at_least(step.noise_std)
        return sampler.sample(math.prod(step.shape), self._words).reshape(step.shape)
