"""How well somebody who knows everything else can tell two neighbouring data sets apart, at even odds.

Each result is the most that a guess can be right, as a probability, rounded up to a thousandth. Each is a bound by
itself, so the lesser of two holds as well.
"""

import math
from typing import Final

_MOST: Final = 20.0
"""At this epsilon and above, a guess can be right in all cases, up to rounding."""


def best_guess_by_mu(mu: float, slack: float) -> float:
    """Return the most that a guess can be right if all noise is Gaussian.

    Telling N(0, 1) from N(mu, 1) succeeds with probability Phi(mu / 2). The slack is added: it covers how far the
    implemented noise is from ideal.
    """
    return _rounded(math.erfc(-mu / 2 / math.sqrt(2)) / 2 + slack)


def best_guess_by_epsilon(epsilon: float, delta: float) -> float:
    """Return the most that a guess can be right by (epsilon, delta) alone, whatever the noise is.

    The probability is (e^epsilon + delta) / (1 + e^epsilon). The total variation distance of neighbours is at most
    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Kairouz, Oh & Viswanath 2015), and knowing the answers adds half of it
    to one half.
    """
    odds = math.exp(min(epsilon, _MOST))
    return _rounded((odds + delta) / (1 + odds))


def _rounded(right: float) -> float:
    return float(min(1.0, math.ceil(1000 * right) / 1000))
