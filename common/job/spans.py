"""Which rows of a divided table belong to one provider. This is public: it is declared, not read from the data.

A share of [[0, M], [M^T, 0]] is about its provider's rows and about the columns, which all providers share. In the
other rows, a product with any share that this provider could hold, and so with any neighbour of its share, is exactly
zero. A value that does not depend on the data needs no noise (``Responder`` leaves it out).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpspca.common.checks import check, check_whole

from .spec import MAX_DIMENSION


@dataclass(frozen=True, slots=True)
class Span:
    """The ``rows`` rows from row ``start`` on, counted from 0, of a table that has ``of`` rows over all providers.

    ``rows`` is a number of rows, not an end: ``Span(8, 4, 20)`` means rows 8 to 11 of 20.

    A span must follow from the rule by which the table was divided. Rows inside it that happen to be zero still belong
    to it: a span that was reduced to the non-zero rows would reveal which rows these are.
    """

    start: int
    rows: int
    of: int

    def __post_init__(self) -> None:
        """Refuse rows that the table does not have. Convert other integer types to ``int``."""
        of = check_whole("of, the number of rows of the whole table,", self.of, least=1, most=MAX_DIMENSION - 1)
        rows = check_whole("rows, the number of own rows,", self.rows, least=1, most=of)
        start = check_whole("start, the first own row,", self.start, least=0, most=of - 1)
        check(
            start + rows <= of,
            f"{rows} rows from row {start} on end at row {start + rows - 1}, but the last of {of} is row {of - 1}.",
            "Give start (the first own row, counted from 0), rows (the number of own rows, not their end) and of (the "
            "number of rows of the whole table).",
        )
        for name, value in (("start", start), ("rows", rows), ("of", of)):
            object.__setattr__(self, name, value)

    def rows_of_others(self, dimension: int) -> NDArray[np.bool_]:
        """Mark the rows of other providers, among the coordinates of a product (first the rows, then the columns)."""
        marked = np.zeros(dimension, dtype=np.bool_)
        marked[: self.of] = True
        marked[self.start : self.start + self.rows] = False
        return marked
