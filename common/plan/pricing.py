"""Prices planned queries and checks the plan against the job's own budget before anything is spent."""

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from dpspca.common.checks import check
from dpspca.common.errors import BudgetExceededError, InvalidParameterError, NoiseTooWideError, PlanOverBudgetError
from dpspca.common.job import MAX_QUERIES, Accounting, JobSpec
from dpspca.common.privacy import (
    DRAW_SLACK,
    MAX_SCALE,
    MAX_STD,
    MIN_EPSILON,
    SLACK_SHARE,
    ApproximateEvent,
    ChoiceEvent,
    Event,
    Filter,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    Price,
    PrivacyLoss,
    PrivacyUnit,
    calibrated_scale,
    calibrated_std,
    compose,
    float_above,
    format_up,
    published_noise_multiplier,
    usable_mu,
)
from dpspca.common.queries import Extent, RowQuery, with_rounding_margin

from .plan import events
from .steps import Noise, PlannedQueries, PlannedQuery, PublishedNoise, QuerySeries, Step


def price(spec: JobSpec, planned_queries: PlannedQueries, published: PublishedNoise | None = None) -> tuple[Step, ...]:
    """Turn planned queries into steps. Refuse a plan that costs more than the job's budget.

    A plan of too many queries is refused before any of them is listed or priced. Analyst, coordinator and providers
    all call this before any policy or quota applies. Without the bound, a signed job of a kilobyte could make each of
    them compute for minutes and fill its memory (threats T24 and T35).

    Exact plans use their whole budget, to the last unit. A published formula does not hold for every budget: that of
    Ge et al. promises more than its noise gives for a single round and an epsilon above about 11.
    """
    if spec.accounting is Accounting.PUBLISHED and published is None:
        raise InvalidParameterError(
            f"The method {spec.method} has no published formula for the unit {spec.unit}.", "Use exact accounting."
        )
    _limit_queries(spec, planned_queries)
    check(
        spec.budget.epsilon >= MIN_EPSILON,
        f"epsilon is {spec.budget.epsilon}; no noise can be computed for it.",
        f"Give {MIN_EPSILON} or more; useful values are far above.",
    )
    steps = tuple(step for each in planned_queries for step in _steps(spec, each, published))
    _check_equal_blocks(steps)
    _check_budget(spec, events(steps))
    return steps


def count_queries(planned_queries: PlannedQueries) -> int:
    """Count the queries without listing them."""
    return sum(each.count if isinstance(each, QuerySeries) else 1 for each in planned_queries)


def _limit_queries(spec: JobSpec, planned_queries: PlannedQueries) -> None:
    count = count_queries(planned_queries)
    lower = [each.lower for each in planned_queries if isinstance(each, QuerySeries)]
    check(
        count <= MAX_QUERIES,
        f"The plan of this {spec.method} job has {count} queries; a job may have at most {MAX_QUERIES}.",
        f"Lower {' or '.join(lower)}." if lower else "Ask fewer.",
    )


def _check_budget(spec: JobSpec, cost: tuple[Event, ...]) -> None:
    """Check a plan against its budget: purely Gaussian plans by the filter's exact rule, others by the composed loss.

    The plan and all its events are fixed before the first answer, so the result of ``compose`` is a guarantee.
    """
    epsilon, delta = spec.budget.epsilon, spec.budget.delta
    gaussian = all(isinstance(event, GaussianEvent | ChoiceEvent) for event in cost)
    _check_delta(cost, epsilon, delta, SLACK_SHARE if gaussian else Fraction(1))
    remedy = "Use exact accounting, a smaller epsilon, a larger delta or fewer rounds."
    if gaussian:
        try:
            Filter.for_budget(epsilon, delta).admit(cost)
        except BudgetExceededError as problem:
            raise PlanOverBudgetError(f"This job's plan costs more than its budget. {problem.what}", remedy) from None
        return
    needed = compose(cost).delta(epsilon)
    check(
        needed <= delta,
        f"This job's plan costs more than its budget: at epsilon {epsilon:g} it needs a delta of {needed:.3g}, but the "
        f"budget has {delta:.3g}.",
        remedy,
        PlanOverBudgetError,
    )


