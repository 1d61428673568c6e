"""The staged release: later queries use the columns and the scale that earlier answers found.

``automatic`` says when it is used, and why its prices hold. The stages are: the diagonal and, for a part of the budget,
the whole matrix; a block of candidate columns; a choice of further columns that correlate with the components found so
far; the block at the scale of the components. With many columns, providers first choose pairs of columns.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from scipy.special import chdtri

from dpspca.common.algorithms.steps import (
    FALSE_ROWS,
    Choice,
    Columns,
    Estimates,
    ReleasedMatrix,
    chance_edge,
    debiased,
    first_guess,
    largest_rows,
    leading,
    pruned,
    seen_in,
    spread_over,
    standing_out,
    strongest,
    with_left_out,
)
from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec
from dpspca.common.plan import PlannedQuery
from dpspca.common.privacy import PICK_SLACK, ChoiceEvent, choice_range, usable_mu
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import (
    Extent,
    NormHistogram,
    RowQuery,
    SignPairs,
    TiedColumns,
    View,
    ViewCovariance,
    ViewSquares,
)
from dpspca.common.results import Decision, ReleasePath

from .found import Found, limited, signals_of, visible_in
from .last_release import end_with_last
from .scaled_release import KnownBlock, ask_scaled
from .view_steps import NORMS, SHORT, ReleasedFacts, ask_covariance, ask_diagonal, ask_reach

SPARSE_FRACTION: Final = 3
"""A structure is sparse if no more than a third of the columns stand out."""
DIAGONAL: Final = 0.08
WHOLE: Final = 0.22
BLOCK: Final = 0.18
PAIRS: Final = 0.30
TIED: Final = 0.08
MANY_WHOLE: Final = 0.15
"""Share for the whole matrix if there are many columns."""
MANY_COLUMNS: Final = 1500
"""With more columns, a choice of pairs still finds what the noise of d^2 numbers hides: a large share goes there."""
SOME_COLUMNS: Final = 300
"""From here to ``MANY_COLUMNS`` a small share goes into a choice of pairs: few rows, or noise of several providers, may
hide from sums what it finds. With fewer columns, sums find as much."""
SOME_PAIRS: Final = 0.06
SOME_WHOLE: Final = 0.21
PICKS: Final = 20
"""Pairs that each provider chooses."""
TIES: Final = 10
"""Further columns that each provider chooses after components were found."""
IMPLAUSIBLE: Final = 0.25
"""Share of wrong choices that are kept after a check against the whole matrix, divided by the number of providers."""
MOST_CANDIDATES: Final = 200
"""Columns that one source of candidates may name."""
NONE: Final[Columns] = np.arange(0)


def planned_stages(spec: JobSpec, free: float) -> list[PlannedQuery]:
    """Plan all stages, for the share ``free`` of the budget."""
    whole = Extent(spec.schema.dimension, 0, spec.schema.dimension)
    scaled = Extent(spec.schema.dimension, spec.components, spec.schema.dimension)
    pairs, matrix = _shares_of_pairs_and_matrix(spec.schema.dimension)
    last = _last_share(spec.schema.dimension)
    tied = choices(spec, TIED * free, TIES)
    return [
        PlannedQuery("norms of squares", NormHistogram, whole, NORMS * free),
        PlannedQuery("diagonal", ViewSquares, whole, DIAGONAL * free),
        *([choice_of_pairs(spec, pairs * free)] if pairs else []),
        PlannedQuery("norms", NormHistogram, whole, NORMS * free),
        PlannedQuery("whole matrix", ViewCovariance, whole, matrix * free),
        PlannedQuery("norms on candidates", NormHistogram, whole, NORMS * free),
        PlannedQuery("candidates", ViewCovariance, whole, BLOCK * free),
        PlannedQuery("tied columns", TiedColumns, scaled, TIED * free, event=tied, instead=(ViewCovariance, whole)),
        PlannedQuery("norms along components", NormHistogram, scaled, NORMS * free),
        PlannedQuery("scaled release", ViewCovariance, scaled, last * free),
    ]


def _shares_of_pairs_and_matrix(dimension: int) -> tuple[float, float]:
    """Divide between a choice of pairs, which a plan for few columns does not have, and the whole matrix."""
    if dimension > MANY_COLUMNS:
        return PAIRS, MANY_WHOLE
    return (SOME_PAIRS, SOME_WHOLE) if dimension > SOME_COLUMNS else (0.0, WHOLE)


def _last_share(dimension: int) -> float:
    """Return the share of the scaled release: what the other stages leave."""
    pairs, matrix = _shares_of_pairs_and_matrix(dimension)
    return 1 - 4 * NORMS - DIAGONAL - pairs - matrix - TIED - BLOCK


def choice_of_pairs(spec: JobSpec, share: float, most: int | None = None) -> PlannedQuery:
    """Plan the choice of pairs, among at most so many columns. Its event covers all ``PICKS`` choices together."""
    dimension = spec.schema.dimension
    extent = Extent(dimension, 0, most if most and most < dimension else 0)
    return PlannedQuery("pairs of columns", SignPairs, extent, share, event=choices(spec, share, PICKS))


def choices(spec: JobSpec, share: float, picks: int) -> ChoiceEvent:
    """Return the event of this many choices, which cost this share together."""
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(share / picks)
    moves = SignPairs.score_movement(spec.unit, spec.rows_per_person)
    return ChoiceEvent(float(moves), 2 * moves / choice_range(mu), picks, picks * PICK_SLACK)


def _chosen(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, tuple[Columns, bool]]:
    """Have each provider choose pairs of columns. The second value says whether noise alone cannot explain them."""
    if facts.dimension <= SOME_COLUMNS:
        return NONE, False
    votes = yield from _ask_pairs(facts, None)
    return _most_frequent(votes), facts.dimension > MANY_COLUMNS or _go_together(votes)


def ask_pairs(facts: ReleasedFacts, among: Columns | None) -> Generator[RowQuery, Aggregate, Columns]:
    """Have each provider choose pairs of some columns. Return the most frequent columns of all choices."""
    return _most_frequent((yield from _ask_pairs(facts, among)))


def _ask_pairs(facts: ReleasedFacts, among: Columns | None) -> Generator[RowQuery, Aggregate, FloatArray]:
    return (yield SignPairs(facts.dimension, facts.center, facts.scales, among)).values


def _most_frequent(votes: FloatArray) -> Columns:
    return strongest(votes, min(MOST_CANDIDATES, int(np.count_nonzero(votes))))


def _go_together(votes: FloatArray) -> bool:
    """Return whether more columns were chosen repeatedly than random choices would repeat.

    Columns of one component are in many pairs. Of m columns chosen at random of d, about m^2 / (2 d) repeat an earlier
    one, as in a Poisson distribution: the threshold is three standard deviations and two columns above that.
    """
    total = float(votes.sum())
    expected = total**2 / (2 * len(votes))
    return total - int(np.count_nonzero(votes)) > expected + 3 * math.sqrt(expected) + 2


def _tied(
    facts: ReleasedFacts, known: KnownBlock, whole: ReleasedMatrix | None
) -> Generator[RowQuery, Aggregate, Columns]:
    """Have each provider choose further columns that correlate with the components found so far."""
    view = View(facts.dimension, known.columns, axes=known.axes[:, : facts.components])
    votes = yield TiedColumns(view, facts.center, facts.scales)
    chosen = _most_frequent(votes.values)
    if whole is None or facts.dimension > MANY_COLUMNS:
        return chosen
    return _plausible(facts, known, whole, chosen, IMPLAUSIBLE / votes.parties)


def in_stages(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, Found]:
    """Ask the queries that ``planned_stages`` planned."""
    diagonal = yield from ask_diagonal(facts)
    chosen, sure = yield from _chosen(facts)
    everything = facts.view()
    reach = yield from ask_reach(facts, everything, SHORT)
    whole = yield from ask_covariance(facts, everything, reach)
    candidates = _candidates(facts, diagonal, whole, chosen)
    decided = _decide(facts, whole, candidates, diagonal, sure=sure)
    if decided.path is ReleasePath.DENSE:
        return (yield from _dense(facts, everything, whole, decided))
    found = yield from _sparse(facts, diagonal, whole, candidates, decided)
    return replace(found, longest=reach.longest)


def _outliers(values: FloatArray, sigmas: float) -> Columns:
    """Find the columns whose value is far above the median, in units of the median absolute deviation."""
    far = np.flatnonzero(values > usual(values, sigmas))
    return far if far.size <= MOST_CANDIDATES else strongest(values, MOST_CANDIDATES)


def usual(values: FloatArray, sigmas: float) -> float:
    """Return an upper limit for ordinary columns: the median plus ``sigmas`` median absolute deviations."""
    median = np.median(values)
    return float(median + sigmas * 1.4826 * np.median(np.abs(values - median)))


def _candidates(facts: ReleasedFacts, diagonal: FloatArray, whole: ReleasedMatrix, chosen: Columns) -> Columns:
    """Return the columns that stand out in the diagonal or the whole matrix, and those that correlate with them."""
    components, size = facts.components, facts.dimension
    variances = np.maximum(diagonal, 0.0)
    energy = np.square(whole.matrix).sum(axis=1) - np.square(np.diagonal(whole.matrix))
    named = np.union1d(_outliers(diagonal, 2.5), _outliers(energy, math.sqrt(2 * math.log(size))))
    named = np.union1d(named, chosen)
    vectors, _ = whole.leading(components)
    support = pruned(whole, components, variances, first_guess(vectors))
    if support.size <= MOST_CANDIDATES:
        named = np.union1d(named, support)
    for _ in range(2):
        if named.size >= components:
            tied, _ = standing_out(whole, named, variances, components, FALSE_ROWS / size)
            named = np.union1d(named, tied)
    return named


def _decide(
    facts: ReleasedFacts, whole: ReleasedMatrix, candidates: Columns, diagonal: FloatArray, *, sure: bool
) -> Decision:
    """Choose the dense path if the whole matrix explains more than the candidates do, beyond noise.

    ``sure`` says that the providers' choices of pairs agree, so that noise alone cannot explain the candidates.
    """
    outstanding = int(candidates.size)
    components, size, median = facts.components, facts.dimension, max(0.0, float(np.median(diagonal)))
    signals = signals_of(whole, components, median)
    if not components <= candidates.size <= size // SPARSE_FRACTION:
        return Decision(ReleasePath.DENSE, size, outstanding, visible=visible_in(signals))
    all_of_it = signals.sum()
    values = leading(whole.block(candidates), components)[1] - median
    held = debiased(values, whole.off_std, candidates.size).sum()
    tolerance = (
        3 * whole.off_std * math.sqrt(2 * components) + 0.02 * all_of_it + components * size / facts.rows * median
    )
    part = min(1.0, float(held / all_of_it)) if all_of_it > 0 else 1.0
    if not all_of_it and not sure and _by_chance(whole, float(values[0]), outstanding, diagonal):
        return Decision(ReleasePath.DENSE, size, 0, visible=0)
    path = ReleasePath.DENSE if all_of_it - held > tolerance else ReleasePath.SPARSE
    return Decision(path, outstanding, outstanding, part, visible_in(signals))


def _by_chance(whole: ReleasedMatrix, value: float, outstanding: int, diagonal: FloatArray) -> bool:
    """Return whether noise alone may explain the candidates, if the whole matrix shows no component.

    Among all blocks of s of d columns, noise gives the largest eigenvalue of about 2 std sqrt(2 s (1 + ln(d / s))). The
    diagonal has noise of its own.
    """
    size = len(diagonal)
    largest = 2 * whole.off_std * math.sqrt(2 * outstanding * (1 + math.log(size / outstanding)))
    sure = np.any(diagonal > usual(diagonal, math.sqrt(2 * math.log(size)) + 1))
    return value <= largest and not sure


def _dense(
    facts: ReleasedFacts, everything: View, whole: ReleasedMatrix, decided: Decision
) -> Generator[RowQuery, Aggregate, Found]:
    """Release the whole matrix twice more, once in place of a choice of columns, and end with the last release."""
    reach = yield from ask_reach(facts, everything, SHORT)
    whole = whole.joined((yield from ask_covariance(facts, everything, reach)))
    whole = whole.joined((yield from ask_covariance(facts, everything, reach)))
    last = _last_share(facts.dimension)
    before = _shares_of_pairs_and_matrix(facts.dimension)[1] + BLOCK + TIED
    return (yield from end_with_last(facts, whole, reach, (last / before, last / NORMS), decided))


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedBlock:
    """The result of the release of the candidates' block: ``shown`` components above its noise, and their columns.

    ``matrix`` is the block of all ``candidates``, of which ``known`` has those that were kept.
    """

    known: KnownBlock
    shown: int
    candidates: Columns
    matrix: ReleasedMatrix

    def left_out(self, components: FloatArray, values: FloatArray) -> Estimates:
        """Estimate the loadings of candidates that take no part."""
        return seen_in(self.matrix, components[self.candidates], values).among(self.candidates)


def _sparse(
    facts: ReleasedFacts, diagonal: FloatArray, whole: ReleasedMatrix, candidates: Columns, decided: Decision
) -> Generator[RowQuery, Aggregate, Found]:
    """Release the candidates' block, look for further columns, and release it again at the scale of its components."""
    block = yield from ask_block(facts, diagonal, whole, candidates)
    left_out = partial(seen_in, whole)
    return (yield from ask_again(facts, diagonal, whole, block, left_out, decided, _last_share(facts.dimension)))


