"""Range finder, pruning, projection: PFP of Hardt & Roth (STOC 2012), Section 6, made of their Figures 1 to 3.

The paper is "Beating Randomized Response on Incoherent Matrices".

M has a row for every person. The range finder draws directions Omega (d x p, standard normal, p = components +
oversampling), and W is an orthonormal basis of M Omega + noise. Pruning sets entries of W above ``cut`` to zero. The
projection releases B = W^T M with noise, whose row l is as wide as alpha_l, the largest entry of column l of W: the
smaller W's entries are, the less noise, and that is what low coherence buys. Components are the leading right singular
vectors of B, which are those of W B.

Here rows belong to providers. Each keeps its part of the sketch, Y_i = M_i Omega + noise, at home; the sum of the
Y_i^T Y_i says how to make W of Y without ever seeing it, and only B is summed. The rounds: commit and reveal, by which
all make the same Omega that none could choose; sketch; peaks, twice; projection; then what the components explain.

Privacy, for replacing a row (x by y, v = x - y, ||v|| <= 2C), by the rows of one provider, who trusts nobody else:

- Sketch: Gaussian noise for ||v^T Omega||, which is at most 2C sqrt(t) but for a probability of 2^-100, with t from
  Chernoff's bound for chi-square (``privacy/directions.py``). It needs v to be fixed before Omega is, against every
  coordinator: that is what committing and revealing are for (``provider/evaluate/sketches.py``). The probability is
  charged to delta when the nonce is revealed, and not with the sketch: who broke off until chance failed would pay each
  time.
- What follows from Y is free, W and its peaks included.
- Projection: given Y, a replaced row moves M^T U by v U_j^T, so by 2C times the longest row of U, U being W with its
  columns over alpha. The provider cuts entries and rows of its U itself, whatever it is sent.

A provider that leaves between commitment and projection ends the job, with the reason, which costs what was answered:
without its nonce there is no Omega, and without its rows W is not orthonormal. So does a provider that restarts.

Where it departs from the paper:

- Noise is calibrated by exact Gaussian accounting, half of mu^2 for each release, and the tail of ||v^T Omega|| is that
  of chi-square, where the paper bounds each of the p numbers by itself. The paper's own formulas are not reproduced.
- The paper's neighbours differ by a row of norm one, however long rows are; here by any row within the bound.
- Omega's entries are discrete Gaussian integers, the same at every provider; the tail's bound holds for these as they
  are. Y is kept on a grid.
- W comes from the eigenvectors of Y^T Y instead of Gram-Schmidt: the same span; directions without length are left out.
- Entries are measured after pruning, and the longest row of U as well: it is never above the sqrt(p) that the paper
  pays for. Without ``cut`` nothing is pruned, as in the paper's Theorem 6.3.
- The paper returns W B, whose rows belong to people; a model has the k leading directions of its row space.
- Sums of squares of B are larger than those of M's components by the noise in it: one more answer, V^T A V, says what
  components explain and turns them to their axes.

What to expect: a row of M Omega is never longer than the noise on it, for the change that noise has to hide is up to
twice as long as any row. What is found is found from many rows, and others here find it from fewer: docs/papers.md
shows both, under paper 001, and names the command that draws it.

Published accounting is refused. Rows are taken as they are, not centred: a mean would make sparse rows dense.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field, fields
from typing import Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.model import Model, fix_signs
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.privacy import (
    DRAW_SLACK,
    MAX_ROWS,
    MAX_STD,
    STRETCH_TAIL,
    ApproximateEvent,
    GaussianEvent,
    PrivacyUnit,
    calibrated_std,
    usable_mu,
)
from dpspca.common.protocol import Aggregate, Algorithm
from dpspca.common.queries import (
    MAX_COLUMNS,
    WEIGHT_BITS,
    Commit,
    Extent,
    Peaks,
    Projection,
    Reveal,
    RowQuery,
    RowSparse,
    Sketch,
    read_slots,
)
from dpspca.common.spec import MAX_COMPONENT_ENTRIES, Centering, JobSpec
from dpspca.common.statement import PrivacyStatement

from .options import described
from .row_steps import PartiesChangedError, ask_closing, ask_opening, closing, known_options, opening, shares

SKETCH_PART: Final = 0.5
"""Of mu squared: noise of both releases multiplies in the error, so halves are best."""
OVERSAMPLING: Final = 16
"""A choice, and no optimum: docs/papers.md shows, under paper 001, that all directions there are help little more."""
NO_LENGTH: Final = 2.0**-40
"""A direction of Y whose square is below this part of the largest is rounding, and none."""


@dataclass(frozen=True, slots=True)
class RangeProjectionOptions:
    """What only this algorithm knows; ``columns_of`` decides what was left out."""

    oversampling: int | None = field(
        default=None,
        metadata=described("Columns of the sketch beyond the components. Default: 16, or as many as there are."),
    )
    cut: float = field(
        default=1.0, metadata=described("Entries of the orthonormal sketch above this are pruned. At 1, none is.")
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        oversampling, cut = given.get("oversampling"), given.get("cut", 1.0)
        if oversampling is not None:
            most = min(spec.schema.dimension, MAX_COLUMNS) - spec.components
            oversampling = check_whole("the oversampling", oversampling, least=0, most=max(0, most))
        check(
            isinstance(cut, int | float) and not isinstance(cut, bool) and 2.0**-WEIGHT_BITS <= cut <= 1,
            f"cut is {cut!r}; it must be a number between 2^-20 and 1.",
            "Give the largest entry to be left in an orthonormal column, or 1 to prune nothing.",
        )
        return cls(oversampling, float(cut))  # type: ignore[arg-type]  # checked above


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query this job will ask, its noise and its price."""
    RangeProjectionOptions.of(spec)
    _check_fits(spec)
    return price(spec, [*opening(spec), *_rounds(spec), *closing(spec, spec.schema.dimension)])