def _check_delta(cost: tuple[Event, ...], epsilon: float, delta: float, share: Fraction) -> None:
    """Refuse a delta that does not pay for the distance of the random draws from the ideal distributions.

    That distance does not depend on the width of the noise. ``share`` is the part of delta that is kept for it. The
    delta of a private mechanism does not count here.
    """
    implemented = [replace(event, delta=0.0) if isinstance(event, ApproximateEvent) else event for event in cost]
    loss = PrivacyLoss((Mixture(slack_units=Price.of(implemented).slack_units),))
    least = float_above(Fraction(loss.least_delta(epsilon)) / share)
    check(
        delta >= least,
        f"This job's plan costs more than its budget: its random draws, as implemented, are up to "
        f"{format_up(loss.slack, 3)} from the ideal ones. At epsilon {epsilon:g} that takes a delta of "
        f"{format_up(least, 3)}, but the budget has {delta:g}.",
        f"Give a delta of {format_up(least, 3)} or more, or a smaller epsilon.",
        PlanOverBudgetError,
    )


def _check_equal_blocks(steps: Iterable[Step]) -> None:
    """Refuse blocks that do not all cost the same.

    If they do, the first block pays the whole price and all others are free, so no price is a difference of two. A
    ledger returns the price of a lost answer, unless an answer was sent that is free because of it.
    """
    groups: dict[int, list[Event | None]] = {}
    for step in steps:
        if step.extent.blocks:
            groups.setdefault(step.extent.block, []).append(step.event)
    first = next(iter(groups), 0)
    other = next((block for block, group in groups.items() if group != groups[first]), 0)
    check(
        not other,
        f"The queries about blocks {first} and {other} of the rows do not cost the same.",
        "Plan the same queries for every block.",
    )


def _steps(spec: JobSpec, planned: PlannedQuery | QuerySeries, published: PublishedNoise | None) -> Iterable[Step]:
    """Price a query, or a series of queries once, and give each its name."""
    if isinstance(planned, PlannedQuery):
        return (_step(spec, planned, published),)
    step = _step(spec, planned.query, published)
    return (replace(step, name=planned.name_of(number)) for number in range(1, planned.count + 1))


def _step(spec: JobSpec, planned: PlannedQuery, published: PublishedNoise | None) -> Step:
    step = _single_step(spec, planned, published)
    return step if planned.instead is None else _with_choice(spec, planned, step, *planned.instead)


def _with_choice(spec: JobSpec, planned: PlannedQuery, step: Step, query: type[RowQuery], extent: Extent) -> Step:
    """Add a query with Gaussian noise that may be asked in a step's place and costs no more.

    Both are mu-GDP for the same mu, except that the distance of random draws from ideal ones grows with the number of
    numbers; the larger one is counted for both. A filter admits the step's price before either is asked, and which one
    is asked follows from released numbers alone. So the argument for adaptive queries holds as it is.
    """
    assert isinstance(step.event, GaussianEvent | ChoiceEvent)  # not so if accounting were as published
    other = replace(planned, query=query, extent=extent, event=None, instead=None)
    moves = _sensitivity(spec, other)
    std = calibrated_std(moves, Price.of([step.event]).mu * (1 - 2.0**-40))
    _check_width(other, std, MAX_STD)
    slack = max(step.event.slack, _slack(other))
    paid, other_event = replace(step.event, slack=slack), GaussianEvent(moves, std, slack)
    assert Price.of([other_event]).is_within(Price.of([paid]))
    return replace(step, event=paid, instead=Step(step.name, query, extent, other_event))


