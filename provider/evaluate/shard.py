"""Evaluates queries over one provider's rows. Its answers are exact, and must not leave without noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidParameterError, InvalidQueryError, RefusedError
from dpspca.common.job import Centering, JobSpec, pairing_of
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
    NormRange,
    RowQuery,
    SignPairs,
    SketchQuery,
    SubspaceQuery,
    TiedColumns,
    ViewQuery,
)
from dpspca.provider.data import UsableRows, check_names, copied_columns, forget_kept, paired_later

from .block_sums import LocalThreads
from .mechanisms import release_subspace
from .memory import Need
from .memory_needs import need_of
from .moments import (
    COMPRESSED_SHIFT,
    MAX_GRAM_DIMENSION,
    SQUARE_SHIFT,
    Basis,
    GramMoments,
    LatticeBasis,
    Moments,
    floor_product,
)
from .row_sums import LocalSums, RowSums, dense_when_centred
from .sketches import SketchAnswers
from .views import floor_view, release_columns, release_pairs
from .wide_integers import WideIntegers

GRAM_COLUMNS_A_PRODUCT: Final = 50
"""A Gram matrix is faster if d is below 50 to 80 times the number of products asked (``bench/round_cost.py``)."""
MAX_CHOSEN_DIMENSION: Final = 2**12
"""Above this, ``for_plan`` never chooses a Gram matrix, which would take more than half a gigabyte."""

ARRIVED_BYTES: Final = 24
"""For each number of a block of rows that arrived: as they are read, side by side, and as integers."""


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
        fits = memory is None or Need.of_gram(dimension).bytes(threads=1) <= memory
        return cls.GRAM if not is_sparse and dimension <= limit and fits else cls.STREAM


def keeps_integers(plan: Sequence[Step]) -> bool:
    """Tell whether a plan asks so often about second moments of all rows that their integers are worth keeping."""
    once = Covariance, CovarianceTriangle, SubspaceQuery
    passes = sum(issubclass(step.query, once) for step in plan)
    passes += sum(step.query is CovarianceProduct and not step.extent.blocks for step in plan)
    return passes + 2 * sum(step.query is CompressedCovariance for step in plan) > 1


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The moments that were computed for queries around one centre."""

    center: bytes
    moments: Moments


