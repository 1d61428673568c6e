"""The part of a policy that an analyst whom it names may see before writing a job. Pure."""

from dataclasses import asdict

from dpspca.common.job import Bounds, Budget, Conditions, StatedCap

from .caps import Range, aside
from .rules import Rules


def conditions_of(rules: Rules) -> Conditions:
    """Return the rules that an analyst's jobs have to keep. They name no other analyst, and no lifetime."""
    return Conditions(
        unit=rules.unit,
        rows_per_person=rules.rows_per_person,
        methods=rules.methods,
        accounting=rules.accounting,
        centering=rules.centering,
        explained_variance=rules.explained_variance,
        columns=rules.columns,
        norm_bound=_bounds(rules.norm_bound),
        mean_bound=_bounds(rules.mean_bound) if rules.mean_bound else None,
        minimum_providers=rules.minimum_providers,
        unproven=rules.unproven,
        approvals_needed=0 if rules.approval_rule is None else rules.approval_rule.needed,
        per_job=_cap(rules.per_job),
        per_analyst=_cap(rules.per_analyst) if rules.per_analyst else None,
        quotas=asdict(rules.quotas),
        dictionary_required=rules.dictionary,
    )


def _bounds(of: Range) -> Bounds:
    return Bounds(float(of.least), float(of.most))


def _cap(budget: Budget) -> StatedCap:
    return StatedCap(budget.epsilon, budget.delta, float(aside(budget)))
