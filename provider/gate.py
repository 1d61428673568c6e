"""Decides, from the signed spec and what was spent, whether a question is answered. Pure: it reads and changes nothing.

A question is granted when, and only when, it is the next one of the spec's own plan and the filter has room for its
price. Nothing is taken from whoever asks but the question's content.
"""

from dataclasses import dataclass
from typing import Self

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy.accountant import Filter
from dpspca.common.question import RowQuery
from dpspca.common.spec import Centering, JobSpec


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a job has come at one provider: how many questions were paid for, and what they cost."""

    reached: int
    spent: Filter

    @classmethod
    def at_start(cls, spec: JobSpec) -> Self:
        """Give the standing of a job of which nothing was asked yet."""
        return cls(0, Filter.for_budget(spec.budget.epsilon, spec.budget.delta))


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

    def grant(self, position: int, query: RowQuery, standing: Standing) -> Grant:
        """Grant the question at this position of the plan, or refuse it; a refusal costs nothing."""
        step = self._next_step(position, standing.reached)
        if not step.admits(query):
            raise RefusedError(
                f"Question {position + 1} of this job is '{step.name}' ({step.question.kind}) of extent {step.extent}, "
                f"not '{query.kind}' of extent {query.extent}.",
                "Ask what the signed job plans.",
            )
        self._check_center(query)
        return Grant(step, Standing(position + 1, standing.spent.admit([step.event] if step.event else [])))

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
