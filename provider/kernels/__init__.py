"""Compiled kernels for the loops that take most of the time, with the same bits as the numpy code beside them.

They need numba, of the extra ``compiled``. Without it, or with ``DPSPCA_COMPILED=off``, numpy does the same work. Every
kernel computes sums of integers that are exact in whatever order they are added up, or adds up in numpy's own order. So
no bit of an answer shows which of the two computed it, with which instructions, or on how many threads. Which of them
runs follows from what is installed, and never from rows.

A kernel lets other threads run while it works. With numpy, threads that work on many small blocks mostly wait for
Python's lock.
"""

from .loading import SWITCH, forget, kernels, load

__all__ = ["SWITCH", "forget", "kernels", "load"]
