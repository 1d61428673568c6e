"""A small federation for tests: an authority, its identities, and parties that use real mutual TLS on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.calibration import MAX_EPSILON
from dpspca.common.privacy.keystream import Draw, Entropy, WordSource, repeatable_entropy
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import JobEnvelope, SignedJob, sign
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.server.coordinator import Coordinator

ROWS = np.random.default_rng(0).standard_normal((900, 30)) * np.r_[5, 4, np.ones(28)]
SHARDS = {f"site-{number}": part for number, part in enumerate(np.split(ROWS, [550, 800]))}
"""Of 550, 250 and 100 rows, so that the coordinator weighs what they answer."""
NOISE_SEED = 5


def now() -> datetime:
    return datetime.now(UTC)


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(30),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(4.0, 1e-6),
        "norm_bound": 12.0,
        "components": 2,
        "answer_seconds": TIMEOUT,
        "options": {"sparsity": 6, "rounds": 4},
        "method": "dps-pca",
    }
    return JobSpec(**good | changes)


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Return credentials of plain gRPC with mutual TLS, for coordinators that do not use this package."""
    pair = (identity.key_pem, identity.certificate_pem)
    return grpc.ssl_server_credentials([pair], identity.authority_pem, require_client_auth=True)


class AllowEverything:
    """A policy for tests that are not about policies: it allows every job, up to a very large budget.

    It is not the largest possible: slack costs e^epsilon times as much, so approximate mechanisms would get none.
    """

    def rules(self, _: str) -> Self:
        return self

    def check(self, *_: object) -> None:
        pass

    @property
    def unit(self) -> None:
        return None

    @property
    def least_bound(self) -> None:
        return None

    answer_interval = 0.0
    """Answers leave as soon as they are made. Tests of the schedule set another interval."""
    promise = None
    quotas = None
    approval_rule = None

    def limits(self, _: PartyName) -> tuple[Filter, None]:
        return Filter.for_budget(30.0, 0.9, aside=0.4), None


def permissive_policy(unit: str = "row-replace-one", *data_sets: str) -> str:
    """Return a policy in TOML that allows as much as a policy can."""
    bounds = f"{{ least = {2.0**-100!r}, most = {2.0**100!r} }}"
    budget = f"{{ epsilon = {MAX_EPSILON!r}, delta = 0.1 }}"
    rules = f"""
analysts = ["ada", "bob", "eve"]
unit = "{unit}"
rows_per_person = 1
methods = {[*CATALOGUE]}
accounting = ["exact", "published"]
centering = ["none", "public", "private"]
explained_variance = true
columns = {2**24}
norm_bound = {bounds}
mean_bound = {bounds}
minimum_providers = 1
lifetime = {budget}
per_job = {budget}
"""
    return "".join(f"[data_sets.{name}]{rules}" for name in data_sets or ("cohort",))


@dataclass(frozen=True)
class Enrolment:
    """An authority and the identities it signed."""

    folder: Path
    authority: Authority

    @classmethod
    def create(cls, folder: Path, name: str = "town", clock: Callable[[], datetime] = now) -> "Enrolment":
        return cls(folder, Authority.init(folder / "authority", name, clock))

    def identity(self, role: Role, name: str, days: int = 30) -> Identity:
        party = PartyName(self.authority.federation, role, name)
        home = self.folder / f"{role}-{name}"
        request = identities.request(home, party)
        return identities.install(home, self.authority.sign(request, days=days), self.authority.certificate_pem)

    def revocations(self) -> RevocationList:
        return RevocationList.read(self.authority.revocation_list(), self.authority.certificate_pem)

    def job(
        self, what: JobSpec, analyst: Identity, providers: Sequence[str], data_set: str = "cohort", **times: Any
    ) -> SignedJob:
        audience = [PartyName(self.authority.federation, Role.PROVIDER, name) for name in providers]
        drawn: dict[str, Any] = {"now": now(), "life": timedelta(hours=1)} | times
        return sign(JobEnvelope.draw(what.to_json().encode(), audience, data_set, **drawn), analyst)


@dataclass
class RunningFederation:
    """A running federation."""

    enrolment: Enrolment
    coordinator: Coordinator
    analyst: AsyncFederation
    revoked: list[RevocationList]
    """Every party uses the last one."""
    shards: Mapping[str, Any]
    words: Callable[[int], Entropy]
    known: dict[str, Identity] = field(default_factory=dict)
    daemons: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    async def start(self, name: str, **others: Any) -> Daemon:
        """Start a provider and wait until it is connected. ``others`` replaces settings."""
        number = list(self.shards).index(name)
        home = self.known.get(name) or self.enrolment.identity(Role.PROVIDER, name)
        self.known[name] = home
        usual = {
            "data_sets": {"cohort": check_rows(self.shards[name])},
            "policy": AllowEverything,
            "entropy": self.words(number),
        }
        settings: dict[str, Any] = usual | others
        daemon = Daemon(
            ProviderSetup(self.coordinator.address, lambda: home, lambda: self.revoked[-1], now, **settings)
        )
        self.daemons[name] = asyncio.create_task(daemon.run())
        await asyncio.wait_for(daemon.connected.wait(), TIMEOUT)
        return daemon

    async def stop(self) -> None:
        for task in self.daemons.values():
            task.cancel()
        await asyncio.gather(*self.daemons.values(), return_exceptions=True)
        await self.coordinator.stop(grace=0)


def noise_for(what: JobSpec, seed: int = NOISE_SEED) -> Callable[[int], Entropy]:
    """Return the noise that ``simulate(..., noise_seed=seed)`` gives each provider, whatever the job's name here."""

    def words(number: int, draw: Draw) -> WordSource:
        return repeatable_entropy(seed)(replace(draw, job=what.digest(), seat=number))

    return lambda number: partial(words, number)


seeded_noise = noise_for(spec())
"""The same for the default job."""


@asynccontextmanager
async def federation(
    enrolment: Enrolment,
    names: Sequence[str] | None = None,
    shards: Mapping[str, Any] = SHARDS,
    words: Callable[[int], Entropy] = seeded_noise,
    **limits: Any,
) -> AsyncIterator[RunningFederation]:
    """Run a coordinator with ``limits``, the providers ``names`` (default: all) and an analyst. Stop all at the end."""
    me = enrolment.identity(Role.COORDINATOR, "hub")
    revoked = [enrolment.revocations()]
    coordinator = Coordinator(lambda: me, lambda: revoked[-1], now, **limits)
    await coordinator.start("127.0.0.1:0")
    async with AsyncFederation(coordinator.address, enrolment.identity(Role.ANALYST, "ada")) as analyst:
        running = RunningFederation(enrolment, coordinator, analyst, revoked, shards, words)
        try:
            for name in shards if names is None else names:
                await running.start(name)
            yield running
        finally:
            await running.stop()