class Shard:
    """One provider's rows, prepared for one job. No other job uses what was prepared.

    If two jobs shared it, how long the queries of one take would show whether those of the other were done by then.
    """

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
        sums: RowSums | None = None,
    ) -> None:
        """Take rows. ``keeps`` says whether integers go to scratch, so that passes need not compute them again.

        With a ``pairing``, the differences of pairs of rows are used in their place (``centering.pairing_of``).
        ``memory`` is how many bytes a query may take. ``sums`` computes sums over rows that are not here.
        """
        if strategy is Strategy.GRAM and rows.dimension > MAX_GRAM_DIMENSION:
            raise InvalidParameterError(
                f"A Gram matrix of {rows.dimension} columns is too large: at most {MAX_GRAM_DIMENSION} are allowed.",
                "Use the strategy stream.",
            )
        self._rows = rows if pairing is None else paired_later(rows, pairing)
        self._pairing = pairing
        self._norm_bound = norm_bound
        self._mean_bound = mean_bound
        self._strategy = strategy
        self._evaluator = LocalThreads(threads, memory)
        keeps = keeps and strategy is Strategy.STREAM
        self.kept_columns: Final = rows.dimension if keeps else 0
        """Numbers of a row that are kept, as integers, by the first query about second moments."""
        self._sums = sums or LocalSums(self._rows, norm_bound, mean_bound, engine=self._evaluator, keeps=keeps)
        self._memory = memory
        self._ready: _Prepared | None = None
        self._preparing = Lock()

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        return self._rows.is_sparse

    @property
    def copied_columns(self) -> int:
        """Return how many numbers of each row are copied before the first answer."""
        return copied_columns(self._rows)

    def require_sums(self, plan: Sequence[Step], parties: int) -> None:
        """Refuse a job if sums over its rows, or over those of this many providers, would not fit."""
        if self._rows.count > most_rows(parties):
            raise RefusedError(
                f"This provider has too many rows for a job with {parties} providers.", "Name fewer providers."
            )
        if self._memory is not None and max(map(self.memory_of, plan), default=0) > self._memory:
            raise RefusedError(
                "This job takes more memory than the provider's settings allow.",
                "Use fewer columns, smaller blocks of rows, or another method. Or ask the provider's operator to raise "
                "memory_mebibytes.",
            )
        if any(issubclass(step.query, SketchQuery) for step in plan):
            if self._rows.count > MAX_SKETCHED_ROWS:
                raise RefusedError("This provider has too many rows for a sketch.", "Choose another method.")
            if not isinstance(self._sums, LocalSums):
                raise RefusedError(
                    "The sketch of range-projection needs rows that the provider reads itself, and a cluster reads "
                    "those of this data set.",
                    "Choose another method.",
                )

    def memory_of(self, step: Step) -> int:
        """Return how many bytes the answer to a planned query takes. It follows from the settings and the plan.

        Sparse rows count as all of the memory, whatever they take, because how many entries they have is private. An
        answer takes at most about as much as reading them did, which had to fit.
        """
        answer = self._evaluator.memory_of(*need_of(step)) + self._block_memory(step)
        if self.is_sparse and isinstance(self._sums, LocalSums):
            answer = max(answer, self._memory or 0)
        if not self._makes_gram:
            return answer
        dimension = self._rows.dimension  # whichever query makes the matrix
        return max(answer, self._evaluator.memory_of(dimension**2, Need.of_gram(dimension)))

    def _block_memory(self, step: Step) -> int:
        """Return how many bytes the rows of a block take if they are read from files that arrived.

        A job says how many rows a block has. Other rows are read a few at a time.
        """
        if self._rows.pieces is None or not step.extent.blocks:
            return 0
        return ARRIVED_BYTES * -(-self._rows.count // step.extent.blocks) * self._rows.dimension

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
                f"The rows were not prepared for the norm_bound, unit and centering of the job: {spec.norm_bound}, "
                f"{spec.unit} and {spec.centering}.",
                "Prepare them for this job.",
            )
        if self._rows.dimension != spec.schema.dimension:
            raise InvalidParameterError(
                f"The rows have {self._rows.dimension} columns, but the job has {spec.schema.dimension}.",
                "Give the columns that the job names, in its order.",
            )
        check_names(self._rows.names, spec.schema)
        if self._rows.is_sparse and spec.centering not in {Centering.NONE, Centering.PAIRS}:
            raise dense_when_centred()

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly, as integers on the public lattice. Prepare the rows around this centre for later queries."""
        return self._evaluated(query, prepares=True)

    def evaluate_as_prepared(self, query: RowQuery) -> Integers:
        """Answer with what an earlier query prepared, or without. The answer is the same.

        The Gram matrix, and integers that are kept, are for one centre, and the coordinator chooses centres. If each
        query made a matrix of its own, a row would add far more to the time of its answer than the interval of that
        query counts.
        """
        return self._evaluated(query, prepares=False)

    def forget(self) -> list[object]:
        """Drop what was prepared in memory and scratch, and return it. Later queries do without it."""
        gone, self._ready = self._ready, None
        return [gone, *forget_kept(self._rows)]

    def _evaluated(self, query: RowQuery, *, prepares: bool) -> Integers:  # noqa: PLR0911
        match query:
            case Count():
                return np.array([self._rows.count], dtype=np.int64)
            case ColumnSums() | NormRange() | ColumnSizes():
                return _narrow(*self._sums.of(query))
            case CovarianceProduct(block=block, blocks=blocks) if blocks:
                return self._block_product(query, block, blocks)
            case CovarianceProduct(kept=kept, center=center):
                return self._moments(center, prepares=prepares).product(LatticeBasis(kept))
            case CompressedCovariance(kept=kept, center=center):
                return _compressed(self._moments(center, prepares=prepares), LatticeBasis(kept))
            case Covariance(center=center):
                return (self._moments(center, prepares=prepares).gram() >> SQUARE_SHIFT).narrow()
            case CovarianceTriangle(center=center):
                upper = np.triu_indices(self._rows.dimension)
                return (self._moments(center, prepares=prepares).gram() >> SQUARE_SHIFT).narrow()[upper]
            case ViewQuery():
                return floor_view(query, *self._sums.of(query))
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
            totals = _narrow(*self._sums.of(query))
            return release_pairs(totals, query, event, words, self._rows.count)
        if isinstance(query, TiedColumns) and isinstance(event, ChoiceEvent):
            totals = _narrow(*self._sums.of(query))
            return release_columns(totals, query.view, event, words, self._rows.count)
        raise InvalidQueryError(f"Rows cannot answer '{query.kind}'.", "Ask a query over rows.")

    def start_sketch(self, spec: JobSpec, seat: int) -> SketchAnswers:
        """Start one job's sketch of these rows."""
        assert isinstance(self._sums, LocalSums)  # others are refused by ``require_sums``
        return SketchAnswers(partial(self._sums.integers, self._norm_bound), spec.digest(), seat)

    def _block_product(self, query: CovarianceProduct, block: int, blocks: int) -> Integers:
        """Multiply by the rows of one block alone. Rows are in a block by position, whatever other rows contain.

        If there are fewer rows than blocks, some blocks are empty. The number of rows is public if blocks are priced.
        """
        first, last = (self._edge(edge, blocks) for edge in (block - 1, block))
        (halves,) = self._sums.of(query, slice(first, last))
        assert isinstance(halves, WideIntegers)
        return floor_product(halves)

    def _edge(self, block: int, blocks: int) -> int:
        """Return how many rows are in a block and the ones before it."""
        return self._rows.count * block // blocks

    def _moments(self, center: FloatArray | None, *, prepares: bool = True) -> Moments:
        """Prepare the rows for a centre, or use them if they are prepared for it."""
        key = b"" if center is None else center.tobytes()
        if not prepares:
            ready = self._ready
            return ready.moments if ready and ready.center == key else self._sums.moments(center, once=True)
        with self._preparing:
            ready = self._ready
            if ready is None or ready.center != key:
                ready = self._ready = None  # frees memory before more is allocated
                ready = self._ready = _Prepared(key, self._prepare(center))
            return ready.moments

    def _prepare(self, center: FloatArray | None) -> Moments:
        moments = self._sums.moments(center)
        return GramMoments(moments.gram()) if self._makes_gram else moments

    @property
    def _makes_gram(self) -> bool:
        return self._strategy is Strategy.GRAM and self._rows.pieces is None


def _narrow(sums: Integers | WideIntegers) -> Integers:
    assert not isinstance(sums, WideIntegers)  # which second moments are
    return sums


def _compressed(moments: Moments, basis: Basis) -> Integers:
    square = moments.compressed(basis) >> COMPRESSED_SHIFT
    residual = (moments.trace() >> SQUARE_SHIFT) - int(np.trace(square))
    return np.array([*square.ravel(), residual], dtype=np.int64)
