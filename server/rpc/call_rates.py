"""Rate limits on the connections and calls of each party, so that no party keeps the coordinator from the others.

Every party has a token bucket. Calls above the limit wait unread on the party's own connection.
"""

from collections.abc import Callable
from typing import Final

from dpspca.common.names import PartyName

CALLS_A_SECOND: Final = 100
"""Calls of one party. About a thousand calls a second keep one processor busy."""
MAX_BURST: Final = 600
"""Calls that a party may begin at once after a pause; more than it may have open."""
CONNECTION_COST: Final = 5
"""Calls that one new connection counts as, because setting it up takes as long."""


class CallRates:
    """The token buckets of all parties."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[PartyName, tuple[float, float]] = {}
        """The tokens in each bucket, and when they were counted."""

    def take(self, party: PartyName, cost: float = 1) -> bool:
        """Take tokens if there are enough, and return whether there were."""
        now = self._clock()
        left = self._left(party, now)
        enough = left >= cost
        self._buckets[party] = (left - cost if enough else left, now)
        return enough

    def seconds_until(self, party: PartyName, cost: float = 1) -> float:
        """Return the seconds until there are enough tokens."""
        return max(0.0, (cost - self._left(party, self._clock())) / CALLS_A_SECOND)

    def _left(self, party: PartyName, now: float) -> float:
        left, since = self._buckets.get(party, (MAX_BURST, now))
        return min(MAX_BURST, left + CALLS_A_SECOND * (now - since))
