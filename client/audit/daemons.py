"""Daemons under audit: processes of the installed program, with the audit as their coordinator.

A daemon gets both neighbours' made-up rows as files, a policy that allows the job on either, a new ledger and new
certificates, and dials out as at any provider. One daemon serves both neighbours, so that only the rows can make
answers about one of them take longer. It cannot detect that its coordinator is an audit: an analyst signs the jobs, and
the answers are the bytes that came over the wire. A daemon has the largest possible budget. When that is used up,
another daemon replaces it, because the audited code refuses jobs as it always does.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.client.blocking import EventLoopThread
from dpspca.client.clock import now
from dpspca.client.connection import validity_of
from dpspca.client.demo import (
    ANALYST,
    COORDINATOR,
    LISTEN,
    POLICY,
    POLL_SECONDS,
    REVOCATIONS,
    Parties,
    Party,
    PartyLostError,
    new_federation,
    write_rows,
)
from dpspca.common.algorithms import catalogue
from dpspca.common.job import JobSpec
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_EPSILON
from dpspca.common.queries import RowQuery
from dpspca.common.transport import wire
from dpspca.common.trust import CurrentIdentity, CurrentRevocations, JobEnvelope, SignedJob, sign
from dpspca.provider.ledger import Balance
from dpspca.provider.policy import Cap, budget_for_a_few, filter_of, suggest
from dpspca.server.coordinator import Coordinator
from dpspca.server.jobs import LARGEST_ANSWER, Link, OutgoingQuery, ProviderLostError

from .answers import NAMES, JobOpener, Neighbour, Provider
from .neighbours import neighbours, row_owners

LARGEST_BUDGET: Final = Cap(MAX_EPSILON, 1 - 2.0**-30)
"""A lifetime budget that promises almost nothing, for made-up rows."""
STARTUP_SECONDS: Final = 60
"""Seconds that a daemon may take to read its rows and connect."""


@contextmanager
def daemons(
    spec: JobSpec, pair: Mapping[str, Any] | None = None, *, interval: float | None = None
) -> Iterator[JobOpener]:
    """Start real daemons that answer a job each time it is opened in this block.

    ``pair`` has two data sets by name; by default, the audit's neighbours. ``interval`` is the ``answer_interval`` of
    the daemons' policy.
    """
    with new_federation() as parties:
        loop = EventLoopThread()
        try:
            hub = loop.run(_listening(parties))
            try:
                yield _Auditor(catalogue.plan(spec), parties, hub, loop, pair or _neighbours(spec), interval).open
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
class _RunningDaemon:
    """A running daemon, and how many more jobs the budget of each of its data sets allows."""

    party: Party
    left: dict[str, int]


@dataclass(slots=True)
class _Auditor:
    """Signs jobs as an analyst would, and keeps a daemon running that has a budget for them."""

    plan: Plan
    parties: Parties
    hub: Coordinator
    loop: EventLoopThread
    pair: Mapping[str, Any]
    interval: float | None
    _daemon: _RunningDaemon | None = None
    _started: int = 0
    _analyst: CurrentIdentity = field(init=False)
    _files: dict[str, Path] = field(init=False)
    _persons: dict[str, Path] = field(init=False)
    _room: int = field(init=False)

    def __post_init__(self) -> None:
        self._analyst = CurrentIdentity(self.parties.enrol(Role.ANALYST, ANALYST))
        plan, spec = self.plan, self.plan.spec
        lifetime = max(
            (LARGEST_BUDGET, budget_for_a_few(plan)), key=lambda cap: Balance.of(filter_of(cap)).jobs(plan.price)
        )
        self._room = Balance.of(filter_of(lifetime)).jobs(plan.price)
        folder, columns = self.parties.folder, spec.schema.names
        self._files = {name: write_rows(folder / name, data, columns) for name, data in self.pair.items()}
        owners = {name: row_owners(spec, data) for name, data in self.pair.items()}
        self._persons = {
            name: _write_persons(folder / f"{name}.persons", each) for name, each in owners.items() if each
        }
        leaving = "" if self.interval is None else f"answer_interval = {self.interval}\n"
        policies = (suggest(plan, name, [ANALYST], lifetime) + leaving for name in self.pair)
        (self.parties.folder / POLICY).write_text("\n".join(policies), encoding="utf-8")

    def open(self, _spec: JobSpec, about: Neighbour, _job: str) -> Provider:
        """Sign another job about these data, and return its provider."""
        daemon = self._daemon
        if daemon is None or not daemon.left[about.name]:
            daemon = self._daemon = self._start()
        daemon.left[about.name] -= 1
        job = _Job(self.hub, daemon.party, self._signed(daemon.party.name, about.name), self.plan, about.name)
        return lambda position, query: self.loop.run(job.answer(position, query))

    def _start(self) -> _RunningDaemon:
        """Replace the running daemon."""
        self.parties.end()
        self._started += 1
        party = self.parties.start_provider(
            f"audited-{self._started}", self._files, self.hub.address, POLICY, self._persons
        )
        return _RunningDaemon(party, dict.fromkeys(self._files, self._room))

    def _signed(self, name: str, data_set: str) -> SignedJob:
        """Sign a job for this provider, and for as many absent providers as the job requires."""
        named = partial(PartyName, self.parties.authority.federation, Role.PROVIDER)
        audience = [named(name), *(named(f"absent-{n}") for n in range(1, self.plan.spec.minimum_providers))]
        content, life = self.plan.spec.to_json().encode(), validity_of(self.plan)
        return sign(JobEnvelope.draw(content, audience, data_set, now=now(), life=life), self._analyst.get())


def _neighbours(spec: JobSpec) -> dict[str, Any]:
    return dict(zip(NAMES, neighbours(spec), strict=True))


def _write_persons(path: Path, persons: list[int]) -> Path:
    """Write the person of each row."""
    path.write_text("".join(f"{each}\n" for each in persons), encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True)
class _Job:
    """A signed job, and the daemon that answers it."""

    hub: Coordinator
    party: Party
    signed: SignedJob
    plan: Plan
    data_set: str

    async def answer(self, position: int, query: RowQuery) -> memoryview:
        """Send a query, and return the bytes of the answer."""
        spec, name = self.plan.spec, self.signed.job_id
        step = self.plan[position].fit_to(query, spec.unit)
        planned = OutgoingQuery.of(self.signed.to_bytes(), position, step, query)
        answer = np.zeros(step.shape, dtype=np.int64)
        link = await self._link()
        reader = wire.AnswerReader(answer, LARGEST_ANSWER)
        try:
            async with asyncio.timeout(spec.answer_seconds):
                await link.ask(planned.message, name, planned.frames, reader)
        except ProviderLostError:
            raise self._lost("closed the connection") from None
        except TimeoutError:
            raise self._lost(f"gave no answer within {spec.answer_seconds} seconds") from None
        if position + 1 == len(self.plan):
            link.send_farewell(name, "done")
        return wire.answer_content(answer)

    async def _link(self) -> Link:
        """Wait until the started daemon has connected."""
        try:
            async with asyncio.timeout(STARTUP_SECONDS):
                while (
                    link := self.hub.roster.find(self.party.name, self.data_set, self.plan.spec.schema.dimension)
                ) is None:
                    self.party.require_alive()
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise self._lost(f"did not connect within {STARTUP_SECONDS} seconds") from None
        return link

    def _lost(self, how: str) -> PartyLostError:
        """Return the error for a daemon that no longer answers, with the end of its log."""
        self.party.require_alive()
        return self.party.lost(f"The daemon {self.party.name} {how}.")
