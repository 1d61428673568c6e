"""The release for more columns than a matrix can have: candidates by variances and pairs, products with all columns.

The diagonal names candidates, and so do the providers, who choose pairs of columns whose signs agree. The second
moments of the candidates' block show components on them. A product of all columns with these components then shows
whether more takes part. What few columns explain is added to the block, and the budget is spent on it as in the staged
release. Otherwise the components involve many columns, and the rest of the budget goes to a power loop over all of them
(``product_loop``), which starts from the block's components.

A loop that starts at random needs components that stand out by the root of the number of columns before it sees
anything. A block of a few hundred columns shows them much earlier, because its rows are shorter, and from there two
products suffice.

Where the plan leaves a choice between two queries, both have the same price (``Step.instead``). The choice follows from
released numbers alone.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from scipy.special import chdtri

from dpspca.common.algorithms.steps import (
    FALSE_ROWS,
    Columns,
    Estimates,
    bounded_by,
    divided,
    left_out_of,
    spread_over,
    strongest,
    with_left_out,
)
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.job import JobSpec
from dpspca.common.plan import PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import (
    MAX_AXES,
    MAX_TURNED,
    Extent,
    NormHistogram,
    RowQuery,
    TiedColumns,
    ViewCovariance,
    ViewProduct,
    ViewSquares,
)
from dpspca.common.results import Decision, ReleasePath

from .found import Found, limited
from .product_loop import Product, ask_product, join, lengths_of
from .staged_release import (
    MOST_CANDIDATES,
    SPARSE_FRACTION,
    ReleasedBlock,
    ask_again,
    ask_block,
    ask_pairs,
    choice_of_pairs,
    choices,
    usual,
)
from .view_steps import NORMS, SHORT, ReleasedFacts, ask_diagonal, ask_reach

DIAGONAL: Final = 0.10
PAIRS: Final = 0.16
BLOCK: Final = 0.22
PRODUCT: Final = 0.06
TIED: Final = 0.10
WIDE_TIES: Final = 16
"""Further columns that each provider chooses: more than elsewhere, because pairs are chosen among some columns only."""
PAIRED_COLUMNS: Final = 4096
"""Columns among which pairs are chosen, those with the largest variances: a provider counts for every pair of them."""
WIDE_COLUMNS: Final = 1000
"""Columns of the released block."""
MOST_MULTIPLIED: Final = 2**16
"""With more columns no product is asked: it takes time in proportion to all entries, zeros included."""
CLEAR_SCORE: Final = 4.0
"""Standard deviations of noise, from which the columns beyond the block show something together."""
_LEAST_CANDIDATES: Final = 20
LEAST_BEYOND: Final = 0.2
"""Part of the components' energy that must be beyond the block, for a loop over all columns to be worth its noise."""


def multiplies(spec: JobSpec) -> bool:
    """Return whether the plan has products of all columns."""
    dimension = spec.schema.dimension
    return dimension <= MOST_MULTIPLIED and spec.components**2 * dimension <= MAX_TURNED**2


def planned_wide(spec: JobSpec, free: float) -> list[PlannedQuery]:
    """Plan the stages that do not need the matrix of all columns."""
    dimension, components = spec.schema.dimension, spec.components
    most = WIDE_COLUMNS - MOST_CANDIDATES
    check(
        components <= MAX_AXES,
        f"With {dimension} columns, the method auto finds at most {MAX_AXES} components, not {components}.",
        "Ask for fewer components, or use dps-pca.",
    )
    whole, block = Extent(dimension, 0, dimension), Extent(dimension, 0, most)
    every, scaled = Extent(dimension, components, dimension), Extent(dimension, components, WIDE_COLUMNS)
    loops = multiplies(spec)
    product = (ViewProduct, every) if loops else None
    last = _last_share(spec)
    tied = choices(spec, TIED * free, WIDE_TIES)
    first = [
        PlannedQuery("norms", NormHistogram, whole, NORMS * free),
        PlannedQuery("product", ViewProduct, every, PRODUCT * free),
    ]
    return [
        PlannedQuery("norms of squares", NormHistogram, whole, NORMS * free),
        PlannedQuery("diagonal", ViewSquares, whole, DIAGONAL * free),
        choice_of_pairs(spec, PAIRS * free, PAIRED_COLUMNS),
        PlannedQuery("norms on candidates", NormHistogram, block, NORMS * free),
        PlannedQuery("candidates", ViewCovariance, block, BLOCK * free),
        *(first if loops else []),
        PlannedQuery("tied columns", TiedColumns, scaled, TIED * free, event=tied, instead=product),
        PlannedQuery("norms along components", NormHistogram, every if loops else scaled, NORMS * free),
        PlannedQuery("scaled release", ViewCovariance, scaled, last * free, instead=product),
    ]


def _last_share(spec: JobSpec) -> float:
    """Return the share of the last release: what the other stages leave."""
    return 1 - 3 * NORMS - DIAGONAL - PAIRS - BLOCK - TIED - multiplies(spec) * (NORMS + PRODUCT)


