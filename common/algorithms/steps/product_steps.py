"""Common steps of power loops, both over rows (A = X^T X) and over providers' shares of a symmetric matrix A.

The privacy unit of the job says which of the two its data are, and so which query multiplies A by a basis. For a matrix
there is no mean and no number of rows: all queries are products.
"""

import math
from collections.abc import Generator
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.job import MAX_COMPONENT_ENTRIES, Centering, JobSpec
from dpspca.common.plan import Noise, PlannedQuery
from dpspca.common.privacy import PrivacyUnit, usable_mu
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import CappedProduct, CovarianceProduct, RowQuery, SpectralProduct, SymmetricProduct
from dpspca.common.results import Model, PrivacyStatement, fix_signs

from .row_steps import RowTotals, ask_opening, opening, shares

FEWEST_ROUNDS: Final = 5
MOST_ROUNDS: Final = 40


def product_query(spec: JobSpec, *, capped: bool = False) -> type[RowQuery]:
    """Choose the query of a round. ``capped`` scales the noise by a bound on the entries of the basis."""
    if spec.unit.is_row:
        return CovarianceProduct
    if spec.unit is PrivacyUnit.SPECTRAL:
        return SpectralProduct
    return CappedProduct if capped else SymmetricProduct


def ask_product(
    spec: JobSpec, basis: FloatArray, opened: RowTotals, largest: float | None = None
) -> Generator[RowQuery, Aggregate, Aggregate]:
    """Ask for A times a basis. ``largest`` bounds the entries of the basis, if the noise depends on it."""
    if spec.unit.is_row:
        return (yield CovarianceProduct(basis, opened.center))
    if spec.unit is PrivacyUnit.SPECTRAL:
        return (yield SpectralProduct(basis))
    return (yield SymmetricProduct(basis) if largest is None else CappedProduct(basis, largest=largest))


def check_data(spec: JobSpec, columns: int) -> None:
    """Refuse centring for a matrix, and answers that are too large."""
    check(
        spec.unit.is_row or spec.centering is Centering.NONE,
        f"The unit {spec.unit} is for a symmetric matrix, which cannot be centred, but centering is {spec.centering}.",
        f"Use the centering {Centering.NONE}.",
    )
    check(
        columns * spec.schema.dimension <= MAX_COMPONENT_ENTRIES,
        f"A basis of {columns} columns of {spec.schema.dimension} numbers has more than {MAX_COMPONENT_ENTRIES} "
        "numbers.",
        "Ask for fewer columns or components.",
    )


def open_rows(spec: JobSpec, noise: Noise = Noise.GAUSSIAN) -> list[PlannedQuery]:
    """Plan the opening queries about rows. A matrix has none."""
    return opening(spec, noise) if spec.unit.is_row else []


def ask_open(spec: JobSpec) -> Generator[RowQuery, Aggregate, RowTotals]:
    """Ask the queries that ``open_rows`` planned."""
    if spec.unit.is_row:
        return (yield from ask_opening(spec))
    return RowTotals(None, None)


def share_of_products(spec: JobSpec) -> float:
    """Return the share of the budget that all products together may cost."""
    return shares(spec)["rest"] if spec.unit.is_row else 1.0


def usual_rounds(spec: JobSpec, noise: Noise = Noise.GAUSSIAN) -> int:
    """Choose the number of rounds from the budget alone, as ``dps_pca.rounds_of`` does.

    Laplace noise grows in proportion to the number of rounds, not to its square root, so fewer rounds are better.
    """
    if noise is Noise.LAPLACE:
        return round(min(10.0, max(3.0, 2 * math.sqrt(spec.budget.epsilon))))
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta)
    return round(min(MOST_ROUNDS, max(FEWEST_ROUNDS, 7 * math.sqrt(mu))))


def matrix_model(
    spec: JobSpec, statement: PrivacyStatement, components: FloatArray, eigenvalues: FloatArray, noise_std: float
) -> Model:
    """Return the model of a symmetric matrix: eigenvectors, as rows, with eigenvalues in place of variances."""
    model = Model(fix_signs(components), statement, feature_names=spec.schema.names)
    if not spec.explained_variance:
        return model
    return Model(
        model.components,
        statement,
        explained_variance=np.ascontiguousarray(eigenvalues),
        explained_variance_std=noise_std,
        feature_names=spec.schema.names,
    )
