"""Randomness that nobody can repeat: the only source from which released noise may be drawn.

Every thread of every process has a keystream of its own, keyed with 32 bytes from the operating system. Three things
are promised. There is no seed, and no way to set one. A forked child never continues its parent's stream: the child's
first request finds that the process has changed and takes a new key. A key serves 4 GiB and is then replaced, so that
memory read later by an intruder does not tell all the noise of a long-lived daemon.
"""

import os
import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.privacy.keystream import KEY_BYTES, WORD_BYTES, KeyStream

WORDS_PER_KEY: Final = (1 << 32) // WORD_BYTES


class _Process:
    """Tells this process from its ancestors.

    The number of forks behind us sees a fork even if the system gives a grandchild the process id of its dead
    grandparent; the process id sees a fork that foreign code made without running Python's hooks.
    """

    def __init__(self) -> None:
        self._forks = 0
        os.register_at_fork(after_in_child=self._count_fork)

    def _count_fork(self) -> None:
        self._forks += 1

    def identity(self) -> tuple[int, int]:
        return os.getpid(), self._forks


_PROCESS: Final = _Process()


class _Stream(threading.local):
    """One thread's keystream, with the process that keyed it and what it may still serve."""

    def __init__(self) -> None:
        self.rekey()

    def rekey(self) -> None:
        self.process = _PROCESS.identity()
        self.remaining = WORDS_PER_KEY
        self.keystream = KeyStream(os.urandom(KEY_BYTES))


class SystemEntropy:
    """A ``WordSource`` keyed by the operating system; safe to share between threads and across forks.

    A request is served by one key, so a key's last request may exceed its 4 GiB by that request's own length.
    """

    def __init__(self) -> None:
        self._stream = _Stream()

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return ``count`` fresh words that no other call, thread or process will see."""
        stream = self._stream
        if stream.remaining <= 0 or stream.process != _PROCESS.identity():
            stream.rekey()
        stream.remaining -= count
        return stream.keystream.words(count)
