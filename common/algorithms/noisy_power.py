"""The private power method (Hardt & Price, "The Noisy Power Method", NIPS 2014, Figures 1 and 3), of rows or a matrix.

Each of L rounds sends an orthonormal basis X of p >= k columns and receives Y = A X + G. The thin QR of Y is the next
X. The privacy unit says what A is: X^T X for rows, or for ``entry`` and ``spectral`` a symmetric matrix of which every
provider holds an additive share.

Privacy. Every round is a release. Its noise follows from the sensitivity of its query (``CovarianceProduct``,
``SymmetricProduct``, ``SpectralProduct``) and from its share of the budget. For the unit ``entry``, the noise follows
the basis: if the basis has no large entries, there is far less noise at the same price. This makes the error on
incoherent matrices independent of the dimension (Theorem 1.4). X was computed from released numbers, so using it costs
nothing. ``noise="laplace"`` promises (epsilon, 0). Delta then pays only for the difference between the sampler's noise
and the ideal, 2^-160 per draw, and may be as small as 1e-30. Less than needed is refused.

Departures from the paper:

- Exact accounting uses the sharp sensitivity: the two longest rows of the basis, not sqrt(2p) times its largest entry.
  With ``accounting="published"`` the noise is the paper's: sigma = sqrt(4 p L ln(1/delta)) / epsilon for ``spectral``,
  and that times the largest entry of the basis for ``entry``. Laplace noise, which the paper has for ``spectral`` only,
  has the scale 10 p L sqrt(d) / epsilon; with exact accounting it is p L sqrt(d) / epsilon. Rows have no published
  noise.
- The paper returns p columns; a model has k. They are the leading left singular vectors of the last product Y, to which
  one more step would rotate the basis X. A Rayleigh-Ritz step with Y X^T, which equals A on the span of X, rotates them
  to their axes and gives their signed eigenvalues, with the noise of a single entry. All of this is free.
- ``low_rank`` asks for one more product with the last basis X (section 4.1); B = X (A X + G)^T is the paper's
  approximation. The model holds its symmetric part on the span of X: components c_i and eigenvalues l_i from a
  Rayleigh-Ritz step, which is free. So the sum of l_i c_i c_i^T is the best approximation of rank k in that span.
- For rows, the mean and the explained variance are asked as in ``dps-pca``, and ``low_rank`` is refused.
- With ``sparsity``, rows of the last product that do not stand out are left out (``pruned_product``), for free.
- The number of rounds follows from the budget unless it is given. In the paper it depends on the eigenvalues.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, choice
from dpspca.common.job import Accounting, JobSpec
from dpspca.common.linalg import thin_qr
from dpspca.common.plan import Noise, Plan, PlannedQuery, PublishedNoise, QuerySeries, Step, price
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import Extent, RowSparse
from dpspca.common.results import Model, PrivacyStatement

from .steps import (
    Auto,
    ask_closing,
    ask_open,
    ask_product,
    check_data,
    closing,
    described,
    given_columns,
    given_rounds,
    given_sparsity,
    known_options,
    last_product,
    left_vectors,
    matrix_model,
    open_rows,
    product_query,
    random_start,
    share_of_products,
    usual_rounds,
)


@dataclass(frozen=True, slots=True)
class NoisyPowerOptions:
    """The options of this method as given. ``columns_of`` and ``rounds_of`` choose those that are missing."""

    columns: int | None = field(
        default=None, metadata=described("Number of columns of the basis. Default: twice the number of components.")
    )
    rounds: int | None = field(default=None, metadata=described("Number of rounds. Default: by the budget."))
    noise: Noise = field(
        default=Noise.GAUSSIAN, metadata=described("Distribution of the noise. Laplace noise promises (epsilon, 0).")
    )
    low_rank: bool = field(
        default=False, metadata=described("Ask for one more product, for a low-rank approximation of a matrix.")
    )
    sparsity: int | Auto | None = field(
        default=None,
        metadata=described(
            "Largest number of columns that may take part, for all components together, or auto: keep the columns that "
            "stand out of the last product. This costs nothing. Default: all columns take part."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        columns, rounds = given_columns(spec), given_rounds(spec)
        low_rank = given.get("low_rank", False)
        check(isinstance(low_rank, bool), f"low_rank is {low_rank!r}.", "Give true or false.")
        check(
            not (low_rank and spec.unit.is_row),
            f"low_rank approximates a symmetric matrix, but the unit {spec.unit} is for rows.",
            "Leave low_rank out, and ask for the explained variance.",
        )
        sparsity = given_sparsity(spec)
        check(
            sparsity is None or spec.unit.is_row,
            f"noisy-power finds sparse components of rows only, but the unit {spec.unit} is for a symmetric matrix.",
            "Leave sparsity out.",
        )
        noise = choice(Noise, "noise", given.get("noise", Noise.GAUSSIAN))
        return cls(columns, rounds, noise, bool(low_rank), sparsity)


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries of a job, with their noise and prices."""
    noise = NoisyPowerOptions.of(spec).noise
    last = closing(spec, spec.schema.dimension, noise) if spec.unit.is_row else []
    return price(spec, [*open_rows(spec, noise), _products(spec), *last], _published_for(spec))


