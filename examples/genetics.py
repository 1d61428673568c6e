"""Five biobanks find the ancestry components of their genotypes together, and each computes its own people's scores.

Run it with ``python examples/genetics.py [FOLDER]``, after ``pip install msprime``, which simulates the people: three
populations that separated long ago, and a town whose people descend from two of them. 500 people who are in no biobank
are the public reference: it says which allele is counted, and how frequent it is. Each biobank has its genotypes in
PLINK files, and counts the other allele of some variants. All run one job, here in one process. Then each biobank
computes its people's scores, and PLINK 2 computes the same ones. docs/genetics.md follows it step by step.
"""

import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpspca import DpspcaWarning, save_model, simulate
from dpspca.client.jobs import JobFile
from dpspca.common.storage import ProviderSettings, read_settings
from dpspca.provider.startup import read_data_set

try:
    import msprime
except ImportError:
    sys.exit("This example simulates genotypes with msprime, which is not installed. Run `pip install msprime`.")

ANCESTRY = {"coast": (1, 0, 0), "valley": (0, 1, 0), "hills": (0, 0, 1), "town": (0.6, 0.4, 0)}
"""How much of their ancestry the people of each place have from the coast, the valley and the hills."""
BIOBANKS = {
    "north": (2100, 300, 300, 300), "south": (300, 2100, 300, 300), "east": (300, 300, 2100, 300),
    "west": (600, 300, 300, 1800), "island": (750, 750, 750, 750),
}  # fmt: skip
"""How many people of each biobank are from the coast, the valley, the hills and the town."""
REFERENCE = (125, 125, 125, 125)
"""The same of the public reference."""
CHROMOSOMES, LENGTH, WINDOWS = 20, 400_000, 15
"""How many chromosomes there are, how many bases each has, and from how many windows of it a variant is taken."""
RARE = 0.05
"""Variants whose rarer allele is rarer than this in the reference are not used."""
UNMISTAKABLE = ({"A", "C"}, {"A", "G"}, {"C", "T"}, {"G", "T"})
"""Alleles that cannot be mistaken for each other on the other strand, as A and T can."""
FIRST, LAST = 9, 5
"""How many lines are shown of what a command prints."""

DICTIONARY = """\
# dictionary.toml
format = "dpspca-dictionary-1"
title = "Five biobanks"

[genotypes]
file = "reference.afreq"   # variants, their alleles and places, and frequencies
least_frequency = 0.05
"""
SETTINGS = """\
# north/provider.toml
coordinator = "coordinator.example:7443"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"

[data_sets]
panel = "genotypes"        # genotypes.bed with genotypes.bim and genotypes.fam

[persons]
panel = "genotypes.fam"    # each sample is a person

[dictionaries.panel]
file = "../dictionary.toml"
"""
JOB = """\
# job.toml
data_set = "panel"
dictionary = "dictionary.toml"
unit = "person-replace-one"   # how many people a biobank has is public
components = 2
minimum_providers = 5

[budget]
epsilon = 1.0
delta = 1e-6
"""


# --- Simulated people -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """The variants that are used, and how many copies of the second allele everybody has of each."""

    places: list[tuple[int, int]]
    """The chromosome and the position."""
    alleles: list[tuple[str, str]]
    counts: np.ndarray
    """Of a person in a row, of a variant in a column."""

    @property
    def names(self) -> list[str]:
        """Return what the variants are called: chromosome:position:REF:ALT."""
        return [":".join(map(str, (*place, *pair))) for place, pair in zip(self.places, self.alleles, strict=True)]


def history() -> msprime.Demography:
    """Return who descends from whom. Times are generations ago, and sizes are numbers of people with children."""
    past = msprime.Demography()
    for name, size in {"coast": 12_000, "valley": 4000, "hills": 4000, "town": 10_000}.items():
        past.add_population(name=name, initial_size=size)
    past.add_population(name="inland", initial_size=3000)
    past.add_population(name="first", initial_size=10_000)
    past.add_admixture(time=12, derived="town", ancestral=["coast", "valley"], proportions=[0.6, 0.4])
    past.add_population_split(time=900, derived=["valley", "hills"], ancestral="inland")
    past.add_population_split(time=2500, derived=["coast", "inland"], ancestral="first")
    return past


