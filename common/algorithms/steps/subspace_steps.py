"""Common steps of methods in which each provider releases a subspace once.

Each provider answers once, with a private mechanism over its own rows, and returns the projection onto a subspace (see
``queries.subspace``). The coordinator adds the projections (n_i U_i U_i^T under replace-one, U_i U_i^T under
add/remove) and computes the leading eigenvectors of the sum, which is post-processing. The usual queries come before
and after: a count or a mean if needed, and the explained variance. They have Laplace noise, each for its share of
epsilon.

If the mechanism is purely private, delta pays only for the difference between implementation and ideal: 2^-160 per draw
of noise, and ``dither.slack`` for the mechanism. Delta may be as small as 1e-30. Less than needed is refused.
The sensitivity of a private mean is sqrt(d) times larger in L1 than in L2, so it needs many rows.

With a single provider, all eigenvalues of the sum are equal. Without ``explained_variance`` the components are then an
arbitrary basis of the subspace. With it, they are rotated to the axes along which the rows vary most.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final

from dpspca.common.checks import check
from dpspca.common.job import JobSpec
from dpspca.common.plan import Noise, Plan, PlannedQuery, Step, price
from dpspca.common.privacy import ApproximateEvent, PureEvent, dither, float_below, format_up
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import MAX_SUBSPACE_COLUMNS, Extent, RowSparse, SubspaceQuery
from dpspca.common.results import Model, PrivacyStatement

from .released_matrix import leading_rows
from .row_steps import ask_closing, ask_opening, closing, opening, shares

_LEAST_DELTA: Final = 1e-150
_MARGIN: Final = Fraction(1, 2**40)
"""Share of epsilon left unspent, so that rounding cannot make the events exceed the budget."""


def plan_subspace(spec: JobSpec, query: type[SubspaceQuery], event: PureEvent | ApproximateEvent) -> tuple[Step, ...]:
    """Plan the one release, and the queries before and after it."""
    _check_unit_and_width(spec)
    _check_epsilon(spec, event)
    event = replace(event, slack=dither.slack(spec.schema.dimension))
    extent = Extent(spec.schema.dimension, spec.components)
    planned_queries = [
        *opening(spec, Noise.LAPLACE),
        PlannedQuery("subspace", query, extent, shares(spec)["rest"], event=event),
        *closing(spec, spec.schema.dimension, Noise.LAPLACE),
    ]
    return price(spec, planned_queries, _usual_scale)


def run_subspace(plan: Plan, query: type[SubspaceQuery]) -> Algorithm:
    """Ask for the subspaces, and compute the leading eigenvectors of their sum."""
    spec = plan.spec
    opened = yield from ask_opening(spec)
    released = yield query(spec.schema.dimension, opened.center, spec.components)
    components = leading_rows(released.values, spec.components)
    statement = PrivacyStatement.of(plan, parties=released.parties)
    model = Model(components, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(components.T), opened, model))


def _check_unit_and_width(spec: JobSpec) -> None:
    """Refuse a job that no provider could answer."""
    check(
        spec.unit.is_row,
        f"The method {spec.method} protects rows or persons, but the unit is {spec.unit}.",
        "Choose a unit of rows or of persons.",
    )
    check(
        spec.schema.dimension <= MAX_SUBSPACE_COLUMNS,
        f"{spec.method} releases a matrix of {spec.schema.dimension} by {spec.schema.dimension} numbers at once.",
        f"Use it for at most {MAX_SUBSPACE_COLUMNS} columns. For more, use auto, dps-pca or noisy-power.",
    )


def _check_epsilon(spec: JobSpec, event: PureEvent | ApproximateEvent) -> None:
    """Refuse an epsilon so small that the noise that hides rounding errors would also hide the answer."""
    least = dither.least_epsilon(spec.schema.dimension, spec.components)
    check(
        event.epsilon >= least,
        f"Of epsilon {spec.budget.epsilon:g}, {event.epsilon:.3g} is left for the subspace, too little to hide "
        f"floating-point rounding: at least {format_up(least, 3)} is needed.",
        "Choose a larger epsilon, fewer columns or fewer components.",
    )


def epsilon_left(spec: JobSpec) -> float:
    """Return the epsilon that the release may cost: all that no other query takes."""
    return float_below(Fraction(spec.budget.epsilon) * Fraction(shares(spec)["rest"]) * (1 - _MARGIN))


def delta_left(spec: JobSpec) -> float:
    """Return the probability with which the mechanism may fail to be private.

    It counts as slack, which the accountant multiplies by 1 + e^epsilon. A thousandth of delta is for the samplers.
    """
    allowed = spec.budget.delta * (1 - 2.0**-10) / (1 + math.exp(spec.budget.epsilon))
    check(
        allowed > _LEAST_DELTA,
        f"delta is {spec.budget.delta:g}, too little for Gaussian noise (privacy=approximate).",
        "Choose a larger delta, or privacy=pure.",
    )
    return allowed


def _usual_scale(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return the usual scale of Laplace noise, sensitivity over epsilon, for rows of norm one.

    The papers have no queries other than the release. Published accounting uses this scale for the others.
    """
    entries = math.prod(planned.query.answer_shape(planned.extent))
    sensitivity = planned.query.sensitivity_of(spec.unit, planned.extent) * math.sqrt(entries)
    return sensitivity / (spec.budget.epsilon * planned.share / planned.times) * (1 + float(_MARGIN))