def run(plan: Plan) -> Algorithm:
    """Run the power loop, and make a model of its last product."""
    spec = plan.spec
    options = NoisyPowerOptions.of(spec)
    opened = yield from ask_open(spec)
    basis = random_start(spec, columns_of(spec))
    rounds = rounds_of(spec)
    for number in range(1, rounds + 1):
        product = yield from ask_product(spec, basis, opened, _largest(spec, basis))
        if number < rounds:
            basis, _ = thin_qr(product.values)
    if options.low_rank:
        basis, _ = thin_qr(product.values)
        product = yield from ask_product(spec, basis, opened, _largest(spec, basis))
    statement = PrivacyStatement.of(plan, parties=product.parties)
    components, eigenvalues = (
        _ritz(basis, basis.T @ product.values, spec.components)
        if options.low_rank
        else _turned(basis, last_product(product, spec.components, options.sparsity), spec.components)
    )
    if not spec.unit.is_row:
        return matrix_model(spec, statement, components, eigenvalues, product.noise_std)
    model = Model(components, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(np.ascontiguousarray(components.T)), opened, model))


def columns_of(spec: JobSpec) -> int:
    """Choose the number of columns of a basis. With twice the components, the paper's bound has its better constant."""
    given = NoisyPowerOptions.of(spec).columns
    columns = min(2 * spec.components, spec.schema.dimension) if given is None else given
    check_data(spec, columns)
    return columns


def rounds_of(spec: JobSpec) -> int:
    """Choose the number of rounds from the budget alone, never from the data."""
    options = NoisyPowerOptions.of(spec)
    return usual_rounds(spec, options.noise) if options.rounds is None else options.rounds


def _products(spec: JobSpec) -> QuerySeries:
    dimension, columns, rounds, options = (
        spec.schema.dimension,
        columns_of(spec),
        rounds_of(spec),
        NoisyPowerOptions.of(spec),
    )
    asked = rounds + options.low_rank
    query = product_query(spec, capped=spec.accounting is Accounting.PUBLISHED)
    extent, share = Extent(dimension, columns, dimension), share_of_products(spec)
    return QuerySeries(
        PlannedQuery("product", query, extent, share, asked, options.noise),
        asked,
        lambda number: f"round {number} of {rounds}" if number <= rounds else "approximation of low rank",
        f"rounds ({rounds})",
    )


def _published_for(spec: JobSpec) -> PublishedNoise | None:
    """Return the paper's formula, or None if it has none for the job's unit and noise."""
    laplace = NoisyPowerOptions.of(spec).noise is Noise.LAPLACE
    if spec.unit.is_row or (laplace and spec.unit is not PrivacyUnit.SPECTRAL):
        return None
    return _published_scale if laplace else _published_std


def _published_std(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return sigma of Figure 3 for a basis whose largest entry is 1. Queries with smaller entries scale it down."""
    columns, rounds = planned.extent.columns, planned.times
    return math.sqrt(4 * columns * rounds * math.log(1 / spec.budget.delta)) / spec.budget.epsilon


def _published_scale(spec: JobSpec, planned: PlannedQuery) -> float:
    """Return the scale of Lemma 4.5."""
    extent = planned.extent
    return 10 * extent.columns * planned.times * math.sqrt(extent.dimension) / spec.budget.epsilon


def _largest(spec: JobSpec, basis: FloatArray) -> float | None:
    """Return a bound on the entries of the basis if the published noise depends on it, or None."""
    if spec.unit is PrivacyUnit.ENTRY and spec.accounting is Accounting.PUBLISHED:
        return min(1.0, float(np.abs(basis).max()))
    return None


def _turned(basis: FloatArray, product: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Return the leading left singular vectors U of Y, as rows, rotated by a Rayleigh-Ritz step with Y X^T.

    If X spans the eigenvectors, Y X^T equals A on them. Singular vectors alone are not enough: for eigenvalues of equal
    size and opposite signs, as those of a dilation, they are arbitrary mixtures.
    """
    leading = left_vectors(product, components)
    return _ritz(leading, leading.T @ product @ (basis.T @ leading), components)


def _ritz(span: FloatArray, square: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Diagonalise the symmetric part of ``square``, and keep the eigenvalues of largest absolute value."""
    values, axes = np.linalg.eigh((square + square.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")[:components]
    return (span @ axes[:, order]).T, values[order]