def members(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Divide the people, who are numbered place by place, among the reference and the biobanks."""
    sizes = np.array([REFERENCE, *BIOBANKS.values()])
    parts = np.split(np.arange(sizes.sum()), np.cumsum(sizes.T)[:-1])
    groups = [np.concatenate(parts[number :: len(sizes)]) for number in range(len(sizes))]
    return {name: rng.permutation(group) for name, group in zip(["reference", *BIOBANKS], groups, strict=True)}


def simulated(reference: np.ndarray) -> Panel:
    """Simulate everybody's chromosomes. Which variants are used follows from the people of the reference alone."""
    sizes = np.array([REFERENCE, *BIOBANKS.values()]).sum(axis=0).tolist()
    people, places, alleles, counts = dict(zip(ANCESTRY, sizes, strict=True)), [], [], []
    nodes = np.column_stack([2 * reference, 2 * reference + 1]).ravel()  # both copies of each person's chromosome
    for number in range(1, CHROMOSOMES + 1):
        trees = msprime.sim_ancestry(
            people, demography=history(), sequence_length=LENGTH, recombination_rate=1e-8, random_seed=number
        )
        trees = msprime.sim_mutations(trees, rate=5e-9, random_seed=number)
        used, last = [], -1
        for variant in trees.variants(samples=nodes):
            position = int(variant.site.position)
            window = position * WINDOWS // LENGTH
            common = RARE <= variant.genotypes.mean() <= 1 - RARE
            if window > last and common and set(variant.alleles) in UNMISTAKABLE:
                last = window
                used.append(variant.site.id)
                places.append((number, position + 1))
                alleles.append(variant.alleles)
        copies = trees.delete_sites(np.setdiff1d(np.arange(trees.num_sites), used)).genotype_matrix()
        counts.append(copies[:, 0::2] + copies[:, 1::2])
    return Panel(places, alleles, np.vstack(counts).T)


# --- What the parties write -------------------------------------------------------------------------------------------


def write_study(folder: Path, panel: Panel, reference: np.ndarray) -> None:
    """Write what is public: the variants with the frequencies of the reference, the dictionary, and the job."""
    lines = ["#CHROM\tPOS\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n"]
    frequencies = panel.counts[reference].mean(axis=0) / 2
    for name, place, pair, p in zip(panel.names, panel.places, panel.alleles, frequencies, strict=True):
        lines.append(f"{place[0]}\t{place[1]}\t{name}\t{pair[0]}\t{pair[1]}\t{p:.6g}\t{2 * len(reference)}\n")
    (folder / "reference.afreq").write_text("".join(lines), encoding="utf-8")
    (folder / "dictionary.toml").write_text(DICTIONARY, encoding="utf-8")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")


def write_biobank(folder: Path, panel: Panel, people: np.ndarray, rng: np.random.Generator) -> None:
    """Write .bed, .bim, .fam, traits and settings. Of a third of the variants, the file counts the other allele."""
    folder.mkdir(exist_ok=True)
    other = rng.random(len(panel.names)) < 1 / 3
    counts = np.where(other, 2 - panel.counts[people], panel.counts[people])
    counts[rng.random(counts.shape) < 0.01] = -1  # a missing genotype
    bits = np.array([0b11, 0b10, 0b00, 0b01], dtype=np.uint8)[counts].T  # for 0, 1, 2 and -1
    bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4)))
    packed = bits[:, 0::4] | bits[:, 1::4] << 2 | bits[:, 2::4] << 4 | bits[:, 3::4] << 6
    (folder / "genotypes.bed").write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    lines = []
    for name, (chromosome, position), pair, turn in zip(panel.names, panel.places, panel.alleles, other, strict=True):
        counted, rest = pair if turn else pair[::-1]
        lines.append(f"{chromosome}\t{name}\t0\t{position}\t{counted}\t{rest}\n")
    (folder / "genotypes.bim").write_text("".join(lines), encoding="utf-8")
    samples = [f"0\t{folder.name}-{number}\t0\t0\t0\t-9\n" for number in range(1, len(people) + 1)]
    (folder / "genotypes.fam").write_text("".join(samples), encoding="utf-8")
    traits = [f"{folder.name}-{number}\t{rng.standard_normal():.3f}\n" for number in range(1, len(people) + 1)]
    (folder / "traits.txt").write_text("".join(["IID\tblood_pressure\n", *traits]), encoding="utf-8")
    (folder / "provider.toml").write_text(SETTINGS.replace("north", folder.name), encoding="utf-8")


# --- What they run ----------------------------------------------------------------------------------------------------


