"""How long a whole private job over genotypes of two biobanks takes, beside plink2 without privacy.

    python bench/genotype_job.py [--quick] [--json] [--samples N] [--variants N] [--components K] [--rounds R]

Makes two .bed files of N samples and variants each, and runs a real federation over mTLS on this machine: a coordinator
and two provider daemons as processes of their own, each with its file, its policy and its ledger. An analyst asks for K
components with `noisy-power`. Then ``plink2 --pca approx K`` runs over both files together, which is what a consortium
could do if people's genotypes were allowed to leave. Times are by the clock, on the same processors:

- "start" is from the daemons' start until both offer their data: they read, check and fingerprint their files.
- "job" is from the analyst's submission to the model.
- "plink2" is the whole of its run. It makes K + 1 passes with 2 K columns.

The figures say nothing about accuracy: a job over so many variants needs many people, or fewer variants.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from genotypes import write

from dpspca.client.demo.loopback import (
    ANALYST,
    COORDINATOR,
    DATA_SET,
    LISTEN,
    POLICY,
    Parties,
    _address,
    new_federation,
)
from dpspca.client.federation import AsyncFederation
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.trust import Identity
from dpspca.provider.policy import suggest

Result: TypeAlias = dict[str, Any]

SITES: Final = ("north", "south")
THREADS: Final = os.cpu_count() or 1
WAIT: Final = 3600
"""Seconds to wait for the daemons, for an answer, and for the model."""


def job_of(variants: int, components: int, rounds: int) -> JobSpec:
    """Return the job, centred at public numbers, as genetics does."""
    return JobSpec(
        schema=Schema(variants, tuple(f"rs{place}" for place in range(variants))),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(1.0, 1e-6),
        norm_bound=float(np.sqrt(variants)),
        components=components,
        method="noisy-power",
        options={"rounds": rounds},
        explained_variance=False,
        centering=Centering.PUBLIC,
        public_mean=tuple(np.linspace(0.1, 1.9, variants).round(4).tolist()),
        answer_seconds=WAIT,
    )


def start(parties: Parties, files: dict[str, Path], job: JobSpec) -> str:
    """Start the coordinator and the daemons, and return the coordinator's address."""
    parties.enrol(Role.COORDINATOR, COORDINATOR)
    parties.enrol(Role.ANALYST, ANALYST)
    address = _address(parties.start(Role.COORDINATOR, COORDINATOR, f'listen = "{LISTEN}"'))
    (parties.folder / POLICY).write_text(suggest(catalogue.plan(job), DATA_SET, [ANALYST]), encoding="utf-8")
    for name, file in files.items():
        parties.enrol(Role.PROVIDER, name)
        settings = {"coordinator": address, "policy": POLICY, "ledger": f"{name}-ledger/ledger.db"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines.append(f"data_sets = {{ {DATA_SET} = {json.dumps(str(file))} }}")
        lines.append(f"reading = {{ {DATA_SET} = {{ missing = 1 }} }}")
        parties.start(Role.PROVIDER, name, "\n".join(lines))
    return address


async def run(parties: Parties, address: str, job: JobSpec, began: float) -> Result:
    """Wait until both daemons offer their data, and run the job."""
    identity = Identity.load(parties.folder / ANALYST)
    async with AsyncFederation(address, identity, retry_seconds=WAIT) as connected, asyncio.timeout(WAIT):
        while len(await connected.data_sets()) < len(SITES):
            for party in parties.running:
                party.require_alive()
            await asyncio.sleep(0.2)
        there = time.monotonic()
        submitted = await connected.submit(job, DATA_SET, SITES)
        model = await submitted.result()
        over = time.monotonic()
    return {
        "start": there - began,
        "job": over - there,
        "queries": len(submitted.plan),
        "parties": model.statement.parties,
    }


def of_plink(files: dict[str, Path], folder: Path, components: int) -> float | None:
    """Return how long plink2 takes over both files together. They are merged first, which does not count."""
    program = shutil.which("plink2")
    if program is None:
        return None
    merged = folder / "both"
    with merged.with_suffix(".fam").open("w", encoding="ascii") as fam:
        for name, file in files.items():
            fam.writelines(
                line.replace(" S", f" {name}", 1) for line in file.with_suffix(".fam").open(encoding="ascii")
            )
    shutil.copy(files[SITES[0]].with_suffix(".bim"), merged.with_suffix(".bim"))
    merge(list(files.values()), merged.with_suffix(".bed"))
    command = [program, "--bfile", str(merged), "--pca", "approx", str(components)]
    command += ["--threads", str(THREADS), "--out", str(folder / "plink")]
    began = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603  # an installed program
    return time.monotonic() - began


def merge(files: list[Path], out: Path) -> None:
    """Put the samples of several .bed files one after the other. Each has a multiple of four."""
    bodies = [np.fromfile(file, dtype=np.uint8)[3:] for file in files]
    variants = sum(1 for _ in files[0].with_suffix(".bim").open(encoding="ascii"))
    together = np.hstack([body.reshape(variants, -1) for body in bodies])
    out.write_bytes(b"\x6c\x1b\x01" + together.tobytes())


def measured(samples: int, variants: int, components: int, rounds: int, folder: Path) -> Result:
    """Make the files, run the federation, and run plink2."""
    files = {name: folder / f"{name}.bed" for name in SITES}
    for seed, file in enumerate(files.values()):
        write(file, samples, variants, seed)
    job = job_of(variants, components, rounds)
    with new_federation() as parties:
        began = time.monotonic()
        found = asyncio.run(run(parties, start(parties, files, job), job, began))
    plink = of_plink(files, folder, components)
    shape = {"samples": samples, "variants": variants, "components": components, "threads": THREADS}
    return shape | found | {"plink2": plink, "bytes": sum(file.stat().st_size for file in files.values())}


def text(found: Result) -> str:
    """Lay out what was measured."""
    plink = found["plink2"]
    shape = f"Two files of {found['samples']:,} samples x {found['variants']:,} variants"
    lines = [
        f"{shape}, {found['components']} components, {found['queries']} queries, {found['threads']} threads",
        "",
        "| what | seconds | of plink2's |",
        "|---|---|---|",
    ]
    times = {"start": found["start"], "job": found["job"], "both": found["start"] + found["job"], "plink2": plink}
    for name, took in times.items():
        share = "" if plink is None or took is None else f"{took / plink:.2f}"
        lines.append(f"| {name} | {'not installed' if took is None else f'{took:.1f}'} | {share} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--samples", type=int, default=5000, help="of each file; a multiple of 4")
    parser.add_argument("--variants", type=int, default=20_000)
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    samples, variants = (400, 1000) if given.quick else (given.samples, given.variants)
    with tempfile.TemporaryDirectory() as folder:
        found = measured(samples, variants, given.components, given.rounds, Path(folder))
    print(json.dumps(found) if given.json else text(found))


if __name__ == "__main__":
    main()
