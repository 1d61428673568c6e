"""What Theorem 4.3 of Ge, Wang, Wang & Liu (AISTATS 2018) says of DPS-PCA's error before any row is looked at.

Pure functions of numbers that are planned, or assumed of the population: nothing here comes from data, and nothing
about privacy rests on it. The error is ||sin Theta||_F between the subspace after T rounds and the true one:

    gamma = (3 l_{k+1} + l_k) / (3 l_k + l_{k+1})         the gap, below one where l_k > l_{k+1}
    xi    = 2k (sqrt(s_hat) + sqrt(k) + tau) N nu / (n l_k)  noise against signal; nu on one provider's sum
    rho   = gamma / (1 - xi)                              what a round leaves of the start, to the power 1/4

    statistical = C1 sqrt(k) / (1 - rho^(1/4)) sqrt(l_1 l_{k+1}) / (l_k - l_{k+1}) sqrt(s* (k + ln d) / n)
    noise       = (1 + 2 sqrt(k s*/s_hat)) xi / (1 - xi) / (sqrt(3) (1 - rho^(1/4)))
    convergence = rho^((T-1)/4) / 4

with probability at least 1 - 2T exp(-tau^2/2) - 4/(n-1) - 1/d - 6 ln(n)/n - 1/n. The paper's print is damaged in
places, and its appendix lost; where this is a reading:

- xi is the least that the paper's condition admits: a larger one makes every term larger.
- The condition has N nu, as if the providers' noises were one. They are independent here, of which sqrt(N) nu would
  do; the paper's is kept, which is larger.
- Convergence has a constant that is the smaller of two, of which one is 1/4 and the other cannot be read. So 1/4 is
  never too small.
- C1 is some constant that the paper does not name; one is taken unless another is given.

The theorem assumes more than can be checked here: a ``sparsity`` large enough for s*, and a start that is near the
truth. A random start is not. The first round or two bring it near, and are in none of the terms: after a single one
the error can be above the bound.
"""

import math
from dataclasses import dataclass
from typing import Final

from dpspca.common.checks import check, check_whole
from dpspca.common.errors import InvalidParameterError
from dpspca.common.queries import CovarianceProduct
from dpspca.common.spec import JobSpec

from . import catalogue
from .dps_pca import DpsPcaOptions

NAME: Final = "dps-pca"
MISSED: Final = 0.05
"""Probability that noise may have to be larger than what the bound allows for, in any round."""


@dataclass(frozen=True, slots=True)
class Population:
    """What is assumed of the population that rows come from.

    ``leading`` and ``following`` are the k-th and the next eigenvalue of a row's second moments, ``largest`` the first;
    ``support`` is how many features the k leading eigenvectors live on.
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
            "Give finite numbers, largest >= leading > following >= 0: without a gap there is nothing to find.",
        )
        check_whole("s_star, the size of the true support,", self.support, least=1, most=2**31)


@dataclass(frozen=True, slots=True)
class Terms:
    """The bound's three terms, the rate that they hang on, and the probability with which their sum holds."""

    statistical: float
    noise: float
    convergence: float
    gamma: float
    xi: float
    rho: float
    probability: float

    @property
    def total(self) -> float:
        """The bound on the error; no error of k components is above sqrt(k), so beyond that it says nothing."""
        return self.statistical + self.noise + self.convergence


def error_terms(  # noqa: PLR0913  # the theorem has as many
    population: Population,
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
) -> Terms:
    """Work the terms out, or say which of the theorem's conditions fails.

    ``rows`` are those of all ``parties`` together, ``noise_std`` is the noise on one provider's sum A Q in the units of
    the data (nu C^2), and ``tau`` trades the size of xi for the probability.
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
    return Terms(
        statistical=constant * math.sqrt(k) * settling * gap * sampling,
        noise=(1 + 2 * math.sqrt(k * population.support / sparsity)) * xi / (1 - xi) * settling / math.sqrt(3),
        convergence=rho ** ((rounds - 1) / 4) / 4,
        gamma=gamma,
        xi=xi,
        rho=rho,
        probability=_probability(rounds, tau, rows, dimension),
    )


def for_job(  # noqa: PLR0913  # what is assumed has as many parts
    spec: JobSpec,
    *,
    leading: float,
    following: float,
    rows: int,
    parties: int,
    s_star: int,
    largest: float | None = None,
    tau: float | None = None,
    constant: float = 1.0,
) -> Terms:
    """Take from a job's plan what it decides: rounds, sparsity and the noise of a round, exact or published.

    Without ``tau`` it is the one for which noise is larger than allowed for in any round with probability ``MISSED``
    at most. Rows are assumed to be within the job's bound: what clipping does to them is in none of the terms.
    """
    check(spec.method == NAME, f"The theorem is about {NAME}, not about {spec.method}.", f"Take {NAME}.")
    steps = [step for step in catalogue.plan(spec) if step.query is CovarianceProduct]
    unit = CovarianceProduct.unit_value(spec.norm_bound)
    return error_terms(
        Population(leading, following, s_star, leading if largest is None else largest),
        components=spec.components,
        dimension=spec.schema.dimension,
        sparsity=DpsPcaOptions.of(spec).sparsity,
        rows=rows,
        parties=parties,
        noise_std=max(step.noise_std for step in steps) * unit,
        rounds=len(steps),
        tau=math.sqrt(2 * math.log(2 * len(steps) / MISSED)) if tau is None else tau,
        constant=constant,
    )


def _probability(rounds: int, tau: float, rows: int, dimension: int) -> float:
    """Give the probability with which the bound holds; zero where the paper's formula promises nothing."""
    missed = 2 * rounds * math.exp(-(tau**2) / 2)
    other = 4 / (rows - 1) + 1 / dimension + 6 * math.log(rows) / rows + 1 / rows
    return max(0.0, 1 - missed - other)


def _check_conditions(xi: float, gamma: float) -> None:
    """Refuse what the theorem does not cover: xi < 1 and rho < 1, which both say that xi < 1 - gamma."""
    if xi < 1 - gamma:
        return
    raise InvalidParameterError(
        f"The theorem says nothing here: noise against signal, xi, is {xi:.3g}, where it has to be below "
        f"1 - gamma = {1 - gamma:.3g} for the power loop to converge (rho < 1).",
        f"It takes {1.01 * xi / (1 - gamma):.3g} times the rows, or as much less noise: a larger budget, fewer rounds, "
        "fewer providers, a smaller norm bound or sparsity.",
    )


def _check_numbers(noise_std: float, tau: float, constant: float) -> None:
    for name, value in (("the noise", noise_std), ("tau", tau), ("the constant C1", constant)):
        check(math.isfinite(value) and value >= 0, f"{name} is {value!r}.", "Give a finite number that is 0 or more.")
