"""How many connections and calls each party may begin in a second, so that none takes the coordinator from the others.

Every party has a purse, which fills at a steady rate and holds so much at most. What it may not begin yet waits on its
own connection, unread, and costs nobody anything.
"""

from collections.abc import Callable
from typing import Final

from dpspca.common.names import PartyName

CALLS_A_SECOND: Final = 100
"""Of one party. Some thousand calls a second keep a coordinator busy on one processor."""
MOST_AT_ONCE: Final = 600
"""Calls that a party may begin at once, when it has begun none for a while: more than it may have open."""
CONNECTION_COST: Final = 5
"""Calls that a connection stands for: to set one up takes as long as some calls."""


class Rations:
    """The purses of all parties."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._purses: dict[PartyName, tuple[float, float]] = {}
        """What was in each, and when."""

    def take(self, party: PartyName, cost: float = 1) -> bool:
        """Pay, if there is enough."""
        now = self._clock()
        left = self._left(party, now)
        enough = left >= cost
        self._purses[party] = (left - cost if enough else left, now)
        return enough

    def wait(self, party: PartyName, cost: float = 1) -> float:
        """Say in how many seconds there will be enough."""
        return max(0.0, (cost - self._left(party, self._clock())) / CALLS_A_SECOND)

    def _left(self, party: PartyName, now: float) -> float:
        left, since = self._purses.get(party, (MOST_AT_ONCE, now))
        return min(MOST_AT_ONCE, left + CALLS_A_SECOND * (now - since))
