"""The private power method (Hardt & Price, "The Noisy Power Method", NIPS 2014, Figures 1 and 3), of rows or a matrix.

Each of L rounds sends an orthonormal basis X of p >= k columns, receives Y = A X + G, and goes on with X = thin QR of
Y. The unit of privacy says what A is: for rows A = X^T X; for ``entry`` and ``spectral`` a symmetric matrix of which
every provider holds an additive share.

Privacy. Every round is a release whose noise follows from the sensitivity of its query (``CovarianceProduct``,
``SymmetricProduct``, ``SpectralProduct``) and its share of the budget. For the unit ``entry`` noise is fitted to the
basis that is asked about: with a basis without large entries the same price buys far less noise, which is what makes
the error on incoherent matrices free of the dimension (Theorem 1.4). X was released, so using it costs nothing.
``noise="laplace"`` promises (epsilon, 0): delta then pays for nothing but the distance of the sampler's noise from the
ideal, 2^-160 a draw, and may be as small as 1e-30; a smaller one than that needs is refused.

Where it departs from the paper:

- Exact accounting, with the sharp sensitivity: the two largest rows of the basis, not sqrt(2p) times its largest entry.
  With ``accounting="published"`` noise is the paper's: sigma = sqrt(4 p L ln(1/delta)) / epsilon, times the largest
  entry for the unit ``entry`` and times nothing for ``spectral``; Laplace noise, stated for ``spectral`` alone, has the
  scale 10 p L sqrt(d) / epsilon, where exact accounting has p L sqrt(d) / epsilon. Rows have none.
- The paper returns p columns, of which k are a model's. They span the leading left singular vectors of the last
  product Y: what one more step would turn the basis X to. A Rayleigh-Ritz step with Y X^T, which is A wherever X is,
  turns them to their axes and says their eigenvalues, signed, with the noise of a single entry. All that is free.
- ``low_rank`` asks for one more product of the last basis X (section 4.1), of which B = X (A X + G)^T is the paper's
  approximation. The model holds its symmetric part on the span of X: components c_i and eigenvalues l_i by a
  Rayleigh-Ritz step, which is free, so that sum l_i c_i c_i^T is the best approximation of rank k within it.
- Over rows, the mean and what the components explain are asked as ``dps-pca`` does, and ``low_rank`` is refused.
- The number of rounds follows from the budget unless it is given; the paper's depends on the eigenvalues.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, choice
from dpspca.common.linalg import thin_qr
from dpspca.common.model import Model
from dpspca.common.plan import Noise, Plan, PlannedQuery, PublishedNoise, QuerySeries, Step, price
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import Extent, RowSparse
from dpspca.common.spec import Accounting, JobSpec
from dpspca.common.statement import PrivacyStatement

from .options import described
from .product_steps import (
    ask_open,
    ask_product,
    check_data,
    matrix_model,
    open_rows,
    product_query,
    share_of_products,
    usual_rounds,
)
from .row_steps import ask_closing, closing, given_columns, given_rounds, known_options, random_start


@dataclass(frozen=True, slots=True)
class NoisyPowerOptions:
    """What only this algorithm knows, as it was given; ``columns_of`` and ``rounds_of`` decide what was left out."""

    columns: int | None = field(
        default=None, metadata=described("Number of columns of the basis. Default: twice the number of components.")
    )
    rounds: int | None = field(default=None, metadata=described("Number of rounds. Default: by the budget."))
    noise: Noise = field(
        default=Noise.GAUSSIAN, metadata=described("Law of the noise. Laplace noise promises (epsilon, 0).")
    )
    low_rank: bool = field(
        default=False, metadata=described("Query one more product, for a low-rank approximation of a matrix.")
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        columns, rounds = given_columns(spec), given_rounds(spec)
        low_rank = given.get("low_rank", False)
        check(isinstance(low_rank, bool), f"low_rank is {low_rank!r}, neither true nor false.", "Give one of these.")
        check(
            not (low_rank and spec.unit.is_row),
            "low_rank approximates a symmetric matrix; this job is over rows.",
            "Leave it out, and ask for the explained variance.",
        )
        return cls(columns, rounds, choice(Noise, "the noise", given.get("noise", Noise.GAUSSIAN)), bool(low_rank))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query this job will ask, its noise and its price."""
    noise = NoisyPowerOptions.of(spec).noise
    last = closing(spec, spec.schema.dimension, noise) if spec.unit.is_row else []
    return price(spec, [*open_rows(spec, noise), _products(spec), *last], _published_for(spec))


def run(plan: Plan) -> Algorithm:
    """Turn the power loop, and make a model of its last product."""
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
        else _turned(basis, product.values, spec.components)
    )
    if not spec.unit.is_row:
        return matrix_model(spec, statement, components, eigenvalues, product.noise_std)
    model = Model(components, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(np.ascontiguousarray(components.T)), opened, model))


def columns_of(spec: JobSpec) -> int:
    """Choose how many columns a basis has: of twice the components, the paper's bound has its better constant."""
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
    """Give the paper's formula, where it has one for the job's unit and noise."""
    laplace = NoisyPowerOptions.of(spec).noise is Noise.LAPLACE
    if spec.unit.is_row or (laplace and spec.unit is not PrivacyUnit.SPECTRAL):
        return None
    return _published_scale if laplace else _published_std


def _published_std(spec: JobSpec, planned: PlannedQuery) -> float:
    """Give sigma of Figure 3, for a basis whose largest entry is 1; a query with smaller ones takes noise in."""
    columns, rounds = planned.extent.columns, planned.times
    return math.sqrt(4 * columns * rounds * math.log(1 / spec.budget.delta)) / spec.budget.epsilon


def _published_scale(spec: JobSpec, planned: PlannedQuery) -> float:
    """Give the scale of Lemma 4.5."""
    extent = planned.extent
    return 10 * extent.columns * planned.times * math.sqrt(extent.dimension) / spec.budget.epsilon


def _largest(spec: JobSpec, basis: FloatArray) -> float | None:
    """Bound the basis's entries where the published noise follows them."""
    if spec.unit is PrivacyUnit.ENTRY and spec.accounting is Accounting.PUBLISHED:
        return min(1.0, float(np.abs(basis).max()))
    return None


def _turned(basis: FloatArray, product: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Take the leading left singular vectors U of Y, as rows, turned to the axes of what Y X^T does to them.

    Where X holds the eigenvectors Y X^T is A on them, and its part on U a Rayleigh-Ritz step. Of eigenvalues of one
    size and two signs, as a dilation has, singular vectors alone are any mixture.
    """
    vectors, _, _ = np.linalg.svd(product, full_matrices=False)
    leading = vectors[:, :components]
    return _ritz(leading, leading.T @ product @ (basis.T @ leading), components)


def _ritz(span: FloatArray, square: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Diagonalise the symmetric part of a square, and keep the eigenvalues that are largest in size."""
    values, axes = np.linalg.eigh((square + square.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")[:components]
    return (span @ axes[:, order]).T, values[order]
