"""How much noise a promise needs, and what given noise promises: scalar functions, each with its theorem.

All functions err on the private side. A delta, an epsilon, a mu that is *spent* or a standard deviation is never below
the exact real number; a mu that may be *granted* is never above it. Rational arithmetic rounds exactly; special
functions get the relative allowance ``GUARD``, fifteen times their measured error.

A mechanism is mu-GDP (Gaussian differentially private; Dong, Roth & Su 2022) if distinguishing two neighbouring data
sets by its output is at least as hard as distinguishing N(0, 1) from N(mu, 1).
"""

import math
import sys
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
from scipy.special import erfcx, erfinv, log_ndtr, ndtr, ndtri_exp

from dpspca.common.errors import InvalidParameterError, InvalidTypeError

MAX_EPSILON: Final = 48.0
"""Largest epsilon: a larger one promises nothing, and multiplies the slack of the noise by more than 2**69."""
MIN_EPSILON: Final = 1e-200
"""Smallest epsilon of a plan: dividing by a smaller one overflows, and its shares underflow to zero."""
MIN_DELTA: Final = 1e-200
"""Smallest delta of a budget: the bookkeeping cannot distinguish a smaller one from zero."""
GUARD: Final = 2.0**-36
"""Relative allowance for the rounding of special functions, 1.5e-11."""

_MAX_COMPUTED_EPSILON: Final = 1e6
_MAX_COMPUTED_MU: Final = 1e3
_LEAST_REPORTED_DELTA: Final = 1e-300
_LEAST_REPORTED_EPSILON: Final = 1e-300
_FAR_TAIL: Final = 40.0  # the Gaussian density there is below 1e-347
_NARROW: Final = 0.1  # below this mu the difference of two Mills ratios cancels; an integral is used instead
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


# --- Checks of numbers -----------------------------------------------------------------------------------------------


