"""Memory that arrays use one after another. To get new memory from the system costs more than most arithmetic."""

from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


class ReusedMemory:
    """Memory for one array at a time, for one thread. An array that was given is overwritten through the next one."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def array(self, shape: tuple[int, ...], kind: "np.dtype[Number] | type[Number]") -> NDArray[Number]:
        """Return an array with any content."""
        dtype: np.dtype[Any] = np.dtype(kind)
        size = prod(shape) * dtype.itemsize
        if self._held.nbytes < size:
            self._held = np.empty(size, dtype=np.uint8)
        return self._held[:size].view(dtype).reshape(shape)


def array_in(memory: ReusedMemory | None, shape: tuple[int, ...], kind: "np.dtype[Any] | type[Any]") -> NDArray[Any]:
    """Return an array with any content in memory that is used again, or in new memory if None."""
    return np.empty(shape, dtype=kind) if memory is None else memory.array(shape, kind)
