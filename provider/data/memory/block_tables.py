"""Tables whose rows become floating-point numbers only some at a time. All of them would take too much memory."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from .genotypes import Genotypes
from .stored_rows import StoredRows

BlockTable: TypeAlias = Genotypes | StoredRows
"""Genotypes in memory, or dense rows in scratch."""


def blocks_of(rows: Any) -> Iterator[Any]:  # noqa: ANN401  # a table of any form
    """Give rows as numbers, some at a time if they are not in memory as such."""
    if not isinstance(rows, BlockTable):
        yield rows
        return
    yield np.empty((0, rows.shape[1]))
    yield from (block.toarray() for block in rows.blocks())