def run(plan: Plan) -> Algorithm:
    """Agree on directions, sketch, look how large the sketch's entries are, project, ask what was explained."""
    spec = plan.spec
    opened = yield from ask_opening(spec)
    dimension, columns, cut = spec.schema.dimension, columns_of(spec), RangeProjectionOptions.of(spec).cut
    committed = yield Commit()
    everybody = committed.parties
    revealed = yield from _ask(Reveal(read_slots(committed.values)), everybody)
    sketched = yield from _ask(Sketch(read_slots(revealed.values), dimension, columns), everybody)
    basis = whitening(sketched.values)
    peaks = yield from _ask(Peaks(basis / cut), everybody)
    largest = _largest(peaks.values[:, :-1], cut)
    scaled = np.divide(basis, largest, out=np.zeros_like(basis), where=largest > 0)
    rows = yield from _ask(Peaks(scaled), everybody)
    projected = yield from _ask(Projection(scaled, dimension, _reach(rows.values[:, -1], columns)), everybody)
    components = _leading(projected.values * largest, spec.components)
    statement = PrivacyStatement.of(plan, parties=projected.parties)
    model = Model(fix_signs(components), statement, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(components.T), opened, model))


def columns_of(spec: JobSpec) -> int:
    """Choose how many columns the sketch has, never from the data."""
    given = RangeProjectionOptions.of(spec).oversampling
    wanted = spec.components + (OVERSAMPLING if given is None else given)
    return min(wanted, spec.schema.dimension, max(spec.components, MAX_COLUMNS))


def whitening(gram: FloatArray) -> FloatArray:
    """Give S such that Y S is orthonormal, from Y^T Y; a column is zero for each direction in which Y has no length."""
    squares, axes = np.linalg.eigh((gram + gram.T) / 2)
    long = squares > NO_LENGTH * max(squares[-1], 0.0)
    roots = np.sqrt(np.where(long, squares, 1.0))
    whitened: FloatArray = np.where(long, axes / roots, 0.0)
    return whitened


