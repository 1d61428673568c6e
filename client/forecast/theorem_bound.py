"""The bound of Theorem 4.3 of Ge, Wang, Wang & Liu (AISTATS 2018) on the error of DPS-PCA.

Pure functions of planned numbers and of assumptions about the population. Nothing here comes from data, and privacy
does not depend on it. The error is ||sin Theta||_F between the subspace after T rounds and the true one:

    gamma = (3 l_{k+1} + l_k) / (3 l_k + l_{k+1})         the gap, below one if l_k > l_{k+1}
    xi    = 2k (sqrt(s_hat) + sqrt(k) + tau) N nu / (n l_k)  noise-to-signal ratio; nu is the noise of one provider
    rho   = gamma / (1 - xi)                              a round multiplies the error of the start by rho^(1/4)

    statistical = C1 sqrt(k) / (1 - rho^(1/4)) sqrt(l_1 l_{k+1}) / (l_k - l_{k+1}) sqrt(s* (k + ln d) / n)
    noise       = (1 + 2 sqrt(k s*/s_hat)) xi / (1 - xi) / (sqrt(3) (1 - rho^(1/4)))
    convergence = rho^((T-1)/4) / 4

with probability at least 1 - 2T exp(-tau^2/2) - 4/(n-1) - 1/d - 6 ln(n)/n - 1/n. Our copy of the paper is damaged in
places and has no appendix, so the following are interpretations:

- xi is the least that the paper's condition admits. A larger xi makes every term larger.
- The condition has N nu, as if all providers added the same noise. Here their noises are independent, so sqrt(N) nu
  would be enough; we keep the paper's larger value.
- The constant of the convergence term is the smaller of two. One is 1/4, and the other is illegible. So 1/4 is never
  too small.
- C1 is a constant that the paper does not specify. It is 1 unless another is given.

The theorem has assumptions that cannot be checked here: a ``sparsity`` large enough for s*, and a start near the true
subspace. A random start is not near. The first one or two rounds bring it near, but the bound does not count them, so
after a single round the error can exceed the bound.
"""

import math
from dataclasses import dataclass
from typing import Final

from dpspca.common.algorithms import DpsPcaOptions
from dpspca.common.checks import check, check_whole
from dpspca.common.errors import InvalidParameterError
from dpspca.common.plan import Plan
from dpspca.common.queries import CovarianceProduct

NAME: Final = "dps-pca"
MISSED: Final = 0.05
"""Probability with which the noise of some round may exceed what the bound allows for."""


@dataclass(frozen=True, slots=True)
class PopulationAssumptions:
    """Assumptions about the population that the rows are drawn from.

    ``largest``, ``leading`` and ``following`` are the first, the k-th and the next eigenvalue of a row's second
    moments. ``support`` is the number of features in the support of the k leading eigenvectors.
    """

    leading: float
    following: float
    support: int
    largest: float

    def __post_init__(self) -> None:
        check(
            all(map(math.isfinite, (self.leading, self.following, self.largest)))
            and 0 <= self.following < self.leading <= self.largest,
            f"The eigenvalues are {self.largest:g} (largest), {self.leading:g} (k-th) and {self.following:g} (next).",
            "Give finite numbers with largest >= leading > following >= 0. The theorem needs a gap.",
        )
        check_whole("s_star, the size of the true support,", self.support, least=1, most=2**31)


@dataclass(frozen=True, slots=True)
class BoundTerms:
    """The three terms of the bound, the rate that they depend on, and the probability with which their sum holds."""

    statistical: float
    noise: float
    convergence: float
    gamma: float
    xi: float
    rho: float
    probability: float

    @property
    def total(self) -> float:
        """The bound on the error. No error of k components exceeds sqrt(k), so a larger bound says nothing."""
        return self.statistical + self.noise + self.convergence


