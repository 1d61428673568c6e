"""What analysts want of a universe, and what its providers let them spend: as the seed decides."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, Self

from inhabitants import DIMENSION, SITES, Inhabitants
from weather import Weather

from dpspca.common.names import PartyName
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope, SignedJob, sign

SPECS: Final = tuple(
    JobSpec(
        schema=Schema(DIMENSION),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(epsilon, 1e-6),
        norm_bound=4.0,
        components=1,
        minimum_parties=2,
        answer_seconds=90,
        options={"sparsity": 3, "rounds": rounds},
        method="dps-pca",
    )
    for epsilon, rounds in ((1.0, 3), (0.5, 2))
)
PLENTY: Final = Filter.for_budget(30.0, 0.9, aside=0.4)
SCARCE: Final = tuple(Filter.for_budget(epsilon, 1e-6) for epsilon in (0.6, 1.0, 1.5))
"""Budgets that take no dear job, one, or two."""
EVENING: Final = 60.0
"""Seconds in which all jobs begin, and in which an analyst changes his mind."""


@dataclass(frozen=True)
class Errand:
    """A job that an analyst has done; moments are in seconds from its beginning, of which some never come."""

    spec: JobSpec
    signed: SignedJob
    analyst: Identity
    begin: float
    cancel: float | None
    again: float | None


def errands(town: Inhabitants, seed: int, weather: Weather) -> list[Errand]:
    """Decide who wants what. The same seed signs the same jobs: their names are part of what happens."""
    chance = Random(f"errands {seed}")
    numbers = range(chance.choice([1, 1, chance.randint(1, weather.jobs)]))
    return [_errand(town, seed, number, weather, chance) for number in numbers]


def _errand(town: Inhabitants, seed: int, number: int, weather: Weather, chance: Random) -> Errand:
    spec, analyst = chance.choice(SPECS), chance.choice([town.ada, town.bob or town.ada])
    moments = [
        chance.uniform(0, EVENING) if chance.random() < each else None for each in (weather.cancelled, weather.again)
    ]
    envelope = JobEnvelope(
        spec=spec.to_json().encode(),
        federation="town",
        audience=tuple(sorted(SITES)),
        data_set="cohort",
        issued_at=int(town.born.timestamp()),
        expires_at=int((town.born + timedelta(hours=12)).timestamp()),
        nonce=f"{seed:016x}{number:016x}",
    )
    return Errand(spec, sign(envelope, analyst), analyst, number and chance.uniform(0, EVENING), *moments)


@dataclass(frozen=True)
class Purse:
    """The policy of a provider that allows every job which its budgets take."""

    data_set: Filter = PLENTY
    analyst: Filter | None = None
    """Of each analyst."""

    def rules(self, data_set: str) -> Self:
        return self

    def check(
        self, spec: JobSpec, analyst: PartyName, audience: tuple[str, ...], public_bound: float | None = None
    ) -> None:
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
        """Draw budgets: of the data set, of each analyst, or neither is scarce."""
        if chance.random() >= scarce:
            return cls()
        little = chance.choice(SCARCE)
        return cls(little) if chance.random() < 0.5 else cls(PLENTY, little)
