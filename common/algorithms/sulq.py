"""SuLQ (Blum, Dwork, McSherry & Nissim, PODS 2005): the covariance matrix with independent noise on every entry.

The predecessor of MOD-SuLQ, as Chaudhuri, Sarwate & Sinha (2012) describe it. The noise is not symmetric, so neither is
the released matrix, and its eigenvalues and eigenvectors need not be real. MOD-SuLQ was designed to avoid this.
Departures from the papers:

- The components are the leading left singular vectors of the released matrix as it is. They always exist, are real and
  orthonormal, and are the eigenvectors if there is no noise.
- The sum over the rows is released, not their mean. The components are the same, and the number of rows, by which the
  papers divide both noise and sum, need not be known.
- With exact accounting, the noise on the square is the least that the budget allows. It is the same as in
  ``analyze_gauss``, but the two halves are not averaged: off the diagonal, the noise stays sqrt(2) larger at the same
  price.
- With published accounting, the standard deviation on a sum is the papers', sqrt(8) d ln(d/delta)/eps, for every unit.
  Queries that the papers do not have (a private count, a private mean) get the noise of the classical Gaussian
  mechanism.
- In either case, exact accounting checks the whole plan against the budget before anything is asked.
"""

import math

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.protocol import Aggregate, Algorithm
from dpspca.common.queries import Covariance
from dpspca.common.results import PrivacyStatement

from .steps import MatrixOptions, RowTotals, ask_matrix, classical_std, components_of, leading_rows, model_of, planned


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries: the opening ones (count, mean), and the square."""
    return price(spec, planned(spec, Covariance), _published)


def run(plan: Plan) -> Algorithm:
    """Ask for the square, and return its leading left singular vectors."""
    spec = plan.spec
    opened, released = yield from ask_matrix(spec, Covariance)
    components = _components_of(spec, opened, released)
    statement = PrivacyStatement.of(plan, parties=released.parties)
    return model_of(spec, statement, opened, released, components)


def _components_of(spec: JobSpec, opened: RowTotals, released: Aggregate) -> FloatArray:
    """Compute the components from the released matrix, or from its symmetric part if ``sparsity`` is set."""
    if MatrixOptions.of(spec).sparsity is not None:
        return components_of(spec, opened, released)
    return _by_variance(left_singular(released.values, spec.components), released.values)


def _by_variance(components: FloatArray, released: FloatArray) -> FloatArray:
    """Order components by the variance that each explains in the released matrix, not by singular value."""
    explained = np.einsum("kd,de,ke->k", components, released, components)
    return components[np.argsort(explained)[::-1]]


def left_singular(matrix: FloatArray, components: int) -> FloatArray:
    """Return the left singular vectors of the largest singular values, as rows: the eigenvectors of M M^T.

    This is several times faster than a singular value decomposition. It loses singular values below 1e-8 of the
    largest, which do not matter here: noise makes all of them much larger.
    """
    return leading_rows(matrix @ matrix.T, components)


def _published(spec: JobSpec, planned: PlannedQuery) -> float:
    if planned.query is not Covariance:
        return classical_std(spec, planned)
    return published_std(spec.schema.dimension, spec.budget.epsilon * planned.share, spec.budget.delta * planned.share)


def published_std(dimension: int, epsilon: float, delta: float) -> float:
    """Return the square root of the papers' variance, 8 d^2 ln^2(d/delta) / (n^2 eps^2), times the number n of rows."""
    return math.sqrt(8) * dimension * math.log(dimension / delta) / epsilon
