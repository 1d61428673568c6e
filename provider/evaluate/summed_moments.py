"""Second moments of rows that are not in memory together."""

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add

from dpspca.common.arrays import Integers
from dpspca.common.errors import InvalidQueryError

from .moments import Basis, Exact, Moments


class SummedMoments:
    """Moments of rows that are had in pieces, one after the other: sums are exact, so that pieces change no bit."""

    def __init__(self, pieces: Callable[[], Iterable[Moments]]) -> None:
        self._pieces = pieces

    def product(self, basis: Basis) -> Integers:
        """Refuse: what is cut off at the end would have to be kept of each piece. Products are asked of blocks."""
        raise InvalidQueryError("These rows are had in pieces.", "Ask about blocks of them.")

    def compressed(self, basis: Basis) -> Exact:
        return reduce(add, (each.compressed(basis) for each in self._pieces()))

    def gram(self) -> Integers:
        return reduce(add, (each.gram() for each in self._pieces()))

    def squares(self) -> Integers:
        return reduce(add, (each.squares() for each in self._pieces()))

    def trace(self) -> int:
        return sum(each.trace() for each in self._pieces())
