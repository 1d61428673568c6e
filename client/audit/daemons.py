"""Daemons under audit: the installed program, in processes of their own, asked by a coordinator that the audit plays.

A daemon gets both neighbours' made-up rows as files, a policy that allows the job on either, a ledger and certificates,
all fresh, and dials out as at any provider's. It is one daemon for both, so that nothing but the rows can make the
answers about one of them take longer. It cannot tell that the coordinator which it meets is an audit: the queries are
signed by an analyst, and the answers are the bytes that came over the wire. When a daemon's budget, which is the
largest there is, is used up, another takes its place: what is audited refuses as it always does.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.client.blocking import Loop
from dpspca.client.clock import now
from dpspca.client.demo import (
    ANALYST,
    COORDINATOR,
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
from dpspca.client.federation import life_of
from dpspca.common.algorithms import catalogue
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import MAX_EPSILON
from dpspca.common.queries import RowQuery
from dpspca.common.spec import JobSpec
from dpspca.common.transport import wire
from dpspca.common.trust import CurrentIdentity, CurrentRevocations, JobEnvelope, SignedJob, sign
from dpspca.provider.ledger import Balance
from dpspca.provider.policy import Cap, a_few, filter_of, suggest
from dpspca.server.coordinator import Coordinator
from dpspca.server.jobs import LARGEST_ANSWER, Link, OutgoingQuery, ProviderLostError

from .answers import NAMES, Neighbour, Opening, Provider
from .neighbours import neighbours, whose

LARGEST: Final = Cap(MAX_EPSILON, 1 - 2.0**-30)
"""A lifetime that promises next to nothing, for rows that nobody has."""
STARTING: Final = 60
"""Seconds that a daemon may take to read its rows and connect."""


@contextmanager
def daemons(
    spec: JobSpec, pair: Mapping[str, Any] | None = None, *, interval: float | None = None
) -> Iterator[Opening]:
    """Have real daemons answer a job, as often as it is opened in this block.

    ``pair`` are data sets by their names; left out, the audit's neighbours. ``interval`` is what the daemons' policy
    says of when answers leave.
    """
    with founded() as parties:
        loop = Loop()
        try:
            hub = loop.run(_listening(parties))
            try:
                yield _Desk(spec, parties, hub, loop, pair or _neighbours(spec), interval).open
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
    """A daemon that runs, and how many jobs the budget of each of its data sets has left."""

    party: Party
    left: dict[str, int]


@dataclass(slots=True)
class _Desk:
    """Signs jobs as an analyst would, has a daemon with a budget for each, and asks it what it is told to."""

    spec: JobSpec
    parties: Parties
    hub: Coordinator
    loop: Loop
    pair: Mapping[str, Any]
    interval: float | None
    _serving: _Serving | None = None
    _started: int = 0
    _analyst: CurrentIdentity = field(init=False)
    _files: dict[str, Path] = field(init=False)
    _persons: dict[str, Path] = field(init=False)
    _room: int = field(init=False)

    def __post_init__(self) -> None:
        self._analyst = CurrentIdentity(self.parties.enrol(Role.ANALYST, ANALYST))
        plan = catalogue.plan(self.spec)
        lifetime = max((LARGEST, a_few(plan)), key=lambda cap: Balance.of(filter_of(cap)).jobs(plan.price))
        self._room = Balance.of(filter_of(lifetime)).jobs(plan.price)
        folder, columns = self.parties.folder, self.spec.schema.names
        self._files = {name: write_rows(folder / name, data, columns) for name, data in self.pair.items()}
        owners = {name: whose(self.spec, data) for name, data in self.pair.items()}
        self._persons = {
            name: _write_persons(folder / f"{name}.persons", each) for name, each in owners.items() if each
        }
        leaving = "" if self.interval is None else f"answer_interval = {self.interval}\n"
        policies = (suggest(plan, name, [ANALYST], lifetime) + leaving for name in self.pair)
        (self.parties.folder / POLICY).write_text("\n".join(policies), encoding="utf-8")

    def open(self, spec: JobSpec, about: Neighbour, _job: str) -> Provider:
        """Sign another job about these data."""
        serving = self._serving
        if serving is None or not serving.left[about.name]:
            serving = self._serving = self._start()
        serving.left[about.name] -= 1
        job = _Job(self.hub, serving.party, self._signed(serving.party.name, about.name), spec, about.name)
        return lambda position, query: self.loop.run(job.answer(position, query))

    def _start(self) -> _Serving:
        """Start a daemon in the place of the one before."""
        self.parties.end()
        self._started += 1
        party = self.parties.provide(f"audited-{self._started}", self._files, self.hub.address, POLICY, self._persons)
        return _Serving(party, dict.fromkeys(self._files, self._room))

    def _signed(self, name: str, data_set: str) -> SignedJob:
        """Sign a job for this provider, and for as many that are not there as the job needs to have signed."""
        named = partial(PartyName, self.parties.authority.federation, Role.PROVIDER)
        audience = [named(name), *(named(f"absent-{n}") for n in range(1, self.spec.minimum_parties))]
        content, life = self.spec.to_json().encode(), life_of(catalogue.plan(self.spec))
        return sign(JobEnvelope.draw(content, audience, data_set, now=now(), life=life), self._analyst.get())


def _neighbours(spec: JobSpec) -> dict[str, Any]:
    return dict(zip(NAMES, neighbours(spec), strict=True))


def _write_persons(path: Path, persons: list[int]) -> Path:
    """Write whose each row is."""
    path.write_text("".join(f"{each}\n" for each in persons), encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True)
class _Job:
    """A signed job, and the daemon that is to answer it."""

    hub: Coordinator
    party: Party
    signed: SignedJob
    spec: JobSpec
    data_set: str

    async def answer(self, position: int, query: RowQuery) -> memoryview:
        """Ask, and give the bytes of the answer."""
        plan, name = catalogue.plan(self.spec), self.signed.job_id
        step = plan[position].fitted(query, self.spec.unit)
        planned = OutgoingQuery.of(self.signed.to_bytes(), position, step, query)
        answer = np.zeros(step.shape, dtype=np.int64)
        link = await self._link()
        reader = wire.AnswerReader(answer, LARGEST_ANSWER)
        try:
            async with asyncio.timeout(self.spec.answer_seconds):
                await link.ask(planned.ask, name, planned.frames, reader)
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
                while (
                    link := self.hub.roster.find(self.party.name, self.data_set, self.spec.schema.dimension)
                ) is None:
                    self.party.require_alive()
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise self._lost(f"did not connect within {STARTING} seconds") from None
        return link

    def _lost(self, how: str) -> PartyLostError:
        """Say that there is nothing more to be had of the daemon, with the end of its log."""
        self.party.require_alive()
        return self.party.lost(f"The daemon {self.party.name} {how}.")
