"""A policy under which a job at hand would be allowed, and little else: where a steward's own begins."""

import json
import math
from collections.abc import Sequence
from typing import Final

from dpspca.common.errors import InvalidParameterError
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_EPSILON, SLACK_UNIT, Filter, Price
from dpspca.common.spec import Centering

from .caps import APPROXIMATE, Cap

LIFETIME: Final = 4.0
"""Times a job's epsilon: at small budgets, room for about sixteen such jobs with Gaussian noise."""
LIFETIME_DELTA: Final = 1e-6
"""The least delta of a lifetime for jobs whose noise is not Gaussian."""
MOST_DELTA: Final = 0.1
"""A delta that is larger is not suggested to anybody."""
FEW: Final = 4
"""Jobs with other noise that there is to be room for, as far as any budget has it."""


def suggest(plan: Plan, data_set: str, analysts: Sequence[str], lifetime: Cap | None = None) -> str:
    """Write a policy, in TOML, that allows jobs like this one, and nothing that it does not ask for.

    ``lifetime`` is the budget of all jobs together; left out, one with room for a few.
    """
    spec = plan.spec
    lines = [
        f"analysts = {json.dumps(sorted(analysts))}",
        f'unit = "{spec.unit}"',
        *([f"rows_per_person = {spec.rows_per_person}"] if spec.unit.is_row else []),
        f'methods = ["{spec.method}"]',
        f'accounting = ["{spec.accounting}"]',
        f'centering = ["{spec.centering}"]',
        f"explained_variance = {json.dumps(spec.explained_variance)}",
        *(["unproven = true"] if not plan.is_proven else []),
        f"columns = {spec.schema.dimension}",
        f"norm_bound = {{ least = {spec.norm_bound!r}, most = {spec.norm_bound!r} }}",
        f"minimum_parties = {spec.minimum_parties}",
        f"lifetime = {_written(lifetime or a_few(plan))}",
        f"per_job = {_per_job(plan)}",
    ]
    if spec.centering is Centering.PRIVATE:
        lines.append(f"mean_bound = {{ least = {spec.mean_bound!r}, most = {spec.mean_bound!r} }}")
    return "\n".join([f"[data_sets.{json.dumps(data_set)}]", *lines, ""])


def a_few(plan: Plan) -> Cap:
    """Give a budget with room for a few such jobs, or for as many as any budget of that size has.

    Noise that is not Gaussian costs more in mu than its epsilon suggests, and mu is what jobs add up in; a mechanism
    that is private but for a probability of its own takes that from a part of delta that is set aside for it. Where
    a job's delta pays for next to nothing, that of the lifetime has to be larger: mu is worth hardly anything at it.
    """
    spec = plan.spec
    epsilon, delta = min(LIFETIME * spec.budget.epsilon, MAX_EPSILON), spec.budget.delta
    if plan.loss.is_gaussian:
        return Cap(epsilon, delta)
    for few in range(FEW, 0, -1):
        cap = _cap(plan.price * few, epsilon, max(delta, LIFETIME_DELTA))
        if cap:
            return cap
    raise InvalidParameterError(
        f"No lifetime has room for this job: at epsilon {spec.budget.epsilon:g} what {spec.method} asks costs too "
        "much in mu, or in delta beside it.",
        "Choose a smaller epsilon.",
    )


def _per_job(plan: Plan) -> str:
    """Write the job's own budget, with what its mechanisms may take of delta set aside."""
    budget = plan.spec.budget
    by_itself = Filter.for_budget(budget.epsilon, budget.delta)
    needed = plan.failing and plan.price.slack_units > by_itself.whole.slack_units
    return _written(Cap(budget.epsilon, budget.delta, plan.failing if needed else 0.0))


def _written(cap: Cap) -> str:
    aside = f", {APPROXIMATE} = {cap.approximate_delta!r}" if cap.approximate_delta else ""
    return f"{{ epsilon = {cap.epsilon!r}, delta = {cap.delta!r}{aside} }}"


def _cap(price: Price, epsilon: float, delta: float) -> Cap | None:
    """Give a budget of at least this epsilon and delta that holds so much, if there is one worth the name."""
    while Filter.for_budget(epsilon, delta).whole.units < price.units:
        if epsilon >= MAX_EPSILON:
            return None
        epsilon = min(1.25 * epsilon, MAX_EPSILON)
    if price.slack_units <= Filter.for_budget(epsilon, delta).whole.slack_units:
        return Cap(epsilon, delta)
    aside = 1.001 * float(price.slack_units * SLACK_UNIT) * (1 + math.exp(epsilon))
    return Cap(epsilon, delta + aside, aside) if delta + aside < MOST_DELTA else None