def _single_step(spec: JobSpec, planned: PlannedQuery, published: PublishedNoise | None) -> Step:
    # The event of a choice already counts all rows of a person.
    own_price = planned.event is not None and not isinstance(planned.event, ChoiceEvent)
    one_row_only = own_price or planned.extent.blocks or planned.query.fits_noise
    check(
        spec.rows_per_person == 1 or not one_row_only,
        f"rows_per_person is {spec.rows_per_person}; {spec.method} allows only one row for each person.",
        "Choose a method that adds noise to sums of rows"
        f"{', or use one row of each person (rows_per_person = 1)' if spec.unit.is_person else ''}.",
    )
    check(
        not planned.extent.blocks or spec.unit is PrivacyUnit.ROW_REPLACE_ONE,
        f"Queries about blocks of rows need the unit {PrivacyUnit.ROW_REPLACE_ONE}, not {spec.unit}: "
        f"{_why_no_blocks(spec)}.",
        f"Choose {PrivacyUnit.ROW_REPLACE_ONE}, or a method that asks about all rows.",
    )
    if planned.event:
        return Step(planned.name, planned.query, planned.extent, planned.event)
    if _sensitivity(spec, planned) == 0:
        return Step(planned.name, planned.query, planned.extent, None)
    priced = _laplace if planned.noise is Noise.LAPLACE else _gaussian
    return Step(planned.name, planned.query, planned.extent, priced(spec, planned, published))


def _why_no_blocks(spec: JobSpec) -> str:
    """Explain why rounds about blocks of rows do not compose in parallel for the job's unit."""
    if spec.unit.is_person:
        return "a person may have rows in several blocks, and replacing them may shift other rows into another block"
    return "adding or removing a row would shift other rows into another block"


def _sensitivity(spec: JobSpec, planned: PlannedQuery, *, l1: bool = False) -> float:
    """Bound how far all rows that the job protects together, such as a person's, move the integer answer."""
    query, times = planned.query, planned.query.person_factor(spec.unit, spec.rows_per_person)
    one = (query.lattice_l1_sensitivity if l1 else query.lattice_sensitivity)(spec.unit, planned.extent)
    return with_rounding_margin(times * one) if times > 1 and one else times * one


def _gaussian(spec: JobSpec, planned: PlannedQuery, published: PublishedNoise | None) -> GaussianEvent:
    sensitivity = _sensitivity(spec, planned)
    if spec.accounting is Accounting.PUBLISHED and published:
        std = published(spec, planned) * _lattice_factor(spec, planned)
    else:
        mu = usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(planned.share / planned.times)
        std = calibrated_std(sensitivity, mu)
    _check_width(planned, std, MAX_STD)
    return GaussianEvent(sensitivity, std, _slack(planned))


def _laplace(spec: JobSpec, planned: PlannedQuery, published: PublishedNoise | None) -> LaplaceEvent:
    sensitivity = _sensitivity(spec, planned, l1=True)
    if spec.accounting is Accounting.PUBLISHED and published:
        scale = published(spec, planned) * _lattice_factor(spec, planned)
    else:
        scale = calibrated_scale(sensitivity, spec.budget.epsilon * planned.share / planned.times)
    _check_width(planned, scale, MAX_SCALE)
    return LaplaceEvent(sensitivity, scale, _slack(planned))


def _lattice_factor(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return the factor from a paper's sensitivity, for rows of norm one, to ours in lattice units.

    It includes all rounding, and the number of rows that a person may have; the papers have neither.
    """
    exact = planned.query.sensitivity_of(spec.unit, planned.extent)
    return _sensitivity(spec, planned) / exact


def _slack(planned: PlannedQuery) -> float:
    return math.prod(planned.query.answer_shape(planned.extent)) * DRAW_SLACK


def _check_width(planned: PlannedQuery, width: float, most: float) -> None:
    check(
        width <= most,
        f"The noise of '{planned.name}' would leave the lattice: its width would be {width:.3g} lattice units, and at "
        f"most {most:.3g} is allowed.",
        "Raise epsilon or delta, or ask fewer queries.",
        NoiseTooWideError,
    )


def theorem_4_1(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return the noise on a provider's sum of Theorem 4.1 of Ge et al. (2018), for this query's share of (eps, delta).

    It is for rows of norm one. The paper's proof has one constant for every query; here each query has its own scale.
    """
    return published_noise_multiplier(
        planned.times, spec.budget.epsilon * planned.share, spec.budget.delta * planned.share
    )
