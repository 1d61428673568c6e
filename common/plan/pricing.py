"""From what a method means to ask to priced steps, held against the job's own budget before anything is spent."""

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from dpspca.common.checks import check
from dpspca.common.errors import BudgetExceededError, InvalidParameterError
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
    format_up,
    published_noise_multiplier,
    usable_mu,
)
from dpspca.common.privacy import round_up as float_above
from dpspca.common.queries import round_up
from dpspca.common.spec import MAX_QUERIES, Accounting, JobSpec

from .plan import events
from .steps import Intent, Intents, Noise, Published, Series, Step


def price(spec: JobSpec, intents: Intents, published: Published | None = None) -> tuple[Step, ...]:
    """Turn intents into steps, and refuse a plan that its own budget does not cover, before anything is spent.

    A plan of too many queries is refused before any of them is listed or priced. Analyst, coordinator and providers
    all come through here, and before any policy or quota can say no: without a bound a signed job of a kilobyte would
    have each of them reckon for minutes, and fill its memory (threats T24 and T35).

    Exact plans fill their budget to the last unit. A published formula is no proof for every budget: Ge et al.'s,
    with a single round and an epsilon above about 11, promises more than its noise gives.
    """
    if spec.accounting is Accounting.PUBLISHED and published is None:
        raise InvalidParameterError(
            f"The noise of {spec.method} has no published formula for {spec.unit}.", "Use exact accounting."
        )
    _require_few(spec, intents)
    check(
        spec.budget.epsilon >= MIN_EPSILON,
        f"No noise can be planned for epsilon = {spec.budget.epsilon}, which is too small to be told from zero.",
        f"Give {MIN_EPSILON} or more; useful promises are far above.",
    )
    steps = tuple(step for each in intents for step in _steps(spec, each, published))
    _require_equal_blocks(steps)
    _require_covered(spec, events(steps))
    return steps


def queries(intents: Intents) -> int:
    """Count the queries, without listing them."""
    return sum(each.count if isinstance(each, Series) else 1 for each in intents)


def _require_few(spec: JobSpec, intents: Intents) -> None:
    asked = queries(intents)
    lower = [each.lower for each in intents if isinstance(each, Series)]
    check(
        asked <= MAX_QUERIES,
        f"This job's plan has {asked} queries, where a job may have {MAX_QUERIES} ({spec.method}).",
        f"Lower {' or '.join(lower)}." if lower else "Ask fewer.",
    )


def _require_covered(spec: JobSpec, cost: tuple[Event, ...]) -> None:
    """Hold a plan against its budget: Gaussian noise by the filter's exact rule, any other by the composed loss.

    A plan is fixed before the first answer, events and all; so the report of ``compose`` is a guarantee for it.
    """
    epsilon, delta = spec.budget.epsilon, spec.budget.delta
    gaussian = all(isinstance(event, GaussianEvent | ChoiceEvent) for event in cost)
    _require_delta(cost, epsilon, delta, SLACK_SHARE if gaussian else Fraction(1))
    remedy = "Use exact accounting, a smaller epsilon, a larger delta or fewer rounds."
    if gaussian:
        try:
            Filter.for_budget(epsilon, delta).admit(cost)
        except BudgetExceededError as problem:
            raise InvalidParameterError(f"This job's plan costs more than its budget. {problem.what}", remedy) from None
        return
    needed = compose(cost).delta(epsilon)
    check(
        needed <= delta,
        f"This job's plan costs more than its budget: at epsilon {epsilon:g} it needs a delta of {needed:.3g}, where "
        f"{delta:.3g} is given.",
        remedy,
    )


def _require_delta(cost: tuple[Event, ...], epsilon: float, delta: float, share: Fraction) -> None:
    """Refuse a delta that does not pay for how far draws are from their ideal, whatever their width.

    ``share`` is the part of delta that is kept for it. A mechanism's own delta is no such distance.
    """
    implemented = [replace(event, delta=0.0) if isinstance(event, ApproximateEvent) else event for event in cost]
    loss = PrivacyLoss((Mixture(slack_units=Price.of(implemented).slack_units),))
    least = float_above(Fraction(loss.least_delta(epsilon)) / share)
    check(
        delta >= least,
        f"This job's plan costs more than its budget: its random draws, as implemented, are up to "
        f"{format_up(loss.slack, 3)} from the ideal ones. At epsilon {epsilon:g} that takes a delta of "
        f"{format_up(least, 3)}, where {delta:g} is given.",
        f"Give a delta of {format_up(least, 3)} or more, or a smaller epsilon.",
    )


def _require_equal_blocks(steps: Iterable[Step]) -> None:
    """Let all blocks cost the same: then the first is paid for, all others lean on it, and no price is a difference.

    A ledger gives back what was paid for a lost answer, unless a free one that was given leans on it.
    """
    groups: dict[int, list[Event | None]] = {}
    for step in steps:
        if step.extent.blocks:
            groups.setdefault(step.extent.block, []).append(step.event)
    check(
        len({tuple(group) for group in groups.values()}) <= 1,
        "The queries about blocks of rows do not all cost the same.",
        "Plan every block alike.",
    )