def ask_block(
    facts: ReleasedFacts,
    diagonal: FloatArray,
    whole: ReleasedMatrix | None,
    candidates: Columns,
    chosen: Columns = NONE,
) -> Generator[RowQuery, Aggregate, ReleasedBlock]:
    """Release the candidates' block, and prune it.

    ``chosen`` are those candidates that go together, as an earlier answer showed.
    """
    components = facts.components
    view = facts.view(candidates)
    reach = yield from ask_reach(facts, view)
    block = yield from ask_covariance(facts, view, reach)
    if whole is not None:
        block = block.joined(whole.of(candidates))
    ordinary = max(0.0, float(np.median(diagonal)))
    kept, signals = _pruned(block, components, ordinary, np.searchsorted(candidates, chosen))
    kept = kept[largest_rows(*leading(block.block(kept), components), facts.sparsity)]
    known = KnownBlock.of(candidates[kept], block.of(kept), components, Choice(candidates.size, ordinary))
    return ReleasedBlock(known, visible_in(signals), candidates, block)


def _pruned(block: ReleasedMatrix, components: int, ordinary: float, chosen: Columns) -> tuple[Columns, FloatArray]:
    """Prune a block. Return the columns that are kept, and what stood out from noise where pruning started.

    It starts from the largest loadings in the block, and from the columns that were ``chosen`` before it was released:
    on few columns noise is small, and a block of many may show nothing of what a few of them have. The start that
    shows more components is taken, and if they show as many, the one that leads to more than chance finds.
    """
    starts = [(first_guess(block.leading(components)[0]), signals_of(block, components, ordinary))]
    if chosen.size >= components:
        starts.append((chosen, signals_of(block.of(chosen), components, ordinary)))
    found = [(pruned(block, components, block.diagonal, start), signals) for start, signals in starts]
    return max(found, key=lambda each: (visible_in(each[1]), _sure(block, each[0], components, ordinary)))


