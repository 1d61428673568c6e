"""The default method: decide from public facts and released numbers how to spend the budget.

With few columns, the whole matrix is released once, and structure is read off it for free. With more, the release goes
in stages, so that later questions can be about the columns that earlier answers found:

1. the diagonal, and part of the budget on the whole matrix, name candidate columns;
2. a block of these, clipped at a bound of its own, is released, and pruned;
3. a scaled release: the block is turned to the axes that were found, and the part along them and the rest are divided
   by their own lengths, so that the entries between the two parts carry noise of the size of their product.

Where the whole matrix shows more than the candidates hold, the components are dense. Then stages 2 and 3 are about all
columns instead, and all releases are averaged.

Each stage also asks for a histogram of norms, for a share of a hundredth, and clips at a quantile that depends on the
numbers of columns and rows and on the budget. So ``norm_bound`` may be far too large without doing harm.

Privacy: the questions depend on released numbers, but their prices do not. Every step has the noise that the plan fixed
for its share of mu^2; what a question may be about is a ``View``, any of which has the same sensitivity
(``dpspca.common.queries.views``). So the filter's sum of mu^2 holds under adaptivity (Smith & Thakurta 2022).

Not from a paper. "Analyze Gauss" (Dwork, Talwar, Thakurta & Zhang 2014) is what it does with few columns.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field, fields, replace
from typing import Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.model import Model, fix_signs
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.privacy import PICK_SLACK, ChoiceEvent, choice_range, usable_mu
from dpspca.common.protocol import Aggregate, Algorithm
from dpspca.common.queries import Extent, NormHistogram, RowQuery, SignPairs, View, ViewCovariance, ViewSquares
from dpspca.common.spec import JobSpec
from dpspca.common.statement import PrivacyStatement

from .free_structure import (
    FALSE_ROWS,
    Columns,
    Released,
    debiased,
    first_guess,
    largest_rows,
    leading,
    pruned,
    sparse_or_dense,
    spread_over,
    standing_out,
    strongest,
)
from .options import described
from .released_matrix import MAX_DIMENSION
from .row_steps import (
    RowTotals,
    ask_opening,
    at_least_one,
    known_options,
    opening,
    shares,
    with_variances,
)
from .scaled_release import ask_scaled
from .view_steps import ReleasedFacts, ask_covariance, ask_diagonal, ask_reach

FEW_COLUMNS: Final = 100
"""Up to here the whole matrix is released with everything: stages would cost more than they bring."""
NORMS: Final = 0.01
"""Share of mu^2 for each histogram of norms."""
DIAGONAL: Final = 0.08
WHOLE: Final = 0.22
BLOCK: Final = 0.18
PAIRS: Final = 0.30
MANY_WHOLE: Final = 0.15
"""Share of the whole matrix where there are many columns."""
MANY_COLUMNS: Final = 1500
"""Beyond this, the noise of d^2 numbers hides what a choice of pairs can still find. Below, sums find as much."""
PICKS: Final = 20
"""Pairs that each provider chooses."""
MOST_CANDIDATES: Final = 200
"""Columns that one source of candidates may name."""


@dataclass(frozen=True, slots=True)
class AutoOptions:
    """The one thing that may be set. Everything else is decided."""

    sparsity: int | None = field(
        default=None,
        metadata=described(
            "Largest number of columns that may take part, for all components together. Default: decided from what is "
            "released, at no cost."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)]).get("sparsity")
        if given is None:
            return cls()
        name = "sparsity (from the number of components to that of columns)"
        return cls(check_whole(name, given, least=spec.components, most=spec.schema.dimension))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every question. Their order and prices are fixed; what they are about may follow from earlier answers."""
    AutoOptions.of(spec)
    dimension = spec.schema.dimension
    check(
        dimension <= MAX_DIMENSION,
        f"The method auto releases matrices of {dimension} by {dimension} numbers.",
        f"Use it up to {MAX_DIMENSION} columns; beyond, use dps-pca.",
    )
    counted = replace(spec, explained_variance=True)  # the number of rows is needed; what is explained is free
    divided = shares(counted)
    free = divided["rest"] + divided["explained variance"]
    whole = Extent(dimension, 0, dimension)
    if dimension <= FEW_COLUMNS:
        stages = [
            PlannedQuery("norms", NormHistogram, whole, NORMS * free),
            PlannedQuery("whole matrix", ViewCovariance, whole, (1 - NORMS) * free),
        ]
    else:
        scaled = Extent(dimension, spec.components, dimension)
        pairs, matrix = (PAIRS, MANY_WHOLE) if dimension > MANY_COLUMNS else (0.0, WHOLE)
        last = 1 - 4 * NORMS - DIAGONAL - pairs - matrix - BLOCK
        stages = [
            PlannedQuery("norms of squares", NormHistogram, whole, NORMS * free),
            PlannedQuery("diagonal", ViewSquares, whole, DIAGONAL * free),
            *([_pairs(spec, PAIRS * free)] if dimension > MANY_COLUMNS else []),
            PlannedQuery("norms", NormHistogram, whole, NORMS * free),
            PlannedQuery("whole matrix", ViewCovariance, whole, matrix * free),
            PlannedQuery("norms on candidates", NormHistogram, whole, NORMS * free),
            PlannedQuery("candidates", ViewCovariance, whole, BLOCK * free),
            PlannedQuery("norms along components", NormHistogram, scaled, NORMS * free),
            PlannedQuery("scaled release", ViewCovariance, scaled, last * free),
        ]
    return price(spec, [*opening(counted), *stages])