def _steps(spec: JobSpec, planned: Intent | Series, published: Published | None) -> Iterable[Step]:
    """Price what is alike once, and name each."""
    if isinstance(planned, Intent):
        return (_step(spec, planned, published),)
    alike = _step(spec, planned.intent, published)
    return (replace(alike, name=planned.named(number)) for number in range(1, planned.count + 1))


def _step(spec: JobSpec, intent: Intent, published: Published | None) -> Step:
    # A choice's event counts all rows of a person already.
    own_price = intent.event is not None and not isinstance(intent.event, ChoiceEvent)
    priced_singly = own_price or intent.extent.blocks or intent.query.fits_noise
    check(
        spec.rows_per_person == 1 or not priced_singly,
        f"What {spec.method} asks has a price for one row of a person, and none for {spec.rows_per_person}.",
        "Choose an algorithm that adds noise to sums of rows"
        f"{', or use one row of each person (rows_per_person = 1)' if spec.unit.is_person else ''}.",
    )
    check(
        not intent.extent.blocks or spec.unit is PrivacyUnit.ROW_REPLACE_ONE,
        f"Blocks of rows are priced for the unit {PrivacyUnit.ROW_REPLACE_ONE} alone: {_why_no_blocks(spec)}.",
        f"Choose {PrivacyUnit.ROW_REPLACE_ONE}, or an algorithm that asks about all rows.",
    )
    if intent.event:
        return Step(intent.name, intent.query, intent.extent, intent.event)
    if _moves(spec, intent) == 0:
        return Step(intent.name, intent.query, intent.extent, None)
    event = _laplace(spec, intent, published) if intent.noise is Noise.LAPLACE else _gaussian(spec, intent, published)
    return Step(intent.name, intent.query, intent.extent, event)


def _why_no_blocks(spec: JobSpec) -> str:
    """Say why rounds on blocks of rows do not compose in parallel for a unit."""
    if spec.unit.is_person:
        return "a person may have rows in several blocks, and other rows of theirs would shift those of others"
    return "a row that is added or removed would shift others into another block"


def _moves(spec: JobSpec, intent: Intent, *, l1: bool = False) -> float:
    """Bound how far all rows of one person, or those that the job protects together, move the integer answer."""
    query, times = intent.query, intent.query.person_factor(spec.unit, spec.rows_per_person)
    one = (query.lattice_l1_sensitivity if l1 else query.lattice_sensitivity)(spec.unit, intent.extent)
    return round_up(times * one) if times > 1 and one else times * one


def _gaussian(spec: JobSpec, intent: Intent, published: Published | None) -> GaussianEvent:
    sensitivity = _moves(spec, intent)
    if spec.accounting is Accounting.PUBLISHED and published:
        std = published(spec, intent) * _per_unit(spec, intent)
    else:
        mu = usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(intent.share / intent.times)
        std = calibrated_std(sensitivity, mu)
    _require_on_lattice(intent, std, MAX_STD)
    return GaussianEvent(sensitivity, std, _slack(intent))


def _laplace(spec: JobSpec, intent: Intent, published: Published | None) -> LaplaceEvent:
    sensitivity = _moves(spec, intent, l1=True)
    if spec.accounting is Accounting.PUBLISHED and published:
        scale = published(spec, intent) * _per_unit(spec, intent)
    else:
        scale = calibrated_scale(sensitivity, spec.budget.epsilon * intent.share / intent.times)
    _require_on_lattice(intent, scale, MAX_SCALE)
    return LaplaceEvent(sensitivity, scale, _slack(intent))


def _per_unit(spec: JobSpec, intent: Intent) -> float:
    """Lattice units in one of a row of norm one, every rounding included; the papers know of no lattice.

    Nor do they know of persons with several rows, whose price is that of rows as many times as long.
    """
    exact = intent.query.sensitivity_of(spec.unit, intent.extent)
    return _moves(spec, intent) / exact


def _slack(intent: Intent) -> float:
    return math.prod(intent.query.answer_shape(intent.extent)) * DRAW_SLACK


def _require_on_lattice(intent: Intent, width: float, most: float) -> None:
    check(
        width <= most,
        f"The budget leaves so little for '{intent.name}' that its noise would leave the lattice.",
        "Raise epsilon or delta, or ask fewer queries.",
    )


def theorem_4_1(spec: JobSpec, intent: Intent) -> float:
    """Noise nu C^2 on a provider's sum, as in Theorem 4.1 of Ge et al. (2018), for this intent's share of (eps, delta).

    The paper's rows have norm one and its proof one fixed constant for every query, here that query's own scale.
    """
    return published_noise_multiplier(
        intent.times, spec.budget.epsilon * intent.share, spec.budget.delta * intent.share
    )
