"""Our closed form against the privacy loss distributions of an independent library.

Compared is delta at an epsilon whose delta is between 1e-3 and 1e-10. Delta, not epsilon, because it is the harsher of
the two: at delta = 1e-10 a relative error of 1e-3 in delta is one of about 2e-5 in epsilon. The library's estimate is
pessimistic by design (grid of mu/700, and about 1e-14 of discarded mass), so ours may be below it by up to 1e-3 and
above it by no more than rounding.
"""

import math
import random

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.calibration import gaussian_epsilon
from dpspca.common.privacy.events import GaussianEvent


def random_plan(generator: random.Random) -> list[GaussianEvent]:
    """Between 1 and 30 events with sensitivities over four decades, together worth a mu between 0.01 and 5."""
    weights = [10 ** generator.uniform(-1, 1) for _ in range(generator.randint(1, 30))]
    mu, length = 10 ** generator.uniform(-2, 0.7), math.hypot(*weights)
    sizes = [10 ** generator.uniform(-2, 2) for _ in weights]
    return [GaussianEvent(size, size * length / (mu * weight)) for size, weight in zip(sizes, weights, strict=True)]


def distribution(events: list[GaussianEvent], step: float) -> pld.PrivacyLossDistribution:
    result = pld.identity(value_discretization_interval=step)
    for event in events:
        one = pld.from_gaussian_mechanism(event.std, event.sensitivity, value_discretization_interval=step)
        result = result.compose(one)
    return result


# The library takes most of a tenth of a second for each.
@pytest.mark.parametrize(
    "seed", [seed if seed < 30 else pytest.param(seed, marks=pytest.mark.nightly) for seed in range(200)]
)
def test_gaussian_compositions_agree_with_privacy_loss_distributions(seed: int) -> None:
    generator = random.Random(seed)
    events, target = random_plan(generator), 10 ** generator.uniform(-10, -3)
    loss = compose(events)
    assert loss.mu is not None
    epsilon = gaussian_epsilon(target, loss.mu)
    ours = loss.delta(epsilon)
    theirs = distribution(events, loss.mu / 700).get_delta_for_epsilon(epsilon)
    assert ours <= theirs * (1 + 1e-9)
    assert ours >= theirs * (1 - 1e-3)
    assert loss.epsilon(theirs) <= epsilon * (1 + 1e-9)
    assert loss.epsilon(ours) == pytest.approx(epsilon, rel=1e-9, abs=1e-9 * loss.mu)
