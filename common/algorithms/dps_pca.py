"""DPS-PCA: the truncated noisy power loop of Ge, Wang, Wang & Liu (AISTATS 2018), Algorithm 1.

Each round sends the basis Q, receives K = A Q + noise, orthonormalises K by thin QR, keeps its ``sparsity`` rows of
largest norm and orthonormalises again.

Departures from the paper (``start="published"`` with published accounting is the paper's own way):

- The start is dense; rows are first dropped after the first product. A random start with only ``sparsity`` rows usually
  misses the support, and a power loop hardly ever finds a row of the support if the basis is zero there.
- Noise is calibrated by exact Gaussian accounting with the sharp sensitivity of A Q, not by T-fold basic composition.
- Every provider draws its own noise. The paper's listing draws one matrix outside the loop over providers.
- The number of rounds follows from the budget unless it is given.
- With ``loop="improved"`` all rounds are used for the result, and the end is a release (``improved_loop``). With
  ``sparsity="auto"``, which implies it, the release alone decides how many columns take part.
- One more answer at the end, V^T A V and the rest of the trace, serves to rotate the basis to the principal axes and to
  compute the explained variance.
"""

import math
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, choice
from dpspca.common.job import Accounting, JobSpec
from dpspca.common.linalg import largest_rows, thin_qr
from dpspca.common.plan import EXPLAINING, Plan, PlannedQueries, PlannedQuery, QuerySeries, Step, price, theorem_4_1
from dpspca.common.privacy import usable_mu
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import CovarianceProduct, Extent, RowSparse
from dpspca.common.results import Model, PrivacyStatement

from .improved_loop import MOST_RELEASED, in_rounds, planned_rounds, usual_rounds
from .stages import ReleasedFacts
from .steps import (
    AUTO,
    Auto,
    ask_closing,
    ask_opening,
    at_least_one,
    closing,
    described,
    given_rounds,
    given_sparsity,
    known_options,
    opening,
    shares,
)


class Start(StrEnum):
    """The basis that the first round multiplies."""

    DENSE = "dense"
    PUBLISHED = "published"


class LoopKind(StrEnum):
    """How the rounds are used."""

    PLAIN = "plain"
    IMPROVED = "improved"


