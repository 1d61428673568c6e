"""From a signed spec to the exact list of questions that may be asked, the noise of each and its price.

The provider's gate and the coordinator compute the same list with the same code. Nothing in it depends on data.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

from .errors import BudgetExceededError, InvalidParameterError
from .privacy.accountant import SLACK_SHARE, Filter, PrivacyLoss, calibrated_scale, calibrated_std, compose, usable_mu
from .privacy.calibrate import MIN_EPSILON, published_noise_multiplier, rounded_up
from .privacy.calibrate import round_up as float_above
from .privacy.costs import Mixture, cost_units, slack_units
from .privacy.events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent, ParallelEvent
from .privacy.lattice import MAX_SCALE, MAX_STD
from .privacy.noise import DRAW_SLACK, lattice_std
from .privacy.units import PrivacyUnit
from .question import Extent, RowQuery, round_up
from .spec import MAX_QUESTIONS, Accounting, JobSpec, check


class Noise(StrEnum):
    """What is added to an exact answer."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True, slots=True)
class Intent:
    """A question an algorithm means to ask.

    ``share`` is the part of the budget it should cost: of mu squared or, where noise is not Gaussian, of epsilon.
    ``times`` is how often questions of this price are asked in all: the published formula needs to know. A question
    that is a private mechanism by itself needs no noise; what it costs is the ``event``.
    """

    name: str
    question: type[RowQuery]
    extent: Extent
    share: float
    times: int = 1
    noise: Noise = Noise.GAUSSIAN
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Questions in a row that are one intent but for their names; ``named`` gives the name of the first for 1.

    What a few numbers of a spec make many is planned as this: it is counted before it is listed, and priced once.
    ``lower`` says which of those numbers would make it fewer.
    """

    intent: Intent
    count: int
    named: Callable[[int], str]
    lower: str


Intents: TypeAlias = Sequence[Intent | Series]

Published: TypeAlias = Callable[[JobSpec, Intent], float]
"""A paper's own width of the noise on a provider's sum (standard deviation or scale), for rows of norm one."""


@dataclass(frozen=True, slots=True)
class Price:
    """What answers cost together, in the ledger's whole units."""

    units: int = 0
    slack_units: int = 0

    def __add__(self, other: "Price") -> "Price":
        return Price(self.units + other.units, self.slack_units + other.slack_units)

    def at_least(self, other: "Price") -> "Price":
        """Take the larger of either unit."""
        return Price(max(self.units, other.units), max(self.slack_units, other.slack_units))


NOTHING: Final = Price()