def _pairs(spec: JobSpec, share: float) -> PlannedQuery:
    """Plan the choice of pairs of columns: its event is that of so many choices of this share together."""
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(share / PICKS)
    moves = SignPairs.score_movement(spec.unit, spec.rows_per_person)
    event = ChoiceEvent(float(moves), 2 * moves / choice_range(mu), PICKS, PICKS * PICK_SLACK)
    return PlannedQuery("pairs of columns", SignPairs, Extent(spec.schema.dimension), share, event=event)


def run(plan: Plan) -> Algorithm:
    """Ask stage by stage, and make a model of all that was released."""
    spec = plan.spec
    opened = yield from ask_opening(replace(spec, explained_variance=True))
    facts = ReleasedFacts(spec, opened.center, at_least_one(opened.rows), AutoOptions.of(spec).sparsity)
    found = yield from _few_columns(facts) if facts.dimension <= FEW_COLUMNS else _in_stages(facts)
    statement = PrivacyStatement.of(plan, parties=found.parties)
    return _model(facts, opened, statement, found)


@dataclass(frozen=True, slots=True)
class _Found:
    """Components as columns, what they explain in all rows together, and the sum of squares of all columns."""

    components: FloatArray
    explained: FloatArray
    total: float
    noise_std: float
    parties: int
    reason: str


def _few_columns(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, _Found]:
    view = View.whole(facts.dimension)
    reach = yield from ask_reach(facts, view)
    released = yield from ask_covariance(facts, view, reach)
    components, support = sparse_or_dense(released, facts.components, facts.sparsity)
    kind = "all columns" if support.size == facts.dimension else f"{support.size} columns"
    return _of_matrix(released, components, f"few columns: the whole matrix at once; {kind}")


def _of_matrix(released: Released, components: FloatArray, reason: str) -> _Found:
    explained = np.einsum("dk,de,ek->k", components, released.matrix, components)
    return _Found(
        components,
        explained,
        float(np.trace(released.matrix)),
        math.sqrt(2) * released.off_std,
        released.parties,
        reason,
    )


def _chosen(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, Columns]:
    """Have each provider choose pairs of columns; of many providers' choices keep the most frequent."""
    votes = (yield SignPairs(facts.dimension, facts.center)).values
    return strongest(votes, min(MOST_CANDIDATES, int(np.count_nonzero(votes))))


# --- Stages -----------------------------------------------------------------------------------------------------------


def _in_stages(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, _Found]:
    diagonal = yield from ask_diagonal(facts)
    chosen = (yield from _chosen(facts)) if facts.dimension > MANY_COLUMNS else np.arange(0)
    everything = View.whole(facts.dimension)
    reach = yield from ask_reach(facts, everything)
    whole = yield from ask_covariance(facts, everything, reach)
    candidates = _candidates(facts, diagonal, whole, chosen)
    dense, why = _is_dense(facts, whole, candidates, diagonal)
    if dense:
        return (yield from _dense(facts, everything, whole, why))
    return (yield from _sparse(facts, diagonal, whole, candidates, why))


def _outliers(values: FloatArray, sigmas: float) -> Columns:
    """Find the columns whose value is far above the median, in units of the median absolute deviation."""
    median = np.median(values)
    spread = 1.4826 * np.median(np.abs(values - median))
    far = np.flatnonzero(values > median + sigmas * spread)
    return far if far.size <= MOST_CANDIDATES else strongest(values, MOST_CANDIDATES)


