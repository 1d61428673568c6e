"""Exact integer answers over one provider's rows. They must not leave without noise."""

from .block_sums import square_memory
from .matrix_shard import MatrixShard, SpectralCheck, with_span
from .shard import Shard, Strategy, keeps_integers

__all__ = [
    "MatrixShard",
    "Shard",
    "SpectralCheck",
    "Strategy",
    "keeps_integers",
    "square_memory",
    "with_span",
]
