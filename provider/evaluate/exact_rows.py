"""Over how many rows sums are exact in floating-point numbers."""

from typing import Final

IN_FLOATS: Final = 2**14
"""Sums of this many rows are exact in float64."""
