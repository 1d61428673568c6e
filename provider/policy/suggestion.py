"""Suggests a policy that allows a given job and little else, as a first draft for the steward."""

import json
import math
from collections.abc import Sequence
from typing import Final

from dpspca.common.dictionary import feature_of
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import PRIVATE_BOUND, Centering, JobSpec, Scaling
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_EPSILON, SLACK_UNIT, Filter, Price

from .caps import APPROXIMATE, Cap

LIFETIME: Final = 4.0
"""A suggested lifetime, as a multiple of the job's epsilon. At small budgets, about sixteen Gaussian jobs fit."""
LIFETIME_DELTA: Final = 1e-6
"""The least suggested lifetime delta for jobs whose noise is not Gaussian."""
MOST_DELTA: Final = 0.1
"""No larger delta is suggested."""
MOST_FEATURES: Final = 100
"""No more features are listed: a longer list is hard to read, and it is sent to analysts with the terms."""
_LINE: Final = 100
_ANY: Final = "{ least = 1e-18, most = 1e18 }"
FEW: Final = 4
"""The number of jobs with other noise for which a suggested lifetime has room, if any budget has."""


def suggest(plan: Plan, data_set: str, analysts: Sequence[str], lifetime: Cap | None = None) -> str:
    """Return a policy, in TOML, that allows jobs like this one and nothing that it does not ask for.

    ``lifetime`` is the budget of all jobs together. By default it has room for a few such jobs.
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
        *(["dictionary = true"] if spec.dictionary else []),
        *(["unproven = true"] if not plan.is_proven else []),
        f"columns = {_columns(spec)}",
        f"norm_bound = {_norm_bounds(spec)}",
        f"minimum_providers = {spec.minimum_providers}",
        f"lifetime = {_written(lifetime or budget_for_a_few(plan))}",
        f"per_job = {_per_job(plan)}",
    ]
    if spec.centering is Centering.PRIVATE:
        lines.append(f"mean_bound = {_ANY if spec.finds_mean_bound else _only(spec.mean_bound)}")
    return "\n".join([f"[data_sets.{json.dumps(data_set)}]", *lines, ""])


def _columns(spec: JobSpec) -> str:
    """Allow the job's features alone. Without a dictionary, or for very many features, allow as many columns as it has.

    With a dictionary, a policy names features, and a job the columns that they become.
    """
    names = spec.schema.names if spec.dictionary else None
    features = [*dict.fromkeys(map(feature_of, names or ()))]
    if not 0 < len(features) <= MOST_FEATURES:
        return str(spec.schema.dimension)
    written = [json.dumps(each, ensure_ascii=False) for each in features]
    line = f"[{', '.join(written)}]"
    return line if len(line) <= _LINE else "\n".join(["[", *(f"    {each}," for each in written), "]"])


def _norm_bounds(spec: JobSpec) -> str:
    """Allow the job's bound alone. A job that finds its own bound is always allowed; then any other is, too.

    The bound of a job that scales its columns is not in the units of the rows, which a policy's range is.
    """
    if spec.norm_bound == PRIVATE_BOUND or spec.scaling is not Scaling.NONE:
        return _ANY
    return _only(spec.norm_bound)


def _only(bound: float | None) -> str:
    return f"{{ least = {bound!r}, most = {bound!r} }}"


def budget_for_a_few(plan: Plan) -> Cap:
    """Return a budget with room for a few such jobs, or for as many of them as any budget has.

    Jobs add up in mu, and noise that is not Gaussian costs more in mu than its epsilon suggests. A mechanism that is
    private except with some probability takes this from a part of delta that is set aside. If a job's delta is so small
    that almost no mu is allowed at it, the lifetime's delta must be larger.
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
        f"No lifetime has room for this job: at epsilon {spec.budget.epsilon:g}, {spec.method} costs too much in mu "
        "or in the delta that is set aside.",
        "Choose a smaller epsilon.",
    )


def _per_job(plan: Plan) -> str:
    """Write the job's own budget, with the part of delta that its mechanisms need set aside."""
    budget = plan.spec.budget
    by_itself = Filter.for_budget(budget.epsilon, budget.delta)
    needed = plan.mechanism_delta and plan.price.slack_units > by_itself.whole.slack_units
    return _written(Cap(budget.epsilon, budget.delta, plan.mechanism_delta if needed else 0.0))


def _written(cap: Cap) -> str:
    aside = f", {APPROXIMATE} = {cap.approximate_delta!r}" if cap.approximate_delta else ""
    return f"{{ epsilon = {cap.epsilon!r}, delta = {cap.delta!r}{aside} }}"


def _cap(price: Price, epsilon: float, delta: float) -> Cap | None:
    """Return a budget of at least this epsilon and delta that covers a price, or None if it would be too large."""
    while Filter.for_budget(epsilon, delta).whole.units < price.units:
        if epsilon >= MAX_EPSILON:
            return None
        epsilon = min(1.25 * epsilon, MAX_EPSILON)
    if price.slack_units <= Filter.for_budget(epsilon, delta).whole.slack_units:
        return Cap(epsilon, delta)
    aside = 1.001 * float(price.slack_units * SLACK_UNIT) * (1 + math.exp(epsilon))
    return Cap(epsilon, delta + aside, aside) if delta + aside < MOST_DELTA else None
