"""A provider's end of connections, and whoever sits at the other end, in time that passes at once.

Everything is real but for gRPC: the registry, the ledger, the gate, the noise. ``Desk.must_be_in_order`` says what
holds after any conversation whatsoever.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Any, Final

import numpy as np
import virtual
from people import DIMENSION, PLAIN, People, ask, people, welcome
from town import AnythingGoes

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.plan import events
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.keystream import Draw, KeyStream, keyed_stream
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.conversation import QUEUE, Conversation
from dpspca.provider.data.preparation import check_rows
from dpspca.provider.jobs.registry import MAX_OPEN_JOBS, JobRegistry, ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger

PAUSE: Final = 0.05
"""Seconds between messages: enough for an answer to be made, so that every second message comes in the midst of one."""
LONG: Final = 10_000.0
ROWS: Final = check_rows(np.random.default_rng(1).standard_normal((20, DIMENSION)))


class Desk:
    """One provider, over any number of connections."""

    def __init__(self) -> None:
        self.people: People = people()
        self.ledger = MemoryLedger(lambda: 0.0)
        me, listed = self.people.identities["north"], self.people.revoked
        self.settings = ProviderSetup(
            "", lambda: me, lambda: listed, self._clock, {"cohort": ROWS}, AnythingGoes, self.ledger, self._entropy
        )
        self.registry = JobRegistry(self.settings)
        self.left: dict[tuple[str, int], set[bytes]] = {}
        """Every answer that was sent: of which job and query."""
        self.said: list[pb.FromProvider] = []
        self._draws = 0

    def converse(self, messages: Sequence[pb.ToProvider], *, hasty: bool = False, listening: bool = True) -> None:
        """Hold a conversation to its end; what a provider must never raise is raised here."""
        virtual.run(self._converse(messages, hasty, listening), Random(1))

    async def _converse(self, messages: Sequence[pb.ToProvider], hasty: bool, listening: bool) -> None:
        conversation = Conversation(self.settings, self.registry, asyncio.Event())
        hearing = asyncio.create_task(conversation.handle(self._say(messages, conversation, hasty)))
        reading = asyncio.create_task(self._read(conversation, listening))
        await asyncio.wait({hearing, reading}, timeout=LONG, return_when=asyncio.FIRST_COMPLETED)
        assert conversation._outbound.qsize() <= QUEUE
        ended = hearing.done() or not listening
        hearing.cancel()
        await asyncio.wait({hearing}, timeout=LONG)
        await asyncio.sleep(PAUSE)  # a thread may still be at an answer that nobody waits for
        reading.cancel()
        for outcome in await asyncio.gather(hearing, reading, return_exceptions=True):
            unforeseen = isinstance(outcome, Exception) and not isinstance(outcome, DpspcaError | TimeoutError)
            assert not unforeseen, "".join(map(ascii, traceback.format_exception(outcome)))
        assert ended, "The conversation neither goes on nor ends."

    async def _say(
        self, messages: Sequence[pb.ToProvider], conversation: Conversation, hasty: bool
    ) -> AsyncIterator[pb.ToProvider]:
        challenge = conversation.greeting.challenge
        jobs = len(self.people.good) + len(self.people.bad)
        for number, message in enumerate(messages):
            if number % 2 or not hasty:
                await asyncio.sleep(PAUSE)
            assert len(asyncio.all_tasks()) <= 4 + 2 * jobs
            assert len(conversation._answers) <= jobs
            yield self.people.completed(message, challenge)
        await asyncio.sleep(PAUSE)

    async def _read(self, conversation: Conversation, listening: bool) -> None:
        if not listening:
            await asyncio.sleep(2 * LONG)
        async for message in conversation.outbound():
            assert len(message.SerializeToString()) < 4096
            self.said.append(message)
            if message.WhichOneof("message") == "answer":
                piece = message.answer
                self.left.setdefault((piece.job, piece.position), set()).add(piece.content)

    def must_be_in_order(self) -> None:
        """What was spent is the price of what was answered, and an honest coordinator still gets its answer."""
        self._must_have_paid_for_what_left()
        spent = {name: account.spent.units for name, account in self.ledger._books.data_sets.items()}
        self.converse([welcome(), pb.ToProvider(ask=ask(b"last", PLAIN, 0))])
        last = self.people.good[b"last"].job_id
        assert self.left.get((last, 0)), self.said[-1:]
        self._must_have_paid_for_what_left()
        price = catalogue.plan(PLAIN)[0].event
        assert price is not None
        assert self.ledger._books.data_sets["cohort"].spent.units == spent.get("cohort", 0) + cost_units([price])

    def _must_have_paid_for_what_left(self) -> None:
        answered: list[Any] = []
        for name, job in self.ledger._books.jobs.items():
            plan = catalogue.plan(self.people.specs[name])
            kept = [step for step, asked in zip(plan, job.queries, strict=False) if asked.answer is not None]
            own = job.account
            assert (own.spent.units, own.spent.slack_units) == (cost_units(events(kept)), slack_units(events(kept)))
            answered += kept
        total = self.ledger._books.data_sets.get("cohort")
        assert (total.spent.units if total else 0) == sum(cost_units(events([step])) for step in answered)
        for (name, position), answers in self.left.items():
            told = self.ledger._books.jobs[name].queries[position].answer  # also of a job that is over
            assert told is not None
            assert [sha256(answer).hexdigest() for answer in answers] == [told.sha256]
        assert len(self.registry._jobs) <= min(MAX_OPEN_JOBS, len(self.people.good))

    def _clock(self) -> datetime:
        return (
            self.people.born + timedelta(seconds=asyncio.get_running_loop().time()) if _running() else self.people.born
        )

    def _entropy(self, draw: Draw) -> KeyStream:
        self._draws += 1
        return keyed_stream(self._draws.to_bytes(32), draw)


def _running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