def _candidates(facts: ReleasedFacts, diagonal: FloatArray, whole: Released, chosen: Columns) -> Columns:
    """Name the columns that the diagonal or the whole matrix lets stand out, then those that are tied to these."""
    components, size = facts.components, facts.dimension
    variances = np.maximum(diagonal, 0.0)
    energy = np.square(whole.matrix).sum(axis=1) - np.square(np.diagonal(whole.matrix))
    named = np.union1d(_outliers(diagonal, 2.5), _outliers(energy, math.sqrt(2 * math.log(size))))
    named = np.union1d(named, chosen)
    vectors, _ = leading(whole.matrix, components)
    support = pruned(whole, components, variances, first_guess(vectors))
    if support.size <= MOST_CANDIDATES:
        named = np.union1d(named, support)
    for _ in range(2):
        if named.size >= components:
            tied, _ = standing_out(whole, named, variances, components, FALSE_ROWS / size)
            named = np.union1d(named, tied)
    return named


def _is_dense(facts: ReleasedFacts, whole: Released, candidates: Columns, diagonal: FloatArray) -> tuple[bool, str]:
    """Tell whether the whole matrix shows more than the candidates hold, beyond what noise explains."""
    components, size, median = facts.components, facts.dimension, max(0.0, float(np.median(diagonal)))
    if not components <= candidates.size <= size // 3:
        return True, f"{candidates.size} of {size} columns stand out, which is no sparse structure"
    all_of_it = debiased(leading(whole.matrix, components)[1] - median, whole.off_std, size).sum()
    held = debiased(leading(whole.block(candidates), components)[1] - median, whole.off_std, candidates.size).sum()
    tolerance = (
        3 * whole.off_std * math.sqrt(2 * components) + 0.02 * all_of_it + components * size / facts.rows * median
    )
    if all_of_it - held > tolerance:
        return True, f"the {candidates.size} columns that stand out hold {held / all_of_it:.0%} of what all show"
    return False, f"{candidates.size} of {size} columns stand out and hold what all show"


def _dense(facts: ReleasedFacts, everything: View, whole: Released, why: str) -> Generator[RowQuery, Aggregate, _Found]:
    """Release the whole matrix twice more, and average."""
    reach = yield from ask_reach(facts, everything)
    whole = whole.joined((yield from ask_covariance(facts, everything, reach)))
    vectors, _ = leading(whole.matrix, facts.components)
    plain = replace(everything, axes=vectors)
    reach = yield from ask_reach(facts, plain)
    whole = whole.joined((yield from ask_covariance(facts, plain, reach)))
    components, _ = sparse_or_dense(whole, facts.components, facts.sparsity)
    return _of_matrix(whole, components, f"dense: {why}")


def _sparse(
    facts: ReleasedFacts, diagonal: FloatArray, whole: Released, candidates: Columns, why: str
) -> Generator[RowQuery, Aggregate, _Found]:
    """Release the candidates' block, prune it, and release it once more at the scale of what was found."""
    components = facts.components
    view = View(facts.dimension, candidates)
    reach = yield from ask_reach(facts, view)
    block = (yield from ask_covariance(facts, view, reach)).joined(
        Released(whole.block(candidates), whole.off_std, facts.rows, whole.parties)
    )
    start = first_guess(leading(block.matrix, components)[0])
    kept = pruned(block, components, block.diagonal, start)
    kept = kept[largest_rows(*leading(block.block(kept), components), facts.sparsity)]
    support = candidates[kept]
    own = Released(block.block(kept), block.off_std, facts.rows, block.parties)
    components_there, explained, noise, parties = yield from ask_scaled(facts, support, own, diagonal[support])
    return _Found(
        spread_over(facts.dimension, support, components_there),
        explained,
        float(max(diagonal.sum(), explained.sum())),
        noise,
        parties,
        f"sparse: {why}",
    )


def _model(facts: ReleasedFacts, opened: RowTotals, statement: PrivacyStatement, found: _Found) -> Model:
    order = np.argsort(-found.explained, kind="stable")
    components = fix_signs(np.ascontiguousarray(found.components[:, order].T))
    model = Model(components, statement, mean=opened.center, feature_names=facts.spec.schema.names)
    if not facts.spec.explained_variance:
        return model
    if opened.rows is None or opened.rows.parties != found.parties:
        return model
    return with_variances(
        model, found.explained[order] / facts.rows, found.total / facts.rows, found.noise_std / facts.rows
    )
