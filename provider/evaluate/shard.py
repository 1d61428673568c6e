"""Evaluates queries over one provider's rows. What it returns is exact, and must not leave without noise."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidParameterError, InvalidQueryError
from dpspca.common.plan import Step
from dpspca.common.privacy import ChoiceEvent, Event, WordSource
from dpspca.common.queries import (
    ColumnSums,
    CompressedCovariance,
    Count,
    CountAbove,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
    NormHistogram,
    RowQuery,
    RowSparse,
    SignPairs,
    SquaredColumns,
    SubspaceQuery,
    ViewQuery,
)
from dpspca.common.spec import Centering, JobSpec
from dpspca.provider.data import UsableRows, check_names, zero_row

from .integer_rows import integer_csr, integer_rows, row_norms
from .mechanisms import release_subspace
from .moments import (
    COMPRESSED_SHIFT,
    MAX_GRAM_DIMENSION,
    SQUARE_SHIFT,
    Basis,
    DenseRows,
    GramMoments,
    LatticeBasis,
    Moments,
    SparseRows,
    StreamedMoments,
)
from .sketches import SketchAnswers
from .summed_moments import SummedMoments
from .views import answer_view, floor_view, release_pairs, sign_scores

GRAM_COLUMNS_A_PRODUCT: Final = 50
"""A Gram matrix pays for itself when d is below 50 to 80 times the products asked (``bench/round_cost.py``)."""
MAX_CHOSEN_DIMENSION: Final = 2**12
"""Where nobody asked for the matrix, it may take half a gigabyte and no more."""


class Strategy(StrEnum):
    """How to evaluate; the answers are the same bits."""

    STREAM = "stream"
    GRAM = "gram"

    @classmethod
    def for_plan(cls, dimension: int, plan: Sequence[Step], *, is_sparse: bool) -> "Strategy":
        """Choose what should be faster for a job, by its plan and the form of its rows: by what is public.

        Where there are fewer rows than columns, going through them would be faster than the matrix. But which of the
        two there are more of is not public under add/remove, and a choice by it would show in the time of an answer.
        """
        products = sum(step.query is CovarianceProduct and not step.extent.blocks for step in plan)
        limit = min(GRAM_COLUMNS_A_PRODUCT * products, MAX_CHOSEN_DIMENSION)
        return cls.GRAM if not is_sparse and dimension <= limit else cls.STREAM


class Shard:
    """One provider's rows, made ready under the bounds of a job, for any number of jobs and threads."""

    def __init__(
        self,
        rows: UsableRows,
        norm_bound: float,
        *,
        mean_bound: float | None = None,
        strategy: Strategy = Strategy.STREAM,
        threads: int | None = None,
    ) -> None:
        if strategy is Strategy.GRAM and rows.dimension > MAX_GRAM_DIMENSION:
            raise InvalidParameterError(
                f"A Gram matrix of {rows.dimension} columns is too large.",
                f"Stream beyond {MAX_GRAM_DIMENSION} columns.",
            )
        self._rows = rows
        self._norm_bound = norm_bound
        self._mean_bound = mean_bound
        self._strategy = strategy
        self._threads = threads
        self._ready: tuple[bytes, Moments] | None = None
        self._preparing = Lock()

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self._rows.is_sparse

    @property
    def makes_matrix(self) -> bool:
        """Tell whether the first query about second moments has the Gram matrix made."""
        return self._strategy is Strategy.GRAM

    def fits(self, spec: JobSpec) -> bool:
        """Tell whether the rows were prepared under this job's bounds.

        A query is priced for the spec's bounds and answered under the shard's: they have to be the same.
        """
        mean_bound = spec.mean_bound if spec.centering is Centering.PRIVATE else None
        return spec.unit.is_row and self._norm_bound == spec.norm_bound and mean_bound in {None, self._mean_bound}

    def check(self, spec: JobSpec) -> None:
        """Refuse a job of another width or with other bounds, before anything is paid for."""
        if not self.fits(spec):
            raise InvalidParameterError(
                "The rows were prepared under other bounds than the job's.", "Prepare them under the job's."
            )
        if self._rows.dimension != spec.schema.dimension:
            raise InvalidParameterError(
                f"The rows have {self._rows.dimension} columns; the job has {spec.schema.dimension}.",
                "Give the columns that the job names, in its order.",
            )
        check_names(self._rows.names, spec.schema)
        if self._rows.is_sparse and spec.centering is not Centering.NONE:
            raise _dense_when_centred()

    def evaluate(self, query: RowQuery) -> Integers:  # noqa: C901, PLR0911  # one way out for each query
        """Answer exactly, as integers on the public lattice."""
        match query:
            case CountAbove(threshold=threshold, power=power):
                return np.array([np.count_nonzero(self._norms(power) > threshold)], dtype=np.int64)
            case Count():
                return np.array([self._rows.count], dtype=np.int64)
            case ColumnSums():
                return self._column_sums()
            case CovarianceProduct(kept=kept, center=center, block=block, blocks=blocks) if blocks:
                return self._block_product(kept, block, blocks, center)
            case CovarianceProduct(kept=kept, center=center):
                return self._moments(center).product(LatticeBasis(kept))
            case CompressedCovariance(kept=kept, center=center):
                return _compressed(self._moments(center), LatticeBasis(kept))
            case Covariance(center=center):
                return self._moments(center).gram() >> SQUARE_SHIFT
            case CovarianceTriangle(center=center):
                return (self._moments(center).gram() >> SQUARE_SHIFT)[np.triu_indices(self._rows.dimension)]
            case SquaredColumns(center=center):
                return self._moments(center).squares() >> SQUARE_SHIFT
            case ViewQuery():
                return self._viewed(query)
            case _:
                raise InvalidQueryError(f"Rows cannot answer '{query.kind}'.", "Ask a query over rows.")

    def reach(self, step: Step) -> int:
        """Say how many rows, from the first, a planned query is about; what is public and exact is about none.

        That is the number of rows, which is a job's own wherever rows may still be missing.
        """
        if step.event is None:
            return 0
        extent = step.extent
        return self._edge(extent.block, extent.blocks) if extent.blocks else self._rows.count

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer what is a private mechanism by itself."""
        if isinstance(query, SubspaceQuery):
            gram = self._moments(query.center).gram()
            return release_subspace(query, event, gram, self._rows.count, words)
        if isinstance(query, SignPairs) and isinstance(event, ChoiceEvent):
            pieces = self._rows.pieces or (slice(None),)
            scores = sum(sign_scores(self._integers(self._norm_bound, query.center, piece)) for piece in pieces)
            return release_pairs(np.asarray(scores), event, words)
        raise InvalidQueryError(f"Rows cannot answer '{query.kind}'.", "Ask a query over rows.")

    def start_sketch(self, spec: JobSpec, slot: int) -> SketchAnswers:
        """Begin one job's sketch of these rows."""
        return SketchAnswers(partial(self._integers, self._norm_bound), spec.digest(), slot)

    def _viewed(self, query: ViewQuery) -> Integers:
        """Answer about a view; of rows that are not in memory together, one piece after the other."""
        total: Any = 0
        for piece in self._rows.pieces or (slice(None),):
            total = total + answer_view(query, self._integers(self._norm_bound, query.center, piece), self._threads)
        if isinstance(query, NormHistogram):
            total[-1] -= self._rows.count == 0  # the row of zeros that stands for no rows is not counted
        return floor_view(query, total)

    def _block_product(self, basis: RowSparse, block: int, blocks: int, center: FloatArray | None) -> Integers:
        """Multiply by the rows of one block alone: by their position, which no other row's content has a part in.

        Where there are fewer rows than blocks, some have none; how many there are is public where blocks are priced.
        """
        first, last = (self._edge(edge, blocks) for edge in (block - 1, block))
        rows = self._integers(self._norm_bound, center, slice(first, last))
        return StreamedMoments(rows, self._threads).product(LatticeBasis(basis))

    def _edge(self, block: int, blocks: int) -> int:
        """Say how many rows are in a block and those before it."""
        return self._rows.count * block // blocks

    def _moments(self, center: FloatArray | None) -> Moments:
        """Prepare the rows once for each centre; the last one is kept."""
        key = b"" if center is None else center.tobytes()
        with self._preparing:
            if self._ready is None or self._ready[0] != key:
                self._ready = None  # makes room before more is taken
                self._ready = key, self._prepare(center)
            return self._ready[1]

    def _prepare(self, center: FloatArray | None) -> Moments:
        if self._rows.pieces is not None:
            return SummedMoments(partial(self._streamed, self._rows.pieces, center))
        rows = self._integers(self._norm_bound, center)
        streamed = StreamedMoments(rows, self._threads)
        return GramMoments(streamed.gram()) if self._strategy is Strategy.GRAM else streamed

    def _streamed(self, pieces: Sequence[slice], center: FloatArray | None) -> Iterator[Moments]:
        """Prepare rows one piece after the other, for they are not in memory together."""
        for piece in pieces:
            yield StreamedMoments(self._integers(self._norm_bound, center, piece), self._threads)

    def _integers(
        self, bound: float, center: FloatArray | None = None, part: slice = slice(None)
    ) -> DenseRows | SparseRows:
        matrix = self._rows.part(part)
        if not matrix.shape[0]:
            matrix = zero_row(matrix)  # adds nothing to any sum
        if isinstance(matrix, np.ndarray):
            return DenseRows(integer_rows(matrix, bound, center))
        if center is not None:
            raise _dense_when_centred()
        return SparseRows(integer_csr(matrix, bound))

    def _column_sums(self) -> Integers:
        if self._mean_bound is None:
            raise InvalidQueryError("This job sets no bound for the mean.", "Sign a job that centres privately.")
        rows = self._integers(self._mean_bound).rows
        return np.asarray(rows.sum(axis=0, dtype=np.int64))

    def _norms(self, power: int) -> FloatArray:
        return row_norms(self._rows.part(slice(None)), squared=power == 2)  # noqa: PLR2004  # of squared entries


def _dense_when_centred() -> InvalidParameterError:
    return InvalidParameterError(
        "Centring sparse rows would make them dense.", "Leave centring out, or give dense rows."
    )


def _compressed(moments: Moments, basis: Basis) -> Integers:
    square = moments.compressed(basis) >> COMPRESSED_SHIFT
    residual = (moments.trace() >> SQUARE_SHIFT) - int(np.trace(square))
    return np.array([*square.ravel(), residual], dtype=np.int64)
