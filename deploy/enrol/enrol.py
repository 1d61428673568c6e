# ruff: noqa: INP001  # a script, copied into an image
"""Enrol a federation with made-up rows: write keys, certificates, settings, rows and a job to each party's folder.

In a real federation each party creates its own key where it runs, and the operator signs on a machine without network.
The commands are the same.
"""

import json
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from dpspca.cli.app import app
from dpspca.client.made_up_rows import SpikedModel, spiked_rows, unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
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
    minimum_providers=2,
)


STUDY: Final = f"""
federation = "{FEDERATION}"
coordinator = "hub"
address = "coordinator:7443"
providers = {list(PROVIDERS)}
analysts = ["ada"]
"""
PLACES: Final = {"hub": "coordinator", "ada": "analyst"} | dict.fromkeys(PROVIDERS, "provider")
"""The role of each party."""


def dpspca(*words: str | Path) -> None:
    """Run a dpspca command in this process, because starting twelve processes takes long."""
    app([str(word) for word in words], standalone_mode=False)


def join(name: str, office: Path) -> None:
    """Take one step of a party's way in: ask for a certificate, or install it. A real party waits in one command."""
    invitation = office / "authority" / "invitations" / f"{PLACES[name]}-{name}.invitation"
    dpspca("join", invitation, "--folder", PARTIES / name, "--exchange", office / "post", "--no-wait")


def main() -> None:
    """Enrol all parties. The authority is deleted afterwards, so nobody can join the demonstration later."""
    with tempfile.TemporaryDirectory() as folder:
        office = Path(folder)
        (office / "post").mkdir()
        (office / "study.toml").write_text(STUDY, encoding="utf-8")
        dpspca("study", "init", office / "study.toml", "--authority", office / "authority")
        for name in PLACES:
            join(name, office)
        dpspca("study", "sign", "--authority", office / "authority", "--exchange", office / "post", "--yes")
        for name, role in PLACES.items():
            join(name, office)
            (PARTIES / name / f"{role}.toml").rename(PARTIES / name / "settings.toml")
    rows = spiked_rows(POPULATION, ROWS, np.random.default_rng()).rows
    for name, shard in zip(PROVIDERS, unequal_shards(rows, len(PROVIDERS)), strict=True):
        np.save(PARTIES / name / "rows.npy", shard)
        with (PARTIES / name / "settings.toml").open("a", encoding="utf-8") as settings:
            settings.write('cohort = "rows.npy"\n')
        policy = suggest(catalogue.plan(JOB), "cohort", ["ada"])
        both = policy.replace('methods = ["auto"]', 'methods = ["auto", "dps-pca"]')
        (PARTIES / name / "policy.toml").write_text(both, encoding="utf-8")
    (PARTIES / "ada" / "job.json").write_text(json.dumps(JOB.to_dict()), encoding="utf-8")


if __name__ == "__main__":
    main()
