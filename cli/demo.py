"""A rehearsal of the whole: made-up rows at several providers in this process, and an answer that is known.

The rows are drawn from the model of ``client/synthetic.py``, so the distance from the truth can be told, as with real
rows it never can.
"""

import math
import secrets
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np

from dpspca.client import report
from dpspca.client.files import save_model
from dpspca.client.simulation import simulate
from dpspca.client.synthetic import LEAST_ROWS, SpikedModel, SpikedRows, spiked_rows, unequal_shards
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import MissingExtraError
from dpspca.common.linalg import subspace_distance
from dpspca.common.model import Model
from dpspca.common.privacy.lattice import MAX_PARTIES
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema, check, check_whole

from .output import Folder, Show, to_json
from .questions import check_sparsity
from .tally import Standing, Tally

LARGEST_DATA: Final = 2**28
"""Numbers that the made-up rows may consist of; together with their integer copies they take three gigabytes."""
LARGEST_DIMENSION: Final = 4000
"""Making rows takes time that grows with the cube of this: at 4000 features some ten seconds."""
SMALLEST_SUPPORT: Final = 10

FILES: Final = ("model.dpspca", "scree.png", "loadings.png", "result.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the flags say; checked before any row is made."""

    providers: int
    rows: int
    dimension: int
    components: int
    sparsity: int
    epsilon: float
    delta: float
    seed: int | None

    def __post_init__(self) -> None:
        check_whole("the number of rows", self.rows, least=LEAST_ROWS, most=2**31)
        check(
            self.dimension <= LARGEST_DIMENSION,
            f"--dimension is {self.dimension}; a demonstration makes rows of up to {LARGEST_DIMENSION} features, for "
            "the time it takes grows with the cube of their number.",
            f"Choose at most {LARGEST_DIMENSION}; rows of your own may have more.",
        )
        check(
            self.rows * self.dimension <= LARGEST_DATA,
            f"{self.rows} rows of {self.dimension} features are more than a demonstration holds.",
            f"Choose --rows and --dimension whose product is at most {LARGEST_DATA}.",
        )
        most = min(MAX_PARTIES, self.rows // LEAST_ROWS)
        check_whole("the number of providers", self.providers, least=1, most=most)
        check_sparsity(self.sparsity, self.components)
        catalogue.plan(self.job(start_seed=self.seed or 0))

    @property
    def population(self) -> SpikedModel:
        """The model that the rows are drawn from: as many components as are looked for, on a few features."""
        support = min(self.dimension, max(SMALLEST_SUPPORT, 2 * self.components))
        return SpikedModel(self.dimension, self.components, support)

    @property
    def norm_bound(self) -> float:
        """The bound on a row's length: it follows from the population's parameters, not from its rows."""
        return math.ceil(10 * self.population.norm_bound) / 10

    @property
    def introduction(self) -> str:
        """Say what is about to happen, and that nobody's data are in it."""
        return (
            f"MADE-UP ROWS: {self.rows:,} rows of {self.dimension:,} features are drawn from a known model and divided "
            f"over {self.providers} simulated provider(s) in this process. Nobody's data are in this run. Rows longer "
            f"than {self.norm_bound:g} are shortened to it: the square root of the expected squared "
            "length plus two standard deviations of it, worked out from the model's parameters and not from the rows."
        )

    def job(self, start_seed: int) -> JobSpec:
        """Describe the job."""
        return JobSpec(
            schema=Schema(self.dimension),
            unit=PrivacyUnit.ROW_ADD_REMOVE,
            budget=Budget(self.epsilon, self.delta),
            norm_bound=self.norm_bound,
            components=self.components,
            seed=start_seed,
            options={"sparsity": self.sparsity},
        )


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What a demonstration came to."""

    settings: Settings
    truth: SpikedRows
    model: Model
    shard_sizes: tuple[int, ...]
    standings: tuple[Standing, ...]
    seconds: float


def run(settings: Settings, display: AbstractContextManager[Show]) -> Outcome:
    """Make rows, divide them, and run the job. Without a seed, rows and noise come from the operating system."""
    begin = monotonic()
    job = settings.job(secrets.randbits(63) if settings.seed is None else settings.seed)
    with display as show:
        truth = spiked_rows(settings.population, settings.rows, np.random.default_rng(settings.seed))
        shards = unequal_shards(truth.rows, settings.providers)
        tally = Tally(job.budget, show)
        model = simulate(shards, job, noise_seed=settings.seed, watch=tally)
    sizes = tuple(len(shard) for shard in shards)
    return Outcome(settings, truth, model, sizes, tuple(tally.standings), monotonic() - begin)


def write(outcome: Outcome, folder: Folder) -> dict[str, Any]:
    """Write the plots, the model and the numbers, and return the numbers. Without matplotlib there are no plots."""
    model = outcome.model
    stored, scree, loadings, result = FILES
    files = {"model": folder.write(stored, lambda path: save_model(model, path))}
    notes: list[str] = []
    try:
        files["scree"] = folder.write(scree, lambda path: report.scree(model, path))
        files["loadings"] = folder.write(loadings, lambda path: report.loadings(model, path))
    except MissingExtraError as problem:
        notes.append(str(problem))
    numbers = facts(outcome) | {"notes": notes}

    def save(path: Path) -> None:
        numbers["files"] = files | {"result": str(path)}
        path.write_text(to_json(numbers) + "\n", encoding="utf-8")

    folder.write(result, save)
    return numbers


def facts(outcome: Outcome) -> dict[str, Any]:
    """Give everything that is printed, and more, as plain values."""
    settings = outcome.settings
    true_features = set(np.flatnonzero(outcome.truth.basis.any(axis=1)).tolist())
    return {
        "made_up_rows": True,
        "settings": asdict(settings) | {"norm_bound": settings.norm_bound},
        "shard_sizes": list(outcome.shard_sizes),
        "subspace_distance": subspace_distance(outcome.model.components.T, outcome.truth.basis),
        "largest_subspace_distance": _largest_distance(settings),
        "true_features": len(true_features),
        "true_features_found": len(true_features & set(outcome.model.support.tolist())),
        "questions": [asdict(standing) for standing in outcome.standings],
        "seconds": outcome.seconds,
        "model": report.to_dict(outcome.model),
    }


def verdict(numbers: dict[str, Any]) -> str:
    """Say how close the result is to the truth, which is known here."""
    distance = (
        f"Distance from the true subspace: {numbers['subspace_distance']:.3f}, on a scale from 0 (the truth) to "
        f"{numbers['largest_subspace_distance']:.3f} (at right angles to it). {numbers['true_features_found']} of the "
        f"{numbers['true_features']} true features were found."
    )
    caution = (
        "The true components are equally strong, so that only the subspace they span has a right answer; which axes "
        "of it are called components is chance."
    )
    return "\n".join([distance, caution, f"Everything took {numbers['seconds']:.1f} seconds.", *numbers["notes"]])


def _largest_distance(settings: Settings) -> float:
    """Two subspaces of the same dimension are never further apart than this."""
    return math.sqrt(min(settings.components, settings.dimension - settings.components))