@dataclass(frozen=True, slots=True)
class DpsPcaOptions:
    """The options of this method. With ``rounds=None`` the number of rounds follows from the budget."""

    sparsity: int | Auto = field(
        metadata=described(
            "Number of columns that may take part, for all components together, at most the number of columns; or "
            "auto: those that stand out in the last release. With auto, the improved loop is the default."
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
    loop: LoopKind = field(
        default=LoopKind.PLAIN,
        metadata=described(
            "Take the last round's result (plain), or use all rounds, keep fewer rows in each, and end with a release "
            "of the columns that stand out (improved)."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        sparsity = given_sparsity(spec)
        check(
            sparsity is not None,
            "sparsity is not set.",
            "Set it to the number of columns that may take part, for all components together, or to auto.",
        )
        start = choice(Start, "start", given.get("start", Start.DENSE))
        usual = LoopKind.IMPROVED if sparsity == AUTO else LoopKind.PLAIN
        loop = choice(LoopKind, "loop", given.get("loop", usual))
        check(
            sparsity != AUTO or loop is LoopKind.IMPROVED,
            "The plain loop keeps a fixed number of columns, but sparsity is auto.",
            "Set sparsity to a number of columns, or use the improved loop.",
        )
        check(
            loop is LoopKind.PLAIN or (start is Start.DENSE and spec.accounting is Accounting.EXACT),
            "The improved loop has neither the paper's start nor its noise.",
            "Leave the start out and use exact accounting, or use the plain loop with a number as sparsity.",
        )
        return cls(sparsity or AUTO, given_rounds(spec), start, loop)

    def most(self, dimension: int) -> int:
        """Return how many of all columns may take part."""
        return min(dimension, MOST_RELEASED) if self.sparsity == AUTO else self.sparsity


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries of a job, with their noise and prices."""
    options = DpsPcaOptions.of(spec)
    most = options.most(spec.schema.dimension)
    if options.loop is LoopKind.IMPROVED:
        counted = _counted(spec)
        end = closing(spec, most)
        free = shares(counted)["rest"] + (0.0 if end else shares(counted)[EXPLAINING])
        loop = planned_rounds(spec, most, rounds_of(spec), free)
        return price(spec, [*opening(counted), *loop, *end])
    return price(spec, [*opening(spec), *_rounds(spec, options), *closing(spec, most)], theorem_4_1)


def run(plan: Plan) -> Algorithm:
    """Ask for the mean if needed, run the power loop, and ask for the explained variance."""
    spec = plan.spec
    options = DpsPcaOptions.of(spec)
    if options.loop is LoopKind.IMPROVED:
        return (yield from _run_improved(plan, options))
    opened = yield from ask_opening(spec)
    most, basis = options.most(spec.schema.dimension), _start(spec, options)
    parties = 1
    for _ in range(rounds_of(spec)):
        product = yield CovarianceProduct(basis, opened.center)
        parties = product.parties
        basis = _orthonormal(product.values, most)
    statement = PrivacyStatement.of(plan, parties=parties)
    model = Model(basis.dense().T, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, basis, opened, model))


def _run_improved(plan: Plan, options: DpsPcaOptions) -> Algorithm:
    spec = plan.spec
    opened = yield from ask_opening(_counted(spec))
    most = options.most(spec.schema.dimension)
    facts = ReleasedFacts(spec, opened.center, at_least_one(opened.rows), None if options.sparsity == AUTO else most)
    found = yield from in_rounds(facts, most, rounds_of(spec))
    basis = RowSparse.of(np.ascontiguousarray(found.components))
    statement = PrivacyStatement.of(plan, parties=found.parties)
    model = Model(basis.dense().T, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, basis, opened, model))


def _counted(spec: JobSpec) -> JobSpec:
    """Ask for the number of rows, which decides where rows are clipped."""
    return replace(spec, explained_variance=True)


def rounds_of(spec: JobSpec) -> int:
    """Choose the number of rounds from the budget alone, never from the data.

    A further round reduces the error of the start by the ratio of the eigenvalues, but leaves less budget for each
    round. ``bench/rounds.py`` shows the trade-off: five rounds are near the best for small budgets, and more are better
    for larger ones. Data with a small gap between eigenvalues need more rounds; then set ``rounds``.
    """
    given = DpsPcaOptions.of(spec).rounds
    if given is not None:
        return given
    if DpsPcaOptions.of(spec).loop is LoopKind.IMPROVED:
        return usual_rounds(DpsPcaOptions.of(spec).most(spec.schema.dimension), spec.schema.dimension)
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta)
    return round(min(40, max(5, 7 * math.sqrt(mu))))


def _rounds(spec: JobSpec, options: DpsPcaOptions) -> PlannedQueries:
    rounds, share = rounds_of(spec), shares(spec)["rest"]

    def asked(about: int) -> PlannedQuery:
        extent = Extent(spec.schema.dimension, spec.components, about)
        return PlannedQuery(f"round 1 of {rounds}", CovarianceProduct, extent, share, rounds)

    most = options.most(spec.schema.dimension)
    first = asked(spec.schema.dimension if options.start is Start.DENSE else most)
    later = QuerySeries(asked(most), rounds - 1, lambda number: f"round {number + 1} of {rounds}", f"rounds ({rounds})")
    return [first, later]


def _start(spec: JobSpec, options: DpsPcaOptions) -> RowSparse:
    """Draw the start from the public seed of the spec, so that a replay gives the same start."""
    generator = np.random.Generator(np.random.Philox(key=spec.seed))
    dense = generator.standard_normal((spec.schema.dimension, spec.components))
    if options.start is Start.DENSE:
        return RowSparse.of(thin_qr(dense)[0])
    return _truncated(dense, options.most(spec.schema.dimension))


def _orthonormal(product: FloatArray, sparsity: int) -> RowSparse:
    """Do one step of the power loop: orthonormalise, then keep the largest rows of the result."""
    direction, _ = thin_qr(product, overwrite=True)
    return RowSparse.of(direction) if sparsity >= len(direction) else _truncated(direction, sparsity)


def _truncated(matrix: FloatArray, sparsity: int) -> RowSparse:
    """Keep only the largest rows of a matrix, and orthonormalise it.

    Only the kept rows are factored, so that the others stay exactly zero.
    """
    kept = largest_rows(matrix, sparsity)
    return RowSparse(len(matrix), kept, thin_qr(matrix[kept])[0]).without_zeros()
