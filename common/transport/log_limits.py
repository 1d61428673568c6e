"""How much of the log one party can fill: its lines are counted, and beyond its share they are told in a summary.

What is logged because of what a party said bears the party's name: see ``dpspca.common.log_context``. Of these
lines, each party may cause so many bytes a minute, and so many lines of a kind. The kind is the sentence before its
values are put in, and for a library its own name. How many were left out is told when the minute is over. Lines of our
own are never left out.
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
"""On whose account their lines are: they do not know whom they are about."""
MINUTE: Final = 60.0
MOST_BYTES: Final = 24 * 2**10
"""Of one party in a minute: 34 MiB in a day."""
MOST_LINES: Final = 30
"""Of one party and kind in a minute, so that one kind does not hide another."""
LONGEST_LINE: Final = 2**10
"""Letters of a line that a party causes."""
MOST_KINDS: Final = 10
"""That a summary names."""
LONGEST_OF_OTHERS: Final = 200
"""Letters of a library's line."""
LARGEST_ENVELOPE: Final = 200
"""Bytes of a line beside its message: the time, the level, and in JSON the names of all fields."""


@dataclass
class _Share:
    """What one party has caused in this minute."""

    since: float
    size: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


class Rationing(logging.Filter):
    """Lets a handler write what a party causes as far as its share goes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._shares: dict[str, _Share] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(OUR_LOGGERS):
            _put_in_a_line(record)
        party = getattr(record, "about", None)
        if party is None:
            return True
        kind = record.name if party == LIBRARIES else str(record.msg)
        record.msg, record.args = _shortened(record.getMessage()), None
        size = len(record.msg.encode(errors="replace"))
        if record.exc_info:  # a fault of ours, which a party set off: whoever mends it needs to know where
            size += len("".join(traceback.format_exception(record.exc_info[1])))
        with self._lock:
            return self._fits(str(party), kind, size)

    def due(self) -> list[str]:
        """Give the summaries of minutes that are over, and forget these."""
        now = self._clock()
        with self._lock:
            over = {party: share for party, share in self._shares.items() if now - share.since >= MINUTE}
            for party in over:
                del self._shares[party]
        return [_summary(party, share.left_out) for party, share in over.items() if share.left_out]

    def _fits(self, party: str, kind: str, size: int) -> bool:
        share = self._shares.setdefault(party, _Share(self._clock()))
        size += LARGEST_ENVELOPE
        if share.size + size > MOST_BYTES or share.lines[kind] >= MOST_LINES:
            share.left_out[kind] += 1
            return False
        share.size += size
        share.lines[kind] += 1
        return True


class Reporter(threading.Thread):
    """Writes the summaries, once in a while."""

    def __init__(self, rationing: Rationing, seconds: float = MINUTE / 6) -> None:
        super().__init__(name="log-summaries", daemon=True)
        self._rationing = rationing
        self._seconds = seconds
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._seconds):
            for line in self._rationing.due():
                logging.getLogger(__name__).warning("%s", line)

    def stop(self) -> None:
        """Write nothing more."""
        self._over.set()
        self.join()


def _put_in_a_line(record: logging.LogRecord) -> None:
    """Leave of what a library logs its first line and the kind of error: the rest may be a caller's words."""
    kind = record.exc_info[0] if record.exc_info else None
    first = str(record.msg if record.args else record.getMessage()).partition("\n")[0][:LONGEST_OF_OTHERS]
    record.msg, record.args = "%s", (f"{record.name}: {first}" + (f" ({kind.__name__})" if kind else ""),)
    record.exc_info = record.exc_text = record.stack_info = None
    record.about = LIBRARIES


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST_LINE else f"{message[:LONGEST_LINE]}... ({len(message)} letters)"


def _summary(party: str, left_out: Counter[str]) -> str:
    """Say how many lines of each kind were left out."""
    kinds = ", ".join(f"{count} of {kind!r}" for kind, count in left_out.most_common(MOST_KINDS))
    return f"Within a minute, {sum(left_out.values())} more lines about {party} were left out: {kinds}."
