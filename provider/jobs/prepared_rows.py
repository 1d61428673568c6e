"""The rows of data sets, prepared for jobs. What is prepared for one job is used by no other.

Two jobs may need the same copy of rows or the same matrix. If the second used what was made for the first, the times of
its answers would show whether the first was done by then, on a schedule of its own and as often as it is asked.
"""

from dataclasses import dataclass
from typing import Self

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.job import JobSpec, pairing_of
from dpspca.common.plan import Plan
from dpspca.provider.data import CheckedRows, ClusterRows, DataSet, UsableRows, columns_of, used_later
from dpspca.provider.engines import ClusterSums
from dpspca.provider.evaluate import MatrixShard, Shard, Strategy, keeps_integers

from .offer import OfferedData


@dataclass(frozen=True, slots=True)
class _Preparation:
    """How the rows are prepared for a job. It follows from the signed job alone."""

    columns: tuple[str, ...] | None  # the job is about these in this order, or about all as they stand if None
    rows_per_person: int
    limit: int | None  # the job uses this many of the first rows, or all rows if None
    strategy: Strategy  # for dense rows
    keeps: bool
    memory: int | None

    @classmethod
    def of(cls, plan: Plan, memory: int | None = None) -> Self:
        spec = plan.spec
        strategy = Strategy.for_plan(spec.schema.dimension, plan, is_sparse=False, memory=memory)
        columns = None if spec.dictionary is None else spec.schema.names
        return cls(columns, spec.rows_per_person, catalogue.rows_of(spec), strategy, keeps_integers(plan), memory)


@dataclass(frozen=True)
class PreparedRows:
    """Prepares the rows of data sets for jobs."""

    memory: int | None = None
    """How many bytes the largest answer of a job may take."""

    def of(self, offer: OfferedData, name: str, plan: Plan, least_bound: float | None = None) -> Shard | MatrixShard:
        """Prepare a data set for one job. No row is copied before its first query.

        The job's unit says whether the data are rows or a share of a symmetric matrix.
        """
        return _prepared(offer.data_sets[name], plan.spec, _Preparation.of(plan, self.memory), least_bound)


def _prepared(
    rows: DataSet, spec: JobSpec, preparation: _Preparation, least_bound: float | None
) -> Shard | MatrixShard:
    limit, columns = preparation.limit, preparation.columns
    if isinstance(rows, CheckedRows):
        if not spec.unit.is_row:
            held = rows.first(limit).with_columns(columns)
            return MatrixShard(held, spec.norm_bound, spec.unit, least_bound, preparation.memory)
        return _shard_of(used_later(rows, preparation.rows_per_person, limit, columns), spec, preparation)
    if isinstance(rows, ClusterRows):
        return _shard_of(rows.first(limit).with_columns(columns), spec, preparation)
    if limit is None:
        raise RefusedError(
            "Rows of this data set still arrive, but this job needs all rows at once.",
            "Use the method streaming-power, and set block_rows to the rows of each provider in a round.",
        )
    return _shard_of(columns_of(rows.first(limit), columns), spec, preparation)


def _shard_of(rows: UsableRows, spec: JobSpec, how: _Preparation) -> Shard:
    chosen = Strategy.STREAM if rows.is_sparse else how.strategy
    sums = ClusterSums(rows, spec.norm_bound, spec.mean_bound) if isinstance(rows, ClusterRows) else None
    return Shard(
        rows,
        spec.norm_bound,
        mean_bound=spec.mean_bound,
        strategy=chosen,
        keeps=how.keeps,
        pairing=pairing_of(spec),
        memory=how.memory,
        sums=sums,
    )
