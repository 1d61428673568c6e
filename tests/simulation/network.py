"""A simulated network: connections delay messages, lose them, break, or fail on one side only.

During a partition, no message arrives, not even one sent before it, and no party gets an error.

gRPC keeps the order of a stream. A faulty or malicious intermediary may not: a single message may be lost, delivered
twice, or delivered out of order.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName

if TYPE_CHECKING:
    from simulated_federation import SimulatedFederation

TICK: Final = 1e-6
"""Least time between two messages in seconds, so that a connection keeps their order."""
LATE: Final = 30.0
"""Longest delay of a repeated message, in seconds."""


class ConnectionBrokenError(DpspcaError):
    """One side noticed that a connection ended."""

    code = "connection-broken"


class Direction:
    """One direction of a connection. Messages arrive delayed and in order, unless an intermediary changes that."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0.0

    def send(self, message: Any) -> None:
        simulated = self._connection.simulated
        simulated.note_sent(self._connection.name, message)
        if self._connection.broken:
            return
        if simulated.happens(simulated.rates.loss):
            self._connection.break_()
            return
        if simulated.is_cut_off(self._connection.name):
            return
        for moment in self._arrivals(simulated.chance, message):
            asyncio.get_running_loop().call_at(moment, self._arrive, message)

    def end(self) -> None:
        self._arrived.put_nowait(None)

    def _arrivals(self, chance: Random, message: Any) -> list[float]:
        """Return the times at which a message arrives: one, several or none."""
        simulated = self._connection.simulated
        moment = asyncio.get_running_loop().time() + chance.uniform(0, simulated.rates.slowest)
        meddled = simulated.happens(simulated.rates.meddling, "meddling")
        fate = chance.choice(["lost", "again", "out of order"]) if meddled else ""
        if fate == "lost":
            return []
        if fate == "out of order":
            return [moment + chance.uniform(0, simulated.rates.slowest)]
        self._last = moment = max(self._last + TICK, moment)
        if fate == "again":
            return [moment, moment + chance.uniform(0, LATE)]
        twice = message.WhichOneof("message") == "ask" and simulated.happens(simulated.rates.twice)
        return [moment] * (1 + twice)

    def _arrive(self, message: Any) -> None:
        if self._connection.simulated.is_cut_off(self._connection.name):
            return
        self._connection.simulated.note(self._connection.name, message)
        self._arrived.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._arrived.get()) is not None:
            yield message
        raise ConnectionBrokenError("The connection broke.", "Dial again.")


class Connection:
    """A provider's connection to the coordinator."""

    def __init__(self, simulated: "SimulatedFederation", name: PartyName) -> None:
        self.simulated = simulated
        self.name = name
        self.broken = False
        self.inward, self.outward = Direction(self), Direction(self)

    def break_(self) -> None:
        """Break the connection. Each side notices after a while, or not at all."""
        self.broken = True
        loop = asyncio.get_running_loop()
        for side in (self.inward, self.outward):
            if not self.simulated.happens(self.simulated.rates.half_open):
                loop.call_later(self.simulated.chance.uniform(0, 3), side.end)

    # The part of gRPC's context that the service uses:

    async def abort(self, *_: Any) -> None:
        self.break_()
        raise asyncio.CancelledError
