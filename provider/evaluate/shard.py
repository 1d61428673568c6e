"""Evaluates queries over one provider's rows. Its answers are exact, and must not leave without noise."""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial, reduce
from operator import add
from threading import Lock
from typing import Any, Final

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.centering import pairing_of
from dpspca.common.errors import InvalidParameterError, InvalidQueryError, RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy import MAX_SKETCHED_ROWS, ChoiceEvent, Event, WordSource, most_rows
from dpspca.common.queries import (
    ColumnSizes,
    ColumnSums,
    CompressedCovariance,
    Count,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
    GroupedScores,
    NormHistogram,
    NormRange,
    RowQuery,
    RowSparse,
    ScoreHistogram,
    SignPairs,
    SketchQuery,
    SubspaceQuery,
    TiedColumns,
    ViewQuery,
)
from dpspca.common.spec import Centering, JobSpec
from dpspca.provider.data import BlockTable, Genotypes, UsableRows, blocks_of, check_names, differences, zero_row

from .block_sums import LocalThreads
from .genotype_rows import GenotypeRows
from .groups import groups_of
from .integer_rows import integer_columns, integer_csr, integer_csr_columns, integer_rows, placed, row_norms
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
from .packed_rows import BlockRows, PackedRows
from .sketches import SketchAnswers
from .summed_moments import SummedMoments
from .views import (
    answer_view,
    floor_view,
    group_cells,
    ranges_of,
    release_columns,
    release_pairs,
    sign_scores,
    sizes_of,
    tied_scores,
)

_TINY: Final = 2.0**-100
"""A bound that all rows but zeros exceed. Where only signs count, each row is rounded at its own length."""
GRAM_COLUMNS_A_PRODUCT: Final = 50
"""A Gram matrix is faster if d is below 50 to 80 times the number of products asked (``bench/round_cost.py``)."""
GRAM_ARRAYS: Final = 9
"""The wide matrix, its digits, and what an answer takes."""
MAX_CHOSEN_DIMENSION: Final = 2**12
"""Above this, ``for_plan`` never chooses a Gram matrix, which would take more than half a gigabyte."""


class Strategy(StrEnum):
    """How to evaluate. Both strategies give the same bits."""

    STREAM = "stream"
    GRAM = "gram"

    @classmethod
    def for_plan(
        cls, dimension: int, plan: Sequence[Step], *, is_sparse: bool, memory: int | None = None
    ) -> "Strategy":
        """Choose the strategy that should be faster for a job, from public facts: its plan and the form of its rows.

        With fewer rows than columns, streaming the rows would be faster than the matrix. But under add/remove it is not
        public which of the two numbers is larger, and a choice by that would show in the time of an answer.
        """
        products = sum(step.query is CovarianceProduct and not step.extent.blocks for step in plan)
        limit = min(GRAM_COLUMNS_A_PRODUCT * products, MAX_CHOSEN_DIMENSION)
        fits = memory is None or LocalThreads(memory=memory).memory_of(dimension**2, GRAM_ARRAYS) <= memory
        return cls.GRAM if not is_sparse and dimension <= limit and fits else cls.STREAM


def keeps_integers(plan: Sequence[Step]) -> bool:
    """Tell whether a plan asks so often about second moments of all rows that their integers are worth keeping."""
    once = Covariance, CovarianceTriangle, SubspaceQuery
    passes = sum(issubclass(step.query, once) for step in plan)
    passes += sum(step.query is CovarianceProduct and not step.extent.blocks for step in plan)
    return passes + 2 * sum(step.query is CompressedCovariance for step in plan) > 1


