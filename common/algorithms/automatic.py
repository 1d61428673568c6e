"""The default method: it decides how to spend the budget from public facts and released numbers.

With few columns, the whole matrix is released, and then once more what the first release shows to matter: the columns
that take part, or all of them, at the scale of the components where that leaves less noise (``last_release``). With
more columns, the release has stages, so that later queries can be about the columns that earlier answers found:

1. The diagonal, and the whole matrix for a part of the budget, give candidate columns. With many columns, providers
   also choose pairs of columns whose signs agree.
2. The block of the candidates, clipped at its own bound, is released and pruned. Providers choose further columns that
   correlate with the components found so far.
3. The scaled release: the block is rotated to the axes found so far. The part along them and the rest are each divided
   by their own length, so that the noise of an entry is proportional to the lengths of its two parts.

If the whole matrix explains more than the candidates do, the components are dense. Then stage 2 is about all columns,
stage 3 is as with few columns, and all releases are averaged.

Each stage also asks for a histogram of norms, for a hundredth of the budget, and clips at a quantile that depends on
the numbers of columns and rows and on the budget; the scaled release is clipped where its error is least
(``clip_choice``). So a ``norm_bound`` that is far too large does no harm. If the norm
bound is private, a coarse histogram comes first, whose bins cover a factor of 16 each. If columns are to be scaled,
queries about their sizes come first (``column_scales``). What the components explain is asked for at the end, because
the clipped releases cannot say it (``score_variances``).

Privacy: the queries depend on released numbers, but their prices do not. Every step has the noise that the plan fixed
for its share of mu^2. Queries differ only in their ``View``, and all views have the same sensitivity
(``dpspca.common.queries.views``). So the sum of mu^2 holds although the queries are adaptive (Smith & Thakurta 2022).

If there are too many columns for any matrix of d^2 numbers, or the job wants smaller answers, candidates come from the
diagonal and from pairs, and products show what is beyond them (``wide_release``).

This method is not from a paper. Where nothing is gained by another scale, few columns are released as by "Analyze
Gauss" (Dwork, Talwar, Thakurta & Zhang 2014).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dpspca.common.checks import check
from dpspca.common.errors import InvalidTypeError
from dpspca.common.job import PRIVATE_BOUND, JobSpec, Scalar
from dpspca.common.names import shortened
from dpspca.common.plan import EXPLAINING, Plan, PlannedQuery, Step, price
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import MAX_AXES, SCORES, Extent, NormRange
from dpspca.common.results import Decision, Model, PrivacyStatement, fix_signs

from .stages import (
    NORMS,
    PICTURE,
    SPARSE_FRACTION,
    WIDE_COLUMNS,
    Found,
    ReleasedFacts,
    ScoreVariances,
    ask_gain,
    ask_mean,
    ask_picture,
    ask_scales,
    ask_sizes,
    ask_variances,
    checked_group,
    explains_scores,
    in_stages,
    in_two_releases,
    in_wide_stages,
    multiplies,
    planned_mean,
    planned_picture,
    planned_scales,
    planned_sizes,
    planned_stages,
    planned_twice,
    planned_variances,
    planned_wide,
    scaled_facts,
    share_of_rough_mean,
    share_of_scales,
)
from .steps import (
    AUTO,
    MAX_MATRIX_COLUMNS,
    Auto,
    RowTotals,
    ask_center,
    ask_rows,
    at_least_one,
    described,
    given_sparsity,
    known_options,
    opening,
    shares,
    with_variances,
)

FEW_COLUMNS: Final = 100
"""With at most this many columns, no budget goes to a search for columns, which would cost more than it gains."""


@dataclass(frozen=True, slots=True)
class AutoOptions:
    """The options of this method. It decides everything else."""

    sparsity: int | Auto = field(
        default=AUTO,
        metadata=described(
            "Largest number of columns that may take part, for all components together, or auto: decided from released "
            "numbers, at no cost."
        ),
    )

    fewer: bool = field(
        default=False,
        metadata=described(
            "Whether to leave out components that do not show above the noise, or that explain less than an average "
            "column. At least one is kept."
        ),
    )

    matrix: bool = field(
        default=True,
        metadata=described(
            "Whether to release the covariance matrix of all columns if there are at most 8,192. Without it, answers "
            "are much smaller, as with more columns: a matrix of those that stand out, and products of all."
        ),
    )

    picture: bool = field(
        default=False,
        metadata=described(
            "Whether to count, for a tenth of the budget, how many rows have their scores on the first two components "
            "in each cell of a plane, for a picture."
        ),
    )

    picture_by: str | None = field(
        default=None,
        metadata=described(
            "A category of the dictionary, whose levels the picture then shows apart, at the same price. Default: all "
            "rows together."
        ),
    )

    @property
    def most(self) -> int | None:
        """The largest number of columns, or None if there is no limit."""
        return None if self.sparsity == AUTO else self.sparsity

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, ("sparsity", "fewer", "matrix", "picture", "picture_by"))
        fewer, picture = (_yes_or_no(given, name) for name in ("fewer", "picture"))
        matrix = _yes_or_no(given, "matrix", default=True)
        check(
            matrix or spec.schema.dimension > WIDE_COLUMNS,
            f"matrix is false, but there are only {spec.schema.dimension} columns.",
            f"Leave it out: up to {WIDE_COLUMNS} columns, their matrix is as small as what would take its place.",
        )
        by = given.get("picture_by")
        if not isinstance(by, str | None):
            raise InvalidTypeError(f"picture_by is {shortened(by)}, which is not text.", "Give the name of a category.")
        return cls(given_sparsity(spec) or AUTO, fewer, matrix, picture, checked_group(spec, picture=picture, by=by))


def _yes_or_no(given: Mapping[str, Scalar], name: str, *, default: bool = False) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise InvalidTypeError(f"{name} is {shortened(value)}, neither true nor false.", "Give true or false.")
    return value


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries. Their order and prices are fixed; their content may follow from earlier answers."""
    options = AutoOptions.of(spec)
    dimension = spec.schema.dimension
    counted = replace(spec, explained_variance=True)  # the number of rows is needed in any case
    divided = shares(counted)
    free, last = divided["rest"], divided[EXPLAINING]
    ranges, picture, explained = [], [], []
    columns = WIDE_COLUMNS if _is_wide(spec) and not multiplies(spec) else dimension
    if explains_scores(spec):
        explained = planned_variances(spec, columns, last)
    else:
        free += last
    if options.picture:
        picture, free = [planned_picture(spec, columns, PICTURE * free, options.picture_by)], (1 - PICTURE) * free
    first, second, free = planned_sizes(spec, free), planned_scales(spec, free), (1 - share_of_scales(spec)) * free
    if spec.norm_bound == PRIVATE_BOUND and not second:  # scaled rows are as long as there are columns
        ranges, free = [PlannedQuery("range of norms", NormRange, Extent(dimension), NORMS * free)], (1 - NORMS) * free
    count, *mean = opening(counted)
    mean, free = planned_mean(spec, free, mean), (1 - share_of_rough_mean(spec)) * free
    plan_of = planned_wide if _is_wide(spec) else planned_twice if _is_short(spec) else planned_stages
    stages = plan_of(spec, free)
    return price(spec, [*first, count, *mean, *ranges, *second, *stages, *explained, *picture])


