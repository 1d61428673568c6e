"""Second moments of rows that are not in memory at the same time."""

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add

from dpspca.common.arrays import Integers
from dpspca.common.errors import InvalidQueryError

from .moments import Basis, Moments
from .wide_integers import Exact, WideIntegers


class SummedMoments:
    """Moments of rows that are read piece by piece. Sums are exact, so the division into pieces changes no bit."""

    def __init__(self, pieces: Callable[[], Iterable[Moments]]) -> None:
        self._pieces = pieces

    def product(self, basis: Basis) -> Integers:
        """Refuse: a product is rounded once, after its sum, so the pieces' products do not add up to it."""
        raise InvalidQueryError(
            "The rows of this data set arrive in files, so no product over all of them is available.",
            "Ask about blocks of rows.",
        )

    def compressed(self, basis: Basis) -> Exact:
        return reduce(add, (each.compressed(basis) for each in self._pieces()))

    def gram(self) -> WideIntegers:
        return reduce(add, (each.gram() for each in self._pieces()))

    def trace(self) -> int:
        return sum(each.trace() for each in self._pieces())