@dataclass(frozen=True, slots=True)
class Step:
    """One planned answer: its noise and, as an event, what it gives away. Without an event it is public and exact."""

    name: str
    question: type[RowQuery]
    extent: Extent
    event: Event | None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the integer noise, in lattice units; zero where none is added to the answer itself.

        Integer noise of this width is as private as continuous noise of the event's (lemma in ``privacy/noise.py``);
        Laplace noise needs no widening, for the discrete law over integers has the event's epsilon as it is.
        """
        if self.question.is_private:
            return 0.0
        match self.event:
            case GaussianEvent(std=std):
                return lattice_std(std)
            case LaplaceEvent(scale=scale):
                return math.sqrt(2) * scale
            case _:
                return 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return self.question.answer_shape(self.extent)

    def admits(self, query: RowQuery) -> bool:
        """Tell whether this very question was planned, or one that moves no further."""
        return type(query) is self.question and self.extent.covers(query.extent)

    def fitted(self, query: RowQuery, unit: PrivacyUnit) -> "Step":
        """Take the noise in to what this very question needs: the same event but for its size, at the same price.

        Only a question whose movement depends on its content, which is public, is any different from its extent; none
        of these is about rows, of which a person may have several.
        """
        event = self.event
        if not self.question.fits_noise or not isinstance(event, GaussianEvent | LaplaceEvent):
            return self
        moves = query.movement(unit, l1=isinstance(event, LaplaceEvent))
        if isinstance(event, GaussianEvent):
            return replace(self, event=replace(event, sensitivity=moves, std=calibrated_std(moves, event.mu)))
        return replace(self, event=replace(event, sensitivity=moves, scale=calibrated_scale(moves, event.epsilon)))


def price(spec: JobSpec, intents: Intents, published: Published | None = None) -> tuple[Step, ...]:
    """Turn intents into steps, and refuse a plan that its own budget does not cover, before anything is spent.

    A plan of too many questions is refused before any of them is listed or priced. Analyst, coordinator and providers
    all come through here, and before any policy or quota can say no: without a bound a signed job of a kilobyte would
    have each of them reckon for minutes, and fill its memory (threats T24 and T35).

    Exact plans fill their budget to the last unit. A published formula is no proof for every budget: Ge et al.'s,
    with a single round and an epsilon above about 11, promises more than its noise gives.
    """
    if spec.accounting is Accounting.PUBLISHED and published is None:
        raise InvalidParameterError(
            f"The noise of {spec.algorithm} has no published formula for {spec.unit}.", "Use exact accounting."
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


def questions(intents: Intents) -> int:
    """Count the questions, without listing them."""
    return sum(each.count if isinstance(each, Series) else 1 for each in intents)


def _require_few(spec: JobSpec, intents: Intents) -> None:
    asked = questions(intents)
    lower = [each.lower for each in intents if isinstance(each, Series)]
    check(
        asked <= MAX_QUESTIONS,
        f"This job's plan has {asked} questions, where a job may have {MAX_QUESTIONS} ({spec.algorithm}).",
        f"Lower {' or '.join(lower)}." if lower else "Ask fewer.",
    )


def _require_covered(spec: JobSpec, cost: tuple[Event, ...]) -> None:
    """Hold a plan against its budget: Gaussian noise by the filter's exact rule, any other by the composed loss.

    A plan is fixed before the first answer, events and all; so the report of ``compose`` is a guarantee for it.
    """
    epsilon, delta = spec.budget.epsilon, spec.budget.delta
    gaussian = all(isinstance(event, GaussianEvent) for event in cost)
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
    loss = PrivacyLoss((Mixture(slack_units=slack_units(implemented)),))
    least = float_above(Fraction(loss.least_delta(epsilon)) / share)
    check(
        delta >= least,
        f"This job's plan costs more than its budget: its random draws, as implemented, are up to "
        f"{rounded_up(loss.slack, 3)} from the ideal ones. At epsilon {epsilon:g} that takes a delta of "
        f"{rounded_up(least, 3)}, where {delta:g} is given.",
        f"Give a delta of {rounded_up(least, 3)} or more, or a smaller epsilon.",
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
        "The questions about blocks of rows do not all cost the same.",
        "Plan every block alike.",
    )


def events(steps: Iterable[Step]) -> tuple[Event, ...]:
    """List what the steps cost. Those on blocks of rows are on disjoint ones, so that one row meets one block."""
    plain, blocks = [], dict[int, list[Event]]()
    for step in steps:
        if step.event and step.extent.blocks:
            blocks.setdefault(step.extent.block, []).append(step.event)
        elif step.event:
            plain.append(step.event)
    return (*plain, ParallelEvent(tuple(map(tuple, blocks.values())))) if blocks else tuple(plain)


def prices(steps: Iterable[Step]) -> Iterator[Price]:
    """Say, after each step, what all up to it cost: what ``events`` of these costs.

    Of blocks of rows the dearest counts, so a question about a block may be free because of what was paid for another.
    """
    plain, dearest, blocks = Price(), Price(), dict[int, Price]()
    for step in steps:
        own = _price_of(step.event)
        if step.extent.blocks:
            blocks[step.extent.block] = blocks.get(step.extent.block, Price()) + own
            dearest = dearest.at_least(blocks[step.extent.block])
        else:
            plain += own
        yield plain + dearest


def _price_of(event: Event | None) -> Price:
    return Price(cost_units([event]), slack_units([event])) if event else Price()


def _steps(spec: JobSpec, planned: Intent | Series, published: Published | None) -> Iterable[Step]:
    """Price what is alike once, and name each."""
    if isinstance(planned, Intent):
        return (_step(spec, planned, published),)
    alike = _step(spec, planned.intent, published)
    return (replace(alike, name=planned.named(number)) for number in range(1, planned.count + 1))


def _step(spec: JobSpec, intent: Intent, published: Published | None) -> Step:
    priced_singly = intent.event or intent.extent.blocks or intent.question.fits_noise
    check(
        spec.rows_per_person == 1 or not priced_singly,
        f"What {spec.algorithm} asks has a price for one row of a person, and none for {spec.rows_per_person}.",
        "Choose an algorithm that adds noise to sums of rows"
        f"{', or use one row of each person (rows_per_person = 1)' if spec.unit.is_person else ''}.",
    )
    check(
        not intent.extent.blocks or spec.unit is PrivacyUnit.ROW_REPLACE_ONE,
        f"Blocks of rows are priced for the unit {PrivacyUnit.ROW_REPLACE_ONE} alone: {_why_no_blocks(spec)}.",
        f"Choose {PrivacyUnit.ROW_REPLACE_ONE}, or an algorithm that asks about all rows.",
    )
    if intent.event:
        return Step(intent.name, intent.question, intent.extent, intent.event)
    if _moves(spec, intent) == 0:
        return Step(intent.name, intent.question, intent.extent, None)
    event = _laplace(spec, intent, published) if intent.noise is Noise.LAPLACE else _gaussian(spec, intent, published)
    return Step(intent.name, intent.question, intent.extent, event)


def _why_no_blocks(spec: JobSpec) -> str:
    """Say why rounds on blocks of rows do not compose in parallel for a unit."""
    if spec.unit.is_person:
        return "a person may have rows in several blocks, and other rows of theirs would shift those of others"
    return "a row that is added or removed would shift others into another block"


def _moves(spec: JobSpec, intent: Intent, *, l1: bool = False) -> float:
    """Bound how far all rows of one person, or those that the job protects together, move the integer answer."""
    question, times = intent.question, intent.question.times(spec.unit, spec.rows_per_person)
    one = (question.lattice_l1_sensitivity if l1 else question.lattice_sensitivity)(spec.unit, intent.extent)
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
    exact = intent.question.sensitivity_of(spec.unit, intent.extent)
    return _moves(spec, intent) / exact


def _slack(intent: Intent) -> float:
    return math.prod(intent.question.answer_shape(intent.extent)) * DRAW_SLACK


def _require_on_lattice(intent: Intent, width: float, most: float) -> None:
    check(
        width <= most,
        f"The budget leaves so little for '{intent.name}' that its noise would leave the lattice.",
        "Raise epsilon or delta, or ask fewer questions.",
    )


def theorem_4_1(spec: JobSpec, intent: Intent) -> float:
    """Noise nu C^2 on a provider's sum, as in Theorem 4.1 of Ge et al. (2018), for this intent's share of (eps, delta).

    The paper's rows have norm one and its proof one fixed constant for every question, here that question's own scale.
    """
    return published_noise_multiplier(
        intent.times, spec.budget.epsilon * intent.share, spec.budget.delta * intent.share
    )
