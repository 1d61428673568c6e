"""The price of a list of releases, and whether it fits into a budget.

``compose`` reports the best known bound on the privacy loss of a finished list of events. ``Filter`` decides *before* a
release, in exact integers, whether it fits into a budget. Only ``Filter`` may guard data, because its rule stays valid
when each query depends on all earlier answers.

Promises: no reported number is below the true loss; admitted releases never exceed the budget by any amount; a refusal
changes nothing. Both count mu^2 of Gaussian differential privacy in whole units of 2**-80, each event rounded up.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

from dpspca.common.errors import BudgetExceededError, InvalidParameterError, InvalidTypeError

from .calibration import (
    MAX_EPSILON,
    MIN_EPSILON,
    check_budget,
    float_above,
    float_below,
    format_up,
    gaussian_epsilon,
    gaussian_mu,
    least_epsilon,
    nonnegative,
    positive,
    root_down,
    root_up,
)
from .costs import NOTHING, SLACK_UNIT, UNIT, Mixture, Price, mu_of, worst_cases
from .events import Event, checked_events

__all__ = [
    "SLACK_SHARE",
    "Filter",
    "PrivacyLoss",
    "calibrated_scale",
    "calibrated_std",
    "compose",
    "epsilon_within",
    "usable_mu",
]

SLACK_SHARE: Final = Fraction(1, 2**20)
"""The share of every delta that pays for the distance between implemented and ideal noise."""
CALIBRATION_MARGIN: Final = Fraction(1, 2**40)
"""Relative excess of a calibrated standard deviation, so that all shares of a budget fit into it together."""

# --- Budgets that a filter grants -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024, typed=True)  # every step of a plan asks for it
def usable_mu(epsilon: float, delta: float) -> float:
    """Return the mu that a filter for (epsilon, delta) can spend: the mu at delta minus the share kept for slack."""
    eps, dlt = check_budget(epsilon, delta)
    return gaussian_mu(eps, float_below(Fraction(dlt) * (1 - SLACK_SHARE)))


@lru_cache(maxsize=1024, typed=True)  # all blocks of rows of a plan ask for the same
def calibrated_std(sensitivity: float, mu: float, share: float = 1.0) -> float:
    """Return the standard deviation for a release that takes a share of mu^2, for plans that fill a budget exactly.

    It is sensitivity / (mu sqrt(share)), rounded up by a relative 2**-40. The filter counts mu^2 in whole units of
    2**-80, each release rounded up; the margin frees mu^2 2**-39, so up to mu^2 2**41 releases (a million, as soon
    as mu > 7e-4) whose shares sum to 1 are admitted together.
    """
    part = positive("share", share)
    if part > 1:
        raise InvalidParameterError(f"share = {part} is more than 1.", "Give a share in (0, 1].")
    quotient = Fraction(positive("sensitivity", sensitivity)) / Fraction(positive("mu", mu))
    return float_above(Fraction(root_up(quotient**2 / Fraction(part))) * (1 + CALIBRATION_MARGIN))


def calibrated_scale(sensitivity: float, epsilon: float) -> float:
    """Return the scale of Laplace noise for a release that takes this epsilon of a budget.

    It is sensitivity / epsilon, rounded up by a relative 2**-40, so that shares of a budget add up to no more than it.
    """
    quotient = Fraction(positive("sensitivity", sensitivity)) / Fraction(positive("epsilon", epsilon))
    return float_above(quotient * (1 + CALIBRATION_MARGIN))


def _slack_price(epsilon: float) -> Fraction:
    """Return 1 + e^epsilon, rounded up: what one unit of slack costs in delta (see ``PrivacyLoss.delta``)."""
    return 1 + Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**48))


# --- The filter in front of the data ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """A budget of (epsilon, delta) and how much of it is spent; a value, never changed in place.

    Contract: for every data set, every adversary that picks each next query and its noise from all earlier answers,
    and every sequence of admissions, the transcript of the admitted releases is (epsilon, delta)-DP.

    Reason: admitting while the sum of mu^2 stays within mu_budget^2 is a valid filter for mu_budget-GDP under full
    adaptivity (Smith & Thakurta 2022), and usable_mu-GDP is (epsilon, delta (1 - 2**-20))-DP. The other 2**-20 of
    delta pays for the slack of the implemented noise: the sum of slacks is at most that divided by 1 + e^epsilon.

    ``aside`` is a further part of delta kept for slack: for mechanisms that are private except with a probability of
    their own (``ApproximateEvent``), which no Gaussian budget pays for.

    All comparisons are between integers. A plan made with ``calibrated_std`` for shares of ``usable_mu(epsilon,
    delta)**2`` that sum to 1 is admitted whole; a plan that costs 2**-80 more is refused.
    """

    epsilon: float
    delta: float
    spent: Price = NOTHING
    aside: float = 0.0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if nonnegative("aside", self.aside) >= self.delta:
            raise InvalidParameterError(
                f"aside = {self.aside} is not below delta = {self.delta}.", "Set only a part of delta aside."
            )
        _check_units("spent.units", self.spent.units, self.whole.units)
        _check_units("spent.slack_units", self.spent.slack_units, self.whole.slack_units)

    @classmethod
    def for_budget(cls, epsilon: float, delta: float, aside: float = 0.0) -> Self:
        """Return a filter that has spent nothing."""
        return cls(epsilon, delta, aside=aside)

    @property
    def whole(self) -> Price:
        """The whole budget, in units of mu^2 and of slack, rounded down."""
        return _whole(self.epsilon, self._gaussian_delta, self.aside)

    @property
    def left(self) -> Price:
        """The part of the budget that is not spent yet."""
        return self.whole - self.spent

    @property
    def _gaussian_delta(self) -> float:
        return float_below(Fraction(self.delta) - Fraction(self.aside)) if self.aside else self.delta

    @property
    def budget(self) -> float:
        """The mu of the whole budget, rounded down."""
        return root_down(self.whole.units * UNIT)

    @property
    def spent_mu_squared(self) -> Fraction:
        """The mu^2 that is spent, exactly."""
        return self.spent.units * UNIT

    @property
    def remaining_mu(self) -> float:
        """The mu of the single largest release that would still be admitted, rounded down."""
        return root_down(self.left.units * UNIT)

    def admit(self, events: Iterable[Event]) -> Self:
        """Return the filter after spending on all the events, or raise ``BudgetExceededError`` and change nothing.

        The events are admitted together or not at all.
        """
        return self.charge(Price.of(events))

    def charge(self, price: Price) -> Self:
        """Spend whole units, as a ledger has stored them; the same rule as ``admit``."""
        _check_units("units", price.units)
        _check_units("slack_units", price.slack_units)
        if price.units > self.left.units:
            raise self._refusal(price.units)
        if price.slack_units > self.left.slack_units:
            raise self._slack_refusal(price.slack_units)
        return replace(self, spent=self.spent + price)

    def _refusal(self, units: int) -> BudgetExceededError:
        left = self.left.units
        # The factor is printed slightly too large, so that a request that uses it is not refused again.
        louder = f"noise {1.00001 * root_up(Fraction(units, left)):.6g} times larger, " if left else ""
        return BudgetExceededError(
            f"This asks for mu = {mu_of(units):.6g} where mu = {self.remaining_mu:.6g} is left of {self.budget:.6g} "
            f"(epsilon = {self.epsilon:g}, delta = {self.delta:g}); it was refused and nothing was spent.",
            f"Ask for {louder}fewer releases, or a larger budget.",
        )

    def _slack_refusal(self, slack: int) -> BudgetExceededError:
        left = self.left.slack_units
        return BudgetExceededError(
            f"The implemented noise is {float(slack * SLACK_UNIT):.3g} from ideal noise in total variation, but only "
            f"{float(left * SLACK_UNIT):.3g} is left of the part of delta that pays for that; nothing was spent.",
            "Ask for a purely private mechanism, a smaller epsilon, a smaller delta of that mechanism, or a budget "
            "that sets more of its delta aside for such mechanisms (approximate_delta, in a policy).",
        )


def _check_units(name: str, units: object, limit: int | None = None) -> None:
    if isinstance(units, bool) or not isinstance(units, int):
        raise InvalidTypeError(f"{name} is of type {type(units).__name__}.", "Give a whole number of units.")
    if units < 0:
        raise InvalidParameterError(
            f"{name} = {units} is negative.", "Give 0 or more: what is spent is never returned."
        )
    if limit is not None and units > limit:
        raise InvalidParameterError(
            f"{name} = {units} is more than the {limit} of this budget.", "Find what was released without a filter."
        )


@lru_cache(maxsize=256)
def _whole(epsilon: float, delta: float, aside: float) -> Price:
    kept = Fraction(delta) * SLACK_SHARE + Fraction(aside)
    return Price(_units_of(epsilon, delta), math.floor(kept / _slack_price(epsilon) / SLACK_UNIT))


@lru_cache(maxsize=256)
def epsilon_within(room: Price, delta: float) -> float:
    """Return the largest epsilon of a budget at this delta that fits into ``room``, never too large; 0 if none does.

    Only the units of mu^2 are looked at. A room that a budget (epsilon, delta) fills gives back this epsilon if it has
    up to eleven digits. The result is at most ``MAX_EPSILON``, and below the largest by a relative 1e-9 at most, unless
    it is below 1e-9 itself.
    """
    kept = float_below(Fraction(delta) * (1 - SLACK_SHARE))
    near = min(gaussian_epsilon(kept, root_down(room.units * UNIT)), MAX_EPSILON)
    for candidate in (float(f"{near:.11g}"), *(near * (1 - 10.0**-digits) for digits in range(9, 0, -1))):
        if MIN_EPSILON <= candidate <= MAX_EPSILON and _units_of(candidate, delta) <= room.units:
            return candidate
    return 0.0


def _units_of(epsilon: float, delta: float) -> int:
    """Return the units of mu^2 of a budget, rounded down."""
    return math.floor(Fraction(usable_mu(epsilon, delta)) ** 2 / UNIT)


# --- The report afterwards --------------------------------------------------------------------------------------------


def compose(events: Iterable[Event]) -> "PrivacyLoss":
    """Return the privacy loss of all the events together.

    The queries may have been chosen adaptively, but their number, sensitivities and noise must have been fixed
    beforehand. If these depended on answers too, this report is not a guarantee; only the budget of the ``Filter`` that
    admitted them is. For Gaussian events alone the result is exact up to rounding; for mixtures it is the best of
    several upper bounds.
    """
    return PrivacyLoss(worst_cases(checked_events(events)))


@dataclass(frozen=True, slots=True)
class PrivacyLoss:
    """The privacy curve of a composition: a delta for each epsilon and vice versa, each rounded up."""

    cases: tuple[Mixture, ...]

    @property
    def is_gaussian(self) -> bool:
        """Whether all noise was Gaussian, so that ``mu`` and the slack say everything."""
        return all(case.is_gaussian for case in self.cases)

    @property
    def mu(self) -> float | None:
        """The composition is exactly mu-GDP, up to ``slack``; ``None`` if not all noise was Gaussian."""
        return self.gdp_bound if self.is_gaussian else None

    @property
    def gdp_bound(self) -> float:
        """A mu for which the composition is mu-GDP with ideal noise, whatever the noise."""
        return mu_of(max(case.converted_units for case in self.cases))

    @property
    def slack(self) -> float:
        """Bound on the total variation distance between implemented and ideal releases."""
        return float_above(self._exact_slack)

    @property
    def _exact_slack(self) -> Fraction:
        return max(case.slack_units for case in self.cases) * SLACK_UNIT

    def delta(self, epsilon: float) -> float:
        """Return a delta such that the implemented releases are (epsilon, delta)-DP.

        With M the implemented and I the ideal releases, at most eta apart in total variation on every data set:
        P[M(D) in S] <= P[I(D) in S] + eta <= e^epsilon P[I(D') in S] + delta_I(epsilon) + eta
        <= e^epsilon P[M(D') in S] + delta_I(epsilon) + (1 + e^epsilon) eta.
        """
        eps = nonnegative("epsilon", epsilon)
        return min(1.0, float_above(Fraction(self._ideal_delta(eps)) + self._slack_charge(eps)))

    def least_delta(self, epsilon: float) -> float:
        """Return the part of ``delta`` that more noise cannot reduce: the cost of the distance from ideal releases."""
        return min(1.0, float_above(self._slack_charge(nonnegative("epsilon", epsilon))))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon such that the implemented releases are (epsilon, delta)-DP; infinite if none is found.

        The charge for slack grows with epsilon, so the equation is solved iteratively from below. The result is valid
        because the charge at that same epsilon was subtracted.
        """
        return self._epsilon(nonnegative("delta", delta))

    @lru_cache(maxsize=256)  # noqa: B019  # every statement of a job asks for the same
    def _epsilon(self, delta: float) -> float:
        budget, epsilon = Fraction(delta), 0.0
        for _ in range(100):
            left = budget - self._slack_charge(epsilon)
            needed = least_epsilon(self._ideal_delta, float_below(left)) if left >= 0 else math.inf
            if needed <= epsilon or math.isinf(needed):
                return max(needed, epsilon)
            epsilon = needed
        return math.inf

    def describe(self) -> str:
        """Describe the composed events in one line."""
        text = " or ".join(_describe_case(case) for case in self.cases)
        return f"{text}; implemented noise within {format_up(self.slack, 3)} of ideal" if self.slack else text

    def _ideal_delta(self, epsilon: float) -> float:
        return max(case.delta(epsilon) for case in self.cases)

    def _slack_charge(self, epsilon: float) -> Fraction:
        slack = self._exact_slack
        overflows = epsilon > math.log(sys.float_info.max) - 1
        return Fraction(1 if overflows else _slack_price(epsilon) * slack) if slack else Fraction(0)


def _describe_case(case: Mixture) -> str:
    parts = [f"Gaussian noise of mu = {format_up(mu_of(case.gaussian_units))}"] if case.gaussian_units else []
    for name, epsilons in (("Laplace", [steps.epsilon for steps in case.laplace]), ("pure", case.pure)):
        parts += [f"{len(epsilons)} {name} event(s) of total epsilon = {_total(epsilons)}"] if epsilons else []
    bound = "" if case.is_gaussian else f" (together at most mu = {format_up(mu_of(case.converted_units))})"
    return (" and ".join(parts) or "nothing that costs") + bound


def _total(epsilons: Iterable[float]) -> str:
    return format_up(float_above(sum(map(Fraction, epsilons), Fraction(0))))
