"""Lasting partitions: for a while a party and the coordinator cannot reach each other.

No party gets an error from an open connection. New connections fail; messages are lost, and the connection stays open
until a timeout. Lost messages are not sent again after the partition, although TCP would do so: this is the worse case.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from fault_rates import FaultRates
from planned_jobs import JOB_SPREAD

SHORT: Final = 10.0
"""About one heartbeat, in seconds: few parties notice such a partition."""
LONGEST_PARTITION: Final = 300.0
"""Longer than any timeout, in seconds."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Begin and end of a partition, in simulated seconds."""

    begin: float
    end: float

    def is_on(self, now: float) -> bool:
        return self.begin <= now < self.end

    @classmethod
    def drawn(cls, chance: Random) -> Self:
        """Draw a partition that begins while jobs begin."""
        begin = chance.uniform(0, JOB_SPREAD)
        return cls(begin, begin + chance.uniform(0, chance.choice([SHORT, LONGEST_PARTITION])))


def partitions(names: Iterable[str], seed: int, rates: FaultRates) -> dict[str, Partition]:
    """Draw who is cut off, and when. A separate generator keeps the rest of the run unchanged."""
    chance = Random(f"partitions {seed}")
    return {name: Partition.drawn(chance) for name in names if chance.random() < rates.partition}
