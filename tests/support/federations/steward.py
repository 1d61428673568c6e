"""A provider's folder as its steward sees it: settings, policy, and a ledger written by the daemon's code."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import Ledger, Limits, Opening
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder

SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
cohort = "rows.csv"
"""
POLICY = """
[data_sets.cohort]
analysts = ["ada", "grace"]
unit = "row-add-remove"
rows_per_person = 1
methods = ["dps-pca"]
centering = ["none"]
explained_variance = false
columns = 6
norm_bound = { least = 4.0, most = 4.0 }
minimum_providers = 1
lifetime = { epsilon = 4.0, delta = 1e-5 }
per_analyst = { epsilon = 2.0, delta = 1e-5 }
per_job = { epsilon = 1.0, delta = 1e-6 }
"""
LIFETIME = Filter.for_budget(4.0, 1e-5)
QUERIES = 3
QUERY = CovarianceProduct(np.eye(6)[:, :2])
ROWS = np.random.default_rng(3).standard_normal((40, 6))
ADA, GRACE = (f"dpspca://town/analyst/{name}" for name in ("ada", "grace"))


def job(epsilon: float = 1.0, delta: float = 1e-6) -> JobSpec:
    return JobSpec(
        schema=Schema(6),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(epsilon, delta),
        norm_bound=4.0,
        components=2,
        explained_variance=False,
        options={"sparsity": 6, "rounds": QUERIES},
        method="dps-pca",
    )


def opening(name: str, spec: JobSpec, **changes: Any) -> Opening:
    price = catalogue.plan(spec).events
    now = int(time.time())
    good: dict[str, Any] = {
        "job": name,
        "data_set": "cohort",
        "data_digest": "d" * 64,
        "analyst": ADA,
        "unit": spec.unit,
        "spec_epsilon": spec.budget.epsilon,
        "spec_delta": spec.budget.delta,
        "units": cost_units(price),
        "slack_units": slack_units(price),
        "issued_at": now,
        "expires_at": now + 3600,
        "signature_hash": "5" * 64,
    }
    return Opening(**good | changes)


@dataclass(frozen=True)
class Site:
    """A provider's folder."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "Site":
        (folder / "identity").mkdir(mode=0o700)
        written = json.dumps(job().to_dict())
        for name, text in (("provider.toml", SETTINGS), ("policy.toml", POLICY), ("job.json", written)):
            (folder / name).write_text(text, encoding="utf-8")
        return cls(folder)

    @property
    def path(self) -> Path:
        return self.folder / "ledger" / "ledger.db"

    @contextmanager
    def running(self, at: float | None = None) -> Iterator[SqliteLedger]:
        """Open the ledger as a daemon does; ``at`` replaces the current time."""
        with SqliteLedger(
            self.path, self.folder / "identity" / "ledger-head", clock=time.time if at is None else lambda: at
        ) as ledger:
            yield ledger

    def answer(
        self, ledger: Ledger, name: str, answers: int = QUERIES, spec: JobSpec | None = None, **changes: Any
    ) -> None:
        """Admit a job and answer its first ``answers`` queries."""
        spec = spec or job()
        ledger.open(opening(name, spec, **changes), Limits(LIFETIME))
        asked = Responder(
            catalogue.plan(spec), Shard(check_rows(ROWS), spec.norm_bound), ledger, system_entropy, job=name
        )
        for position in range(answers):
            asked.respond(position, QUERY)

    def back_up(self) -> Path:
        """Copy the ledger while it is not in use."""
        return Path(shutil.copytree(self.path.parent, self.folder / "backup"))

    def restore(self) -> None:
        """Replace the ledger with the copy."""
        shutil.rmtree(self.path.parent)
        shutil.copytree(self.folder / "backup", self.path.parent)
