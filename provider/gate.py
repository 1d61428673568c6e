"""Decides, from the signed spec and what was spent, whether a question is answered. Pure: it reads and changes nothing.

A question is granted when, and only when, it is the next one of the spec's own plan, at that plan's price. The whole
plan was admitted by its budget before the first question (``plan.price``), and what a job asked for is always a
beginning of its plan: so no job spends more than its budget, whatever it is asked. Nothing is taken from whoever asks
but the question's content.
"""

from dataclasses import dataclass

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.plan import NOTHING, Price, Step, prices
from dpspca.common.question import RowQuery
from dpspca.common.spec import Centering, JobSpec


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a job has come at one provider: how many questions were paid for, and what they cost together."""

    reached: int = 0
    spent: Price = NOTHING


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to answer one question: its step of the plan, and the standing once the price is paid."""

    step: Step
    after: Standing


class Gate:
    """The rules of one job, worked out from its spec alone; ``plan`` lists its questions."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self.plan = catalogue.plan(spec)
        self._prices = (NOTHING, *prices(self.plan))

    def grant(self, position: int, query: RowQuery, standing: Standing) -> Grant:
        """Grant the question at this position of the plan, or refuse it; a refusal costs nothing."""
        step = self._next_step(position, standing.reached)
        if standing.spent != self._prices[standing.reached]:
            raise RefusedError(
                "What this job is said to have spent is not the price of what it was asked.", "Verify the ledger."
            )
        if not step.admits(query):
            raise RefusedError(
                f"Question {position + 1} of this job is '{step.name}' ({step.question.kind}) of extent {step.extent}, "
                f"not '{query.kind}' of extent {query.extent}.",
                "Ask what the signed job plans.",
            )
        self._check_center(query)
        return Grant(step, Standing(position + 1, self._prices[position + 1]))

    def _next_step(self, position: int, reached: int) -> Step:
        if not 0 <= position < len(self.plan):
            raise RefusedError(
                f"This job has {len(self.plan)} questions; number {position + 1} was asked.", "Sign a new job."
            )
        if position != reached:
            raise RefusedError(
                f"Question {position + 1} was asked where number {reached + 1} is next.", "Ask in the plan's order."
            )
        return self.plan[position]

    def _check_center(self, query: RowQuery) -> None:
        """Allow a centre only where the job has one. Its value is free: any centre leaves the rows' bound as it is."""
        if getattr(query, "center", None) is not None and self._spec.centering is Centering.NONE:
            raise RefusedError("This job does not centre its rows.", "Sign a job that does.")
