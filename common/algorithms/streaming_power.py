"""The streaming power method (Hardt & Price, NIPS 2014, Figure 2; Mitliagkas, Caramanis & Jain 2013), made private.

Each provider's rows are divided into consecutive blocks, one per round. Round l sends a basis X of p columns and
receives A_l X + noise, where A_l is X^T X over the rows of block l alone. The thin QR of the sum is the next X. Answers
and the coordinator's state have d p numbers. Each row is read once, except for the mean and the explained variance if
these are asked for.

Privacy. Noise is Gaussian, by the sharp sensitivity of A_l X (``CovarianceProduct``). A row is in one block only, so
the rounds compose in parallel (``ParallelEvent``), and each of them has the whole budget. With L rounds, noise does not
grow with sqrt(L) as in a power loop over all rows, but each sum is over n/L rows. For this, the block of a row must not
depend on the content of other rows. Here it depends on the row's position, and the unit must be row-replace-one: the
neighbouring data set has the other row in the same position. So a provider must not sort its rows by their content. The
order must be that of arrival, or of a number that was assigned without looking at the content. Adding or removing a row
would move others from block to block, so these units are refused.

With ``block_rows`` = B, round l of L is about the rows at positions (l-1) B to l B of each provider, counted from its
first, and the job is about the first L B rows and no others. So rows may still arrive while the job runs: each round
waits for its own rows. The argument above still holds, because a row is in one block or in none, by its position alone.
So a provider must fix the position of a row once, when it arrives, independently of the content of all rows; the
neighbouring data set has the other row in the same position at the same time. (Later rows may depend on earlier
answers: beyond what neighbouring data sets share, they can depend on nothing else, and that is post-processing of
private answers.) A provider that has fewer rows refuses the query, or waits for more. A private mean is refused,
because it would be asked before the rows arrive; the explained variance is asked last. The number of rows is the job's
own choice, so it is known without looking at any.

Departures from the paper:

- The paper's algorithm adds no noise, so there is no published accounting.
- Sums replace means, which changes no basis.
- The paper returns p columns, whose span nearly contains the k leading directions. A model has k components: the
  leading left singular vectors of the last product, which cost nothing.
- With ``sparsity``, rows of the last product that do not stand out are left out (``pruned_product``), for free.
- The number of rounds follows from the budget unless it is given. In the paper it depends on the eigenvalues.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from dpspca.common.checks import check, check_whole
from dpspca.common.job import MAX_COMPONENT_ENTRIES, Centering, JobSpec
from dpspca.common.linalg import thin_qr
from dpspca.common.plan import Plan, PlannedQuery, Step, price
from dpspca.common.privacy import MAX_ROWS, usable_mu
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import CovarianceProduct, Extent, RowSparse
from dpspca.common.results import Model, PrivacyStatement

from .steps import (
    Auto,
    ask_closing,
    ask_opening,
    closing,
    described,
    given_columns,
    given_rounds,
    given_sparsity,
    known_options,
    last_product,
    left_vectors,
    opening,
    random_start,
    shares,
)


@dataclass(frozen=True, slots=True)
class StreamingPowerOptions:
    """The options of this method as given. ``columns_of`` and ``rounds_of`` choose those that are missing."""

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
    sparsity: int | Auto | None = field(
        default=None,
        metadata=described(
            "Largest number of columns that may take part, for all components together, or auto: keep the columns that "
            "stand out of the last product. This costs nothing. Default: all columns take part."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        known_options(spec, [each.name for each in fields(cls)])
        return cls(given_columns(spec), given_rounds(spec), _given_block_rows(spec), given_sparsity(spec))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries of a job, with their noise and prices."""
    rows_of(spec)  # refuses more rows than a provider may have
    return price(spec, [*opening(spec), *_rounds(spec), *closing(spec, spec.schema.dimension)])


def run(plan: Plan) -> Algorithm:
    """Ask for the mean if needed, run the power loop over the blocks, and ask for the explained variance."""
    spec = plan.spec
    opened = yield from ask_opening(spec)
    product, rounds = random_start(spec, columns_of(spec)), rounds_of(spec)
    for block in range(1, rounds + 1):
        basis, _ = thin_qr(product)
        answer = yield CovarianceProduct(basis, opened.center, block, rounds)
        product = answer.values
    last = last_product(answer, spec.components, StreamingPowerOptions.of(spec).sparsity)
    found = RowSparse.of(np.ascontiguousarray(left_vectors(last, spec.components)))
    statement = PrivacyStatement.of(plan, parties=answer.parties)
    model = Model(found.dense().T, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, found, opened, model))


def columns_of(spec: JobSpec) -> int:
    """Choose the number of columns of a basis. With twice the components, the paper's bound has its better constant."""
    given, dimension = StreamingPowerOptions.of(spec).columns, spec.schema.dimension
    columns = min(2 * spec.components, dimension) if given is None else given
    check(
        columns * dimension <= MAX_COMPONENT_ENTRIES,
        f"A basis of {columns} columns of {dimension} numbers has more than {MAX_COMPONENT_ENTRIES} numbers.",
        "Ask for fewer columns or components.",
    )
    return columns


def rounds_of(spec: JobSpec) -> int:
    """Choose the number of rounds from the budget alone, never from the data.

    A further round reduces the error of the start by the ratio of the eigenvalues, but leaves fewer rows to each round.
    With L rounds the signal-to-noise ratio falls like 1/L, and only like 1/sqrt(L) in a loop over all rows. So there
    are fewer rounds than in ``dps-pca``, and only a few more for a large budget. Three plus the square root of mu is a
    reasonable choice, not an optimum. Data with a small gap between eigenvalues need more rounds; then set ``rounds``.
    """
    given = StreamingPowerOptions.of(spec).rounds
    if given is not None:
        return given
    return 3 + round(math.sqrt(usable_mu(spec.budget.epsilon, spec.budget.delta)))


def rows_of(spec: JobSpec) -> int | None:
    """Return how many rows of each provider a job is about, counted from the first; None if it is about all rows."""
    block_rows = StreamingPowerOptions.of(spec).block_rows
    if block_rows is None:
        return None
    rows = rounds_of(spec) * block_rows
    check(
        rows <= MAX_ROWS,
        f"{rounds_of(spec)} blocks of {block_rows} rows are more than {MAX_ROWS} rows; their sums could overflow.",
        "Choose fewer rounds, or a smaller block_rows.",
    )
    return rows


def _given_block_rows(spec: JobSpec) -> int | None:
    given = spec.options.get("block_rows")
    if given is None:
        return None
    check(
        spec.centering is not Centering.PRIVATE,
        "block_rows and a private mean cannot be combined: the mean would be asked before all rows have arrived.",
        "Use a public mean or no centering, or leave block_rows out.",
    )
    return check_whole("block_rows", given, least=1, most=MAX_ROWS)


def _rounds(spec: JobSpec) -> list[PlannedQuery]:
    """Plan one query per block. Each may cost all of the remaining budget, because no row is in two blocks."""
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