def error_terms(  # noqa: PLR0913  # the theorem has as many
    population: PopulationAssumptions,
    *,
    components: int,
    dimension: int,
    sparsity: int,
    rows: int,
    parties: int,
    noise_std: float,
    rounds: int,
    tau: float,
    constant: float = 1.0,
) -> BoundTerms:
    """Compute the terms, or say which condition of the theorem fails.

    ``rows`` counts the rows of all ``parties`` together. ``noise_std`` is the noise on one provider's sum A Q in the
    units of the data (nu C^2). A larger ``tau`` makes xi larger and the bound more probable.
    """
    check_whole("the number of components", components, least=1, most=dimension)
    check_whole("s_hat, the sparsity,", sparsity, least=components, most=dimension)
    check_whole("the number of rows", rows, least=2, most=2**53)
    check_whole("the number of providers", parties, least=1, most=rows)
    check_whole("the number of rounds", rounds, least=1, most=2**31)
    _check_numbers(noise_std, tau, constant)
    k, leading, following = components, population.leading, population.following
    gamma = (3 * following + leading) / (3 * leading + following)
    spread = 2 * k * (math.sqrt(sparsity) + math.sqrt(k) + tau) * parties * noise_std
    xi = spread / (rows * leading)
    _check_conditions(xi, gamma)
    rho = gamma / (1 - xi)
    settling = 1 / (1 - rho**0.25)
    gap = math.sqrt(population.largest * following) / (leading - following)
    sampling = math.sqrt(population.support * (k + math.log(dimension)) / rows)
    return BoundTerms(
        statistical=constant * math.sqrt(k) * settling * gap * sampling,
        noise=(1 + 2 * math.sqrt(k * population.support / sparsity)) * xi / (1 - xi) * settling / math.sqrt(3),
        convergence=rho ** ((rounds - 1) / 4) / 4,
        gamma=gamma,
        xi=xi,
        rho=rho,
        probability=_probability(rounds, tau, rows, dimension),
    )


def for_job(  # noqa: PLR0913  # what is assumed has as many parts
    plan: Plan,
    *,
    leading: float,
    following: float,
    rows: int,
    parties: int,
    s_star: int,
    largest: float | None = None,
    tau: float | None = None,
    constant: float = 1.0,
) -> BoundTerms:
    """Compute the terms with the rounds, the sparsity and the noise (exact or published) of a job's plan.

    The default of ``tau`` is such that the noise of some round exceeds what the bound allows for with probability
    ``MISSED`` at most. Rows are assumed to be within the norm bound: no term covers clipping.
    """
    spec = plan.spec
    check(spec.method == NAME, f"The theorem is about {NAME}, not about {spec.method}.", f"Use the method {NAME}.")
    steps = [step for step in plan if step.query is CovarianceProduct]
    check(bool(steps), "The theorem is about the paper's loop, not about the improved one.", "See the forecast.")
    unit = CovarianceProduct.unit_value(spec.norm_bound)
    return error_terms(
        PopulationAssumptions(leading, following, s_star, leading if largest is None else largest),
        components=spec.components,
        dimension=spec.schema.dimension,
        sparsity=DpsPcaOptions.of(spec).most(spec.schema.dimension),
        rows=rows,
        parties=parties,
        noise_std=max(step.noise_std for step in steps) * unit,
        rounds=len(steps),
        tau=math.sqrt(2 * math.log(2 * len(steps) / MISSED)) if tau is None else tau,
        constant=constant,
    )


def _probability(rounds: int, tau: float, rows: int, dimension: int) -> float:
    """Return the probability with which the bound holds, or 0 if the paper's formula is negative."""
    missed = 2 * rounds * math.exp(-(tau**2) / 2)
    other = 4 / (rows - 1) + 1 / dimension + 6 * math.log(rows) / rows + 1 / rows
    return max(0.0, 1 - missed - other)


def _check_conditions(xi: float, gamma: float) -> None:
    """Check the conditions of the theorem, xi < 1 and rho < 1: together they say that xi < 1 - gamma."""
    if xi < 1 - gamma:
        return
    raise InvalidParameterError(
        f"The theorem does not apply: the noise-to-signal ratio xi is {xi:.3g}, but it must be below "
        f"1 - gamma = {1 - gamma:.3g} for the power loop to converge (rho < 1).",
        f"Use {1.01 * xi / (1 - gamma):.3g} times the rows, or reduce the noise by that factor: a larger budget, fewer "
        "rounds, fewer providers, a smaller norm bound or sparsity.",
    )


def _check_numbers(noise_std: float, tau: float, constant: float) -> None:
    for name, value in (("the noise", noise_std), ("tau", tau), ("the constant C1", constant)):
        check(math.isfinite(value) and value >= 0, f"{name} is {value!r}.", "Give a finite number that is 0 or more.")
