"""Common steps of methods that release the whole covariance matrix once.

Everything after the release is post-processing and free. The matrix is released as the whole square, whose two halves
have independent noise and are averaged, or as its upper triangle, as in the papers.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.job import JobSpec
from dpspca.common.plan import EXPLAINING, PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import Covariance, CovarianceTriangle, Extent, RowQuery
from dpspca.common.results import Model, PrivacyStatement, fix_signs

from .free_structure import ReleasedMatrix, leading, sparse_or_dense
from .left_out import matrix_noise
from .options import described
from .row_steps import (
    AUTO,
    Auto,
    RowTotals,
    ask_opening,
    at_least_one,
    given_sparsity,
    known_options,
    opening,
    shares,
    with_variances,
)

MAX_MATRIX_COLUMNS: Final = 2**13
"""Of a matrix that is released whole: the answer then has half a gigabyte. With more columns, ask for products."""


@dataclass(frozen=True, slots=True)
class MatrixOptions:
    """The options of methods that release a whole matrix. They change only the free post-processing."""

    sparsity: int | Auto | None = field(
        default=None,
        metadata=described(
            "Largest number of columns that may take part, for all components together, or auto: keep the columns that "
            "stand out from noise, if these hold what the matrix shows. Default: all columns take part."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        known_options(spec, ("sparsity",))
        return cls(given_sparsity(spec))


def planned(spec: JobSpec, query: type[Covariance | CovarianceTriangle]) -> list[PlannedQuery]:
    """Plan the opening queries (count, mean), and the one release."""
    return [*opening(_counted(spec)), release(_counted(spec), query)]


def ask_matrix(
    spec: JobSpec, query: type[Covariance | CovarianceTriangle]
) -> Generator[RowQuery, Aggregate, tuple[RowTotals, Aggregate]]:
    """Ask the queries that ``planned`` planned."""
    opened = yield from ask_opening(_counted(spec))
    released = yield query(spec.schema.dimension, opened.center)
    return opened, released


def _counted(spec: JobSpec) -> JobSpec:
    """Ask for the number of rows if ``sparsity`` is set, because it helps to tell columns from noise."""
    return spec if MatrixOptions.of(spec).sparsity is None else replace(spec, explained_variance=True)


def components_of(spec: JobSpec, opened: RowTotals, released: Aggregate) -> FloatArray:
    """Return the leading eigenvectors as rows, restricted to the columns that ``sparsity`` keeps."""
    sparsity = MatrixOptions.of(spec).sparsity
    if sparsity is None:
        return leading_rows(matrix_of(released, spec.schema.dimension), spec.components)
    symmetric = _symmetrised(spec, opened, released)
    return sparse_or_dense(symmetric, spec.components, None if sparsity == AUTO else sparsity)[0].T


def _symmetrised(spec: JobSpec, opened: RowTotals, released: Aggregate) -> ReleasedMatrix:
    """Return the symmetric matrix with its noise off the diagonal. Averaging the two halves reduces the noise."""
    averaged = math.sqrt(2) if released.values.ndim > 1 else 1.0
    matrix = matrix_of(released, spec.schema.dimension)
    return ReleasedMatrix(matrix, released.noise_std / averaged, at_least_one(opened.rows), released.parties)


def release(spec: JobSpec, query: type[Covariance | CovarianceTriangle]) -> PlannedQuery:
    """Plan the one release, for all of the budget that the opening leaves."""
    dimension = spec.schema.dimension
    check(
        dimension <= MAX_MATRIX_COLUMNS,
        f"{spec.method} releases a matrix of {dimension} by {dimension} numbers at once.",
        f"Use it for at most {MAX_MATRIX_COLUMNS} columns. For more, use auto, dps-pca or noisy-power.",
    )
    taken = shares(spec)
    return PlannedQuery("covariance", query, Extent(dimension), taken["rest"] + taken[EXPLAINING])


def classical_std(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return the standard deviation of the classical Gaussian mechanism, for this query's share of (epsilon, delta).

    It is D sqrt(2 ln(1.25/delta))/eps for sensitivity D, by Dwork & Roth (2014), Theorem A.1, which is proved for
    epsilon up to one. Published accounting uses it for queries that the paper has no formula for.
    """
    epsilon, delta = spec.budget.epsilon * planned.share, spec.budget.delta * planned.share
    return planned.query.sensitivity_of(spec.unit, planned.extent) * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def matrix_of(released: Aggregate, dimension: int) -> FloatArray:
    """Return the released numbers as a symmetric matrix."""
    if released.values.ndim > 1:
        return (released.values + released.values.T) / 2
    matrix = np.zeros((dimension, dimension))
    matrix[np.triu_indices(dimension)] = released.values
    return matrix + np.triu(matrix, 1).T


def model_of(
    spec: JobSpec, statement: PrivacyStatement, opened: RowTotals, released: Aggregate, components: FloatArray
) -> Model:
    """Return the model, with the variance that each component explains in the released matrix.

    The total is the trace of that matrix, which is noisy as well.
    """
    symmetric = _symmetrised(spec, opened, released)
    model = Model(fix_signs(components), statement, mean=opened.center, feature_names=spec.schema.names)
    if not spec.explained_variance or opened.rows is None or opened.rows.parties != released.parties:
        return model
    variances = np.einsum("kd,de,ke->k", components, symmetric.matrix, components)
    count = at_least_one(opened.rows)
    widest = 1.0 if released.values.ndim > 1 else math.sqrt(2)
    return with_variances(
        model, variances / count, float(np.trace(symmetric.matrix)) / count, widest * released.noise_std / count
    )


def with_known_noise(
    spec: JobSpec, model: Model, opened: RowTotals, released: Aggregate, components: FloatArray
) -> Model:
    """Add the noise of each loading, and correct the variances for the increase that noise causes.

    Both formulas hold for the noise of the Gaussian orthogonal ensemble, so this is for squares, not for triangles.
    """
    symmetric = _symmetrised(spec, opened, released)
    noise = matrix_noise(symmetric, components.T)
    model = replace(model, loading_std=np.ascontiguousarray(noise.loading_std.T))
    if model.explained_variance is None or model.explained_variance_std is None:
        return model
    count = at_least_one(opened.rows)
    return with_variances(
        model, noise.values / count, float(np.trace(symmetric.matrix)) / count, model.explained_variance_std
    )


def leading_rows(matrix: FloatArray, components: int) -> FloatArray:
    """Return the eigenvectors of the largest eigenvalues as rows, the largest first."""
    return leading(matrix, components)[0].T
