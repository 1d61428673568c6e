"""No price is below the exact one, for every kind of event and for mixtures of them.

The exact value is worked out here from the laws themselves, in 40 digits: every outcome of integer noise and of
mechanisms that fail is listed with its probability over either neighbour, and Gaussian noise is integrated in closed
form. Nothing of the accountant is used. Shifts of integer noise are spread over entries in every way drawn at random.
"""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.calibration import gaussian_delta
from dpspca.common.privacy.events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent, ParallelEvent, PureEvent

mpmath.mp.dps = 40

Losses = dict[mpmath.mpf, mpmath.mpf]
"""Probability of each privacy loss; outcomes that the neighbour never gives have an infinite one."""


def integer_noise(shift: int, scale: float) -> Losses:
    """Outcomes x of discrete Laplace noise, against the same noise moved by ``shift``: every x from 1 to shift - 1."""
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    found: Losses = {}
    for x in range(shift + 1):
        inside = (1 - ratio) / (1 + ratio) * ratio**x
        mass = inside if 0 < x < shift else ratio**x / (1 + ratio)
        loss = mpmath.mpf(shift - 2 * x) / mpmath.mpf(scale)
        found[loss] = found.get(loss, mpmath.mpf(0)) + mass
    return found if shift else {mpmath.mpf(0): mpmath.mpf(1)}


def response(epsilon: float, failing: float = 0.0) -> Losses:
    """Randomised response that shows its input with probability ``failing``: the worst (epsilon, failing) mechanism."""
    rare = 1 / (1 + mpmath.exp(epsilon))
    kept = 1 - mpmath.mpf(failing)
    found = {mpmath.inf: mpmath.mpf(failing)}
    for loss, mass in ((mpmath.mpf(epsilon), kept * (1 - rare)), (-mpmath.mpf(epsilon), kept * rare)):
        found[loss] = found.get(loss, mpmath.mpf(0)) + mass
    return found


def convolved(parts: Iterable[Losses]) -> Losses:
    total: Losses = {mpmath.mpf(0): mpmath.mpf(1)}
    for part in parts:
        found: Losses = {}
        for (one, mass), (other, more) in itertools.product(total.items(), part.items()):
            found[one + other] = found.get(one + other, mpmath.mpf(0)) + mass * more
        total = found
    return total


def normal_delta(epsilon: mpmath.mpf, mu: mpmath.mpf) -> mpmath.mpf:
    """The curve of Gaussian noise, at negative epsilon too."""
    if epsilon == -mpmath.inf:
        return mpmath.mpf(1)
    if mu == 0:
        return max(mpmath.mpf(0), 1 - mpmath.exp(epsilon))
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def exact_delta(losses: Losses, mu: mpmath.mpf, epsilon: float) -> mpmath.mpf:
    return mpmath.fsum(mass * normal_delta(epsilon - loss, mu) for loss, mass in losses.items())


def parts_of(event: Event, split: int) -> tuple[list[Losses], mpmath.mpf]:
    """The losses of an event that is not Gaussian, and mu^2; a Laplace shift is split over two entries."""
    match event:
        case GaussianEvent(sensitivity=size, std=std):
            return [], (mpmath.mpf(size) / mpmath.mpf(std)) ** 2
        case LaplaceEvent(sensitivity=size, scale=scale):
            whole = int(size)
            one = min(split, whole)
            return [integer_noise(one, scale), integer_noise(whole - one, scale)], mpmath.mpf(0)
        case PureEvent(epsilon=epsilon):
            return [response(epsilon)], mpmath.mpf(0)
        case ApproximateEvent(epsilon=epsilon, delta=failing):
            return [response(epsilon, failing)], mpmath.mpf(0)
        case ParallelEvent():
            raise AssertionError("choose a group first")


def choices(events: list[Event]) -> Iterable[list[Event]]:
    """Every way in which a row may be in one group of each parallel event."""
    options = [list(event.groups) if isinstance(event, ParallelEvent) else [(event,)] for event in events]
    for chosen in itertools.product(*options):
        yield [event for group in chosen for event in group]


def worst(events: list[Event], split: int, epsilon: float) -> mpmath.mpf:
    found = mpmath.mpf(0)
    for chosen in choices(events):
        pieces = [parts_of(event, split) for event in chosen]
        losses = convolved(part for listed, _ in pieces for part in listed)
        mu = mpmath.sqrt(mpmath.fsum(square for _, square in pieces))
        found = max(found, exact_delta(losses, mu, epsilon))
    return found