def _is_wide(spec: JobSpec) -> bool:
    """Return whether the matrix of all columns is not asked for: there are too many, or the job wants small answers."""
    return spec.schema.dimension > MAX_MATRIX_COLUMNS or not AutoOptions.of(spec).matrix


def _is_short(spec: JobSpec) -> bool:
    """Return whether two releases are enough: there are few columns, or so many components that most columns count.

    A view has at most ``MAX_AXES`` axes, so stages cannot find more components than that.
    """
    dimension, components = spec.schema.dimension, spec.components
    if _is_wide(spec):
        return False
    return dimension <= FEW_COLUMNS or SPARSE_FRACTION * components > dimension or components > MAX_AXES


def run(plan: Plan) -> Algorithm:
    """Ask the queries stage by stage, and make a model of all releases."""
    spec = plan.spec
    sizes = yield from ask_sizes(spec)
    counted = replace(spec, explained_variance=True)
    rows = yield from ask_rows(counted)
    assert rows is not None
    opened = yield from (ask_mean(plan, rows) if sizes is None else ask_center(counted, rows, sizes))
    facts = ReleasedFacts(spec, opened.center, at_least_one(opened.rows), AutoOptions.of(spec).most, sizes)
    if sizes is not None:
        facts = scaled_facts(facts)
        facts = replace(facts, scales=(yield from ask_scales(facts)))
    elif spec.norm_bound == PRIVATE_BOUND:
        facts = yield from ask_gain(facts)
    find = in_wide_stages if _is_wide(spec) else in_two_releases if _is_short(spec) else in_stages
    found = yield from find(facts)
    found = _in_order(found, np.argsort(-found.explained, kind="stable"))
    kept, decision = _decided(facts, found)
    decision = replace(decision, mean_noise=_mean_noise(facts, opened))
    variances = ScoreVariances(found.explained, found.noise_std, found.parties)
    if explains_scores(spec):
        variances = yield from ask_variances(facts, found)
        found, variances = _in_order(found, variances.order(kept)), variances.in_order(kept)
    values = tuple((found.explained[:kept] / _scale(facts)).tolist())
    decision = replace(decision, values=values, longer=variances.longer)
    if variances.clipped is not None:
        decision = replace(decision, clipped=variances.clipped * spec.norm_bound / facts.gain)
    found = replace(found, decision=decision)
    model = _model(facts, opened, PrivacyStatement.of(plan, parties=found.parties), found, kept)
    options = AutoOptions.of(spec)
    if options.picture:
        squares = variances.where_clear(found.explained)
        scores = yield from ask_picture(facts, found.components, squares, found.total, options.picture_by)
        model = replace(model, scores=scores if kept >= SCORES else None)
    return _explained(facts, opened, found, variances, model)


