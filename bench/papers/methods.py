"""The methods that are compared: name, job, and look of the curve.

The colours, by Okabe and Ito, can be distinguished with any common colour blindness. Markers and line styles differ
too, so that a figure can be read in grey. A method looks the same in all figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from measure import Outcome, float_outcome, job_outcome, leading_outcome
from models import Population, Sample

from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.job import Accounting, Budget, JobSpec, Scalar, Schema
from dpspca.common.privacy.units import PrivacyUnit

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#777777"


@dataclass(frozen=True)
class Look:
    """How a curve is drawn."""

    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]] = "-"


class Noise(StrEnum):
    """The noise that is added to an answer."""

    PRIVATE = "private"
    UNIT = "unit"
    """Noise for rows of norm one, added to longer rows: this is what the paper prints, and is not private."""
    NONE = "none"


@dataclass(frozen=True)
class Method:
    """A job with a method of the catalogue. If ``noise`` is not private, it runs on plain products, for comparison."""

    label: str
    look: Look
    method: str
    accounting: Accounting = Accounting.EXACT
    options: Mapping[str, Scalar] = field(default_factory=dict)
    unit: PrivacyUnit = PrivacyUnit.ROW_REPLACE_ONE
    noise: Noise = Noise.PRIVATE
    pure: bool = False
    """Whether its promise has no delta."""

    @property
    def missing(self) -> bool:
        """Whether the catalogue lacks it."""
        return self.method not in CATALOGUE

    def spec(self, population: Population, budget: Budget, seed: int) -> JobSpec:
        options = dict(self.options)
        if isinstance(sparsity := options.get("sparsity"), int):
            options["sparsity"] = min(sparsity, population.dimension)
        return JobSpec(
            schema=Schema(population.dimension),
            unit=self.unit,
            budget=budget,
            norm_bound=population.norm_bound,
            components=population.components,
            method=self.method,
            accounting=self.accounting,
            explained_variance=False,
            seed=seed,
            options=options,
        )

    def run(self, sample: Sample, population: Population, budget: Budget, seed: int) -> Outcome:
        """Run it. The seed determines the start and the noise."""
        spec = self.spec(population, budget, seed)
        if self.noise is Noise.PRIVATE:
            return job_outcome(sample, spec, seed)
        return float_outcome(sample, spec, seed, 1.0 if self.noise is Noise.UNIT else 0.0)


@dataclass(frozen=True)
class Floor:
    """The leading eigenvectors without any privacy."""

    label: str
    look: Look
    known_support: bool

    missing = False

    def run(self, sample: Sample, population: Population, budget: Budget, seed: int) -> Outcome:
        return leading_outcome(sample, known_support=self.known_support)


SPARSITY = 50
"""The paper's s_hat."""
ROUNDS = 10
"""The paper's T."""
PAPERS_OWN: dict[str, Scalar] = {"sparsity": SPARSITY, "rounds": ROUNDS, "start": "published"}

DPS_PUBLISHED = Method("DPS-PCA, as published", Look(VERMILLION, "o"), "dps-pca", Accounting.PUBLISHED, PAPERS_OWN)
DPS_EXACT = Method(
    "DPS-PCA, exact noise, T = 10", Look(BLUE, "s"), "dps-pca",
    options={"sparsity": SPARSITY, "rounds": ROUNDS},
)  # fmt: skip
DPS_OURS = Method("DPS-PCA, our defaults", Look(GREEN, "D"), "dps-pca", options={"sparsity": SPARSITY})
DPS_UNIT = Method(
    "published, noise for unit rows (not private)", Look(GREY, "v", ":"), "dps-pca", Accounting.PUBLISHED,
    PAPERS_OWN, noise=Noise.UNIT,
)  # fmt: skip
LOOP_FLOOR = Method(
    "no privacy: truncated loop", Look(GREY, "", "-."), "dps-pca",
    options={"sparsity": SPARSITY, "rounds": ROUNDS}, noise=Noise.NONE,
)  # fmt: skip
FLOOR = Floor("no privacy: all features", Look(BLACK, "", "--"), known_support=False)
ORACLE = Floor("no privacy: support known", Look(BLACK, "", ":"), known_support=True)

GAUSS = Method("Analyze Gauss", Look(ORANGE, "^"), "analyze-gauss")
MOD_SULQ = Method("MOD-SuLQ, as published", Look(PURPLE, "P"), "mod-sulq", Accounting.PUBLISHED)
SULQ = Method("SuLQ, as published", Look(ORANGE, "x", "--"), "sulq", Accounting.PUBLISHED)
PPCA_GIBBS = Method("PPCA, Gibbs sampler (no guarantee)", Look(SKY, "d", "-."), "ppca", options={"sampler": "gibbs"})
PPCA_EXACT = Method(
    "PPCA, exact sampler (δ = 0)", Look(SKY, "d"), "ppca", options={"sampler": "exact"},
    pure=True,
)  # fmt: skip
NOISY_POWER = Method("noisy power", Look(VERMILLION, "v", "--"), "noisy-power")
STREAMING = Method("streaming power", Look(PURPLE, "X", "--"), "streaming-power")
OUTPUT = Method("output perturbation", Look(GREY, "*", "-."), "output-perturbation", options={"privacy": "approximate"})
OUTPUT_PURE = Method(
    "output perturbation (δ = 0)", Look(SKY, "h", ":"), "output-perturbation", options={"privacy": "pure"},
    pure=True,
)  # fmt: skip

OTHERS = (GAUSS, PPCA_EXACT, NOISY_POWER, STREAMING, OUTPUT)
"""Methods compared with paper 002 besides its own baselines, all with exact accounting."""
