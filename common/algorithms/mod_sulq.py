"""MOD-SuLQ (Chaudhuri, Sarwate & Sinha, NIPS 2012): the covariance matrix, released once with symmetric noise.

A baseline of Ge et al. (2018), section 5. The noise has one width on every entry on and above the diagonal, and is
mirrored below it, so that eigenvectors are real. Where it departs from the paper:

- The sum over the rows is released, not their mean: the components are the same, and the number of rows, by which the
  paper divides noise and sum alike, need not be known.
- With exact accounting the noise is the least that the budget allows on the triangle, by its sharp sensitivity.
- With published accounting its standard deviation is the paper's. Its neighbours have one row of norm one replaced; a
  row that is only there or not moves the matrix less far (by C^2 instead of sqrt(2) C^2), so the paper's width serves
  for adding and removing as well, where it is more than is needed. What the paper says nothing of (a private count, a
  private mean) has the classical Gaussian mechanism's noise.
- Either way the plan as a whole is held against the budget by exact accounting before anything is asked.
"""

import math

from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import CovarianceTriangle
from dpspca.common.spec import JobSpec
from dpspca.common.statement import PrivacyStatement

from .released_matrix import ask_matrix, classical_std, components_of, model_of, planned


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query: what the opening needs, and the triangle."""
    return price(spec, planned(spec, CovarianceTriangle), _published)


def run(plan: Plan) -> Algorithm:
    """Ask for the triangle, and take the leading eigenvectors of the matrix that it is half of."""
    spec = plan.spec
    opened, released = yield from ask_matrix(spec, CovarianceTriangle)
    components = components_of(spec, opened, released)
    statement = PrivacyStatement.of(plan, parties=released.parties)
    return model_of(spec, statement, opened, released, components)


def _published(spec: JobSpec, planned: PlannedQuery) -> float:
    if planned.query is not CovarianceTriangle:
        return classical_std(spec, planned)
    return published_std(spec.schema.dimension, spec.budget.epsilon * planned.share, spec.budget.delta * planned.share)


def published_std(dimension: int, epsilon: float, delta: float) -> float:
    """Give the paper's beta, times the number of rows: on a sum of rows of norm one.

    (d + 1)/eps sqrt(2 ln((d^2 + d)/(2 delta sqrt(2 pi)))) + 1/sqrt(eps). For one column and a delta above 0.4 the
    logarithm is negative, where the paper has no formula: then the second summand stands alone.
    """
    d = dimension
    logarithm = max(0.0, math.log((d * d + d) / (2 * delta * math.sqrt(2 * math.pi))))
    return (d + 1) / epsilon * math.sqrt(2 * logarithm) + 1 / math.sqrt(epsilon)