def _in_order(found: Found, order: NDArray[np.intp]) -> Found:
    """Put the components in this order, and fix their signs."""
    return replace(
        found,
        components=fix_signs(np.ascontiguousarray(found.components[:, order].T)).T,
        explained=found.explained[order],
        loading_std=found.loading_std[:, order],
    )


def _decided(facts: ReleasedFacts, found: Found) -> tuple[int, Decision]:
    """Decide how many components are kept, and note what the decision rests on."""
    decision = replace(found.decision, hidden=facts.hidden, noise_std=found.noise_std / _scale(facts))
    if not AutoOptions.of(facts.spec).fewer:
        return facts.components, decision
    above = int(np.count_nonzero(found.explained > max(found.total, 0.0) / facts.dimension))
    clear, useful = min(found.shown, facts.components), min(found.shown, above)
    return max(useful, 1), replace(decision, asked=facts.components, clear=clear, useful=useful)


def _mean_noise(facts: ReleasedFacts, opened: RowTotals) -> float | None:
    """Return the mean squared length of the noise in a private mean. Centred rows have it along one direction."""
    if opened.noise is None or facts.hidden:
        return None
    scales = 1.0 if facts.scales is None else facts.scales
    return float(np.square(opened.noise / scales).sum())


def _model(facts: ReleasedFacts, opened: RowTotals, statement: PrivacyStatement, found: Found, kept: int) -> Model:
    return Model(
        np.ascontiguousarray(found.components[:, :kept].T),
        statement,
        mean=opened.center,
        scales=facts.scales,
        feature_names=facts.spec.schema.names,
        decision=found.decision,
        loading_std=np.ascontiguousarray(found.loading_std[:, :kept].T),
    )


def _explained(facts: ReleasedFacts, opened: RowTotals, found: Found, variances: ScoreVariances, model: Model) -> Model:
    """Add what the components explain, if it is wanted and all answers come from the same providers."""
    if not facts.spec.explained_variance or opened.rows is None:
        return model
    if not opened.rows.parties == found.parties == variances.parties:
        return model
    scale, kept = _scale(facts), len(model.components)
    total = found.total / scale
    shares = with_variances(model, found.explained[:kept] / scale, total, found.noise_std / scale)
    model = with_variances(model, variances.values[:kept] / scale, total, variances.noise_std / scale)
    # The total is that of clipped rows, and so are the shares of it.
    return replace(model, explained_variance_ratio=shares.explained_variance_ratio)


def _scale(facts: ReleasedFacts) -> float:
    """Return the number by which sums over all rows are divided to give variances of the rows.

    If the length of rows is unknown, variances are given for rows of length one.
    """
    return facts.rows * (facts.spec.norm_bound if facts.hidden else facts.gain) ** 2
