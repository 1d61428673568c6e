"""How many components a job asks for if its method decides how many of them to keep."""

from typing import Final

from dpspca.common.algorithms import CATALOGUE, Method
from dpspca.common.checks import check
from dpspca.common.job import Scalar

MOST_COMPONENTS: Final = 10
"""Largest number of components that such a job asks for."""
OPTION: Final = "fewer"
"""The option of a method that leaves out components that do not show above the noise."""


def can_decide(method: Method) -> bool:
    """Return whether a method can decide how many components to keep."""
    return method.option(OPTION) is not None


def automatic(columns: int, sparsity: Scalar) -> int:
    """Return the number of components to ask for: ten, or fewer if there are fewer columns that may take part."""
    return min(MOST_COMPONENTS, columns, sparsity if isinstance(sparsity, int) else columns)


def require_can_decide(what: str, name: str) -> None:
    """Raise if a method cannot decide how many components to keep. ``what`` names the key or flag that is auto."""
    methods = ", ".join(name for name, each in CATALOGUE.items() if can_decide(each))
    check(
        can_decide(CATALOGUE[name]),
        f"{what} is auto, but the method {name} cannot decide how many components to keep.",
        f"Give a number, or choose a method that can decide it: {methods}.",
    )
