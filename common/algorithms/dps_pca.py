"""DPS-PCA: the truncated noisy power loop of Ge, Wang, Wang & Liu (AISTATS 2018), Algorithm 1.

Each round sends the basis Q, receives K = A Q + noise, and keeps V = thin QR of K, cut to its ``sparsity`` rows of
largest norm and made orthonormal again.

Where it departs from the paper (``start="published"`` with published accounting is the paper's own):

- The start is dense and is first cut after the first product. A random start cut to ``sparsity`` rows usually misses
  the support, and a power loop hardly ever finds a row of the support from a basis that is zero there.
- Noise is calibrated by exact Gaussian accounting with the sharp sensitivity of A Q, not by T-fold basic composition.
- Every provider draws noise of its own; the paper's listing draws one matrix outside the loop over providers.
- The number of rounds follows from the budget unless it is given.
- One more answer at the end, V^T A V and the rest of the trace, turns the basis to the principal axes and says what
  they explain.
"""

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole, choice
from dpspca.common.linalg import largest_rows, thin_qr
from dpspca.common.model import Model
from dpspca.common.plan import Plan, PlannedQueries, PlannedQuery, QuerySeries, Step, price, theorem_4_1
from dpspca.common.privacy import usable_mu
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import CovarianceProduct, Extent, RowSparse
from dpspca.common.spec import JobSpec
from dpspca.common.statement import PrivacyStatement

from .options import described
from .row_steps import ask_closing, ask_opening, closing, given_rounds, known_options, opening, shares


class Start(StrEnum):
    """The basis that the first round multiplies."""

    DENSE = "dense"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class DpsPcaOptions:
    """What only this algorithm knows. ``rounds=None`` lets the budget decide."""

    sparsity: int = field(
        metadata=described(
            "Number of columns that may take part, for all components together. At most the number of columns."
        )
    )
    rounds: int | None = field(default=None, metadata=described("Number of rounds. Default: by the budget."))
    start: Start = field(
        default=Start.DENSE,
        metadata=described(
            "Start from all columns (dense) or, as in the paper, from as many random columns as sparsity says "
            "(published)."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        check(
            "sparsity" in given,
            "sparsity is not set.",
            "Set it to the number of columns that may take part, for all components together.",
        )
        name = "sparsity (from the number of components to that of columns)"
        kept = check_whole(name, given["sparsity"], least=spec.components, most=spec.schema.dimension)
        start = choice(Start, "the start", given.get("start", Start.DENSE))
        return cls(kept, given_rounds(spec), start)


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query this job will ask, its noise and its price."""
    options = DpsPcaOptions.of(spec)
    return price(spec, [*opening(spec), *_rounds(spec, options), *closing(spec, options.sparsity)], theorem_4_1)


def run(plan: Plan) -> Algorithm:
    """Ask for the mean if it is wanted, turn the power loop, ask what was explained."""
    spec = plan.spec
    options = DpsPcaOptions.of(spec)
    opened = yield from ask_opening(spec)
    basis = _start(spec, options)
    parties = 1
    for _ in range(rounds_of(spec)):
        product = yield CovarianceProduct(basis, opened.center)
        parties = product.parties
        basis = _orthonormal(product.values, options.sparsity)
    statement = PrivacyStatement.of(plan, parties=parties)
    model = Model(basis.dense().T, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, basis, opened, model))


def rounds_of(spec: JobSpec) -> int:
    """Choose the number of rounds from the budget alone, never from the data.

    A further round shrinks what the start left behind, by the ratio of the eigenvalues, and divides the budget by one
    more. ``bench/rounds.py`` shows the trade: at small budgets five rounds are near the best, larger ones afford
    more. Data whose leading eigenvalues hardly stand out need more rounds than this; then set them.
    """
    given = DpsPcaOptions.of(spec).rounds
    if given is not None:
        return given
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta)
    return round(min(40, max(5, 7 * math.sqrt(mu))))


def _rounds(spec: JobSpec, options: DpsPcaOptions) -> PlannedQueries:
    rounds, share = rounds_of(spec), shares(spec)["rest"]

    def asked(about: int) -> PlannedQuery:
        extent = Extent(spec.schema.dimension, spec.components, about)
        return PlannedQuery(f"round 1 of {rounds}", CovarianceProduct, extent, share, rounds)

    first = asked(spec.schema.dimension if options.start is Start.DENSE else options.sparsity)
    later = QuerySeries(
        asked(options.sparsity), rounds - 1, lambda number: f"round {number + 1} of {rounds}", f"rounds ({rounds})"
    )
    return [first, later]


def _start(spec: JobSpec, options: DpsPcaOptions) -> RowSparse:
    """Draw the start from the spec's seed: public, and the same for whoever replays the job."""
    generator = np.random.Generator(np.random.Philox(key=spec.seed))
    dense = generator.standard_normal((spec.schema.dimension, spec.components))
    if options.start is Start.DENSE:
        return RowSparse.of(thin_qr(dense)[0])
    return _truncated(dense, options.sparsity)


def _orthonormal(product: FloatArray, sparsity: int) -> RowSparse:
    """Take one step of the power loop: orthonormalise, then keep the largest rows of the result."""
    direction, _ = thin_qr(product, overwrite=True)
    return RowSparse.of(direction) if sparsity >= len(direction) else _truncated(direction, sparsity)


def _truncated(matrix: FloatArray, sparsity: int) -> RowSparse:
    """Orthonormalise what is left of a matrix when only its largest rows are kept.

    The factorisation sees the kept rows alone, so that rounding cannot make the others other than zero.
    """
    kept = largest_rows(matrix, sparsity)
    return RowSparse(len(matrix), kept, thin_qr(matrix[kept])[0]).without_zeros()
