"""A coordinator with honest providers, one provider that sends any messages, and analysts with any calls.

The parties are those of ``simulated_federation.py``, without faults, in virtual time.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import isasyncgen
from random import Random
from typing import Any, Final, TypeAlias

import virtual_time
from fuzz_parties import FuzzParties, fuzz_parties
from simulated_federation import (
    Call,
    Connection,
    ConnectionBrokenError,
    FaultRates,
    PartyIdentities,
    SimulatedFederation,
)

from dpspca.common.names import PartyName
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.rpc.call_interceptor import report_failures

HONEST: Final = ("north", "south")
STRANGER: Final = "east"
NO_FAULTS: Final = FaultRates(slowest=0.01)
TIMEOUT: Final = 5.0
"""Seconds for which the dishonest provider waits for a query before it continues without one."""

Sent: TypeAlias = pb.FromProvider | list[int]
"""A message, or numbers for a well-formed answer to the next query."""


@dataclass(frozen=True)
class Caller(Call):
    """The context of a call that ends as gRPC would end it."""

    async def abort(self, code: Any, words: str, *details: Any) -> None:
        words.encode()
        await super().abort(code, words, *details)


class CoordinatorHarness(SimulatedFederation):
    """A running coordinator, and the parties that a test has send messages to it."""

    def __init__(self) -> None:
        self.fuzz_parties: FuzzParties = fuzz_parties()
        known = self.fuzz_parties.identities
        sites = {name: known[name] for name in (*HONEST, STRANGER)}
        started_at, revoked = self.fuzz_parties.started_at, self.fuzz_parties.revoked
        identities = PartyIdentities(known["hub"].authority_pem, revoked, started_at, known["hub"], known["ada"], sites)
        super().__init__(identities, 1, NO_FAULTS)
        self.job = self.fuzz_parties.good[b"plain"]

    def run_conversations(self, conversations: Sequence[Sequence[Sent]], honest: int) -> pb.Job:
        """Run a job with honest providers and a dishonest one, which opens a connection for each conversation."""
        return virtual_time.run(self._run_conversations(conversations, honest), Random(1))

    def run_calls(self, requests: Sequence[tuple[str, str, Any]]) -> pb.Job:
        """Make the calls of analysts, then run an honest job. A request has the analyst, the method and the message."""
        return virtual_time.run(self._run_calls(requests), Random(1))

    async def _run_conversations(self, conversations: Sequence[Sequence[Sent]], honest: int) -> pb.Job:
        async with _in_background(
            self.run_coordinator(),
            *map(self.run_provider, HONEST[:honest]),
            self._run_dishonest_provider(conversations),
        ):
            return await self.result(self.job)

    async def _run_dishonest_provider(self, conversations: Sequence[Sequence[Sent]]) -> None:
        for conversation in conversations:
            await asyncio.sleep(1)  # until there is a coordinator
            connection = Connection(self, self.fuzz_parties.identities[STRANGER].name)
            async with _in_background(self.serve(connection)):
                await _say(conversation, connection, self.fuzz_parties)
        await asyncio.Event().wait()

    async def _run_calls(self, requests: Sequence[tuple[str, str, Any]]) -> pb.Job:
        async with _in_background(self.run_coordinator(), *map(self.run_provider, HONEST)):
            await asyncio.sleep(1)
            for who, call, request in requests:
                await self._ask(self.fuzz_parties.identities[who].name, call, self.fuzz_parties.completed(request))
            return await self.result(self.fuzz_parties.good[b"last"])

    async def _ask(self, who: PartyName, call: str, request: Any) -> None:
        assert self._hub
        caller = Caller(who)
        asked = getattr(self._hub.analysts, call)(request, caller)
        try:
            async with asyncio.timeout(TIMEOUT), report_failures(call, caller):  # type: ignore[arg-type]
                replies = [each async for each in asked] if isasyncgen(asked) else [await asked]
        except (ConnectionBrokenError, TimeoutError):
            return
        for reply in replies:
            reply.SerializeToString()
            assert getattr(reply, "analyst", who.uri) == who.uri


async def _say(conversation: Sequence[Sent], connection: Connection, known: FuzzParties) -> None:
    """Send a conversation, message by message, and receive queries."""
    queries: asyncio.Queue[pb.Query] = asyncio.Queue()
    async with _in_background(_listen(connection, queries)):
        for sent in conversation:
            if isinstance(sent, pb.FromProvider):
                connection.inward.send(known.completed(sent))
            elif await _waited(queries):
                ask = queries.get_nowait()
                connection.inward.send(pb.FromProvider(answer=_answer(ask, known, sent)))
            await asyncio.sleep(0.02)
        await asyncio.sleep(TIMEOUT)


async def _waited(queries: "asyncio.Queue[pb.Query]") -> bool:
    for _ in range(20):
        if not queries.empty():
            return True
        await asyncio.sleep(TIMEOUT / 20)
    return False


async def _listen(connection: Connection, queries: "asyncio.Queue[pb.Query]") -> None:
    try:
        async for message in connection.outward:
            match message.WhichOneof("message"):
                case "admit":
                    job = SignedJob.from_bytes(message.admit.signed_job).job_id
                    connection.inward.send(pb.FromProvider(admitted=pb.Admitted(job=job)))
                case "query":
                    queries.put_nowait(message.query)
    except ConnectionBrokenError:
        await asyncio.Event().wait()


def _answer(ask: pb.Query, known: FuzzParties, numbers: list[int]) -> pb.AnswerFrame:
    """Return a well-formed answer to a product query."""
    count = ask.dimension * ask.columns
    content = b"".join((numbers * count)[index].to_bytes(8, "little", signed=True) for index in range(count))
    return pb.AnswerFrame(job=known.good[b"plain"].job_id, position=ask.position, content=content)


@asynccontextmanager
async def _in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run work in the background, and raise its exceptions at the end."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
