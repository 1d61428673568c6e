"""Five biobanks find the ancestry components of their genotypes together, and each computes its own people's scores.

Run it with ``python examples/genetics.py [FOLDER]``. The genotypes are made up. Each biobank writes them as PLINK does,
and some count the other allele of a variant. A public reference says which allele is counted and how frequent it is.
Each biobank reads its file as its settings declare, and all run one job in one process. The model goes to PLINK 2,
which computes the scores that `dpspca model project` computes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from dpspca import Budget, Centering, JobSpec, Schema, save_model, simulate
from dpspca.common.storage import ProviderConfig, read_config
from dpspca.provider.startup import read_data_set

BIOBANKS = {"north": 0.9, "south": 0.1, "east": 0.7, "west": 0.3, "island": 0.5}
"""How much of their ancestry people have from the first of two founding populations, on average."""
PEOPLE = 2000
VARIANTS = 200
SETTINGS = """coordinator = "hub.example:7443"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
panel = "genotypes"
[persons]
panel = "genotypes.fam"
[reading.panel]
alleles = "../reference.afreq"
"""


def write_reference(folder: Path, frequencies: np.ndarray) -> None:
    """Write the public list of variants: which allele is counted, and how frequent it is in the world."""
    lines = [f"1\trs{place}\tA\tC\t{p:.6f}\t5000\n" for place, p in enumerate(frequencies)]
    head = "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n"
    (folder / "reference.afreq").write_text(head + "".join(lines), encoding="utf-8")


def write_genotypes(folder: Path, counts: np.ndarray, rng: np.random.Generator) -> None:
    """Write .bed, .bim and .fam. Of every third variant, or so, the file counts the other allele."""
    folder.mkdir(parents=True, exist_ok=True)
    turned = rng.random(counts.shape[1]) < 1 / 3
    counts = np.where(turned & (counts >= 0), 2 - counts, counts)
    bits = np.array([0b11, 0b10, 0b00, 0b01], dtype=np.uint8)[counts].T  # 0, 1, 2 copies, and -1 for a missing one
    bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4)))
    packed = bits[:, 0::4] | bits[:, 1::4] << 2 | bits[:, 2::4] << 4 | bits[:, 3::4] << 6
    (folder / "genotypes.bed").write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    alleles = [("A", "C") if turn else ("C", "A") for turn in turned]
    bim = [f"1 rs{place} 0 {place + 1} {one} {two}\n" for place, (one, two) in enumerate(alleles)]
    (folder / "genotypes.bim").write_text("".join(bim), encoding="utf-8")
    fam = [f"0 P{person} 0 0 0 -9\n" for person in range(len(counts))]
    (folder / "genotypes.fam").write_text("".join(fam), encoding="utf-8")
    (folder / "provider.toml").write_text(SETTINGS, encoding="utf-8")


def dpspca(*words: object) -> None:
    """Run a command as a steward would."""
    print("$ dpspca", *words)
    subprocess.run([sys.executable, "-m", "dpspca", *map(str, words)], check=True)  # noqa: S603  # our own program


def main(folder: Path) -> None:
    """Make up genotypes, run the job, and write scores."""
    rng = np.random.default_rng(0)
    ancient = rng.uniform(0.1, 0.9, VARIANTS)
    founders = np.clip(ancient + rng.normal(0, 0.25, (2, VARIANTS)), 0.02, 0.98)
    public = founders.mean(axis=0)
    folder.mkdir(parents=True, exist_ok=True)
    write_reference(folder, public)

    ancestry = {}
    for name, share in BIOBANKS.items():
        ancestry[name] = np.clip(rng.normal(share, 0.15, PEOPLE), 0, 1)
        counts = rng.binomial(2, ancestry[name][:, None] * founders[0] + (1 - ancestry[name][:, None]) * founders[1])
        counts[rng.random(counts.shape) < 0.01] = -1
        write_genotypes(folder / name, counts, rng)

    print(f"{len(BIOBANKS)} biobanks of {PEOPLE} people, {VARIANTS} variants.")

    job = JobSpec(
        schema=Schema(VARIANTS, tuple(f"rs{place}" for place in range(VARIANTS))),
        unit="person-replace-one",
        budget=Budget(epsilon=1.0, delta=1e-6),
        # Public: for each variant, a squared distance to the mean of 2p(1-p) is expected.
        norm_bound=float(np.sqrt(1.3 * (2 * public * (1 - public)).sum())),
        components=2,
        method="analyze-gauss",
        centering=Centering.PUBLIC,
        public_mean=tuple((2 * public.round(6)).tolist()),
    )
    settings = {name: read_config(ProviderConfig, folder / name / "provider.toml") for name in BIOBANKS}
    held = {name: read_data_set(each, "panel") for name, each in settings.items()}
    model = simulate(held, job)  # the daemons' own code, in one process
    save_model(model, folder / "model.dpspca")
    print(model.statement.text)

    dpspca("model", "export", folder / "model.dpspca", "--format", "plink2", "--alleles", folder / "reference.afreq",
           "--out", folder / "ancestry")  # fmt: skip
    for name in BIOBANKS:
        dpspca("model", "project", folder / "model.dpspca", folder / name / "genotypes", "--data-set", "panel",
               "--config", folder / name / "provider.toml", "--out", folder / name / "pcs.eigenvec")  # fmt: skip
    scores = {name: np.loadtxt(folder / name / "pcs.eigenvec", skiprows=1, usecols=(1, 2)) for name in BIOBANKS}
    together = np.concatenate([each[:, 0] for each in scores.values()])
    agreement = abs(np.corrcoef(together, np.concatenate(list(ancestry.values())))[0, 1])
    print(f"Correlation of the first component with ancestry: {agreement:.2f}")
    compare_with_plink(folder, scores["north"])


def compare_with_plink(folder: Path, ours: np.ndarray) -> None:
    """Let PLINK 2 compute the same scores, where it is installed."""
    if shutil.which("plink2") is None:
        print("plink2 is not installed: Debian has it.")
        return
    command = ["plink2", "--bfile", folder / "north" / "genotypes", "--read-freq", folder / "ancestry.afreq"]
    command += ["--score", folder / "ancestry.score", "1", "2", "header-read", "center", "no-mean-imputation"]
    command += ["cols=+scoresums,-scoreavgs", "--score-col-nums", "3-4", "--out", folder / "north" / "plink"]
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # an installed program
    head, *lines = [line.split("\t") for line in (folder / "north" / "plink.sscore").read_text("utf-8").splitlines()]
    sums = [place for place, name in enumerate(head) if name.startswith("PC")]
    theirs = np.array([[float(line[place]) for place in sums] for line in lines])
    print(f"Largest difference from PLINK's scores: {np.abs(theirs - ours).max():.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples/genetics"))
