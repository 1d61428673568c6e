"""SuLQ (Blum, Dwork, McSherry & Nissim, PODS 2005): the covariance matrix with noise of its own on every entry.

The ancestor of MOD-SuLQ, as Chaudhuri, Sarwate & Sinha (2012) describe it. The noise is not symmetric, so neither is
the released matrix: its eigenvalues and eigenvectors need not be real, which is what MOD-SuLQ was made to mend. Where
it departs from the papers:

- The components are the leading left singular vectors of the released matrix, unsymmetric as it is. They always exist
  and are real and orthonormal, and without noise they are the eigenvectors.
- The sum over the rows is released, not their mean: the components are the same, and the number of rows, by which the
  papers divide noise and sum alike, need not be known.
- With exact accounting the noise is the least that the budget allows on the square. It is then Analyze Gauss's of this
  project, before the two halves are averaged: sqrt(2) more of it remains off the diagonal, at the same price.
- With published accounting the standard deviation on a sum is the papers', sqrt(8) d ln(d/delta)/eps, whatever the
  unit. What they say nothing of (a private count, a private mean) has the classical Gaussian mechanism's noise.
- Either way the plan as a whole is held against the budget by exact accounting before anything is asked.
"""

import math

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.protocol import Aggregate, Algorithm
from dpspca.common.queries import Covariance
from dpspca.common.spec import JobSpec
from dpspca.common.statement import PrivacyStatement

from .released_matrix import MatrixOptions, ask_matrix, classical_std, components_of, leading, model_of, planned
from .row_steps import RowTotals


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query: what the opening needs, and the square."""
    return price(spec, planned(spec, Covariance), _published)


def run(plan: Plan) -> Algorithm:
    """Ask for the square, and take its leading left singular vectors."""
    spec = plan.spec
    opened, released = yield from ask_matrix(spec, Covariance)
    components = _components_of(spec, opened, released)
    statement = PrivacyStatement.of(plan, parties=released.parties)
    return model_of(spec, statement, opened, released, components)


def _components_of(spec: JobSpec, opened: RowTotals, released: Aggregate) -> FloatArray:
    """Read components off the matrix as it is, or where columns are to be left out, off its symmetric half."""
    if MatrixOptions.of(spec).sparsity is not None:
        return components_of(spec, opened, released)
    return _by_variance(left_singular(released.values, spec.components), released.values)


def _by_variance(components: FloatArray, released: FloatArray) -> FloatArray:
    """Order components by what each explains of the released matrix; singular values order them otherwise."""
    explained = np.einsum("kd,de,ke->k", components, released, components)
    return components[np.argsort(explained)[::-1]]


def left_singular(matrix: FloatArray, components: int) -> FloatArray:
    """Give the left singular vectors of the largest singular values, as rows: the eigenvectors of M M^T.

    That is several times faster than a singular value decomposition. It blurs singular values below a hundred-millionth
    of the largest, which are not asked for: noise lifts all of them far above.
    """
    return leading(matrix @ matrix.T, components)


def _published(spec: JobSpec, planned: PlannedQuery) -> float:
    if planned.query is not Covariance:
        return classical_std(spec, planned)
    return published_std(spec.schema.dimension, spec.budget.epsilon * planned.share, spec.budget.delta * planned.share)


def published_std(dimension: int, epsilon: float, delta: float) -> float:
    """Give the root of the papers' variance, 8 d^2 ln^2(d/delta) / (n^2 eps^2), times the number n of rows."""
    return math.sqrt(8) * dimension * math.log(dimension / delta) / epsilon
