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
from scipy.stats import chi2

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.linalg import thin_qr
from dpspca.common.model import Model, fix_signs
from dpspca.common.plan import Intent, Plan, Step, price
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
SHORTEST_PART: Final = 2.0**-18
"""Least length of a part of the rows in the scaled release, as a multiple of the bound: the lattice shows no less."""
Question = Generator[RowQuery, Aggregate, "Released"]


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


@dataclass(frozen=True, slots=True)
class _Job:
    """What every stage needs to know: public facts, and numbers that were released before it."""

    spec: JobSpec
    center: FloatArray | None
    rows: float
    sparsity: int | None

    @property
    def components(self) -> int:
        return self.spec.components

    @property
    def dimension(self) -> int:
        return self.spec.schema.dimension


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
            Intent("norms", NormHistogram, whole, NORMS * free),
            Intent("whole matrix", ViewCovariance, whole, (1 - NORMS) * free),
        ]
    else:
        scaled = Extent(dimension, spec.components, dimension)
        pairs, matrix = (PAIRS, MANY_WHOLE) if dimension > MANY_COLUMNS else (0.0, WHOLE)
        last = 1 - 4 * NORMS - DIAGONAL - pairs - matrix - BLOCK
        stages = [
            Intent("norms of squares", NormHistogram, whole, NORMS * free),
            Intent("diagonal", ViewSquares, whole, DIAGONAL * free),
            *([_pairs(spec, PAIRS * free)] if dimension > MANY_COLUMNS else []),
            Intent("norms", NormHistogram, whole, NORMS * free),
            Intent("whole matrix", ViewCovariance, whole, matrix * free),
            Intent("norms on candidates", NormHistogram, whole, NORMS * free),
            Intent("candidates", ViewCovariance, whole, BLOCK * free),
            Intent("norms along components", NormHistogram, scaled, NORMS * free),
            Intent("scaled release", ViewCovariance, scaled, last * free),
        ]
    return price(spec, [*opening(counted), *stages])


def _pairs(spec: JobSpec, share: float) -> Intent:
    """Plan the choice of pairs of columns: its event is that of so many choices of this share together."""
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(share / PICKS)
    moves = SignPairs.score_movement(spec.unit, spec.rows_per_person)
    event = ChoiceEvent(float(moves), 2 * moves / choice_range(mu), PICKS, PICKS * PICK_SLACK)
    return Intent("pairs of columns", SignPairs, Extent(spec.schema.dimension), share, event=event)


def run(plan: Plan) -> Algorithm:
    """Ask stage by stage, and make a model of all that was released."""
    spec = plan.spec
    opened = yield from ask_opening(replace(spec, explained_variance=True))
    job = _Job(spec, opened.center, at_least_one(opened.rows), AutoOptions.of(spec).sparsity)
    found = yield from _few_columns(job) if job.dimension <= FEW_COLUMNS else _in_stages(job)
    statement = PrivacyStatement.of(plan, parties=found.parties)
    return _model(job, opened, statement, found)


@dataclass(frozen=True, slots=True)
class _Found:
    """Components as columns, what they explain in all rows together, and the sum of squares of all columns."""

    components: FloatArray
    explained: FloatArray
    total: float
    noise_std: float
    parties: int
    reason: str


def _few_columns(job: _Job) -> Generator[RowQuery, Aggregate, _Found]:
    view = View.whole(job.dimension)
    reach = yield from _reach(job, view)
    released = yield from _covariance(job, view, reach)
    components, support = sparse_or_dense(released, job.components, job.sparsity)
    kind = "all columns" if support.size == job.dimension else f"{support.size} columns"
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


# --- Questions --------------------------------------------------------------------------------------------------------


def _reach(job: _Job, view: View, *, power: int = 1) -> Generator[RowQuery, Aggregate, float]:
    """Ask how long rows of a view are, and choose where to clip them, as a multiple of the norm bound's power."""
    histogram = yield NormHistogram(view, job.center, power)
    keep = _kept_part(job, len(view.columns)) if power == 1 else 0.95
    return quantile(histogram.values, histogram.noise_std, job.rows, keep)


def _kept_part(job: _Job, columns: int) -> float:
    """Choose which part of the rows is not clipped: a tighter bound costs a little signal and spares more noise.

    The rule is by d^1.5 / (mu n) for d columns, which is how large noise is beside a typical row.
    """
    mu = usable_mu(job.spec.budget.epsilon, job.spec.budget.delta)
    strain = columns**1.5 / (mu * job.rows)
    return 0.95 if strain < 0.1 else 0.75 if strain < 0.3 else 0.5  # noqa: PLR2004  # fitted on five tables


