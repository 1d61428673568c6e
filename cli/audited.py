"""Daemons under audit: the installed program, in processes of their own, asked by a coordinator that the audit plays.

A daemon gets made-up rows as a file, a policy that allows the job, a ledger and certificates, all fresh, and dials out
as at any provider's. It cannot tell that the coordinator which it meets is an audit: the questions are signed by an
analyst, and the answers are the bytes that came over the wire. When a daemon's budget, which is the largest there is,
is used up, another takes its place: what is audited refuses as it always does.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from dpspca.client.audit import Neighbour, Opening, Provider
from dpspca.client.blocking import Loop
from dpspca.client.federation import life_of
from dpspca.common.algorithms import catalogue
from dpspca.common.privacy.calibrate import MAX_EPSILON
from dpspca.common.question import RowQuery
from dpspca.common.spec import JobSpec
from dpspca.common.transport import wire
from dpspca.common.transport.identity import CurrentIdentity, CurrentRevocations
from dpspca.common.transport.names import PartyName, Role
from dpspca.common.transport.signing import JobEnvelope, SignedJob, sign
from dpspca.provider.policy import Cap
from dpspca.provider.suggestion import a_few, room, suggest
from dpspca.server.questions import Question
from dpspca.server.roster import Link, ProviderLostError
from dpspca.server.rounds import LARGEST_ANSWER
from dpspca.server.service import Coordinator

from .flags import now
from .loopback import (
    ANALYST,
    COORDINATOR,
    DATA_SET,
    LISTEN,
    LOOK,
    POLICY,
    REVOCATIONS,
    Parties,
    Party,
    PartyLostError,
    founded,
    write_rows,
)

LARGEST: Final = Cap(MAX_EPSILON, 1 - 2.0**-30)
"""A lifetime that promises next to nothing, for rows that nobody has."""
STARTING: Final = 60
"""Seconds that a daemon may take to read its rows and connect."""


@contextmanager
def daemons(spec: JobSpec) -> Iterator[Opening]:
    """Have real daemons answer a job, as often as it is opened in this block."""
    with founded() as parties:
        loop = Loop()
        try:
            hub = loop.run(_listening(parties))
            try:
                yield _Desk(spec, parties, hub, loop).open
            finally:
                loop.run(hub.stop(0))
        finally:
            loop.stop()


async def _listening(parties: Parties) -> Coordinator:
    identity = CurrentIdentity(parties.enrol(Role.COORDINATOR, COORDINATOR))
    revocations = CurrentRevocations(parties.folder / REVOCATIONS, identity.get().authority_pem)
    hub = Coordinator(identity.get, revocations.get, now)
    await hub.start(LISTEN)
    return hub


@dataclass(slots=True)
class _Serving:
    """A daemon that runs, the data that it answers about, and how many jobs its budget has left."""

    party: Party
    about: Neighbour
    left: int


@dataclass(slots=True)
class _Desk:
    """Signs jobs as an analyst would, has a daemon with a budget for each, and asks it what it is told to."""

    spec: JobSpec
    parties: Parties
    hub: Coordinator
    loop: Loop
    _serving: _Serving | None = None
    _started: int = 0
    _analyst: CurrentIdentity = field(init=False)
    _room: int = field(init=False)

    def __post_init__(self) -> None:
        self._analyst = CurrentIdentity(self.parties.enrol(Role.ANALYST, ANALYST))
        lifetime = max((LARGEST, a_few(self.spec)), key=lambda cap: room(cap, self.spec))
        self._room = room(lifetime, self.spec)
        policy = suggest(self.spec, DATA_SET, [ANALYST], lifetime)
        (self.parties.folder / POLICY).write_text(policy, encoding="utf-8")

    def open(self, spec: JobSpec, about: Neighbour, _job: str) -> Provider:
        """Sign another job about these data."""
        serving = self._serving
        if serving is None or serving.about is not about or not serving.left:
            serving = self._serving = self._started_for(about)
        serving.left -= 1
        job = _Job(self.hub, serving.party, self._signed(serving.party.name), spec)
        return lambda position, query: self.loop.run(job.answer(position, query))

    def _started_for(self, about: Neighbour) -> _Serving:
        """Start a daemon in the place of the one before."""
        self.parties.end()
        self._started += 1
        file = write_rows(self.parties.folder / about.name, about.data, self.spec.schema.names)
        party = self.parties.provide(f"{about.name}-{self._started}", file, self.hub.address, POLICY)
        return _Serving(party, about, self._room)

    def _signed(self, name: str) -> SignedJob:
        """Sign a job for this provider, and for as many that are not there as the job needs to have signed."""
        named = partial(PartyName, self.parties.authority.federation, Role.PROVIDER)
        audience = [named(name), *(named(f"absent-{n}") for n in range(1, self.spec.minimum_parties))]
        content, life = self.spec.to_json().encode(), life_of(self.spec)
        return sign(JobEnvelope.draw(content, audience, DATA_SET, now=now(), life=life), self._analyst.get())


@dataclass(frozen=True, slots=True)
class _Job:
    """A signed job, and the daemon that is to answer it."""

    hub: Coordinator
    party: Party
    signed: SignedJob
    spec: JobSpec

    async def answer(self, position: int, query: RowQuery) -> memoryview:
        """Ask, and give the bytes of the answer."""
        plan, name = catalogue.plan(self.spec), self.signed.job_id
        step = plan[position].fitted(query, self.spec.unit)
        question = Question.of(self.signed.to_bytes(), position, step, query)
        answer = np.zeros(step.shape, dtype=np.int64)
        link = await self._link()
        reader = wire.AnswerReader(answer, LARGEST_ANSWER)
        try:
            async with asyncio.timeout(self.spec.answer_seconds):
                await link.ask(question.ask, name, question.frames, reader)
        except ProviderLostError:
            raise self._lost("hung up") from None
        except TimeoutError:
            raise self._lost(f"gave no answer within {self.spec.answer_seconds} seconds") from None
        if position + 1 == len(plan):
            link.farewell(name, "done")
        return wire.answer_content(answer)

    async def _link(self) -> Link:
        """Wait for a daemon that has just been started."""
        try:
            async with asyncio.timeout(STARTING):
                while (link := self.hub.roster.find(self.party.name, DATA_SET, self.spec.schema.dimension)) is None:
                    self.party.require_alive()
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise self._lost(f"did not connect within {STARTING} seconds") from None
        return link

    def _lost(self, how: str) -> PartyLostError:
        """Say that there is nothing more to be had of the daemon, with the end of its log."""
        self.party.require_alive()
        return self.party.lost(f"The daemon {self.party.name} {how}.")
