"""Tables whose rows become floating-point numbers only some at a time. All of them would take too much memory."""

from typing import TypeAlias

from .genotypes import Genotypes
from .stored_rows import StoredRows

BlockTable: TypeAlias = Genotypes | StoredRows
"""Genotypes in memory, or dense rows in scratch."""