def finite(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number that a float represents exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(f"{name} is of type {type(value).__name__}.", "Give an int or a float.")
    if isinstance(value, int) and abs(value) > 2**sys.float_info.mant_dig:
        raise InvalidParameterError(f"{name} is an integer too large to be exact.", "Give it as a float.")
    if not math.isfinite(value):
        raise InvalidParameterError(f"{name} = {value} is not finite.", "Give a finite number.")
    return float(value)


def nonnegative(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number of at least 0."""
    number = finite(name, value)
    if number < 0:
        raise InvalidParameterError(f"{name} = {number} is negative.", "Give a number that is 0 or more.")
    return number


def positive(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number above 0."""
    number = finite(name, value)
    if number <= 0:
        raise InvalidParameterError(f"{name} = {number} is not positive.", "Give a number above 0.")
    return number


def check_budget(epsilon: object, delta: object) -> tuple[float, float]:
    """Return (epsilon, delta) if 0 < epsilon <= 48 and 1e-200 <= delta < 1."""
    eps, dlt = positive("epsilon", epsilon), positive("delta", delta)
    if eps > MAX_EPSILON:
        raise InvalidParameterError(
            f"epsilon = {eps} is above {MAX_EPSILON} and promises nothing.",
            f"Ask for an epsilon of at most {MAX_EPSILON}; useful values are below 10.",
        )
    if dlt >= 1:
        raise InvalidParameterError(
            f"delta = {dlt} allows everything to be disclosed.", "Give a delta far below one over the number of rows."
        )
    if dlt < MIN_DELTA:
        raise InvalidParameterError(
            f"delta = {dlt} is below {MIN_DELTA}, the smallest that can be accounted for.",
            "Give a larger delta; 1e-30 is small enough for every practical purpose.",
        )
    return eps, dlt


# --- Exact rounding ---------------------------------------------------------------------------------------------------


def float_above(exact: Fraction) -> float:
    """Return the least float that is not below a rational number (infinity if there is none)."""
    try:
        near = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def float_below(exact: Fraction) -> float:
    """Return the largest float that is not above a rational number; for 0 it is 0, never -0."""
    return 0.0 - float_above(-exact)


def root_up(square: Fraction) -> float:
    """Return a float not below the square root, exact if the root is a float and within one step otherwise."""
    shift = _root_shift(square)
    scaled = math.ceil(square * 4**shift)
    root = math.isqrt(scaled - 1) + 1 if scaled else 0
    return float_above(Fraction(root, 2**shift))


def root_down(square: Fraction) -> float:
    """Return a float not above the square root, exact if the root is a float and within one step otherwise."""
    shift = _root_shift(square)
    return float_below(Fraction(math.isqrt(math.floor(square * 4**shift)), 2**shift))


def _root_shift(square: Fraction) -> int:
    """Return how many binary places give the integer root more digits than a float has."""
    return max(0, 64 + (square.denominator.bit_length() - square.numerator.bit_length()) // 2 + 1)


def quotient_up(numerator: float, denominator: float) -> float:
    """Return numerator / denominator, rounded up exactly."""
    return float_above(Fraction(numerator) / Fraction(denominator))


def format_up(value: float, digits: int = 6) -> str:
    """Format a privacy parameter in a few digits, rounded up."""
    raised = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(raised):.{digits}g}"


def format_down(value: float, digits: int = 6) -> str:
    """Format a nonnegative number in a few digits, rounded down, so that what is left is never overstated."""
    return format_up(-value, digits).removeprefix("-")


# --- Gaussian differential privacy ------------------------------------------------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the least delta for which mu-GDP implies (epsilon, delta)-DP, at most 1e-10 too large, never too small.

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2): Balle & Wang (2018), Theorem 8, for
    the Gaussian mechanism with mu = sensitivity / std; Dong, Roth & Su (2022), Corollary 1, for every mu-GDP mechanism.

    With u = epsilon/mu - mu/2 and b = u + mu we have e^epsilon phi(b) = phi(u), so the two terms share a factor:
    delta = phi(u) (R(u) - R(b)), where R(x) = Phi(-x)/phi(x) is the Mills ratio. Nothing overflows. As R' = x R - 1,
    for small mu the difference is computed as the integral of 1 - x R(x) over [u, b], which does not cancel.

    The accuracy holds for mu <= 1e3; for larger mu the result is 1. Deltas below 1e-300 are reported as 1e-300.
    """
    eps = min(nonnegative("epsilon", epsilon), _MAX_COMPUTED_EPSILON)
    mu = nonnegative("mu", mu)
    if mu == 0:
        return 0.0
    if mu > _MAX_COMPUTED_MU:
        return 1.0
    near, far = eps / mu - mu / 2, eps / mu + mu / 2
    if near > _FAR_TAIL:
        return _LEAST_REPORTED_DELTA
    exact = _narrow_delta(near, mu) if mu < _NARROW else _wide_delta(near, far)
    return min(1.0, max(_LEAST_REPORTED_DELTA, exact * (1 + GUARD)))


def _narrow_delta(near: float, mu: float) -> float:
    """Return phi(u) times the integral of 1 - x R(x) over [u, u + mu], by eight Gauss-Legendre points."""
    x = near + mu * (_NODES + 1) / 2
    heights = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    return _density(near) * mu * float(_WEIGHTS @ heights) / 2


def _wide_delta(near: float, far: float) -> float:
    """Return phi(u) (R(u) - R(b)); for negative u as Phi(-u) - phi(u) R(b), because there R(u) may overflow."""
    if near < 0:
        return float(ndtr(-near)) - _density(near) * _mills_ratio(far)
    return _density(near) * (_mills_ratio(near) - _mills_ratio(far))


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _mills_ratio(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta)-DP, never too large.

    It inverts ``gaussian_delta``, which increases in mu. The returned mu was checked to satisfy
    ``gaussian_delta(epsilon, mu) <= delta``, and that function is never too small. At (1, 1e-6) it is 0.2367.
    """
    eps, dlt = check_budget(epsilon, delta)
    # delta(0) = 2 Phi(mu/2) - 1 < 0.4 mu, so mu = delta is always private enough.
    return _last_that_holds(lambda mu: gaussian_delta(eps, mu) <= dlt, holds_at=dlt, fails_at=_MAX_COMPUTED_MU)


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the least epsilon for which mu-GDP implies (epsilon, delta)-DP, never too small; infinite if none does.

    Here delta may be 0; then only mu = 0 has a finite result.
    """
    return least_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta)


def least_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """Return the least epsilon at which a decreasing privacy curve is at most delta; infinite if none is found."""
    dlt = nonnegative("delta", delta)
    if delta_at(0.0) <= dlt:
        return 0.0
    if delta_at(_MAX_COMPUTED_EPSILON) > dlt:
        return math.inf
    return _last_that_holds(
        lambda epsilon: delta_at(epsilon) <= dlt, holds_at=_MAX_COMPUTED_EPSILON, fails_at=_LEAST_REPORTED_EPSILON
    )


def _last_that_holds(condition: Callable[[float], bool], *, holds_at: float, fails_at: float) -> float:
    """Bisect the logarithm down to adjacent floats; return a point at which the condition was checked to hold."""
    best, good, bad = holds_at, math.log(holds_at), math.log(fails_at)
    while (middle := (good + bad) / 2) not in {good, bad}:
        if condition(math.exp(middle)):
            best, good = math.exp(middle), middle
        else:
            bad = middle
    return best


def gaussian_std(sensitivity: float, mu: float) -> float:
    """Return the standard deviation that makes one release of this L2 sensitivity mu-GDP, rounded up."""
    return quotient_up(positive("sensitivity", sensitivity), positive("mu", mu))


def pure_mu(epsilon: float) -> float:
    """Return a mu such that every (epsilon, 0)-DP mechanism is mu-GDP: -2 Phi^-1(1 / (1 + e^epsilon)), rounded up.

    Proof. The trade-off curve of (epsilon, 0)-DP is f(a) = max(0, 1 - e^epsilon a, e^-epsilon (1 - a)): two straight
    lines that meet on the diagonal at a* = 1/(1 + e^epsilon) = f(a*). The curve of mu-GDP is
    G(a) = Phi(Phi^-1(1 - a) - mu); it meets the diagonal at Phi(-mu/2), which is a* for the mu above. G is convex with
    G(0) = 1 and G(1) = 0, so it lies below its chords (0, 1)-(a*, a*) and (a*, a*)-(1, 0), which are f. So a trade-off
    curve above f is above G. A smaller mu does not suffice, because then G(a*) would exceed f(a*).
    """
    eps = nonnegative("epsilon", epsilon)
    if eps < 1:  # Phi^-1(1/2 + t/2) = sqrt(2) erfinv(t), t = tanh(epsilon/2), keeps the digits of a small epsilon
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(eps / 2))) * (1 + GUARD)
    return -2 * float(ndtri_exp(-eps - math.log1p(math.exp(-eps)))) * (1 + GUARD)


def choice_mu(log_range: float) -> float:
    """Return a mu such that every mechanism of this range is mu-GDP: that of ``pure_mu`` for half the range.

    A mechanism has range r if for any two neighbours there is a t such that the log of the ratio of their
    probabilities lies in [t - r, t] for every outcome. The exponential mechanism with probabilities proportional to
    exp(c u(x)) has range 2 c D if no score u(x) moves by more than D (Durfee & Rogers 2019).

    Proof. Ratios within [e^(t - r), e^t] that average to 1 are dominated, in convex order, by the two ends alone. So
    no pair of outcome distributions is easier to tell apart than a coin that shows heads with probability p or q,
    where p/q = e^t and (1 - p)/(1 - q) = e^(t - r). The trade-off curve of that coin is two straight lines that meet at
    (q, 1 - p). As in ``pure_mu``, it lies above the curve of mu-GDP if that corner does, that is, if
    mu >= Phi^-1(p) - Phi^-1(q). The log odds of p and q differ by t - (t - r) = r, whatever t is. With
    g(x) = Phi^-1(1/(1 + e^-x)) the condition is mu >= g(x + r) - g(x) for all x. The largest right side is at x = -r/2,
    because g' is even and falls away from 0. There p = 1/(1 + e^(-r/2)) = 1 - q, which gives
    mu = -2 Phi^-1(1/(1 + e^(r/2))).

    Why g' falls for x > 0. With z = g(x), g' = Phi(z)(1 - Phi(z))/phi(z), and it falls in z if R(z) = (2 Phi - 1) phi -
    z Phi (1 - Phi) >= 0. R(0) = 0 and R -> 0 at infinity. R' = 2 phi^2 - Phi (1 - Phi) = S, S(0) = 1/pi - 1/4 > 0, and
    S -> 0 at infinity. S' = phi (2 Phi - 1 - 4 z phi) changes sign once, from minus to plus, because
    (2 Phi - 1)/(z phi) grows from 2. So S falls through zero once and then rises to 0: R first grows, then falls to 0,
    and is nowhere negative. A smaller mu does not suffice, because an exponential mechanism over two outcomes
    attains the corner.
    """
    return pure_mu(nonnegative("range", log_range) / 2)


def choice_range(mu: float) -> float:
    """Return a range such that every mechanism of it is mu-GDP, rounded down: 2 log(Phi(mu/2) / Phi(-mu/2))."""
    half = positive("mu", mu) / 2
    return 2 * float(log_ndtr(half) - log_ndtr(-half)) * (1 - 2.0**-30)


# --- As published -----------------------------------------------------------------------------------------------------


def published_noise_multiplier(rounds: int, epsilon: float, delta: float) -> float:
    """Return nu = (2T/epsilon) sqrt(2 ln(2T/delta)), Theorem 4.1 of Ge, Wang, Wang & Liu (2018), rounded up.

    T-fold basic composition; the noise on a provider's sum has standard deviation nu C^2 for rows of norm at most C.
    It serves to reproduce that paper: at T = 10, epsilon = 1, delta = 1e-6 it is 6.1 times the noise that exact
    accounting requires under replace-one, sqrt(2) sqrt(T) C^2 / gaussian_mu(epsilon, delta).
    """
    eps, dlt = check_budget(epsilon, delta)
    _check_rounds(rounds)
    return (2 * rounds / eps) * math.sqrt(2 * math.log(2 * rounds / dlt)) * (1 + GUARD)


def published_claim(rounds: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Return the (epsilon, delta) that the published accounting claims after all rounds: the ones it was given.

    The paper claims it by basic composition; ``accountant.compose`` says what the same noise really costs.
    """
    _check_rounds(rounds)
    return check_budget(epsilon, delta)


def _check_rounds(rounds: object) -> None:
    if isinstance(rounds, bool) or not isinstance(rounds, int):
        raise InvalidTypeError(f"rounds is of type {type(rounds).__name__}.", "Give a whole number of rounds.")
    if not 1 <= rounds <= 2**sys.float_info.mant_dig:
        raise InvalidParameterError(f"rounds = {rounds} is out of range.", "Give at least one round.")
