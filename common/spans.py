"""Which rows of a divided table are a provider's own: a public fact, declared beside the data and never read off them.

A share of [[0, M], [M^T, 0]] says something of its provider's rows and of the columns, which all providers share. In
the other rows of a product every share that this provider could hold, and so every neighbour of the one it holds, has
exact zeros: what has one value whatever the data are needs no noise (``Responder`` leaves it out).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checks import check, check_whole
from .spec import MAX_DIMENSION


@dataclass(frozen=True, slots=True)
class Span:
    """``rows`` rows from ``start`` on, counted from 0, of a table ``of`` so many rows over all providers.

    ``rows`` is how many, and not where they end: ``Span(8, 4, 20)`` is the rows 8 to 11 of 20.

    Whoever declares it must know it from how the table was divided. Rows that merely happen to be zero are own rows: a
    span that was cut down to where the data are would give away where they are.
    """

    start: int
    rows: int
    of: int

    def __post_init__(self) -> None:
        """Refuse what no table has; whole numbers of other kinds become Python's."""
        of = check_whole("of, the number of rows of the whole table,", self.of, least=1, most=MAX_DIMENSION - 1)
        rows = check_whole("rows, the number of own rows,", self.rows, least=1, most=of)
        start = check_whole("start, the place of the first own row,", self.start, least=0, most=of - 1)
        check(
            start + rows <= of,
            f"From start, row {start}, {rows} rows go up to row {start + rows - 1}, and the last of {of} is {of - 1}.",
            "Give start (the first own row, counted from 0), rows (how many are own, and not where they end) and of "
            "(how many rows the whole table has).",
        )
        for name, value in (("start", start), ("rows", rows), ("of", of)):
            object.__setattr__(self, name, value)

    def silent(self, dimension: int) -> NDArray[np.bool_]:
        """Mark the others' rows, among the rows and columns of the table as coordinates of a product."""
        marked = np.zeros(dimension, dtype=np.bool_)
        marked[: self.of] = True
        marked[self.start : self.start + self.rows] = False
        return marked
