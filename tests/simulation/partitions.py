"""Partitions that last: for a while a party reaches nobody, and nobody reaches it.

Nobody is told of one. Who dials is refused; what is sent vanishes, and the connection stays, until somebody has waited
long enough. A message that vanished does not come after the end of it, as those that TCP sends again would: that is
the worse case.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from errands import EVENING
from weather import Weather

SHORT: Final = 10.0
"""Seconds: about a heartbeat, so that few notice."""
LONGEST_PARTITION: Final = 300.0
"""Seconds: longer than anybody waits for an answer, or for a word of the other side."""


@dataclass(frozen=True, slots=True)
class Partition:
    """From when, in seconds of the universe, and until when."""

    begin: float
    end: float

    def holds(self, now: float) -> bool:
        return self.begin <= now < self.end

    @classmethod
    def drawn(cls, chance: Random) -> Self:
        """Draw one that begins while jobs do."""
        begin = chance.uniform(0, EVENING)
        return cls(begin, begin + chance.uniform(0, chance.choice([SHORT, LONGEST_PARTITION])))


def partitions(names: Iterable[str], seed: int, weather: Weather) -> dict[str, Partition]:
    """Decide who is cut off, and when: with chance of its own, so that all else in a universe stays as it is."""
    chance = Random(f"partitions {seed}")
    return {name: Partition.drawn(chance) for name in names if chance.random() < weather.partition}
