"""Limits the linear-algebra library to one thread while at least one caller needs that."""

from functools import cache
from threading import Lock
from typing import Final

import scipy.linalg.cython_blas  # noqa: F401  # the library that compiled kernels multiply with
from threadpoolctl import ThreadpoolController


class OneThread:
    """Limits the BLAS to one thread while any thread is inside, because its setting is for the whole process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                _take_control()
                self._limited = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _take_control()
                self._limited.restore_original_limits()


one_thread: Final = OneThread()


def _take_control() -> None:
    """Let this thread set the limit. Otherwise only the first thread that set it may, for as long as it lives."""
    for library in _libraries().lib_controllers:
        if clear := getattr(library, "clear_controlling_thread", None):
            clear(force=True)


@cache
def _libraries() -> ThreadpoolController:
    """Look up the loaded libraries, once."""
    return ThreadpoolController()
