# ruff: noqa: INP001  # a script, copied into an image
"""Enrol a federation with made-up rows: write keys, certificates, settings, rows and a job to each party's folder.

In a real federation each party creates its own key where it runs, and the operator signs on a machine without network.
The commands are the same.
"""

import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from dpspca.cli.app import app
from dpspca.client.synthetic import SpikedModel, spiked_rows, unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.provider.policy.suggestion import suggest

FEDERATION: Final = "town"
PARTIES: Final = Path("/parties")
PROVIDERS: Final = ("north", "south", "east")
POPULATION: Final = SpikedModel(40, 2, 10)
ROWS: Final = 30_000
JOB: Final = JobSpec(
    schema=Schema(POPULATION.dimension),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=round(POPULATION.norm_bound, 1),
    components=POPULATION.components,
    answer_seconds=30,
    minimum_parties=2,
)


def dpspca(*words: str | Path) -> None:
    """Run a dpspca command in this process, because starting seventeen processes takes long."""
    app([str(word) for word in words], standalone_mode=False)


def enrol(role: str, name: str, office: Path, settings: str) -> None:
    """Give a party an identity, the list of revoked certificates, and its settings."""
    home, party = PARTIES / name, f"dpspca://{FEDERATION}/{role}/{name}"
    request, certificate = office / f"{name}.csr", office / f"{name}.crt"
    dpspca("identity", "request", home / "identity", party, "--out", request)
    dpspca("ca", "sign", office / "authority", request, "--out", certificate, "--expected", party)
    dpspca("identity", "install", home / "identity", certificate)
    if role != "analyst":
        dpspca("ca", "publish", office / "authority", "--out", home / "revoked.pem")
        settings += 'revocations = "revoked.pem"\n'
    (home / "settings.toml").write_text('identity = "identity"\n' + settings, encoding="utf-8")


def main() -> None:
    """Enrol all parties. The authority is deleted afterwards, so nobody can join the demonstration later."""
    with tempfile.TemporaryDirectory() as folder:
        office = Path(folder)
        dpspca("ca", "init", office / "authority", FEDERATION)
        enrol("coordinator", "hub", office, 'listen = "0.0.0.0:7443"\n')
        for name in PROVIDERS:
            enrol("provider", name, office, 'coordinator = "coordinator:7443"\n')
        enrol("analyst", "ada", office, 'coordinator = "coordinator:7443"\n')
    rows = spiked_rows(POPULATION, ROWS, np.random.default_rng()).rows
    for name, shard in zip(PROVIDERS, unequal_shards(rows, len(PROVIDERS)), strict=True):
        np.save(PARTIES / name / "rows.npy", shard)
        with (PARTIES / name / "settings.toml").open("a", encoding="utf-8") as settings:
            settings.write('policy = "policy.toml"\n[data_sets]\ncohort = "rows.npy"\n')
        policy = suggest(catalogue.plan(JOB), "cohort", ["ada"])
        both = policy.replace('methods = ["auto"]', 'methods = ["auto", "dps-pca"]')
        (PARTIES / name / "policy.toml").write_text(both, encoding="utf-8")
    (PARTIES / "ada" / "job.json").write_text(JOB.to_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
