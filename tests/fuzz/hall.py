"""A coordinator among honest providers, one that says anything, and analysts who ask anything, in time that passes.

The parties are those of ``universe.py``, in fair weather.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import isasyncgen
from random import Random
from typing import Any, Final, TypeAlias

import virtual
from people import People, people
from universe import Call, Connection, ConnectionBrokenError, Inhabitants, Universe, Weather

from dpspca.common.names import PartyName
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.rpc.call_interceptor import report_failures

HONEST: Final = ("north", "south")
STRANGER: Final = "east"
FAIR: Final = Weather(slowest=0.01)
PATIENCE: Final = 5.0
"""Seconds that the stranger waits for a query before it goes on without one."""

Saying: TypeAlias = pb.FromProvider | list[int]
"""A message; or numbers with which the next query is answered, as the form demands."""


@dataclass(frozen=True)
class Caller(Call):
    """An analyst whose calls end as gRPC would end them."""

    async def abort(self, code: Any, words: str, *details: Any) -> None:
        words.encode()
        await super().abort(code, words, *details)


class Hall(Universe):
    """A coordinator that acts, and whoever a test has speak to it."""

    def __init__(self) -> None:
        self.people: People = people()
        known = self.people.identities
        sites = {name: known[name] for name in (*HONEST, STRANGER)}
        born, revoked = self.people.born, self.people.revoked
        town = Inhabitants(known["hub"].authority_pem, revoked, born, known["hub"], known["ada"], sites)
        super().__init__(town, 1, FAIR)
        self.job = self.people.good[b"plain"]

    def hear(self, lives: Sequence[Sequence[Saying]], honest: int) -> pb.Job:
        """Run a job among so many honest providers, and one that says all this, on a connection for each life."""
        return virtual.run(self._hear(lives, honest), Random(1))

    def be_asked(self, requests: Sequence[tuple[str, str, Any]]) -> pb.Job:
        """Let analysts ask; then run an honest job. Each request names its analyst and what is called."""
        return virtual.run(self._be_asked(requests), Random(1))

    async def _hear(self, lives: Sequence[Sequence[Saying]], honest: int) -> pb.Job:
        async with _beside(self.preside(), *map(self.live, HONEST[:honest]), self._lie(lives)):
            return await self.result(self.job)

    async def _lie(self, lives: Sequence[Sequence[Saying]]) -> None:
        for life in lives:
            await asyncio.sleep(1)  # until there is a coordinator
            connection = Connection(self, self.people.identities[STRANGER].name)
            async with _beside(self.serve(connection)):
                await _say(life, connection, self.people)
        await asyncio.Event().wait()

    async def _be_asked(self, requests: Sequence[tuple[str, str, Any]]) -> pb.Job:
        async with _beside(self.preside(), *map(self.live, HONEST)):
            await asyncio.sleep(1)
            for who, call, request in requests:
                await self._ask(self.people.identities[who].name, call, self.people.completed(request))
            return await self.result(self.people.good[b"last"])

    async def _ask(self, who: PartyName, call: str, request: Any) -> None:
        assert self._hub
        caller = Caller(who)
        asked = getattr(self._hub.analysts, call)(request, caller)
        try:
            async with asyncio.timeout(PATIENCE), report_failures(call, caller):  # type: ignore[arg-type]
                replies = [each async for each in asked] if isasyncgen(asked) else [await asked]
        except (ConnectionBrokenError, TimeoutError):
            return
        for reply in replies:
            reply.SerializeToString()
            assert getattr(reply, "analyst", who.uri) == who.uri


async def _say(life: Sequence[Saying], connection: Connection, known: People) -> None:
    """Say one thing after the other, and hear what is asked."""
    queries: asyncio.Queue[pb.Ask] = asyncio.Queue()
    async with _beside(_listen(connection, queries)):
        for saying in life:
            if isinstance(saying, pb.FromProvider):
                connection.inward.send(known.completed(saying))
            elif await _waited(queries):
                ask = queries.get_nowait()
                connection.inward.send(pb.FromProvider(answer=_answer(ask, known, saying)))
            await asyncio.sleep(0.02)
        await asyncio.sleep(PATIENCE)


async def _waited(queries: "asyncio.Queue[pb.Ask]") -> bool:
    for _ in range(20):
        if not queries.empty():
            return True
        await asyncio.sleep(PATIENCE / 20)
    return False


async def _listen(connection: Connection, queries: "asyncio.Queue[pb.Ask]") -> None:
    try:
        async for message in connection.outward:
            match message.WhichOneof("message"):
                case "admit":
                    job = SignedJob.from_bytes(message.admit.signed_job).job_id
                    connection.inward.send(pb.FromProvider(admitted=pb.Admitted(job=job)))
                case "ask":
                    queries.put_nowait(message.ask)
    except ConnectionBrokenError:
        await asyncio.Event().wait()


def _answer(ask: pb.Ask, known: People, numbers: list[int]) -> pb.AnswerFrame:
    """Answer a product in the right form."""
    count = ask.dimension * ask.columns
    content = b"".join((numbers * count)[index].to_bytes(8, "little", signed=True) for index in range(count))
    return pb.AnswerFrame(job=known.good[b"plain"].job_id, position=ask.position, content=content)


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have work done meanwhile; what goes wrong in it is raised."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
