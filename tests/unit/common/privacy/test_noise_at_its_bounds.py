"""The widest noise that a plan may have, one float to either side of it, and the largest sum that it can be part of."""

import math
from fractions import Fraction
from typing import Any

import pytest
from facts import facts

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, NoiseTooWideError
from dpspca.common.job import MAX_COMPONENT_ENTRIES, Accounting, Budget, JobSpec, Schema
from dpspca.common.plan import Noise, PlannedQuery, Step, price
from dpspca.common.privacy import noise
from dpspca.common.privacy.events import GaussianEvent, LaplaceEvent
from dpspca.common.privacy.lattice import (
    MAX_PROVIDERS,
    MAX_ROWS,
    MAX_SCALE,
    MAX_STD,
    MOMENT_BITS,
    basis_gain,
    largest_answer,
    most_rows,
)
from dpspca.common.privacy.noise import DiscreteGaussian, DiscreteLaplace, lattice_std
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent
from dpspca.common.queries.rows import Count

MOST = {Noise.GAUSSIAN: MAX_STD, Noise.LAPLACE: MAX_SCALE}


def job(epsilon: float = 1.0, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "unit": PrivacyUnit.ROW_ADD_REMOVE,
        "norm_bound": 3.0,
        "components": 2,
        "method": "dps-pca",
    }
    return JobSpec(schema=Schema(6), budget=Budget(epsilon, 1e-12), **good | changes)


def planned(kind: Noise, width: float) -> Step:
    """Plan a query whose one unit is one row: what the formula gives is the width to the last bit."""
    (step,) = price(
        job(accounting=Accounting.PUBLISHED),
        [PlannedQuery("rows", Count, Extent(6), 1.0, noise=kind)],
        lambda _, __: width,
    )
    return step


def width_of(step: Step) -> float:
    """Give the planned width, of either kind of noise; none is no width."""
    match step.event:
        case GaussianEvent(std=width) | LaplaceEvent(scale=width):
            return width
        case _:
            return 0.0


@pytest.mark.parametrize("kind", Noise)
def test_t24_noise_is_planned_up_to_the_bound_of_the_lattice(kind: Noise) -> None:
    for width in (math.nextafter(MOST[kind], 0), MOST[kind]):
        assert width_of(planned(kind, width)) == width
    with pytest.raises(NoiseTooWideError):
        planned(kind, math.nextafter(MOST[kind], math.inf))


def widest(epsilon: float, method: str, options: dict[str, int]) -> float | None:
    """Give the widest noise of a job's plan; None where it is refused as too wide, and for no other reason."""
    try:
        return max(width_of(step) for step in catalogue.plan(job(epsilon, method=method, options=options)))
    except NoiseTooWideError:
        return None


@pytest.mark.parametrize(("method", "options"), [("dps-pca", {"sparsity": 4, "rounds": 3}), ("analyze-gauss", {})])
def test_t24_the_least_budget_with_a_plan_has_the_widest_noise(method: str, options: dict[str, int]) -> None:
    """Halve until the refused and the planned are neighbours as floats: there is no gap in which neither is right."""
    refused, enough = 1e-12, 1.0
    assert widest(refused, method, options) is None
    while refused < (half := (refused + enough) / 2) < enough:
        if widest(half, method, options) is None:
            refused = half
        else:
            enough = half
    found = widest(enough, method, options)
    assert found is not None
    assert MAX_STD * (1 - 2.0**-20) < found <= MAX_STD


@pytest.mark.parametrize(
    ("law", "largest"),
    [(DiscreteGaussian, noise.LARGEST_STD), (DiscreteLaplace, noise.LARGEST_LAPLACE_SCALE)],
)
def test_t24_noise_is_drawn_up_to_the_bound_of_the_sampler(
    law: type[DiscreteGaussian | DiscreteLaplace], largest: float
) -> None:
    for width in (math.nextafter(largest, 0), largest):
        law(width)
    with pytest.raises(InvalidParameterError, match=facts(math.nextafter(largest, math.inf), 0.125)):
        law(math.nextafter(largest, math.inf))


def reaches() -> list[int]:
    """List how far the widest noise that may be planned can reach: the sum of what its tables reach."""
    gaussian = noise._gaussian_terms(lattice_std(MAX_STD))
    laplace = noise._laplace_terms(Fraction(MAX_SCALE))
    return [sum(term.multiplier * term.table.reach for term in terms) for terms in (gaussian, laplace)]


def test_t24_the_largest_sums_with_the_widest_noise_fit_64_bits() -> None:
    """In whole numbers, nothing rounded: full data sets of the longest rows, along the longest basis."""
    gain = Fraction(basis_gain(MAX_COMPONENT_ENTRIES, 1))
    assert most_rows(1) == most_rows(2) == MAX_ROWS
    for parties in range(1, MAX_PROVIDERS + 1):
        rows = math.ceil(most_rows(parties) * 2**MOMENT_BITS * gain)
        for reach in reaches():
            assert reach < 2**55
            assert rows + reach <= largest_answer(parties)
        assert parties * largest_answer(parties) < 2**63
        assert parties * most_rows(parties) <= 2**32
