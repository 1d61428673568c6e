"""Limits how much of the log one party can fill. Lines beyond the limit are dropped, counted and summarised.

A line that a party caused carries the party's name (``dpspca.common.log_context``). Each party may cause a limited
number of bytes a minute, and of lines of one kind. The kind is the message before its values are filled in, or for a
library its logger's name. When the minute is over, a summary gives the number of dropped lines. Lines that name no
party are never dropped.
"""

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

OUR_LOGGERS: Final = "dpspca"
LIBRARIES: Final = "libraries"
"""Stands for the party of a library's lines, because a library does not know which party caused them."""
MINUTE: Final = 60.0
MAX_BYTES: Final = 24 * 2**10
"""Bytes per party and minute, which make 34 MiB a day."""
MAX_LINES: Final = 30
"""Lines per party, kind and minute, so that one kind does not hide another."""
MAX_LINE: Final = 2**10
"""Characters of a line that a party causes."""
MAX_KINDS: Final = 10
"""Kinds that a summary names."""
MAX_LIBRARY_LINE: Final = 200
"""Characters of a library's line."""
MAX_OVERHEAD: Final = 200
"""Bytes of a line besides its message: the time, the level, and in JSON the names of all fields."""


@dataclass
class _Usage:
    """The log lines that one party has caused in this minute, and those that were dropped."""

    since: float
    size: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class LogLimiter(logging.Filter):
    """A filter for log handlers. It drops lines of parties that have reached their limit."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._usages: dict[str, _Usage] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(OUR_LOGGERS):
            _shorten_library_record(record)
        party = getattr(record, "about", None)
        if party is None:
            return True
        kind = record.name if party == LIBRARIES else str(record.msg)
        record.msg, record.args = _truncated(record.getMessage()), None
        size = len(record.msg.encode(errors="replace"))
        if record.exc_info:  # a bug in this program that a party triggered: the traceback is needed to fix it
            size += len("".join(traceback.format_exception(record.exc_info[1])))
        with self._lock:
            return self._fits(str(party), kind, size)

    def take_summaries(self) -> list[str]:
        """Return the summaries of the minutes that are over, and reset their counts."""
        now = self._clock()
        with self._lock:
            over = {party: usage for party, usage in self._usages.items() if now - usage.since >= MINUTE}
            for party in over:
                del self._usages[party]
        return [_summary(party, usage.dropped) for party, usage in over.items() if usage.dropped]

    def _fits(self, party: str, kind: str, size: int) -> bool:
        usage = self._usages.setdefault(party, _Usage(self._clock()))
        size += MAX_OVERHEAD
        if usage.size + size > MAX_BYTES or usage.lines[kind] >= MAX_LINES:
            usage.dropped[kind] += 1
            return False
        usage.size += size
        usage.lines[kind] += 1
        return True


class SummaryWriter(threading.Thread):
    """A thread that writes the summaries to the log from time to time."""

    def __init__(self, limiter: LogLimiter, seconds: float = MINUTE / 6) -> None:
        super().__init__(name="log-summaries", daemon=True)
        self._limiter = limiter
        self._seconds = seconds
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._seconds):
            for line in self._limiter.take_summaries():
                logging.getLogger(__name__).warning("%s", line)

    def stop(self) -> None:
        """Stop the thread. Nothing more is written after this returns."""
        self._over.set()
        self.join()


def _shorten_library_record(record: logging.LogRecord) -> None:
    """Keep only the first line of a library's message and the type of its error. The rest may be a caller's text."""
    kind = record.exc_info[0] if record.exc_info else None
    first = str(record.msg if record.args else record.getMessage()).partition("\n")[0][:MAX_LIBRARY_LINE]
    record.msg, record.args = "%s", (f"{record.name}: {first}" + (f" ({kind.__name__})" if kind else ""),)
    record.exc_info = record.exc_text = record.stack_info = None
    record.about = LIBRARIES


def _truncated(message: str) -> str:
    return message if len(message) <= MAX_LINE else f"{message[:MAX_LINE]}... ({len(message)} characters)"


def _summary(party: str, dropped: Counter[str]) -> str:
    """Write how many lines of each kind were dropped."""
    kinds = ", ".join(f"{count} of {kind!r}" for kind, count in dropped.most_common(MAX_KINDS))
    return f"Within a minute, {sum(dropped.values())} more lines about {party} were dropped: {kinds}."
