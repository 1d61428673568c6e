"""Decides, from the signed job and what was spent, whether a query is answered. Pure: it changes nothing.

A query is granted if, and only if, it is the next one of the job's own plan, at that plan's price. The budget admitted
the whole plan before the first query (``plan.price``), and the queries of a job are always the first ones of its plan.
So no job spends more than its budget, whatever it is asked. Only the content of the query comes from the requester.
"""

from dataclasses import dataclass
from typing import Final

from dpspca.common.errors import RefusedError
from dpspca.common.job import Centering, Scaling
from dpspca.common.plan import Plan, Step
from dpspca.common.queries import RowQuery
from dpspca.provider.ledger import JobPosition

_WITHOUT_CENTRE: Final = frozenset({Centering.NONE, Centering.PAIRS})


@dataclass(frozen=True, slots=True)
class Grant:
    """The permission to answer one query: its step in the plan, and the job's position once its price is paid."""

    step: Step
    after: JobPosition


class Gate:
    """The rules of one job. They follow from its plan alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def grant(self, position: int, query: RowQuery, standing: JobPosition) -> Grant:
        """Grant the query at this position of the plan, or refuse it. A refusal costs nothing."""
        step = self._next_step(position, standing.reached)
        if standing.spent != self.plan.prices[standing.reached]:
            raise RefusedError(
                "By the ledger, this job has spent an amount that is not the price of its queries so far.",
                "The provider's operator must run `dpspca ledger verify`.",
            )
        if not step.admits(query):
            raise RefusedError(
                f"Query {position + 1} of this job is '{step.name}' ({step.query.kind}) of extent {step.extent}, "
                f"not '{query.kind}' of extent {query.extent}.",
                "Send the query that the signed job plans.",
            )
        self._check_center(query)
        return Grant(step, JobPosition(position + 1, self.plan.prices[position + 1]))

    def _next_step(self, position: int, reached: int) -> Step:
        if not 0 <= position < len(self.plan):
            raise RefusedError(
                f"Query {position + 1} was asked, but this job has {len(self.plan)} queries.", "Sign a new job."
            )
        if position != reached:
            raise RefusedError(
                f"Query {position + 1} was asked, but query {reached + 1} is next.", "Ask in the order of the plan."
            )
        return self.plan[position]

    def _check_center(self, query: RowQuery) -> None:
        """Allow a centre or scales only if the job uses them. Any value is safe: the bound on rows holds for all."""
        if getattr(query, "center", None) is not None and self.plan.spec.centering in _WITHOUT_CENTRE:
            raise RefusedError(
                f"The query has a centre, but the job has centering = {self.plan.spec.centering}.",
                "Sign a job that centres its rows.",
            )
        if getattr(query, "scales", None) is not None and not self.plan.spec.divides_columns:
            raise RefusedError(
                f"The query has scales, but the job has scaling = {Scaling.NONE}, and finds no bound for a mean.",
                "Sign a job that scales its columns, or one with mean_bound = private.",
            )
