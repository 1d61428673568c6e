"""Writes a daemon's events to a file and to syslog, from a thread of its own. Edge: files and sockets.

Ledger and journal are the records; the stream is a copy for other programs. So a full disk or a syslog that hangs
neither delays an answer nor shows in its time: events wait in a queue, and if that is full, they are dropped and
counted (``lost``).
"""

import json
import logging
import os
import queue
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from logging.handlers import SysLogHandler
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final, Protocol

from dpspca.common.names import PartyName

from . import posix
from .addresses import Address
from .event_settings import EventSettings
from .files import PRIVATE

MOST_WAITING: Final = 10_000
"""Events that wait to be written."""
STOP_SECONDS: Final = 5.0
"""How long the end of the program waits for events to be written."""
_TAG: Final = "dpspca: "

Kinds = Mapping[str, tuple[str, ...]]
"""For each kind of event, its fields besides ``time``, ``number``, the daemon's name and ``event``."""

_log = logging.getLogger(__name__)


class Emit(Protocol):
    """Takes an event. It never fails and never waits."""

    def __call__(self, event: str, /, **fields: Any) -> None: ...  # noqa: ANN401  # plain values


def ignore(_: str, /, **__: Any) -> None:  # noqa: ANN401
    """Drop an event, because no stream is configured."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Other settings for events that come after it."""

    settings: EventSettings
    done: Event = field(default_factory=Event)


class EventStream:
    """The stream of one daemon, with these kinds of event. Emitting never fails and never waits."""

    def __init__(
        self,
        settings: EventSettings,
        kinds: Kinds,
        daemon: PartyName,
        clock: Callable[[], datetime],
        waiting: int = MOST_WAITING,
    ) -> None:
        self._settings = settings
        self._kinds = kinds
        self._daemon = {str(daemon.role): daemon.uri}
        self._clock = clock
        self._number = 0
        self._lost = 0
        self._lock = Lock()
        self._waiting: queue.Queue[str | _Change | None] = queue.Queue(waiting)
        self._file = _File()
        self._syslog: SysLogHandler | None = None
        self._failing = ""
        self._thread = Thread(target=self._work, name="events", daemon=True)
        self._thread.start()

    def __call__(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401  # plain values
        """Take an event."""
        if self._settings.file is None and self._settings.syslog is None:
            return
        with self._lock:
            if self._lost and self._put("lost", {"events": self._lost}):
                self._lost = 0
            self._lost += not self._put(event, fields)

    def reload(self, settings: EventSettings) -> None:
        """Write to where these settings say from now on, and open the file again, which may have been renamed."""
        self._settings = settings
        change = _Change(settings)
        try:
            self._waiting.put(change, timeout=STOP_SECONDS)
            change.done.wait(STOP_SECONDS)
        except queue.Full:
            _log.error(
                "Events still go to the old place, because waiting ones cannot be written there. Reload again later."
            )

    def end(self) -> None:
        """Write what waits, and close everything."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=STOP_SECONDS)
        self._thread.join(STOP_SECONDS)

    def _put(self, event: str, fields: dict[str, Any]) -> bool:
        assert fields.keys() == set(self._kinds[event]), event
        time = self._clock().isoformat(timespec="milliseconds")
        head = {"time": time, "number": self._number + 1, **self._daemon, "event": event}
        try:
            self._waiting.put_nowait(json.dumps(head | fields, ensure_ascii=False))
        except queue.Full:
            return False
        self._number += 1
        return True

    def _work(self) -> None:
        settings = self._settings
        while (waiting := self._waiting.get()) is not None:
            if isinstance(waiting, _Change):
                self._close()
                settings = waiting.settings
                waiting.done.set()
                continue
            try:
                self._write(waiting, settings)
                self._failing = ""
            except OSError as problem:
                self._report(problem)
                self._close()
        self._close()

    def _write(self, line: str, settings: EventSettings) -> None:
        if settings.file is not None:
            self._file.append(line.encode(errors="replace") + b"\n", settings.file, settings)
        if settings.syslog is not None:
            self._syslog = self._syslog or _syslog(settings.syslog)
            self._syslog.emit(logging.makeLogRecord({"msg": "%s", "args": (_TAG + line,), "levelname": "INFO"}))

    def _report(self, problem: OSError) -> None:
        """Log a failure once while it lasts."""
        what = problem.strerror or str(problem)
        if what != self._failing:
            _log.error("Events cannot be written: %s. Further events may be lost until this works again.", what)
        self._failing = what

    def _close(self) -> None:
        self._file.close()
        if self._syslog is not None:
            self._syslog.close()
            self._syslog = None


class _File:
    """A file that grows to a limit and is then renamed, as are a few earlier ones."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._size = 0

    def append(self, content: bytes, path: Path, settings: EventSettings) -> None:
        """Append a line. The file before it is kept as PATH.1, and so on."""
        if self._descriptor is None:
            self._open(path)
        if self._size and self._size + len(content) > settings.mebibytes * 2**20:
            self.close()
            for number in range(settings.files, 0, -1):
                earlier = path if number == 1 else _numbered(path, number - 1)
                with suppress(FileNotFoundError):
                    earlier.replace(_numbered(path, number))
            self._open(path)
        assert self._descriptor is not None
        if os.write(self._descriptor, content) < len(content):
            raise OSError(None, "the disk is full")
        self._size += len(content)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | posix.NO_LINKS | posix.NOT_INHERITED
        self._descriptor = os.open(path, flags, PRIVATE)
        self._size = os.fstat(self._descriptor).st_size


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


class _Syslog(SysLogHandler):
    """Passes errors on, which the library would print."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # its name
        raise  # noqa: PLE0704  # it is called while an error is handled


def _syslog(where: str) -> SysLogHandler:
    address = where if where.startswith("/") else (Address(where).host, Address(where).port)
    return _Syslog(address, facility=SysLogHandler.LOG_AUTHPRIV)
