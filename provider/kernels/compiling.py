"""Compiles kernels with numba, for this processor, and keeps them for the next process."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import njit, types

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

INTEGER: Final = types.int64
BYTES: Final = types.Array(types.uint8, 2, "A", readonly=True)
"""A table of bytes that a kernel only reads, in any layout."""
FLOATS: Final = types.float64[:, ::1]
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
_ANY_ORDER: Final = {"reassoc", "contract", "nsz"}


def integers(dimensions: int) -> Any:  # noqa: ANN401  # a type of numba
    """Return the type of an array of 64-bit integers that a kernel writes to."""
    return types.Array(INTEGER, dimensions, "C")


def read_integers(dimensions: int) -> Any:  # noqa: ANN401
    """Return the type of an array that a kernel only reads, in any layout, such as one number that stands for all."""
    return types.Array(INTEGER, dimensions, "A", readonly=True)


def sparse(others: str) -> tuple[str, str]:
    """Return signatures for the entries of sparse rows, their columns and where rows start, and other arguments."""
    return f"(float64[::1], int32[::1], int32[::1], {others})", f"(float64[::1], int64[::1], int64[::1], {others})"


def compiled(*signatures: Any, any_order: bool = False) -> Callable[[Kernel], Kernel]:  # noqa: ANN401
    """Compile a function for arguments of these types, when its module is loaded.

    ``any_order`` says that floating-point numbers may be added up in any order, because all their sums are exact.

    The result is written beside the module or to the user's cache, or else compiled again in every process.
    """
    options = _OPTIONS | {"fastmath": _ANY_ORDER if any_order else False}

    def decorate(function: Kernel) -> Kernel:
        try:
            return cast("Kernel", njit(list(signatures), cache=True, **options)(function))
        except Exception:  # noqa: BLE001  # neither can be written, or what is there is damaged
            return cast("Kernel", njit(list(signatures), **options)(function))

    return decorate


def part(function: Kernel) -> Kernel:
    """Let kernels of the same module call a function. It is compiled with each of them."""
    return cast("Kernel", njit(**_OPTIONS)(function))


def exact_part(function: Kernel) -> Kernel:
    """Do the same for a function whose sums of floating-point numbers are exact, so that any order will do."""
    return cast("Kernel", njit(**_OPTIONS, fastmath=_ANY_ORDER)(function))
