"""The jobs of a simulated federation and the budgets of its providers, drawn from the seed."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, Self

from fault_rates import FaultRates
from party_identities import DIMENSION, SITES, PartyIdentities

from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import PartyName
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope, SignedJob, sign
from dpspca.provider.policy import JobRequest

SPECS: Final = tuple(
    JobSpec(
        schema=Schema(DIMENSION),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(epsilon, 1e-6),
        norm_bound=4.0,
        components=1,
        minimum_providers=2,
        answer_seconds=90,
        options={"sparsity": 3, "rounds": rounds},
        method="dps-pca",
    )
    for epsilon, rounds in ((1.0, 3), (0.5, 2))
)
PLENTY: Final = Filter.for_budget(30.0, 0.9, aside=0.4)
SCARCE: Final = tuple(Filter.for_budget(epsilon, 1e-6) for epsilon in (0.6, 1.0, 1.5))
"""Budgets that are enough for no expensive job, for one, or for two."""
JOB_SPREAD: Final = 60.0
"""Seconds within which all jobs begin, and within which an analyst may cancel or resubmit a job."""


@dataclass(frozen=True)
class PlannedJob:
    """A job to submit. ``cancel`` and ``again`` are times in seconds after its begin, or None for never."""

    spec: JobSpec
    signed: SignedJob
    analyst: Identity
    begin: float
    cancel: float | None
    again: float | None


def planned_jobs(identities: PartyIdentities, seed: int, rates: FaultRates) -> list[PlannedJob]:
    """Draw the jobs of a seed. Equal seeds give equal nonces, because the names of jobs influence the run."""
    chance = Random(f"errands {seed}")
    numbers = range(chance.choice([1, 1, chance.randint(1, rates.jobs)]))
    return [_planned_job(identities, seed, number, rates, chance) for number in numbers]


def _planned_job(identities: PartyIdentities, seed: int, number: int, rates: FaultRates, chance: Random) -> PlannedJob:
    spec, analyst = chance.choice(SPECS), chance.choice([identities.ada, identities.bob or identities.ada])
    moments = [
        chance.uniform(0, JOB_SPREAD) if chance.random() < each else None for each in (rates.cancelled, rates.again)
    ]
    envelope = JobEnvelope(
        spec=spec.to_json().encode(),
        federation="town",
        audience=tuple(sorted(SITES)),
        data_set="cohort",
        issued_at=int(identities.started_at.timestamp()),
        expires_at=int((identities.started_at + timedelta(hours=12)).timestamp()),
        nonce=f"{seed:016x}{number:016x}",
    )
    return PlannedJob(spec, sign(envelope, analyst), analyst, number and chance.uniform(0, JOB_SPREAD), *moments)


@dataclass(frozen=True)
class BudgetPolicy:
    """A policy that allows every job that fits its budgets."""

    data_set: Filter = PLENTY
    analyst: Filter | None = None
    """Budget of each analyst."""

    def rules(self, data_set: str) -> Self:
        return self

    def check(self, job: JobRequest) -> None:
        pass

    @property
    def unit(self) -> None:
        return None

    @property
    def least_bound(self) -> None:
        return None

    @property
    def answer_interval(self) -> None:
        return None

    promise = None
    quotas = None
    approval_rule = None

    def limits(self, analyst: PartyName) -> tuple[Filter, Filter | None]:
        return self.data_set, self.analyst

    @classmethod
    def drawn(cls, chance: Random, scarce: float) -> Self:
        """Draw budgets: small for the data set, small for each analyst, or neither."""
        if chance.random() >= scarce:
            return cls()
        little = chance.choice(SCARCE)
        return cls(little) if chance.random() < 0.5 else cls(PLENTY, little)