def run(folder: Path, command: str) -> str:
    """Run a command as a person would. Show it with the first and last lines of its output, and return the output."""
    print("$", command, flush=True)
    words = [sys.executable, "-m", "dpspca", *command.split()[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # our program
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}{done.stdout}")
    lines = (done.stdout + done.stderr).splitlines()
    if len(lines) > FIRST + LAST:
        lines[FIRST:-LAST] = [f"({len(lines) - FIRST - LAST} more lines)"]
    print(*lines, "", sep="\n", flush=True)
    return done.stdout


def explained(scores: np.ndarray, ancestry: np.ndarray) -> str:
    """Say which share of the variance of each ancestry follows from scores, by linear regression."""
    known = np.column_stack([scores, np.ones(len(scores))])
    rest = ancestry - known @ np.linalg.lstsq(known, ancestry, rcond=None)[0]
    shares = 1 - rest.var(axis=0) / ancestry.var(axis=0)
    return ", ".join(f"{name} {share:.3f}" for name, share in zip(ANCESTRY, shares, strict=False))


def compare_with_plink(folder: Path, ours: np.ndarray) -> None:
    """Let PLINK 2 compute the same scores, where it is installed. It rounds them to six digits."""
    if shutil.which("plink2") is None:
        print("plink2 is not installed. Debian has it: apt-get install plink2")
        return
    command = ["plink2", "--bfile", "north/genotypes", "--read-freq", "ancestry.afreq", "--score", "ancestry.score"]
    command += ["1", "2", "header-read", "center", "no-mean-imputation", "cols=+scoresums,-scoreavgs"]
    command += ["--score-col-nums", "3-4", "--out", "north/plink"]
    print("$", *command, flush=True)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # an installed program
    head, *lines = [line.split("\t") for line in (folder / "north" / "plink.sscore").read_text("utf-8").splitlines()]
    sums = [place for place, name in enumerate(head) if name.startswith("PC")]
    theirs = np.array([[float(line[place]) for place in sums] for line in lines])
    rounding = 10.0 ** np.floor(np.log10(np.abs(theirs).clip(1e-9))) * 5e-6
    beyond = (np.abs(theirs - ours) - rounding).clip(0)
    print(f"Largest difference from PLINK's scores, apart from PLINK's rounding: {beyond.max():.1e}")


def main(folder: Path) -> None:
    """Simulate the people, run the job, and write scores."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    groups = members(rng)
    panel = simulated(groups["reference"])
    write_study(folder, panel, groups["reference"])
    for name in BIOBANKS:
        write_biobank(folder / name, panel, groups[name], rng)
        print(f"{name}: {len(groups[name])} people, {len(panel.names)} variants")

    run(folder, "dpspca dictionary check dictionary.toml")
    run(folder, "dpspca data check --config north/provider.toml")
    run(folder, "dpspca plan job.toml --rows 15000 --providers 5")
    policy = run(folder, "dpspca policy suggest job.toml --analyst ada")
    for name in BIOBANKS:
        (folder / name / "policy.toml").write_text(policy, encoding="utf-8")

    job = JobFile.read(folder / "job.toml")
    settings = {name: read_settings(ProviderSettings, folder / name / "provider.toml") for name in BIOBANKS}
    held = {name: read_data_set(each, "panel") for name, each in settings.items()}
    warnings.simplefilter("ignore", DpspcaWarning)  # `model show` says the same
    model = simulate(held, job.spec, dictionary=job.dictionary)  # the daemons' own code, in one process
    save_model(model, folder / "model.dpspca")

    run(folder, "dpspca model show model.dpspca")
    for name in BIOBANKS:
        run(folder, f"dpspca model project model.dpspca {name}/genotypes --config {name}/provider.toml "
                    f"--data-set panel --out {name}/pcs.eigenvec")  # fmt: skip
    run(folder, "dpspca model project model.dpspca north/genotypes --config north/provider.toml --data-set panel "
                "--phenotypes north/traits.txt --out north/phenotypes.txt")  # fmt: skip
    run(folder, "dpspca model export model.dpspca --format plink2 --out ancestry")

    scores = [np.loadtxt(folder / name / "pcs.eigenvec", skiprows=1, usecols=(2, 3)) for name in BIOBANKS]
    compare_with_plink(folder, scores[0])
    everybody = np.repeat(list(ANCESTRY.values()), np.sum([REFERENCE, *BIOBANKS.values()], axis=0), axis=0)
    ancestry = np.concatenate([everybody[groups[name]] for name in BIOBANKS])
    print(f"Share of ancestry that the components explain: {explained(np.concatenate(scores), ancestry)}")
    rows = np.concatenate([each.matrix.toarray() for each in held.values()])
    best = rows @ np.linalg.eigh(rows.T @ rows)[1][:, -2:]
    print(f"Share that components without privacy explain: {explained(best, ancestry)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples/genetics"))
