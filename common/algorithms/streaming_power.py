"""The streaming power method (Hardt & Price, NIPS 2014, Figure 2; Mitliagkas, Caramanis & Jain 2013), made private.

Every provider's rows are divided into as many consecutive blocks as there are rounds. Round l sends a basis X of p
columns and receives A_l X + noise, with A_l of block l's rows alone; X becomes its thin QR. Answers, and all that the
coordinator holds, are of d p numbers; each row is looked at once, but for the mean and the explained variance where
these are asked for.

Privacy. Noise is Gaussian, by the sharp sensitivity of A_l X (``CovarianceProduct``). A row is in one block, so the
rounds compose in parallel (``ParallelEvent``) and each of them has the whole budget: with L rounds noise does not grow
with sqrt(L), as in a power loop over all rows, but each sum is of n/L rows. This needs an assignment of rows to blocks
in which other rows' content has no part. Here it is by position, and the unit must be replace-one: the neighbour has
its other row in the same place. A provider must therefore not have sorted its rows by what they say: the order is that
of arrival, or of a number that was given without looking at them. Adding or removing a row would move others from
block to block, and is refused.

With ``block_rows`` = B, round l of L is about the rows at positions (l-1) B to l B of each provider, counted from its
first, and the job about the first L B rows and no others. So rows may still arrive while the job runs: a round waits
for its own, and later ones need not be there. All of the above holds, and rests on the same: a row is in one block or
in none, by its position alone. A provider must therefore fix a row's position once, when the row comes, and in a way in
which no row's content has a part; the neighbour has its other row in the same place, at the same time. (What comes
later may depend on what was answered before: answers are all that it can depend on beyond what neighbours share, and
what follows from a private answer is as private.) A provider that has fewer rows refuses, or waits for more. The mean
may then not be asked, for it is asked before the rows are there; what is explained is asked last. How many rows there
are is the job's own choice, and is told without looking at any.

Where it departs from the paper:

- The paper's algorithm has no noise but that of sampling, and so no published accounting.
- Sums instead of means, which changes no basis.
- The paper returns p columns, whose span holds the k leading directions nearly; a model has k. They are the leading
  left singular vectors of the last product, which cost nothing.
- The number of rounds follows from the budget unless it is given; the paper's depends on the eigenvalues.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.linalg import thin_qr
from dpspca.common.model import Model
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.privacy import MAX_ROWS, usable_mu
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import CovarianceProduct, Extent, RowSparse
from dpspca.common.spec import MAX_COMPONENT_ENTRIES, Centering, JobSpec
from dpspca.common.statement import PrivacyStatement

from .options import described
from .row_steps import (
    ask_closing,
    ask_opening,
    closing,
    given_columns,
    given_rounds,
    known_options,
    opening,
    random_start,
    shares,
)


@dataclass(frozen=True, slots=True)
class StreamingPowerOptions:
    """What only this algorithm knows, as it was given; ``columns_of`` and ``rounds_of`` decide what was left out."""

    columns: int | None = field(
        default=None, metadata=described("Number of columns of the basis. Default: twice the number of components.")
    )
    rounds: int | None = field(
        default=None, metadata=described("Number of rounds and of blocks of rows. Default: by the budget.")
    )
    block_rows: int | None = field(
        default=None,
        metadata=described(
            "Rows of each provider in a block, which may still arrive while the job runs. Default: all rows, divided."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        known_options(spec, [each.name for each in fields(cls)])
        return cls(given_columns(spec), given_rounds(spec), _given_block_rows(spec))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query this job will ask, its noise and its price."""
    rows_of(spec)  # refused if no provider could have them
    return price(spec, [*opening(spec), *_rounds(spec), *closing(spec, spec.schema.dimension)])


def run(plan: Plan) -> Algorithm:
    """Ask for the mean if it is wanted, turn the power loop through the blocks, ask what was explained."""
    spec = plan.spec
    opened = yield from ask_opening(spec)
    product, rounds, parties = random_start(spec, columns_of(spec)), rounds_of(spec), 1
    for block in range(1, rounds + 1):
        basis, _ = thin_qr(product)
        answer = yield CovarianceProduct(basis, opened.center, block, rounds)
        product, parties = answer.values, answer.parties
    found = RowSparse.of(_leading(product, spec.components))
    statement = PrivacyStatement.of(plan, parties=parties)
    model = Model(found.dense().T, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, found, opened, model))


def columns_of(spec: JobSpec) -> int:
    """Choose how many columns a basis has: of twice the components, the paper's bound has its better constant."""
    given, dimension = StreamingPowerOptions.of(spec).columns, spec.schema.dimension
    columns = min(2 * spec.components, dimension) if given is None else given
    check(
        columns * dimension <= MAX_COMPONENT_ENTRIES,
        f"{columns} columns of {dimension} numbers are more than {MAX_COMPONENT_ENTRIES} numbers.",
        "Take fewer columns.",
    )
    return columns


def rounds_of(spec: JobSpec) -> int:
    """Choose the number of rounds from the budget alone, never from the data.

    A further round shrinks what the start left behind, by the ratio of the eigenvalues, and leaves fewer rows to each:
    against noise of one width the signal falls like 1/L, where a loop over all rows loses sqrt(L). So there are
    fewer rounds than ``dps-pca`` takes, and few more where the budget is large. Three and the square root of mu are a
    choice, and no optimum. Eigenvalues that hardly stand out need more rounds; then set them.
    """
    given = StreamingPowerOptions.of(spec).rounds
    if given is not None:
        return given
    return 3 + round(math.sqrt(usable_mu(spec.budget.epsilon, spec.budget.delta)))


def rows_of(spec: JobSpec) -> int | None:
    """Say how many rows of each provider, from its first, a job is about; None if it is about all that there are."""
    block_rows = StreamingPowerOptions.of(spec).block_rows
    if block_rows is None:
        return None
    rows = rounds_of(spec) * block_rows
    check(
        rows <= MAX_ROWS,
        f"{rounds_of(spec)} blocks of {block_rows} rows are more than {MAX_ROWS} rows, and their sums could overflow.",
        "Take fewer rounds, or a smaller block_rows.",
    )
    return rows


def _given_block_rows(spec: JobSpec) -> int | None:
    given = spec.options.get("block_rows")
    if given is None:
        return None
    check(
        spec.centering is not Centering.PRIVATE,
        "With block_rows the mean cannot be asked: it comes before the rows, which may still arrive.",
        "Centre around a public mean, or not at all; or leave block_rows out.",
    )
    return check_whole("block_rows", given, least=1, most=MAX_ROWS)


def _rounds(spec: JobSpec) -> list[PlannedQuery]:
    """Plan a query about each block. Each takes all that is left of the budget, for no row is in two of them."""
    dimension, columns, rounds, share = spec.schema.dimension, columns_of(spec), rounds_of(spec), shares(spec)["rest"]
    return [
        PlannedQuery(
            f"round {block} of {rounds}",
            CovarianceProduct,
            Extent(dimension, columns, dimension, block, rounds),
            share,
        )
        for block in range(1, rounds + 1)
    ]


def _leading(product: FloatArray, components: int) -> FloatArray:
    """Choose the leading left singular vectors, as columns."""
    vectors, _, _ = np.linalg.svd(product, full_matrices=False)
    return np.ascontiguousarray(vectors[:, :components])