def _check_fits(spec: JobSpec) -> None:
    check(
        spec.unit.is_replace_one,
        f"{spec.method} is priced for units that leave the number of rows public: a provider draws noise for each.",
        f"Choose {PrivacyUnit.ROW_REPLACE_ONE}, or {PrivacyUnit.PERSON_REPLACE_ONE} with one row of each person.",
    )
    check(
        spec.centering is Centering.NONE,
        f"{spec.method} takes rows as they are: it does not centre them.",
        "Leave centring out, or centre the rows beforehand by a mean that is not from them.",
    )
    columns = columns_of(spec)
    check(
        columns <= MAX_COLUMNS and columns * spec.schema.dimension <= MAX_COMPONENT_ENTRIES,
        f"A sketch of {columns} columns in {spec.schema.dimension} dimensions is too large.",
        f"Ask for at most {MAX_COLUMNS} columns, components and oversampling, and {MAX_COMPONENT_ENTRIES} numbers.",
    )


def _rounds(spec: JobSpec) -> list[PlannedQuery]:
    """Plan the queries between opening and closing, in their order."""
    dimension, columns = spec.schema.dimension, columns_of(spec)
    listed, sketch, square = Extent(0), Extent(dimension, columns), Extent(0, columns)
    share = shares(spec)["rest"]
    return [
        PlannedQuery("commitments", Commit, listed, 0.0),
        PlannedQuery("nonces", Reveal, listed, 0.0, event=ApproximateEvent(0.0, unlucky(spec))),
        PlannedQuery("sketch", Sketch, sketch, 0.0, event=_sketched(spec, share * SKETCH_PART)),
        PlannedQuery("largest entries", Peaks, square, 0.0),
        PlannedQuery("longest rows", Peaks, square, 0.0),
        PlannedQuery("projection", Projection, sketch, share * (1 - SKETCH_PART)),
    ]


def unlucky(spec: JobSpec) -> float:
    """Bound the probability that Omega stretches a change further than was paid for, its sampler included."""
    return STRETCH_TAIL + spec.schema.dimension * columns_of(spec) * DRAW_SLACK


def _sketched(spec: JobSpec, share: float) -> GaussianEvent:
    """Price the sketch itself, which has a row for each of a provider's: slack is for as many as there may be."""
    extent = Extent(spec.schema.dimension, columns_of(spec))
    sensitivity = Sketch.lattice_sensitivity(spec.unit, extent)
    std = calibrated_std(sensitivity, usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(share))
    check(
        std <= MAX_STD,
        "The budget leaves so little for the sketch that its noise would leave the lattice.",
        "Raise epsilon or delta.",
    )
    return GaussianEvent(sensitivity, std, MAX_ROWS * extent.columns * DRAW_SLACK)


def _ask(query: RowQuery, everybody: int) -> Generator[RowQuery, Aggregate, Aggregate]:
    """Ask, and go on only if those who committed are all there."""
    answer: Aggregate = yield query
    if answer.parties != everybody:
        raise PartiesChangedError(
            "A provider left between its commitment and the projection, and what was sketched with it cannot be used.",
            "Submit a new job.",
        )
    return answer


def _largest(peaks: FloatArray, cut: float) -> FloatArray:
    """Give each column's largest entry after pruning, with a unit more for what is rounded; zero if there is none."""
    most = peaks.max(axis=0)
    return np.where(most > 0, np.minimum(most + 2.0**-WEIGHT_BITS, 1.0) * cut, 0.0)


def _reach(lengths: FloatArray, columns: int) -> float:
    return float(np.clip(lengths.max(), 2.0**-WEIGHT_BITS, math.sqrt(columns)))


def _leading(rows: FloatArray, components: int) -> FloatArray:
    """Give the leading left singular vectors, as rows."""
    left, _, _ = np.linalg.svd(rows, full_matrices=False)
    leading: FloatArray = np.ascontiguousarray(left[:, :components].T)
    return leading
