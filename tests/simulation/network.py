"""The network of a universe: connections that delay what is sent, lose it, break, or fall silent on one side.

While a provider is cut off, nothing that is sent or on its way arrives, and nobody is told.

gRPC keeps the order of a stream. Somebody in between who is broken, or means ill, may not: a message can be lost alone,
come once more after a while, or overtake others and be overtaken.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName

if TYPE_CHECKING:
    from universe import Universe

TICK: Final = 1e-6
"""Seconds between two messages at least: a connection keeps their order."""
LATE: Final = 30.0
"""Seconds after which a message comes once more at the latest."""


class ConnectionBrokenError(DpspcaError):
    """A connection ended, as far as one side has noticed."""

    code = "connection-broken"


class Direction:
    """One way of a connection: messages arrive late, and in their order unless somebody meddles."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0.0

    def send(self, message: Any) -> None:
        universe = self._connection.universe
        universe.note_sent(self._connection.name, message)
        if self._connection.broken:
            return
        if universe.happens(universe.weather.loss):
            self._connection.break_()
            return
        if universe.is_cut_off(self._connection.name):
            return
        for moment in self._arrivals(universe.chance, message):
            asyncio.get_running_loop().call_at(moment, self._arrive, message)

    def end(self) -> None:
        self._arrived.put_nowait(None)

    def _arrivals(self, chance: Random, message: Any) -> list[float]:
        """Decide when a message arrives: once, more than once, or never."""
        universe = self._connection.universe
        moment = asyncio.get_running_loop().time() + chance.uniform(0, universe.weather.slowest)
        meddled = universe.happens(universe.weather.meddling, "meddling")
        fate = chance.choice(["lost", "again", "out of order"]) if meddled else ""
        if fate == "lost":
            return []
        if fate == "out of order":
            return [moment + chance.uniform(0, universe.weather.slowest)]
        self._last = moment = max(self._last + TICK, moment)
        if fate == "again":
            return [moment, moment + chance.uniform(0, LATE)]
        twice = message.WhichOneof("message") == "ask" and universe.happens(universe.weather.twice)
        return [moment] * (1 + twice)

    def _arrive(self, message: Any) -> None:
        if self._connection.universe.is_cut_off(self._connection.name):
            return
        self._connection.universe.note(self._connection.name, message)
        self._arrived.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._arrived.get()) is not None:
            yield message
        raise ConnectionBrokenError("The connection broke.", "Dial again.")


class Connection:
    """A provider's connection to the coordinator."""

    def __init__(self, universe: "Universe", name: PartyName) -> None:
        self.universe = universe
        self.name = name
        self.broken = False
        self.inward, self.outward = Direction(self), Direction(self)

    def break_(self) -> None:
        """Break; each side notices after a while, or not at all."""
        self.broken = True
        loop = asyncio.get_running_loop()
        for side in (self.inward, self.outward):
            if not self.universe.happens(self.universe.weather.half_open):
                loop.call_later(self.universe.chance.uniform(0, 3), side.end)

    # What a service asks of a call:

    async def abort(self, *_: Any) -> None:
        self.break_()
        raise asyncio.CancelledError