def quantile(counts: FloatArray, noise_std: float, rows: float, keep: float) -> float:
    """Read off a histogram of norms the norm that a part ``keep`` of the rows does not exceed, as a multiple of C.

    Bins are counted from the largest norm down, beginning with the first one that noise alone does not explain. Where
    there is none, or rows go on beyond the bound, it is the bound itself.
    """
    clear = np.flatnonzero(counts > 3 * noise_std)
    if not clear.size:
        return 1.0
    beyond, target = 0.0, (1 - keep) * rows
    for place in range(int(clear[0]), len(counts)):
        here = max(float(counts[place]), 0.0)
        if beyond + here >= target:
            part = (target - beyond) / here if here else 0.0
            return float(min(1.0, 2.0 ** ((1 - place - part) / 2)))
        beyond += here
    return float(2.0 ** (-(len(counts) - 2) / 2))


def _covariance(job: _Job, view: View, reach: float) -> Question:
    """Ask for the second moments of a view, clipped at ``reach`` times the bound; give them at the view's own scale."""
    asked = replace(view, scale=view.scale / reach, along=view.factors[1] / reach)
    answer = yield ViewCovariance(asked, job.center)
    matrix = (answer.values + answer.values.T) * (reach**2 / 2)
    return Released(matrix, answer.noise_std * reach**2 / math.sqrt(2), job.rows, answer.parties)


def _diagonal(job: _Job) -> Generator[RowQuery, Aggregate, FloatArray]:
    view = View.whole(job.dimension)
    reach = yield from _reach(job, view, power=2)
    answer = yield ViewSquares(replace(view, scale=reach**-0.5, along=None), job.center)
    return np.asarray(answer.values * reach)


def _chosen(job: _Job) -> Generator[RowQuery, Aggregate, Columns]:
    """Have each provider choose pairs of columns; of many providers' choices keep the most frequent."""
    votes = (yield SignPairs(job.dimension, job.center)).values
    return strongest(votes, min(MOST_CANDIDATES, int(np.count_nonzero(votes))))


# --- Stages -----------------------------------------------------------------------------------------------------------


def _in_stages(job: _Job) -> Generator[RowQuery, Aggregate, _Found]:
    diagonal = yield from _diagonal(job)
    chosen = (yield from _chosen(job)) if job.dimension > MANY_COLUMNS else np.arange(0)
    everything = View.whole(job.dimension)
    reach = yield from _reach(job, everything)
    whole = yield from _covariance(job, everything, reach)
    candidates = _candidates(job, diagonal, whole, chosen)
    dense, why = _is_dense(job, whole, candidates, diagonal)
    if dense:
        return (yield from _dense(job, everything, whole, why))
    return (yield from _sparse(job, diagonal, whole, candidates, why))


def _outliers(values: FloatArray, sigmas: float) -> Columns:
    """Find the columns whose value is far above the median, in units of the median absolute deviation."""
    median = np.median(values)
    spread = 1.4826 * np.median(np.abs(values - median))
    far = np.flatnonzero(values > median + sigmas * spread)
    return far if far.size <= MOST_CANDIDATES else strongest(values, MOST_CANDIDATES)


def _candidates(job: _Job, diagonal: FloatArray, whole: Released, chosen: Columns) -> Columns:
    """Name the columns that the diagonal or the whole matrix lets stand out, then those that are tied to these."""
    components, size = job.components, job.dimension
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


def _is_dense(job: _Job, whole: Released, candidates: Columns, diagonal: FloatArray) -> tuple[bool, str]:
    """Tell whether the whole matrix shows more than the candidates hold, beyond what noise explains."""
    components, size, median = job.components, job.dimension, float(np.median(diagonal))
    if not components <= candidates.size <= size // 3:
        return True, f"{candidates.size} of {size} columns stand out, which is no sparse structure"
    all_of_it = debiased(leading(whole.matrix, components)[1] - median, whole.off_std, size).sum()
    held = debiased(leading(whole.block(candidates), components)[1] - median, whole.off_std, candidates.size).sum()
    tolerance = 3 * whole.off_std * math.sqrt(2 * components) + 0.02 * all_of_it + components * size / job.rows * median
    if all_of_it - held > tolerance:
        return True, f"the {candidates.size} columns that stand out hold {held / all_of_it:.0%} of what all show"
    return False, f"{candidates.size} of {size} columns stand out and hold what all show"


def _dense(job: _Job, everything: View, whole: Released, why: str) -> Generator[RowQuery, Aggregate, _Found]:
    """Release the whole matrix twice more, and average."""
    reach = yield from _reach(job, everything)
    whole = whole.joined((yield from _covariance(job, everything, reach)))
    vectors, _ = leading(whole.matrix, job.components)
    plain = replace(everything, axes=vectors)
    reach = yield from _reach(job, plain)
    whole = whole.joined((yield from _covariance(job, plain, reach)))
    components, _ = sparse_or_dense(whole, job.components, job.sparsity)
    return _of_matrix(whole, components, f"dense: {why}")