def _sure(block: ReleasedMatrix, columns: Columns, components: int, ordinary: float) -> float:
    """Add up by how much eigenvalues exceed ``ordinary``, of those that no choice of so many columns has by chance."""
    above = leading(block.block(columns), components)[1] - ordinary
    return float(above[above > chance_edge(block, columns.size)].sum())


def ask_again(  # noqa: PLR0913, PLR0917  # what is known so far, and what is left of the budget
    facts: ReleasedFacts,
    diagonal: FloatArray,
    whole: ReleasedMatrix | None,
    block: ReleasedBlock,
    left_out: Callable[[FloatArray, FloatArray], Estimates],
    decided: Decision,
    share: float,
) -> Generator[RowQuery, Aggregate, Found]:
    """Have providers choose further columns, and release the block at the scale of the components found in it.

    ``left_out`` estimates the loadings of columns outside the block, from components and their eigenvalues. ``share``
    is that of the last release.
    """
    known = block.known
    known = known.widened((yield from _tied(facts, known, whole)), whole, diagonal)
    scaled = yield from ask_scaled(facts, known, diagonal[known.columns], share / NORMS)
    found = limited(scaled.components, scaled.values, facts.sparsity)
    stds = with_left_out(scaled.loading_std, Estimates.uncut(found, scaled.vectors, scaled.loading_std))
    components = spread_over(facts.dimension, known.columns, found)
    stds = spread_over(facts.dimension, known.columns, stds)
    stds = with_left_out(stds, block.left_out(components, scaled.values).outside(known.columns))
    beyond = left_out(components, scaled.values).outside(np.union1d(known.columns, block.candidates))
    return Found(
        components,
        with_left_out(stds, beyond),
        scaled.values,
        float(max(diagonal.sum(), scaled.values.sum())),
        scaled.noise_std,
        scaled.parties,
        block.shown,
        replace(decided, columns=int(np.count_nonzero(found.any(axis=1)))),
    )


def _plausible(facts: ReleasedFacts, known: KnownBlock, whole: ReleasedMatrix, tied: Columns, level: float) -> Columns:
    """Drop chosen columns that do not correlate with the components in the whole matrix.

    A share ``level`` of the columns that were chosen by mistake is kept.
    """
    vectors = known.axes[:, : facts.components]
    products = whole.matrix[np.ix_(tied, known.columns)] @ vectors
    sampling = whole.diagonal[tied][:, None] * np.maximum(known.values, 0.0)[None] / facts.rows
    scores = (np.square(products) / (whole.off_std**2 + sampling)).sum(axis=1)
    kept: Columns = tied[scores > chdtri(facts.components, level)]
    return kept
