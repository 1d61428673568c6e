"""Exact integer answers over one provider's rows. They must not leave without noise."""

from .matrix_shard import MatrixShard, SpectralCheck, declared
from .shard import Shard, Strategy

__all__ = [
    "MatrixShard",
    "Shard",
    "SpectralCheck",
    "Strategy",
    "declared",
]
