"""The only way a number leaves: gate, reserve, draw the noise, evaluate, add, store, and only then hand over.

Privacy rests on this order. The reservation precedes everything, so that a crash can lose an answer but never forget
its price. The noise is drawn whole before the rows are looked at, so that its timing tells nothing about them. The
answer is stored before it is handed over, so that the same question gets the same bytes again, never fresh noise:
averaging re-asked answers yields nothing.
"""

import math
from typing import Protocol

import numpy as np

from dpspca.common.errors import RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy.keystream import WordSource
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.question import RowQuery
from dpspca.common.spec import JobSpec

from . import gate
from .ledger import Ledger
from .moments import Integers


class Evaluator(Protocol):
    """Rows that can be asked."""

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly; what comes back must not leave without noise."""
        ...


class Responder:
    """Answers one job's questions over one shard.

    The guarantee: for every coordinator, however it chooses its questions, all answers of a job together are
    (epsilon, delta)-differentially private for the spec's unit and budget. Each answer is a Gaussian release whose
    sensitivity and noise come from the plan; the filter stops the sum of mu squared at the budget, which is valid
    under full adaptivity (Smith & Thakurta 2022). Trusted: this process and its source of random words.
    """

    def __init__(self, spec: JobSpec, shard: Evaluator, ledger: Ledger, words: WordSource) -> None:
        self._spec = spec
        self._job = spec.digest()
        self._shard = shard
        self._ledger = ledger
        self._words = words

    def respond(self, position: int, query: RowQuery) -> Integers:
        """Answer, answer again with the same bytes, or refuse at no cost."""
        asked = self._ledger.asked(self._job, position)
        if asked is not None:
            return self._again(position, query, asked)
        granted = gate.grant(self._spec, position, query, self._ledger.spent(self._job))
        events = [granted.step.event] if granted.step.event else []
        self._ledger.reserve(self._job, position, query.digest(), granted.spent, events)
        answer = self._noise(granted.step) + self._shard.evaluate(query)
        self._ledger.store(self._job, position, answer)
        return answer

    def _again(self, position: int, query: RowQuery, asked: str) -> Integers:
        if asked != query.digest():
            raise RefusedError(
                f"Question {position + 1} was already asked, with other content.", "A question can be asked once."
            )
        stored = self._ledger.stored(self._job, position)
        if stored is None:
            raise RefusedError(f"Question {position + 1} was paid for but its answer was lost.", "Start a new job.")
        return stored

    def _noise(self, step: Step) -> Integers:
        if step.event is None:
            return np.zeros(step.shape, dtype=np.int64)
        sampler = DiscreteGaussian.with_std_at_least(step.noise_std)
        return sampler.sample(math.prod(step.shape), self._words).reshape(step.shape)
