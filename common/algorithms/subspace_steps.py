"""What one-shot algorithms share whose providers each release a subspace: the query, its share, and the sum.

Each provider answers once, by a private mechanism over its own rows, with the projection on a subspace (see
``subspace_queries``). The coordinator adds the projections up, n_i U_i U_i^T under replace-one, U_i U_i^T under
add/remove, and takes the leading eigenvectors of the sum: post-processing. Before and after go the usual queries,
a count or a mean where one is needed and what the components explain, with Laplace noise, each for its share of
epsilon. Where the mechanism is purely private its delta pays for the distance of what is implemented from its ideal
alone: 2^-160 a draw of noise, and ``dither.slack`` for the mechanism. It may be as small as 1e-30; a job with less than
these need is refused. A private mean has a sensitivity of sqrt(d) times as much in L1 as in L2, and needs many rows.

Of a single provider all eigenvalues of the sum are equal: without ``explained_variance`` the components are then any
basis of the subspace. With it they are turned to the axes along which the rows vary most.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final

from dpspca.common.checks import check
from dpspca.common.model import Model
from dpspca.common.plan import Noise, Plan, PlannedQuery, Step, price
from dpspca.common.privacy import ApproximateEvent, PureEvent, dither, format_up, round_down
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import MAX_DIMENSION, Extent, RowSparse, SubspaceQuery
from dpspca.common.spec import JobSpec
from dpspca.common.statement import PrivacyStatement

from .released_matrix import leading
from .row_steps import ask_closing, ask_opening, closing, opening, shares

_LEAST_DELTA: Final = 1e-150
_MARGIN: Final = Fraction(1, 2**40)
"""What the events give away, so that together they fit their budget whatever is rounded."""


def plan_subspace(spec: JobSpec, query: type[SubspaceQuery], event: PureEvent | ApproximateEvent) -> tuple[Step, ...]:
    """Plan the one release, and what goes before and after it."""
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
    """Ask for the subspaces, and take the leading eigenvectors of their sum."""
    spec = plan.spec
    opened = yield from ask_opening(spec)
    released = yield query(spec.schema.dimension, opened.center, spec.components)
    components = leading(released.values, spec.components)
    statement = PrivacyStatement.of(plan, parties=released.parties)
    model = Model(components, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(components.T), opened, model))


def _check_unit_and_width(spec: JobSpec) -> None:
    """Refuse what no provider could answer, before it is asked."""
    check(
        spec.unit.is_row,
        f"{spec.method} protects rows, and the unit is {spec.unit}.",
        "Choose a unit of rows or of persons.",
    )
    check(
        spec.schema.dimension <= MAX_DIMENSION,
        f"{spec.method} releases a matrix of {spec.schema.dimension} by {spec.schema.dimension} numbers at once.",
        f"Use it up to {MAX_DIMENSION} columns; beyond, an algorithm that asks for products.",
    )


def _check_epsilon(spec: JobSpec, event: PureEvent | ApproximateEvent) -> None:
    """Refuse an epsilon for which the noise that hides rounding errors would hide the answer as well."""
    least = dither.least_epsilon(spec.schema.dimension, spec.components)
    check(
        event.epsilon >= least,
        f"An epsilon of {spec.budget.epsilon:g} leaves {event.epsilon:.3g} for the subspace, too little to hide how "
        "the computer rounds.",
        f"Choose an epsilon that leaves at least {format_up(least, 3)}, fewer columns or fewer components.",
    )


def epsilon_left(spec: JobSpec) -> float:
    """Give what the release may cost: all of epsilon that no other query takes."""
    return round_down(Fraction(spec.budget.epsilon) * Fraction(shares(spec)["rest"]) * (1 - _MARGIN))


def delta_left(spec: JobSpec) -> float:
    """Give the probability with which the mechanism may fail to be private.

    It counts as slack, which the accountant multiplies by 1 + e^epsilon; a thousandth of delta is left to the samplers.
    """
    allowed = spec.budget.delta * (1 - 2.0**-10) / (1 + math.exp(spec.budget.epsilon))
    check(
        allowed > _LEAST_DELTA,
        f"A delta of {spec.budget.delta:g} leaves nothing for noise that is not purely private.",
        "Choose a larger delta, or the pure variety.",
    )
    return allowed


def _usual_scale(spec: JobSpec, planned: PlannedQuery) -> float:
    """Give the usual scale of Laplace noise, sensitivity over epsilon, for rows of norm one.

    The papers ask nothing beside the release; published accounting takes this for what is asked here.
    """
    entries = math.prod(planned.query.answer_shape(planned.extent))
    sensitivity = planned.query.sensitivity_of(spec.unit, planned.extent) * math.sqrt(entries)
    return sensitivity / (spec.budget.epsilon * planned.share / planned.times) * (1 + float(_MARGIN))
