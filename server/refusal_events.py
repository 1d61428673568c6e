"""Events about callers and calls that the coordinator refused, so few that no caller can flood the stream."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dpspca.common.names import PartyName
from dpspca.common.storage import Emit

PAUSE_SECONDS: Final = 60.0
"""Between two events about the same party and code."""


@dataclass(slots=True)
class _Last:
    """The last event about a party and a code, and how many refusals came after it."""

    at: float
    unreported: int = 0


class RefusalEvents:
    """Emits an event for a refusal, at most one a minute for each party and code.

    Its memory is bounded by the parties that the authority certified, times the codes of errors.
    """

    def __init__(self, emit: Emit, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._last: dict[tuple[PartyName | None, str], _Last] = {}

    def note(self, party: PartyName | None, call: str | None, code: str) -> None:
        """Note a refused call, or a refused connection if there is no call."""
        now, last = self._clock(), self._last.get((party, code))
        if last is not None and now - last.at < PAUSE_SECONDS:
            last.unreported += 1
            return
        self._last[party, code] = _Last(now)
        self._emit("refused", party=party and party.uri, call=call, code=code, repeated=last.unreported if last else 0)
