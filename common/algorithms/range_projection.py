"""Range finder, pruning, projection: PFP of Hardt & Roth (STOC 2012), Section 6, from their Figures 1 to 3.

The paper is "Beating Randomized Response on Incoherent Matrices".

M has a row for every person. The range finder draws directions Omega (d x p, standard normal, p = components +
oversampling); W is an orthonormal basis of M Omega + noise. Pruning sets entries of W above ``cut`` to zero. The
projection releases B = W^T M with noise. The noise in row l is proportional to alpha_l, the largest entry of column l
of W, so low coherence means little noise. Components are the leading right singular vectors of B, which are those of
W B.

Here rows belong to providers. Each keeps its part of the sketch, Y_i = M_i Omega + noise, to itself. The sum of the
Y_i^T Y_i is enough to compute W from Y, although nobody sees the whole of Y, and only B is summed. The rounds are:
commit and reveal, which give all parties the same Omega although none can choose it; sketch; peaks, twice; projection;
and the explained variance.

Privacy, if a row x is replaced by y (v = x - y, ||v|| <= 2C). It rests on the provider that holds the row; no other
party is trusted:

- Sketch: Gaussian noise hides v^T Omega. Its norm is at most 2C sqrt(t) except with probability 2^-100, with t from
  Chernoff's bound for chi-square (``privacy/directions.py``). For this, v must be fixed before Omega, even if the
  coordinator is malicious; commit and reveal ensure it (``provider/evaluate/sketches.py``). The probability is charged
  to delta when the nonce is revealed, not with the sketch, so that a coordinator that aborts and tries again pays each
  time.
- What follows from Y is free, including W and its peaks.
- Projection: given Y, replacing a row changes M^T U by v U_j^T, and so by at most 2C times the longest row of U, where
  U is W with each column divided by its alpha. The provider itself limits the entries and rows of its U, whatever it
  receives.

If a provider leaves or restarts between commitment and projection, the job ends with that reason, and the answers
given so far stay charged: without its nonce there is no Omega, and without its rows W is not orthonormal.

Departures from the paper:

- Noise is calibrated by exact Gaussian accounting, with half of mu^2 for each release. The tail of ||v^T Omega|| is
  that of chi-square; the paper bounds each of the p numbers separately. The paper's own formulas are not reproduced.
- In the paper, neighbours differ by a row of norm one, however long rows are. Here they differ by any row within the
  norm bound.
- Omega's entries are discrete Gaussian integers, the same at every provider, and the tail bound holds for these. Y is
  kept on a grid.
- W comes from the eigenvectors of Y^T Y instead of Gram-Schmidt. The span is the same; directions of length zero are
  left out.
- Entries are measured after pruning, and so is the longest row of U, which never exceeds the sqrt(p) that the paper
  assumes. Without ``cut`` nothing is pruned, as in the paper's Theorem 6.3.
- The paper returns W B, whose rows belong to persons. A model has the k leading directions of its row space.
- Noise makes sums of squares of B larger than those of M's components. One more answer, V^T A V, gives the explained
  variance and rotates the components to their axes.

What to expect: a row of M Omega is never longer than the noise on it, because the noise has to hide a change that is up
to twice as long as a row. So the method needs many rows. Other methods need fewer: docs/papers.md compares them under
paper 001, and names the command that draws the figure.

Published accounting is refused. Rows cannot be centred, because subtracting a mean would make sparse rows dense.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field, fields
from typing import Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.errors import NoiseTooWideError
from dpspca.common.job import MAX_COMPONENT_ENTRIES, Centering, JobSpec
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.privacy import (
    DRAW_SLACK,
    MAX_SKETCHED_ROWS,
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
    read_seats,
)
from dpspca.common.results import Model, PrivacyStatement

from .steps import PartiesChangedError, ask_closing, ask_opening, closing, described, known_options, opening, shares

SKETCH_PART: Final = 0.5
"""Share of mu squared. The error is proportional to the product of both noises, so equal shares are best."""
OVERSAMPLING: Final = 16
"""A reasonable choice, not an optimum: using all directions helps little more (docs/papers.md, paper 001)."""
ROUNDING_LENGTH: Final = 2.0**-40
"""Directions of Y whose squared length is below this part of the largest are rounding errors."""


@dataclass(frozen=True, slots=True)
class RangeProjectionOptions:
    """The options of this method as given. ``columns_of`` chooses the oversampling if it is missing."""

    oversampling: int | None = field(
        default=None,
        metadata=described("Columns of the sketch in addition to the components. Default: 16, or as many as possible."),
    )
    cut: float = field(
        default=1.0, metadata=described("Entries of the orthonormal sketch above this are pruned. At 1, none are.")
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
            "Give the largest entry that may stay in an orthonormal column, or 1 to prune nothing.",
        )
        return cls(oversampling, float(cut))  # type: ignore[arg-type]  # checked above


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries of a job, with their noise and prices."""
    RangeProjectionOptions.of(spec)
    _check_fits(spec)
    return price(spec, [*opening(spec), *_rounds(spec), *closing(spec, spec.schema.dimension)])


