"""Analyze Gauss (Dwork, Talwar, Thakurta & Zhang, STOC 2014): the covariance matrix, released once with Gaussian noise.

A baseline of Ge et al. (2018). Departures from the paper:

- With exact accounting, the whole square is released with independent noise on every entry, and then made symmetric.
  The noise is that of the Gaussian orthogonal ensemble: equal in all directions of the Frobenius norm, in which the
  sensitivity is stated. Off the diagonal it is sqrt(2) smaller than that of equal noise on the upper triangle, at the
  same price.
- With published accounting, the upper triangle is released with the paper's standard deviation,
  sqrt(2 ln(1.25/delta))/eps.
"""

import math

from dpspca.common.job import Accounting, JobSpec
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import Covariance, CovarianceTriangle
from dpspca.common.results import PrivacyStatement

from .steps import ask_matrix, components_of, model_of, planned, with_known_noise


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries: the opening ones (count, mean), and the matrix."""
    return price(spec, planned(spec, _query(spec)), _published)


def run(plan: Plan) -> Algorithm:
    """Ask for the matrix, and return its leading eigenvectors."""
    spec = plan.spec
    opened, released = yield from ask_matrix(spec, _query(spec))
    components = components_of(spec, opened, released)
    statement = PrivacyStatement.of(plan, parties=released.parties)
    model = model_of(spec, statement, opened, released, components)
    exact = spec.accounting is Accounting.EXACT
    return with_known_noise(spec, model, opened, released, components) if exact else model


def _query(spec: JobSpec) -> type[Covariance | CovarianceTriangle]:
    return Covariance if spec.accounting is Accounting.EXACT else CovarianceTriangle


def _published(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return the standard deviation of the paper's Algorithm 1, for this query's share of (eps, delta).

    In the paper, neighbours differ by adding or removing a row. For other units, the sensitivity is replaced by theirs.
    """
    epsilon, delta = spec.budget.epsilon * planned.share, spec.budget.delta * planned.share
    return planned.query.sensitivity_of(spec.unit, planned.extent) * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
