"""MOD-SuLQ (Chaudhuri, Sarwate & Sinha, NIPS 2012): the covariance matrix, released once with symmetric noise.

A baseline of Ge et al. (2018), section 5. The noise has the same standard deviation on every entry on and above the
diagonal and is mirrored below it, so that eigenvectors are real. Departures from the paper:

- The sum over the rows is released, not their mean. The components are the same, and the number of rows, by which the
  paper divides both noise and sum, need not be known.
- With exact accounting, the noise on the triangle is the least that the budget allows, from the sharp sensitivity.
- With published accounting, the standard deviation is the paper's. In the paper, neighbours differ by replacing a row
  of norm one. Adding or removing a row changes the matrix less (by C^2 instead of sqrt(2) C^2), so the same standard
  deviation is sufficient for these units too, but larger than needed. Queries that the paper does not have (a private
  count, a private mean) get the noise of the classical Gaussian mechanism.
- In either case, exact accounting checks the whole plan against the budget before anything is asked.
"""

import math

from dpspca.common.job import JobSpec
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import CovarianceTriangle
from dpspca.common.results import PrivacyStatement

from .steps import ask_matrix, classical_std, components_of, model_of, planned


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries: the opening ones (count, mean), and the triangle."""
    return price(spec, planned(spec, CovarianceTriangle), _published)


def run(plan: Plan) -> Algorithm:
    """Ask for the triangle, complete it to a symmetric matrix, and return its leading eigenvectors."""
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
    """Return the paper's beta times the number of rows, for a sum over rows of norm one.

    (d + 1)/eps sqrt(2 ln((d^2 + d)/(2 delta sqrt(2 pi)))) + 1/sqrt(eps). For one column and a delta above 0.4 the
    logarithm is negative, and the paper has no formula; then only the second term is used.
    """
    d = dimension
    logarithm = max(0.0, math.log((d * d + d) / (2 * delta * math.sqrt(2 * math.pi))))
    return (d + 1) / epsilon * math.sqrt(2 * logarithm) + 1 / math.sqrt(epsilon)
