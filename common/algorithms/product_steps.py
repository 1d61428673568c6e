"""Power loops over whatever can be multiplied: rows, of which A = X^T X, or shares of a symmetric matrix.

What the unit of a job protects says which of the two its data are, and so which query a step of a loop is. Over a
matrix there is no mean, no number of rows, and nothing but products to be asked.
"""

import math
from collections.abc import Generator
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.model import Model, fix_signs
from dpspca.common.plan import Noise, PlannedQuery
from dpspca.common.privacy import PrivacyUnit, usable_mu
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import CappedProduct, CovarianceProduct, RowQuery, SpectralProduct, SymmetricProduct
from dpspca.common.spec import MAX_COMPONENT_ENTRIES, Centering, JobSpec
from dpspca.common.statement import PrivacyStatement

from .row_steps import RowTotals, ask_opening, opening, shares

FEWEST_ROUNDS: Final = 5
MOST_ROUNDS: Final = 40


def product_query(spec: JobSpec, *, capped: bool = False) -> type[RowQuery]:
    """Choose the query of a step; ``capped`` where noise is to follow a bound on the basis's entries."""
    if spec.unit.is_row:
        return CovarianceProduct
    if spec.unit is PrivacyUnit.SPECTRAL:
        return SpectralProduct
    return CappedProduct if capped else SymmetricProduct


def ask_product(
    spec: JobSpec, basis: FloatArray, opened: RowTotals, largest: float | None = None
) -> Generator[RowQuery, Aggregate, Aggregate]:
    """Ask for A times a basis."""
    if spec.unit.is_row:
        return (yield CovarianceProduct(basis, opened.center))
    if spec.unit is PrivacyUnit.SPECTRAL:
        return (yield SpectralProduct(basis))
    return (yield SymmetricProduct(basis) if largest is None else CappedProduct(basis, largest=largest))


def check_data(spec: JobSpec, columns: int) -> None:
    """Refuse what a matrix does not have, and answers that are too large."""
    check(
        spec.unit.is_row or spec.centering is Centering.NONE,
        f"A job with the unit {spec.unit} is over a matrix, which has no rows to take a mean off.",
        "Leave centring out.",
    )
    check(
        columns * spec.schema.dimension <= MAX_COMPONENT_ENTRIES,
        f"{columns} columns of {spec.schema.dimension} numbers are more than {MAX_COMPONENT_ENTRIES} numbers.",
        "Take fewer columns.",
    )


def open_rows(spec: JobSpec, noise: Noise = Noise.GAUSSIAN) -> list[PlannedQuery]:
    """Plan what has to be known of rows; of a matrix, nothing."""
    return opening(spec, noise) if spec.unit.is_row else []


def ask_open(spec: JobSpec) -> Generator[RowQuery, Aggregate, RowTotals]:
    """Ask what ``open_rows`` planned."""
    if spec.unit.is_row:
        return (yield from ask_opening(spec))
    return RowTotals(None, None)


def share_of_products(spec: JobSpec) -> float:
    """Say what part of the budget products may cost, all together."""
    return shares(spec)["rest"] if spec.unit.is_row else 1.0


def usual_rounds(spec: JobSpec, noise: Noise = Noise.GAUSSIAN) -> int:
    """Choose the number of rounds from the budget alone, as ``dps_pca.rounds_of`` does.

    Laplace noise grows with the number of rounds itself, not with its root: so fewer are better.
    """
    if noise is Noise.LAPLACE:
        return round(min(10.0, max(3.0, 2 * math.sqrt(spec.budget.epsilon))))
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta)
    return round(min(MOST_ROUNDS, max(FEWEST_ROUNDS, 7 * math.sqrt(mu))))


def matrix_model(
    spec: JobSpec, statement: PrivacyStatement, components: FloatArray, eigenvalues: FloatArray, noise_std: float
) -> Model:
    """Make a model of eigenvectors, as rows, and eigenvalues; these say by what a matrix stretches, not a variance."""
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
