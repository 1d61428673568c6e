"""The improved power loop of ``dps_pca``: it uses all rounds, keeps fewer rows in each, and ends with a release.

- Products of all rounds are joined (``stages.join``), so that every round adds to what is known.
- The number of rows that are kept shrinks from all to the sparsity in equal ratios. A row that is lost early can hardly
  come back, and noise rows that stay in cost later rounds.
- Rows are clipped at a bound that is found privately, as in ``automatic``.
- The end is not one more product. The columns that stand out from noise and sampling are released as a block, pruned to
  a fixed point, and released again at the scale of their components (``scaled_release``).

With more than ``MOST_RELEASED`` columns to be kept, the end is a product at the components' scale, and pruning. If all
columns may be kept, and are no more than that, all of them are candidates. Rounds would tell nothing, so there are
none, and the releases have their share of the budget.

Privacy: every query has its price in the plan, and is about a view. Which rows are kept follows from released numbers.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import chdtri

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.job import JobSpec
from dpspca.common.linalg import largest_rows, thin_qr
from dpspca.common.plan import PlannedQueries, PlannedQuery, QuerySeries
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import MAX_AXES, MAX_TURNED, Extent, NormHistogram, RowQuery, ViewCovariance, ViewProduct

from .stages import (
    NORMS,
    Joined,
    Product,
    Reach,
    ReleasedFacts,
    ask_block,
    ask_product,
    ask_reach,
    ask_scaled,
    join,
    lengths_of,
    limited,
)
from .steps import Columns, random_start, spread_over

ROUNDS: Final = 6
LOOP: Final = 0.60
"""Share of all rounds together."""
BLOCK: Final = 0.12
RELEASED: Final = 1 - 3 * NORMS - LOOP - BLOCK
"""Share of the scaled release."""
MOST_RELEASED: Final = 1000
"""Columns of a block that is released as a matrix."""
_WEAK: Final = 0.5
"""Rows that noise exceeds with this probability are no candidates for the block."""


@dataclass(frozen=True, eq=False, slots=True)
class LoopEnd:
    """Components as columns, and from how many providers all answers came."""

    components: FloatArray
    parties: int


def usual_rounds(sparsity: int, dimension: int) -> int:
    """Return the number of rounds unless it is set."""
    return 0 if dimension <= sparsity <= MOST_RELEASED else ROUNDS


def planned_rounds(spec: JobSpec, sparsity: int, rounds: int, free: float) -> PlannedQueries:
    """Plan all rounds and the end, for the share ``free`` of the budget."""
    dimension, count = spec.schema.dimension, spec.components
    check(
        count <= MAX_AXES and count**2 * dimension <= MAX_TURNED**2,
        f"The improved loop cannot multiply {dimension} columns by {count} components exactly.",
        "Ask for fewer components, or use the plain loop.",
    )
    everything, every = Extent(dimension, 0, dimension), Extent(dimension, count, dimension)
    kept, scaled = Extent(dimension, 0, sparsity), Extent(dimension, count, sparsity)
    product = PlannedQuery("round 1", ViewProduct, every, LOOP * free, rounds)
    loop: PlannedQueries = [
        PlannedQuery("norms", NormHistogram, everything, NORMS * free),
        QuerySeries(product, rounds, lambda number: f"round {number} of {rounds}", f"rounds ({rounds})"),
    ]
    if not rounds:
        loop, free = [], free / (1 - NORMS - LOOP)
    if sparsity > MOST_RELEASED:
        last = 1 - 2 * NORMS - LOOP
        end = [
            PlannedQuery("norms along components", NormHistogram, every, NORMS * free),
            PlannedQuery("scaled product", ViewProduct, every, last * free),
        ]
    else:
        end = [
            PlannedQuery("norms on candidates", NormHistogram, kept, NORMS * free),
            PlannedQuery("candidates", ViewCovariance, kept, BLOCK * free),
            PlannedQuery("norms along components", NormHistogram, scaled, NORMS * free),
            PlannedQuery("scaled release", ViewCovariance, scaled, RELEASED * free),
        ]
    return [*loop, *end]


def in_rounds(facts: ReleasedFacts, sparsity: int, rounds: int) -> Generator[RowQuery, Aggregate, LoopEnd]:
    """Ask the queries that ``planned_rounds`` planned."""
    products = list[Product]()
    if rounds:
        reach = yield from ask_reach(facts, facts.view())
        products = yield from _loop(facts, reach, sparsity, rounds)
    if sparsity > MOST_RELEASED:
        return (yield from _end_in_products(facts, products, sparsity))
    return (yield from _end_in_release(facts, products, sparsity))


def _loop(
    facts: ReleasedFacts, reach: Reach, sparsity: int, rounds: int
) -> Generator[RowQuery, Aggregate, list[Product]]:
    """Ask for one product after the other, each with the best basis so far."""
    dimension = facts.dimension
    basis, products = random_start(facts.spec, facts.components), list[Product]()
    for number in range(1, rounds + 1):
        products.append((yield from ask_product(facts, basis, reach)))
        part = (sparsity / dimension) ** (number / max(1, rounds - 1))
        basis = _narrowed(join(products), max(sparsity, round(dimension * part)))
    return products


def _narrowed(found: Joined, most: int) -> FloatArray:
    """Keep the rows of the components that are largest at their strengths, as an orthonormal basis."""
    kept = largest_rows(found.vectors * found.sizes, most)
    return spread_over(len(found.vectors), kept, thin_qr(found.vectors[kept] * found.sizes)[0])


def _end_in_products(
    facts: ReleasedFacts, products: list[Product], sparsity: int
) -> Generator[RowQuery, Aggregate, LoopEnd]:
    """End with a product at the scale of the components, and drop what noise explains."""
    found = join(products)
    total = facts.rows * (facts.spec.norm_bound * products[0].reach.length) ** 2  # rows are hardly longer
    last = yield from ask_product(facts, found.vectors, None, lengths_of(facts, found, total))
    found = join([*products, last])
    cut = limited(found.pruned(facts, np.zeros(facts.dimension)).vectors, found.values, sparsity)
    return LoopEnd(cut, min(each.parties for each in (*products, last)))


def _end_in_release(
    facts: ReleasedFacts, products: list[Product], sparsity: int
) -> Generator[RowQuery, Aggregate, LoopEnd]:
    """End with the block of the columns that stand out, pruned, and with its release at the scale of its components."""
    candidates = _candidates(join(products), sparsity) if products else np.arange(facts.dimension)
    block = yield from ask_block(facts, np.zeros(facts.dimension), None, candidates)
    known = block.known
    scaled = yield from ask_scaled(facts, known, np.maximum(np.diagonal(known.matrix), 0.0), RELEASED / NORMS)
    components = spread_over(facts.dimension, known.columns, limited(scaled.components, scaled.values, sparsity))
    return LoopEnd(components, min([scaled.parties, *(each.parties for each in products)]))


def _candidates(found: Joined, sparsity: int) -> Columns:
    """Return the columns that stand out from noise and sampling, at most ``sparsity``; at least one for each component.

    Most columns have no part in sparse components, so their median shows how far noise and sampling error reach.
    """
    products = found.vectors * found.sizes
    usual = 1.4826 * np.median(np.abs(products), axis=0)
    scores: FloatArray = np.square(products / np.maximum(found.stds, usual)).sum(axis=1)
    order = np.argsort(-scores, kind="stable")[:sparsity]
    clear = int(np.count_nonzero(scores[order] > chdtri(len(found.sizes), _WEAK)))
    all_may_count = sparsity >= len(scores)
    kept: Columns = np.sort(order if all_may_count else order[: max(clear, len(found.sizes))])
    return kept
