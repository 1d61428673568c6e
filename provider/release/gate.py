"""Decides, from the signed spec and what was spent, whether a query is answered. Pure: it reads and changes nothing.

A query is granted when, and only when, it is the next one of the spec's own plan, at that plan's price. The whole
plan was admitted by its budget before the first query (``plan.price``), and what a job asked for is always a
beginning of its plan: so no job spends more than its budget, whatever it is asked. Nothing is taken from whoever asks
but the query's content.
"""

from dataclasses import dataclass

from dpspca.common.errors import RefusedError
from dpspca.common.plan import Plan, Step
from dpspca.common.queries import RowQuery
from dpspca.common.spec import Centering
from dpspca.provider.ledger import JobPosition


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to answer one query: its step of the plan, and the standing once the price is paid."""

    step: Step
    after: JobPosition


class Gate:
    """The rules of one job, which follow from its plan alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def grant(self, position: int, query: RowQuery, standing: JobPosition) -> Grant:
        """Grant the query at this position of the plan, or refuse it; a refusal costs nothing."""
        step = self._next_step(position, standing.reached)
        if standing.spent != self.plan.prices[standing.reached]:
            raise RefusedError(
                "What this job is said to have spent is not the price of what it was asked.", "Verify the ledger."
            )
        if not step.admits(query):
            raise RefusedError(
                f"Query {position + 1} of this job is '{step.name}' ({step.query.kind}) of extent {step.extent}, "
                f"not '{query.kind}' of extent {query.extent}.",
                "Ask what the signed job plans.",
            )
        self._check_center(query)
        return Grant(step, JobPosition(position + 1, self.plan.prices[position + 1]))

    def _next_step(self, position: int, reached: int) -> Step:
        if not 0 <= position < len(self.plan):
            raise RefusedError(
                f"This job has {len(self.plan)} queries; number {position + 1} was asked.", "Sign a new job."
            )
        if position != reached:
            raise RefusedError(
                f"Query {position + 1} was asked where number {reached + 1} is next.", "Ask in the plan's order."
            )
        return self.plan[position]

    def _check_center(self, query: RowQuery) -> None:
        """Allow a centre only where the job has one. Its value is free: any centre leaves the rows' bound as it is."""
        if getattr(query, "center", None) is not None and self.plan.spec.centering is Centering.NONE:
            raise RefusedError("This job does not centre its rows.", "Sign a job that does.")
