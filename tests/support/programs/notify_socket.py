"""Listens as a service manager does, and keeps what a daemon says of itself."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timeouts import TIMEOUT


class NotifySocket:
    """A socket of the kind that NOTIFY_SOCKET names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(str(path))
        self._line.settimeout(TIMEOUT)

    def until(self, words: str) -> str:
        """Return the next message with these words."""
        while words not in (said := self._line.recv(4096).decode()):
            pass
        return said

    def end(self) -> None:
        self._line.close()


@contextmanager
def notify_socket(folder: Path) -> Iterator[NotifySocket]:
    listening = NotifySocket(folder / "notify")
    try:
        yield listening
    finally:
        listening.end()