def run(plan: Plan) -> Algorithm:
    """Agree on directions, sketch, measure the sketch's entries, project, and ask for the explained variance."""
    spec = plan.spec
    opened = yield from ask_opening(spec)
    dimension, columns, cut = spec.schema.dimension, columns_of(spec), RangeProjectionOptions.of(spec).cut
    committed = yield Commit()
    parties = committed.parties
    revealed = yield from _ask(Reveal(read_seats(committed.values)), parties)
    sketched = yield from _ask(Sketch(read_seats(revealed.values), dimension, columns), parties)
    basis = whitening(sketched.values)
    peaks = yield from _ask(Peaks(basis / cut), parties)
    largest = _largest(peaks.values[:, :-1], cut)
    scaled = np.divide(basis, largest, out=np.zeros_like(basis), where=largest > 0)
    rows = yield from _ask(Peaks(scaled), parties)
    projected = yield from _ask(Projection(scaled, dimension, _longest_row(rows.values[:, -1], columns)), parties)
    components = _leading(projected.values * largest, spec.components)
    statement = PrivacyStatement.of(plan, parties=projected.parties)
    model = Model(components, statement, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(components.T), opened, model))


def columns_of(spec: JobSpec) -> int:
    """Choose the number of columns of the sketch. It never depends on the data."""
    given = RangeProjectionOptions.of(spec).oversampling
    wanted = spec.components + (OVERSAMPLING if given is None else given)
    return min(wanted, spec.schema.dimension, max(spec.components, MAX_COLUMNS))


def whitening(gram: FloatArray) -> FloatArray:
    """Return S such that Y S is orthonormal, from Y^T Y. Columns for directions in which Y is zero are zero."""
    squares, axes = np.linalg.eigh((gram + gram.T) / 2)
    long = squares > ROUNDING_LENGTH * max(squares[-1], 0.0)
    roots = np.sqrt(np.where(long, squares, 1.0))
    whitened: FloatArray = np.where(long, axes / roots, 0.0)
    return whitened


def _check_fits(spec: JobSpec) -> None:
    check(
        spec.unit.is_replace_one,
        f"{spec.method} draws noise for each row, so the number of rows must be public. It is not for the unit "
        f"{spec.unit}.",
        f"Choose {PrivacyUnit.ROW_REPLACE_ONE}, or {PrivacyUnit.PERSON_REPLACE_ONE} with one row per person.",
    )
    check(
        spec.centering is Centering.NONE,
        f"{spec.method} cannot centre rows, but centering is {spec.centering}.",
        f"Use the centering {Centering.NONE}, or subtract a mean that is not computed from the rows beforehand.",
    )
    columns = columns_of(spec)
    check(
        columns <= MAX_COLUMNS and columns * spec.schema.dimension <= MAX_COMPONENT_ENTRIES,
        f"A sketch of {columns} columns over {spec.schema.dimension} columns of data is too large.",
        f"Ask for fewer components or less oversampling: together at most {MAX_COLUMNS} columns, and at most "
        f"{MAX_COMPONENT_ENTRIES} numbers.",
    )


def _rounds(spec: JobSpec) -> list[PlannedQuery]:
    """Plan the queries between opening and closing, in their order."""
    dimension, columns = spec.schema.dimension, columns_of(spec)
    listed, sketch, square = Extent(0), Extent(dimension, columns), Extent(0, columns)
    share = shares(spec)["rest"]
    return [
        PlannedQuery("commitments", Commit, listed, 0.0),
        PlannedQuery("nonces", Reveal, listed, 0.0, event=ApproximateEvent(0.0, stretch_failure(spec))),
        PlannedQuery("sketch", Sketch, sketch, 0.0, event=_sketched(spec, share * SKETCH_PART)),
        PlannedQuery("largest entries", Peaks, square, 0.0),
        PlannedQuery("longest rows", Peaks, square, 0.0),
        PlannedQuery("projection", Projection, sketch, share * (1 - SKETCH_PART)),
    ]


def stretch_failure(spec: JobSpec) -> float:
    """Bound the probability that Omega stretches a change by more than the noise covers, including the sampler's."""
    return STRETCH_TAIL + spec.schema.dimension * columns_of(spec) * DRAW_SLACK


def _sketched(spec: JobSpec, share: float) -> GaussianEvent:
    """Return the price of the sketch. It has a row per row of data, so slack covers the largest possible number."""
    extent = Extent(spec.schema.dimension, columns_of(spec))
    sensitivity = Sketch.lattice_sensitivity(spec.unit, extent)
    std = calibrated_std(sensitivity, usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(share))
    check(
        std <= MAX_STD,
        "The budget leaves too little for the sketch: its noise would be larger than the lattice.",
        "Use a larger epsilon or delta.",
        NoiseTooWideError,
    )
    return GaussianEvent(sensitivity, std, MAX_SKETCHED_ROWS * extent.columns * DRAW_SLACK)


def _ask(query: RowQuery, parties: int) -> Generator[RowQuery, Aggregate, Aggregate]:
    """Ask, and continue only if all providers that committed have answered."""
    answer: Aggregate = yield query
    if answer.parties != parties:
        raise PartiesChangedError(
            "A provider left between commitment and projection, so the sketch cannot be used.",
            "Submit a new job.",
        )
    return answer


def _largest(peaks: FloatArray, cut: float) -> FloatArray:
    """Return each column's largest entry after pruning, plus one unit for rounding, or zero if it has no entry."""
    most = peaks.max(axis=0)
    return np.where(most > 0, np.minimum(most + 2.0**-WEIGHT_BITS, 1.0) * cut, 0.0)


def _longest_row(lengths: FloatArray, columns: int) -> float:
    return float(np.clip(lengths.max(), 2.0**-WEIGHT_BITS, math.sqrt(columns)))


def _leading(rows: FloatArray, components: int) -> FloatArray:
    """Return the leading left singular vectors, as rows."""
    left, _, _ = np.linalg.svd(rows, full_matrices=False)
    leading: FloatArray = np.ascontiguousarray(left[:, :components].T)
    return leading
