"""Which rows of a divided table are a provider's own: a public fact, declared beside the data and never read off them.

A share of [[0, M], [M^T, 0]] says something of its provider's rows and of the columns, which all providers share. In
the other rows of a product every share that this provider could hold, and so every neighbour of the one it holds, has
exact zeros: what has one value whatever the data are needs no noise (``Responder`` leaves it out).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .spec import MAX_DIMENSION, check_whole


@dataclass(frozen=True, slots=True)
class Span:
    """``rows`` rows from ``start`` on, counted from 0, of a table ``of`` so many rows over all providers.

    Whoever declares it must know it from how the table was divided. Rows that merely happen to be zero are own rows: a
    span that was cut down to where the data are would give away where they are.
    """

    start: int
    rows: int
    of: int

    def __post_init__(self) -> None:
        """Refuse what no table has; whole numbers of other kinds become Python's."""
        of = check_whole("the number of rows in all", self.of, least=1, most=MAX_DIMENSION - 1)
        rows = check_whole("the number of own rows", self.rows, least=1, most=of)
        start = check_whole("the first row's place", self.start, least=0, most=of - rows)
        for name, value in (("start", start), ("rows", rows), ("of", of)):
            object.__setattr__(self, name, value)

    def silent(self, dimension: int) -> NDArray[np.bool_]:
        """Mark the others' rows, among the rows and columns of the table as coordinates of a product."""
        marked = np.zeros(dimension, dtype=np.bool_)
        marked[: self.of] = True
        marked[self.start : self.start + self.rows] = False
        return marked
