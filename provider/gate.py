"""Decides, from the signed spec and what was spent, whether a question is answered. Pure: it reads and changes nothing.

A question is granted when, and only when, it is the one that the spec's own plan has at this position and the filter
has room for its price. The price is the plan's. Nothing is taken from whoever asks but the question's content.
"""

from dataclasses import dataclass

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy.accountant import Filter
from dpspca.common.question import RowQuery
from dpspca.common.spec import Centering, JobSpec


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to answer one question: its step of the plan, and the filter once the price is paid."""

    step: Step
    spent: Filter


def grant(spec: JobSpec, position: int, query: RowQuery, spent: Filter | None) -> Grant:
    """Grant the question at this position of the plan, or refuse it; a refusal costs nothing."""
    plan = catalogue.plan(spec)
    if not 0 <= position < len(plan):
        raise RefusedError(f"This job has {len(plan)} questions; number {position + 1} was asked.", "Sign a new job.")
    step = plan[position]
    if not step.admits(query):
        raise RefusedError(
            f"Question {position + 1} of this job is '{step.name}' ({step.question.kind}) of extent {step.extent}, not "
            f"'{query.kind}' of extent {query.extent}.",
            "Ask what the signed job plans, in its order.",
        )
    _check_center(spec, query)
    before = spent or Filter.for_budget(spec.budget.epsilon, spec.budget.delta)
    return Grant(step, before.admit([step.event] if step.event else []))


def _check_center(spec: JobSpec, query: RowQuery) -> None:
    """Allow a centre only where the job has one. Its value is free: any centre leaves the bound on rows as it is."""
    if getattr(query, "center", None) is not None and spec.centering is Centering.NONE:
        raise RefusedError("This job does not centre its rows.", "Sign a job that does.")