def in_wide_stages(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, Found]:
    """Ask the queries that ``planned_wide`` planned."""
    diagonal = yield from ask_diagonal(facts)
    chosen = yield from ask_pairs(facts, _paired(diagonal))
    candidates = np.union1d(_outstanding(facts, diagonal, WIDE_COLUMNS - MOST_CANDIDATES - chosen.size), chosen)
    block = yield from ask_block(facts, diagonal, None, candidates, chosen)
    decided = Decision(ReleasePath.WIDE, 0, int(candidates.size), visible=block.shown)
    last = _last_share(facts.spec)
    if not multiplies(facts.spec):
        return (yield from ask_again(facts, diagonal, None, block, partial(bounded_by, diagonal), decided, last))
    known = block.known
    basis = spread_over(facts.dimension, known.columns, known.axes[:, : facts.components])
    reach = yield from ask_reach(facts, facts.view(), SHORT)
    product = yield from ask_product(facts, basis, reach)
    beyond = _beyond(facts, block, product, diagonal)
    if beyond.is_dense:
        decided = replace(decided, path=ReleasePath.PRODUCTS, held=1 - beyond.part)
        return (yield from _in_products(facts, diagonal, product, decided))
    block = replace(block, known=known.widened(beyond.columns, None, diagonal))
    return (yield from ask_again(facts, diagonal, None, block, partial(_seen_in, product, diagonal), decided, last))


def _paired(diagonal: FloatArray) -> Columns | None:
    """Return the columns among which pairs are chosen, or None if these are all."""
    return strongest(diagonal, PAIRED_COLUMNS) if len(diagonal) > PAIRED_COLUMNS else None


def _outstanding(facts: ReleasedFacts, diagonal: FloatArray, most: int) -> Columns:
    """Return the columns whose variance stands out, at most so many, and the largest few if hardly any does."""
    least = max(SPARSE_FRACTION * facts.components, _LEAST_CANDIDATES)
    return strongest(diagonal, int(np.clip(np.count_nonzero(diagonal > usual(diagonal, 2.5)), least, most)))


def _seen_in(product: Product, diagonal: FloatArray, components: FloatArray, values: FloatArray) -> Estimates:
    """Estimate the loadings of columns that are left out, from a product with nearly the same components."""
    out, turn = left_out_of(components), product.basis.T @ components
    stds = product.std * np.linalg.norm(turn, axis=0)
    gaps = values - max(float(diagonal[out].mean()), 0.0)
    found, noise = divided(product.values[out] @ turn, gaps, stds)
    return Estimates(out, found, noise)


@dataclass(frozen=True, eq=False, slots=True)
class _Beyond:
    """The results of a product beyond a block: columns that stand out, and which part of the energy all others hold."""

    columns: Columns
    part: float
    score: float

    @property
    def is_dense(self) -> bool:
        """Whether the components involve so many columns that none of them stands out."""
        return self.score > CLEAR_SCORE and self.part > LEAST_BEYOND


def _beyond(facts: ReleasedFacts, block: ReleasedBlock, product: Product, diagonal: FloatArray) -> _Beyond:
    """Compare the product's rows beyond the block with noise and sampling error, one by one and together.

    Without noise, row j of a product with eigenvectors is their entries j times the eigenvalues. If column j has no
    part in them, the sum of its squared entries over their variances has a chi-square distribution. A sum of many such
    scores is nearly normal. Sampling counts twice for the energy, because heavy tails make it larger than for normal
    rows.
    """
    known, count = block.known, facts.components
    outside = np.setdiff1d(np.arange(facts.dimension), known.columns)
    squares = np.square(product.values)
    sampled = np.maximum(diagonal, 0.0)[:, None] * np.maximum(known.values, 0.0)[None] / facts.rows
    scores: FloatArray = (squares[outside] / (product.std**2 + sampled[outside])).sum(axis=1)
    standing = outside[scores > chdtri(count, FALSE_ROWS / facts.dimension)]
    room = max(0, WIDE_COLUMNS - MOST_CANDIDATES - known.columns.size)
    energy = squares.sum(axis=1)
    standing = standing[strongest(energy[standing], room)]
    others = np.setdiff1d(outside, standing)
    rest = np.searchsorted(outside, others)
    score = float((scores[rest].mean() - count) / np.sqrt(2 * count / rest.size)) if rest.size else 0.0
    beyond = max(0.0, float((squares[others] - product.std**2 - 2 * sampled[others]).sum()))
    held = float(energy[known.columns].sum() + energy[standing].sum())
    return _Beyond(standing, beyond / (beyond + held) if beyond else 0.0, score)


def _in_products(
    facts: ReleasedFacts, diagonal: FloatArray, first: Product, decided: Decision
) -> Generator[RowQuery, Aggregate, Found]:
    """Spend the rest of the budget on two more products: one like the first, and one at the components' own scale."""
    products = [first]
    products.append((yield from ask_product(facts, first.direction, first.reach)))
    so_far, total = join(products), max(float(diagonal.sum()), 0.0)
    products.append((yield from ask_product(facts, so_far.vectors, None, lengths_of(facts, so_far, total))))
    before = join(products)
    found = before.pruned(facts, diagonal)
    vectors = limited(found.vectors, found.values, facts.sparsity)
    kept = np.square(vectors).sum(axis=1) > 0
    return Found(
        vectors,
        with_left_out(found.loading_std, Estimates.uncut(vectors, before.vectors, before.loading_std)),
        found.values,
        max(total, float(found.values.sum())),
        found.noise_std,
        min(each.parties for each in products),
        found.shown,
        replace(decided, columns=int(np.count_nonzero(kept)), visible=found.shown),
    )
