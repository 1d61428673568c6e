"""A provider that converses with a simulated coordinator, in virtual time.

Everything is real except gRPC: the registry, the ledger, the gate, the noise. ``ProviderHarness.require_consistent``
checks what must hold after every conversation.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Any, Final

import numpy as np
import virtual_time
from fuzz_parties import DIMENSION, PLAIN, FuzzParties, ask, fuzz_parties, welcome
from local_federation import AllowEverything

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.plan import events
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.keystream import Draw, KeyStream, keyed_stream
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.conversation import QUEUE, Conversation
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import MAX_OPEN_JOBS, JobRegistry, ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger

PAUSE: Final = 0.05
"""Seconds between messages, enough to compute an answer. Without pauses, every second message arrives during one."""
LONG: Final = 10_000.0
ROWS: Final = check_rows(np.random.default_rng(1).standard_normal((20, DIMENSION)))


class ProviderHarness:
    """One provider over any number of connections."""

    def __init__(self) -> None:
        self.fuzz_parties: FuzzParties = fuzz_parties()
        self.ledger = MemoryLedger(lambda: 0.0)
        me, listed = self.fuzz_parties.identities["north"], self.fuzz_parties.revoked
        self.settings = ProviderSetup(
            "", lambda: me, lambda: listed, self._clock, {"cohort": ROWS}, AllowEverything, self.ledger, self._entropy
        )
        self.registry = JobRegistry(self.settings)
        self.answers: dict[tuple[str, int], set[bytes]] = {}
        """All answers that were sent, by job and query."""
        self.sent: list[pb.FromProvider] = []
        self._draws = 0

    def run_conversation(
        self, messages: Sequence[pb.ToProvider], *, without_pauses: bool = False, reads_replies: bool = True
    ) -> None:
        """Run a conversation to its end. Raise any exception that a provider must not raise."""
        virtual_time.run(self._run_conversation(messages, without_pauses, reads_replies), Random(1))

    async def _run_conversation(
        self, messages: Sequence[pb.ToProvider], without_pauses: bool, reads_replies: bool
    ) -> None:
        conversation = Conversation(self.settings, self.registry, asyncio.Event())
        hearing = asyncio.create_task(conversation.handle(self._say(messages, conversation, without_pauses)))
        reading = asyncio.create_task(self._read(conversation, reads_replies))
        await asyncio.wait({hearing, reading}, timeout=LONG, return_when=asyncio.FIRST_COMPLETED)
        assert conversation._outbound.qsize() <= QUEUE
        ended = hearing.done() or not reads_replies
        hearing.cancel()
        await asyncio.wait({hearing}, timeout=LONG)
        await asyncio.sleep(PAUSE)  # a thread may still compute an answer that nobody waits for
        reading.cancel()
        for outcome in await asyncio.gather(hearing, reading, return_exceptions=True):
            unforeseen = isinstance(outcome, Exception) and not isinstance(outcome, DpspcaError | TimeoutError)
            assert not unforeseen, "".join(map(ascii, traceback.format_exception(outcome)))
        assert ended, "The conversation is stuck."

    async def _say(
        self, messages: Sequence[pb.ToProvider], conversation: Conversation, without_pauses: bool
    ) -> AsyncIterator[pb.ToProvider]:
        challenge = conversation.greeting.challenge
        jobs = len(self.fuzz_parties.good) + len(self.fuzz_parties.bad)
        for number, message in enumerate(messages):
            if number % 2 or not without_pauses:
                await asyncio.sleep(PAUSE)
            assert len(asyncio.all_tasks()) <= 4 + 2 * jobs
            assert len(conversation._answers) <= jobs
            yield self.fuzz_parties.completed(message, challenge)
        await asyncio.sleep(PAUSE)

    async def _read(self, conversation: Conversation, reads_replies: bool) -> None:
        if not reads_replies:
            await asyncio.sleep(2 * LONG)
        async for message in conversation.outbound():
            assert len(message.SerializeToString()) < 4096
            self.sent.append(message)
            if message.WhichOneof("message") == "answer":
                piece = message.answer
                self.answers.setdefault((piece.job, piece.position), set()).add(piece.content)

    def require_consistent(self) -> None:
        """Require that exactly the answers were charged, and that an honest coordinator still gets an answer."""
        self._require_exact_charges()
        spent = {name: account.spent.units for name, account in self.ledger._state.data_sets.items()}
        self.run_conversation([welcome(), pb.ToProvider(query=ask(b"last", PLAIN, 0))])
        last = self.fuzz_parties.good[b"last"].job_id
        assert self.answers.get((last, 0)), self.sent[-1:]
        self._require_exact_charges()
        price = catalogue.plan(PLAIN)[0].event
        assert price is not None
        assert self.ledger._state.data_sets["cohort"].spent.units == spent.get("cohort", 0) + cost_units([price])

    def _require_exact_charges(self) -> None:
        answered: list[Any] = []
        for name, job in self.ledger._state.jobs.items():
            plan = catalogue.plan(self.fuzz_parties.specs[name])
            kept = [step for step, asked in zip(plan, job.queries, strict=False) if asked.answer is not None]
            own = job.account
            assert (own.spent.units, own.spent.slack_units) == (cost_units(events(kept)), slack_units(events(kept)))
            answered += kept
        total = self.ledger._state.data_sets.get("cohort")
        assert (total.spent.units if total else 0) == sum(cost_units(events([step])) for step in answered)
        for (name, position), answers in self.answers.items():
            told = self.ledger._state.jobs[name].queries[position].answer  # also of a job that is over
            assert told is not None
            assert [sha256(answer).hexdigest() for answer in answers] == [told.sha256]
        assert len(self.registry._jobs) <= min(MAX_OPEN_JOBS, len(self.fuzz_parties.good))

    def _clock(self) -> datetime:
        return (
            self.fuzz_parties.started_at + timedelta(seconds=asyncio.get_running_loop().time())
            if _running()
            else self.fuzz_parties.started_at
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
