"""Exact integer answers over one provider's rows. They must not leave without noise."""

from .block_sums import LocalThreads, square_memory
from .matrix_shard import MatrixShard, SpectralCheck, with_span
from .moments import Moments
from .row_sums import LocalSums, QueriedMoments, RowSums, Sums
from .shard import Shard, Strategy, keeps_integers
from .wide_integers import WideIntegers

__all__ = [
    "LocalSums",
    "LocalThreads",
    "MatrixShard",
    "Moments",
    "QueriedMoments",
    "RowSums",
    "Shard",
    "SpectralCheck",
    "Strategy",
    "Sums",
    "WideIntegers",
    "keeps_integers",
    "square_memory",
    "with_span",
]
