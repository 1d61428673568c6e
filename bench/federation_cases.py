"""Cases of ``federation.py``: how large a federation is, its rows and its job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse
from federation_parties import ANALYST, DATA_SET, POLICY, now

from dpspca.client.connection.job_checks import VALIDITY
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy.calibration import MAX_EPSILON
from dpspca.common.privacy.lattice import MAX_PROVIDERS
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.trust.signing import JobEnvelope
from dpspca.provider.policy.caps import Cap
from dpspca.provider.policy.suggestion import suggest

NORM_BOUND: Final = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """One federation and its job; ``density`` makes the rows sparse."""

    providers: int
    dimension: int
    rows: int
    components: int = 5
    sparsity: int = 50
    rounds: int = 10
    repeats: int = 15
    density: float | None = None
    durable: bool = True
    """Whether ledgers and journal are on disk, as in production, or in memory."""

    @property
    def names(self) -> list[str]:
        return [f"site-{number}" for number in range(self.providers)]

    @property
    def spec(self) -> JobSpec:
        return JobSpec(
            schema=Schema(self.dimension),
            unit=PrivacyUnit.ROW_REPLACE_ONE,
            budget=Budget(1.0, 1e-6),
            norm_bound=NORM_BOUND,
            components=self.components,
            minimum_providers=min(self.providers, MAX_PROVIDERS),
            explained_variance=False,
            options={"sparsity": min(self.sparsity, self.dimension), "rounds": self.rounds},
            method="dps-pca",
        )

    def shard(self, number: int) -> Any:  # noqa: ANN401  # dense or sparse
        generator = np.random.default_rng(number)
        if self.density:
            return scipy.sparse.random_array((self.rows, self.dimension), density=self.density, rng=generator)
        return generator.standard_normal((self.rows, self.dimension)) / self.dimension**0.5

    def shards(self) -> list[Any]:
        return [self.shard(number) for number in range(self.providers)]

    def write(self, folder: Path) -> None:
        (folder / POLICY).write_text(
            suggest(catalogue.plan(self.spec), DATA_SET, [ANALYST], Cap(MAX_EPSILON, self.spec.budget.delta)),
            encoding="utf-8",
        )
        for name, rows in zip(self.names, self.shards(), strict=True):
            if self.density:
                scipy.sparse.save_npz(folder / f"{name}.npz", rows)
            else:
                np.save(folder / f"{name}.npy", rows)

    def envelope(self) -> JobEnvelope:
        audience = [PartyName("town", Role.PROVIDER, name) for name in self.names]
        return JobEnvelope.draw(self.spec.to_json().encode(), audience, DATA_SET, now=now(), life=VALIDITY)
