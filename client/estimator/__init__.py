"""``DPSPCA``, with scikit-learn's interface."""

from .estimators import DPSPCA

__all__ = [
    "DPSPCA",
]