class Shard:
    """One provider's rows, prepared under the bounds of a job. It serves any number of jobs and threads."""

    def __init__(  # noqa: PLR0913  # the rows, and how a job prepares them
        self,
        rows: UsableRows,
        norm_bound: float,
        *,
        mean_bound: float | None = None,
        strategy: Strategy = Strategy.STREAM,
        keeps: bool = False,
        threads: int | None = None,
        pairing: int | None = None,
        memory: int | None = None,
    ) -> None:
        """Take rows. ``keeps`` says whether integers go to scratch where each pass would make them anew.

        With a ``pairing``, the differences of pairs of rows are used in their place (``centering.pairing_of``).
        ``memory`` is how many bytes a query may take.
        """
        if strategy is Strategy.GRAM and rows.dimension > MAX_GRAM_DIMENSION:
            raise InvalidParameterError(
                f"A Gram matrix of {rows.dimension} columns is too large: at most {MAX_GRAM_DIMENSION} are allowed.",
                "Use the strategy stream.",
            )
        self._rows = rows if pairing is None else differences(rows, pairing)
        self._pairing = pairing
        self._norm_bound = norm_bound
        self._mean_bound = mean_bound
        self._strategy = strategy
        self._keeps = keeps
        self._engine = LocalThreads(threads, memory)
        self._memory = memory
        self._ready: tuple[bytes, Moments] | None = None
        self._preparing = Lock()

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self._rows.is_sparse

    def require_sums(self, plan: Sequence[Step], parties: int) -> None:
        """Refuse a job if sums over so many rows, or over those of so many providers, would not fit."""
        if self._rows.count > most_rows(parties):
            raise RefusedError(
                f"This provider has more rows than {parties} providers together can add up.", "Name fewer providers."
            )
        if self._memory is not None and self._memory_of(plan) > self._memory:
            raise RefusedError(
                "This job takes more memory than the provider's settings allow.",
                "Use fewer columns, or another method. Or ask the provider's operator to raise memory_mebibytes.",
            )
        if self._rows.count > MAX_SKETCHED_ROWS and any(issubclass(step.query, SketchQuery) for step in plan):
            raise RefusedError("This provider has too many rows for a sketch.", "Choose another method.")

    def _memory_of(self, plan: Sequence[Step]) -> int:
        """Return how many bytes the largest answer of a plan takes. It follows from the plan and the settings alone."""
        return max((self._engine.memory_of(_entries(step)) for step in plan), default=0)

    @property
    def makes_matrix(self) -> bool:
        """Tell whether the first query about second moments also computes the Gram matrix."""
        return self._strategy is Strategy.GRAM

    def fits(self, spec: JobSpec) -> bool:
        """Tell whether the rows were prepared under this job's bounds.

        A query is priced for the spec's bounds and answered under the shard's, so they must be the same.
        """
        mean_bound = spec.mean_bound if spec.centering is Centering.PRIVATE else None
        if self._pairing != pairing_of(spec):
            return False
        return spec.unit.is_row and self._norm_bound == spec.norm_bound and mean_bound in {None, self._mean_bound}

    def check(self, spec: JobSpec) -> None:
        """Refuse a job of another width or with other bounds, before anything is paid for."""
        if not self.fits(spec):
            raise InvalidParameterError(
                "The rows were prepared under other bounds than the job's.", "Prepare them for this job."
            )
        if self._rows.dimension != spec.schema.dimension:
            raise InvalidParameterError(
                f"The rows have {self._rows.dimension} columns, but the job has {spec.schema.dimension}.",
                "Give the columns that the job names, in its order.",
            )
        check_names(self._rows.names, spec.schema)
        if self._rows.is_sparse and spec.centering not in {Centering.NONE, Centering.PAIRS}:
            raise _dense_when_centred()

    def evaluate(self, query: RowQuery) -> Integers:  # noqa: C901, PLR0911  # one return for each query
        """Answer exactly, as integers on the public lattice."""
        match query:
            case Count():
                return np.array([self._rows.count], dtype=np.int64)
            case ColumnSums(scales=scales):
                return self._column_sums(scales)
            case CovarianceProduct(kept=kept, center=center, block=block, blocks=blocks) if blocks:
                return self._block_product(kept, block, blocks, center)
            case CovarianceProduct(kept=kept, center=center):
                return self._moments(center).product(LatticeBasis(kept))
            case CompressedCovariance(kept=kept, center=center):
                return _compressed(self._moments(center), LatticeBasis(kept))
            case Covariance(center=center):
                return (self._moments(center).gram() >> SQUARE_SHIFT).narrow()
            case CovarianceTriangle(center=center):
                upper = np.triu_indices(self._rows.dimension)
                return (self._moments(center).gram() >> SQUARE_SHIFT).narrow()[upper]
            case ViewQuery():
                return self._viewed(query)
            case NormRange(center=center):
                return self._ranges(center)
            case ColumnSizes(center=center):
                return self._sizes(center)
            case _:
                raise InvalidQueryError(f"Rows cannot answer '{query.kind}'.", "Ask a query over rows.")

    def reach(self, step: Step) -> int:
        """Return how many rows, from the first, a planned query needs. A query without noise needs none.

        Such a query asks for the number of rows, which is fixed by the job if rows may still be missing.
        """
        if step.event is None:
            return 0
        extent = step.extent
        return self._edge(extent.block, extent.blocks) if extent.blocks else self._rows.count

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer a query by a private mechanism."""
        if isinstance(query, SubspaceQuery):
            gram = self._moments(query.center).gram().floats()
            return release_subspace(query, event, gram, self._rows.count, words)
        if isinstance(query, SignPairs) and isinstance(event, ChoiceEvent):
            pieces = self._rows.pieces or (slice(None),)
            scores = sum(sign_scores(self._integers(_TINY, query.center, piece, query.scales)) for piece in pieces)
            return release_pairs(np.asarray(scores), event, words, self._rows.count)
        if isinstance(query, TiedColumns) and isinstance(event, ChoiceEvent):
            pieces = self._rows.pieces or (slice(None),)
            placed = (self._integers(_TINY, query.center, piece, query.scales) for piece in pieces)
            totals = sum(tied_scores(rows, query.view) for rows in placed)
            return release_columns(np.asarray(totals), query.view, event, words, self._rows.count)
        raise InvalidQueryError(f"Rows cannot answer '{query.kind}'.", "Ask a query over rows.")

    def start_sketch(self, spec: JobSpec, slot: int) -> SketchAnswers:
        """Start one job's sketch of these rows."""
        return SketchAnswers(partial(self._integers, self._norm_bound), spec.digest(), slot)

    def _viewed(self, query: ViewQuery) -> Integers:
        """Answer a query about a view. Rows that are not in memory together are read piece by piece."""
        pieces = self._rows.pieces or (slice(None),)
        total: Any = reduce(add, (self._viewed_part(query, each) for each in pieces))
        if isinstance(query, NormHistogram | ScoreHistogram | GroupedScores):
            total *= self._rows.count > 0  # the row of zeros that stands for no rows is not counted
        return floor_view(query, total)

    def _viewed_part(self, query: ViewQuery, part: slice) -> Any:  # noqa: ANN401  # integers, or wide ones
        rows = self._columns(query, part)
        if isinstance(query, GroupedScores):
            return group_cells(query, rows, groups_of(blocks_of(self._centred(part, None)[0]), query.group_columns))
        return answer_view(query, rows, self._engine)

    def _columns(self, query: ViewQuery, part: slice) -> BlockRows:
        """Clip rows to the bound, keep the columns of a view, and make integers of them."""
        (matrix, center), columns = self._centred(part, query.center), query.view.columns
        bounds = self._norm_bound, self._norm_bound / query.lift
        if isinstance(matrix, np.ndarray):
            return DenseRows(integer_columns(matrix, columns, bounds, center, query.scales))
        if isinstance(matrix, BlockTable):
            convert = partial(integer_columns, columns=columns, bounds=bounds, center=center, scales=query.scales)
            return PackedRows(matrix, len(columns), convert)
        return SparseRows(integer_csr_columns(_scaled(matrix, query.scales), columns, bounds))

    def _centred(self, part: slice, center: FloatArray | None) -> tuple[Any, FloatArray | None]:
        """Give some of the rows, and what to take off them.

        Of no rows, give a row of zeros and nothing to take off: it adds nothing to any sum, which a centred row would.
        """
        matrix = self._rows.part(part)
        if center is not None and scipy.sparse.issparse(matrix):
            raise _dense_when_centred()
        return (matrix, center) if matrix.shape[0] else (zero_row(matrix), None)

    def _block_product(self, basis: RowSparse, block: int, blocks: int, center: FloatArray | None) -> Integers:
        """Multiply by the rows of one block alone. Rows are in a block by position, whatever other rows contain.

        If there are fewer rows than blocks, some blocks are empty. The number of rows is public if blocks are priced.
        """
        first, last = (self._edge(edge, blocks) for edge in (block - 1, block))
        rows = self._integers(self._norm_bound, center, slice(first, last))
        return StreamedMoments(rows, engine=self._engine).product(LatticeBasis(basis))

    def _edge(self, block: int, blocks: int) -> int:
        """Return how many rows are in a block and the ones before it."""
        return self._rows.count * block // blocks

    def _moments(self, center: FloatArray | None) -> Moments:
        """Prepare the rows for a centre, or reuse them if the last query had the same centre."""
        key = b"" if center is None else center.tobytes()
        with self._preparing:
            if self._ready is None or self._ready[0] != key:
                self._ready = None  # frees memory before more is allocated
                self._ready = key, self._prepare(center)
            return self._ready[1]

    def _prepare(self, center: FloatArray | None) -> Moments:
        if self._rows.pieces is not None:
            return SummedMoments(partial(self._streamed, self._rows.pieces, center))
        rows = self._integers(self._norm_bound, center)
        if self._strategy is Strategy.GRAM:
            return GramMoments(StreamedMoments(rows, engine=self._engine).gram())
        if self._keeps and isinstance(rows, PackedRows):
            rows = rows.kept(self._engine.threads)
        return StreamedMoments(rows, engine=self._engine)

    def _streamed(self, pieces: Sequence[slice], center: FloatArray | None) -> Iterator[Moments]:
        """Prepare rows piece by piece, because they are not in memory together."""
        for piece in pieces:
            yield StreamedMoments(self._integers(self._norm_bound, center, piece), engine=self._engine)

    def _integers(
        self,
        bound: float,
        center: FloatArray | None = None,
        part: slice = slice(None),
        scales: FloatArray | None = None,
    ) -> BlockRows:
        matrix, center = self._centred(part, center)
        if isinstance(matrix, np.ndarray):
            return DenseRows(integer_rows(matrix, bound, center, scales))
        if isinstance(matrix, Genotypes):
            return GenotypeRows(matrix, bound, center, scales)
        if isinstance(matrix, BlockTable):
            convert = partial(integer_rows, norm_bound=bound, center=center, scales=scales)
            return PackedRows(matrix, matrix.shape[1], convert)
        return SparseRows(integer_csr(_scaled(matrix, scales), bound))

    def _column_sums(self, scales: FloatArray | None) -> Integers:
        if self._mean_bound is None:
            raise InvalidQueryError("This job sets no bound for the mean.", "Sign a job that centres privately.")
        return self._integers(self._mean_bound, scales=scales).sums()

    def _ranges(self, center: FloatArray | None) -> Integers:
        """Count rows by their length. It is computed without the bound of the job, which may be far too large."""
        total: Any = 0
        for rows in self._blocks():
            if center is not None and not isinstance(rows, np.ndarray):
                raise _dense_when_centred()
            total = total + ranges_of(row_norms(rows if center is None else rows - center))
        return np.asarray(total)

    def _blocks(self) -> Iterator[FloatArray | scipy.sparse.csr_array]:
        """Give all rows, piece by piece where they are not in memory as numbers. Of no rows, give an empty block."""
        for piece in self._rows.pieces or (slice(None),):
            yield from blocks_of(self._rows.part(piece))

    def _sizes(self, center: FloatArray | None) -> Integers:
        """Count, for each column, the entries of each size, without any bound."""
        total: Any = 0
        for rows in self._blocks():
            if center is not None and not isinstance(rows, np.ndarray):
                raise _dense_when_centred()
            total = total + sizes_of(rows, center)
        return np.asarray(total)


def _entries(step: Step) -> int:
    """Return how many numbers the sum for an answer has."""
    square = SignPairs, SubspaceQuery, CovarianceTriangle
    return step.extent.dimension**2 if issubclass(step.query, square) else math.prod(step.shape)


def _scaled(matrix: Any, scales: FloatArray | None) -> Any:  # noqa: ANN401  # sparse rows
    """Divide the columns of sparse rows, which keeps zeros."""
    if scales is None:
        return matrix
    data = placed(matrix.data, None, scales[matrix.indices])
    return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _dense_when_centred() -> InvalidParameterError:
    return InvalidParameterError(
        "Centring sparse rows would make them dense.", "Leave centring out, or give dense rows."
    )


def _compressed(moments: Moments, basis: Basis) -> Integers:
    square = moments.compressed(basis) >> COMPRESSED_SHIFT
    residual = (moments.trace() >> SQUARE_SHIFT) - int(np.trace(square))
    return np.array([*square.ravel(), residual], dtype=np.int64)