scales = st.floats(-2.0, 2.5).map(lambda power: 10.0**power)
laplaces = st.builds(lambda size, scale: LaplaceEvent(size, size * scale), st.integers(1, 5), scales)
fractional = st.builds(LaplaceEvent, st.floats(0.1, 4), st.floats(0.3, 30))
pures = st.builds(PureEvent, st.floats(-4, 0.7).map(lambda power: 10.0**power))
approximates = st.builds(ApproximateEvent, st.floats(0, 2), st.floats(0, 1e-3))
gaussians = st.builds(GaussianEvent, st.floats(0.01, 3), st.floats(0.5, 20))
singles: st.SearchStrategy[Event] = laplaces | fractional | pures | approximates | gaussians
groups = st.lists(st.lists(singles, max_size=2).map(tuple), min_size=1, max_size=2)
events: st.SearchStrategy[Event] = singles | groups.map(lambda listed: ParallelEvent(tuple(listed)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    listed=st.lists(events, min_size=1, max_size=3),
    split=st.integers(0, 5),
    at=st.sampled_from([0.0, 1e-3, 0.1, 0.37, 0.5, 0.75, 0.95, 0.999]),
)
def test_no_reported_price_is_below_the_exact_one(listed: list[Event], split: int, at: float) -> None:
    loss = compose(listed)
    epsilon = at * sum(case.loss_range for case in loss.cases) / len(loss.cases)
    truth = worst(listed, split, epsilon)
    assert loss.delta(epsilon) >= truth * (1 - mpmath.mpf(10) ** -14)
    # A mu stands for the ideal noise; what fails is paid for beside it.
    charge = (1 + mpmath.exp(epsilon)) * loss.slack
    assert gaussian_delta(epsilon, loss.gdp_bound) + charge >= truth * (1 - mpmath.mpf(10) ** -14)
    reported = loss.epsilon(float(truth))
    if math.isfinite(reported):
        assert worst(listed, split, reported) <= truth * (1 + mpmath.mpf(10) ** -12) + mpmath.mpf(10) ** -300


@pytest.mark.parametrize(("size", "epsilon"), [(1, 0.5), (1, 3.9), (2, 0.5), (3, 0.2), (7, 0.01), (200, 0.3)])
@pytest.mark.parametrize("total", [0.05, 1.0, 4.0])
def test_integer_noise_is_priced_by_its_own_law(size: int, epsilon: float, total: float) -> None:
    """At (1, 1) and epsilon 0.5 the truth is 0.288, where continuous noise has 0.221."""
    at = epsilon * total / 4
    truth = exact_delta(integer_noise(size, size / total), mpmath.mpf(0), at)
    told = compose([LaplaceEvent(size, size / total)]).delta(at)
    assert truth * (1 - mpmath.mpf(10) ** -14) <= told <= truth * (1 + mpmath.mpf("1e-3")) + mpmath.mpf("1e-9")


@pytest.mark.parametrize("parts", [(1, 1), (2, 1), (1, 1, 1), (3, 2), (1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0, 2.4])
def test_a_shift_of_many_entries_costs_no_more_than_of_one(parts: tuple[int, ...], epsilon: float) -> None:
    """What the sensitivity of a vector stands for: integer noise of one scale on each entry."""
    scale = sum(parts) / 2.5
    spread = exact_delta(convolved(integer_noise(part, scale) for part in parts), mpmath.mpf(0), epsilon)
    one = exact_delta(integer_noise(sum(parts), scale), mpmath.mpf(0), epsilon)
    assert spread <= one * (1 + mpmath.mpf(10) ** -30)
    assert compose([LaplaceEvent(sum(parts), scale)]).delta(epsilon) >= one * (1 - mpmath.mpf(10) ** -14)


@pytest.mark.parametrize("size", [2**16 + 1, 2**33, 3 * 2**40 + 7])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9, 1.7])
def test_a_shift_of_many_integers_has_the_curve_of_continuous_noise(size: int, epsilon: float) -> None:
    """Integer noise lies above continuous noise, by less than a relative 1e-4 where steps are so many."""
    told, truth = compose([LaplaceEvent(size, size / 2)]).delta(epsilon), -math.expm1((epsilon - 2) / 2)
    assert truth <= told <= truth * (1 + 1e-4)


@pytest.mark.parametrize("size", [0.3, 0.99, 1.5, 2.7])
@pytest.mark.parametrize("at", [0.0, 0.2, 0.6, 0.97])
def test_a_sensitivity_between_integers_covers_every_law_below_it(size: float, at: float) -> None:
    """Continuous noise that shifts by all of it, and integer noise that shifts by the integers in it."""
    loss, total = compose([LaplaceEvent(size, 1.3)]), size / 1.3
    epsilon = at * total
    assert loss.delta(epsilon) >= -math.expm1((epsilon - total) / 2)
    assert loss.delta(epsilon) >= exact_delta(integer_noise(int(size), 1.3), mpmath.mpf(0), epsilon)
    assert loss.delta(total * (1 + 1e-12)) == 0


def test_no_loss_of_a_laplace_event_is_above_its_epsilon() -> None:
    """An exact rational: budgets that shares of epsilon fill to the last bit need no delta."""
    event = LaplaceEvent(3, 0.7)
    assert Fraction(event.epsilon) >= Fraction(3) / Fraction(0.7)
    assert compose([event]).delta(event.epsilon) == 0