def _sparse(
    job: _Job, diagonal: FloatArray, whole: Released, candidates: Columns, why: str
) -> Generator[RowQuery, Aggregate, _Found]:
    """Release the candidates' block, prune it, and release it once more at the scale of what was found."""
    components = job.components
    view = View(job.dimension, candidates)
    reach = yield from _reach(job, view)
    block = (yield from _covariance(job, view, reach)).joined(
        Released(whole.block(candidates), whole.off_std, job.rows, whole.parties)
    )
    start = first_guess(leading(block.matrix, components)[0])
    kept = pruned(block, components, block.diagonal, start)
    kept = kept[largest_rows(*leading(block.block(kept), components), job.sparsity)]
    support = candidates[kept]
    own = Released(block.block(kept), block.off_std, job.rows, block.parties)
    components_there, explained, noise, parties = yield from _scaled(job, support, own, diagonal[support])
    return _Found(
        spread_over(job.dimension, support, components_there),
        explained,
        float(max(diagonal.sum(), explained.sum())),
        noise,
        parties,
        f"sparse: {why}",
    )


def _scaled(
    job: _Job, support: Columns, block: Released, diagonal: FloatArray
) -> Generator[RowQuery, Aggregate, tuple[FloatArray, FloatArray, float, int]]:
    """Ask for the block once more, with the part along the components and the rest each divided by its own length.

    Noise is the same in every direction of Frobenius norm, so after undoing the scale the entry between parts of
    lengths a and b carries noise in proportion to a b. The two releases are averaged entry by entry in these axes.
    """
    size, count = len(support), job.components
    vectors, values = leading(block.matrix, count)
    unit = job.spec.norm_bound / math.sqrt(2)  # each part of a typical row becomes as long as this
    shortest = (unit * SHORTEST_PART) ** 2
    there = max(float(values.sum()) / job.rows, shortest)
    along = math.sqrt(there)
    rest = math.sqrt(max(float(np.trace(block.matrix)) / job.rows - there, 0.02 * there, shortest))
    view = View(job.dimension, support, unit / rest, vectors, unit / along)
    reach = yield from _reach(job, view)
    asked = replace(view, scale=view.scale / reach, along=view.factors[1] / reach)
    answer = yield ViewCovariance(asked, job.center)
    released = (answer.values + answer.values.T) / 2
    turned = _completed(vectors)
    lengths = np.concatenate([np.full(count, along), np.full(size - count, rest)]) * (reach / unit)
    scale = np.outer(lengths, lengths)
    second = (turned.T @ released @ turned) * scale
    second_std = answer.noise_std / math.sqrt(2) * scale
    first = turned.T @ block.matrix @ turned
    weight = second_std**-2 / (second_std**-2 + block.off_std**-2)
    joined = weight * second + (1 - weight) * first
    found, explained = leading(joined, count)
    components = _without_noise_rows(job, turned @ found, explained, min(second_std[0, -1], block.off_std), diagonal)
    kept_noise = math.sqrt(2) * min(float(second_std[0, 0]), block.off_std)
    return components, explained, kept_noise, min(answer.parties, block.parties)


def _without_noise_rows(
    job: _Job, vectors: FloatArray, values: FloatArray, off_std: float, diagonal: FloatArray
) -> FloatArray:
    """Set the rows of the components to zero that noise and sampling explain."""
    size, count = vectors.shape
    rest = np.maximum(diagonal - np.square(vectors) @ values, 0.2 * np.median(np.maximum(diagonal, 0)))
    known = np.maximum(values, 1e-300)[None]
    variance = (off_std**2 + rest[:, None] * known / job.rows) / known**2
    keep = np.flatnonzero((np.square(vectors) / variance).sum(axis=1) > chi2.isf(FALSE_ROWS / size, count))
    if keep.size < count:
        return vectors
    cut = np.zeros_like(vectors)
    cut[keep] = thin_qr(vectors[keep])[0]
    return cut


def _completed(vectors: FloatArray) -> FloatArray:
    """Complete orthonormal columns to a square orthogonal matrix."""
    left, _, _ = np.linalg.svd(vectors, full_matrices=True)
    left[:, : vectors.shape[1]] = vectors
    return left


def _model(job: _Job, opened: RowTotals, statement: PrivacyStatement, found: _Found) -> Model:
    order = np.argsort(-found.explained, kind="stable")
    components = fix_signs(np.ascontiguousarray(found.components[:, order].T))
    model = Model(components, statement, mean=opened.center, feature_names=job.spec.schema.names)
    if not job.spec.explained_variance:
        return model
    if opened.rows is None or opened.rows.parties != found.parties:
        return model
    return with_variances(model, found.explained[order] / job.rows, found.total / job.rows, found.noise_std / job.rows)
