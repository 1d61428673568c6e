"""The forecast for methods where each provider uses its own rows, and for the range finder: rougher than for others."""

import math

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import ApproximateEvent, GaussianEvent, PureEvent, smooth, stretch

from .population import Population
from .spectra import sines_of
from .whole_matrix import Outlook


def of_perturbed(plan: Plan, population: Population) -> Outlook:
    """Predict the error of local eigenvectors, whose noise depends on their gap. The constants are the method's own."""
    step = next(step for step in plan if step.name == "subspace")
    entries = population.dimension * population.components
    rows = population.rows / population.providers
    left = population.clipped(population.limit)
    highest = float(left.others[0]) if left.others.size else 0.0
    gap = max(0.0, rows * (float(left.leading[-1]) - highest) / population.limit)
    constants = (
        smooth.gaussian_constants(entries, step.event.epsilon, step.event.delta)
        if isinstance(step.event, ApproximateEvent)
        else smooth.student_constants(entries, _epsilon(step))
    )
    angles = min(population.components, population.dimension - population.components)
    moves = 2 if plan.spec.unit.is_replace_one else 1
    scale = smooth.smooth_bound(gap, moves, angles, constants.beta) / constants.alpha
    return _averaged(left, np.full(left.components, left.dimension * scale**2))


def of_drawn(plan: Plan, population: Population) -> Outlook:
    """Expect subspaces that are drawn axis by axis, each with an equal part of the exponent."""
    step = next(step for step in plan if step.name == "subspace")
    moves = 2 if plan.spec.unit.is_replace_one else 1
    exponent = _epsilon(step) / moves / population.components / population.limit
    left = population.clipped(population.limit)
    gaps = np.maximum(left.leading[:, None] - left.others[None], 1e-9 * left.leading[:, None])
    rows = population.rows / population.providers
    return _averaged(left, (1 / (2 * exponent * rows * gaps)) @ left.counts)


def of_range(plan: Plan, population: Population) -> Outlook:
    """Expect the range finder: one step of a power loop, with noise on the sketch of every row, and a projection."""
    steps = {step.name: step for step in plan}
    event, projection = steps["sketch"].event, steps["projection"]
    assert isinstance(event, GaussianEvent)
    columns, rows = projection.extent.columns, population.rows
    length = math.sqrt(population.limit)
    sketch = event.std / event.sensitivity * 2 * length * stretch(columns)
    left = population.clipped(population.limit)
    leading, others = left.leading, left.others
    entries = columns * leading + float(population.counts @ others)
    kept = columns * leading / (entries + sketch**2)
    turned = (np.square(others) + others * sketch**2 / rows) @ population.counts / np.square(leading) / columns
    tail = 2 * math.log(2 * rows)
    reach = math.sqrt(min(1.0, (columns + 2 * math.sqrt(columns * tail / 2) + tail) / tail / columns))
    noise = projection.noise_std * projection.query.unit_value(length) * reach * math.sqrt(tail / rows)
    noise *= math.sqrt(population.providers)
    tangents = turned + population.dimension * noise**2 / (rows * leading * kept)
    return Outlook(tangents / (1 + tangents), math.nan, population.dimension)


def _epsilon(step: Step) -> float:
    assert isinstance(step.event, PureEvent)
    return step.event.epsilon


def _averaged(population: Population, tangents: FloatArray) -> Outlook:
    """Add up the providers' subspaces: errors of their own average out; what they share by sampling does too."""
    drawn = tangents / population.providers
    sampled = sines_of(population.leading, population.others, population.counts, population.rows, 0.0)
    sines = np.minimum(1.0, drawn / (1 + drawn) + sampled)
    return Outlook(sines, math.nan, population.dimension)
