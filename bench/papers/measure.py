"""One job on one sample: its error, the errors on the way, and its time. Also the errors without privacy."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from models import Sample

from dpspca.client.findings import with_warnings
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.results import Model
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder
from dpspca.server.jobs.sums import combine


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job. ``trail`` holds the error of every basis that was multiplied, and at last of the result."""

    error: float
    trail: tuple[float, ...]
    cpu_seconds: float


def job_outcome(sample: Sample, spec: JobSpec, noise_seed: int) -> Outcome:
    """Run a job by ``simulate``, or with the same bits on shards that were prepared before."""
    bases: list[FloatArray] = []
    start = time.process_time()
    if sample.table is None:
        model = run_prepared(sample.shards, spec, noise_seed, bases)
    else:
        model = simulate([sample.table], spec, noise_seed=noise_seed)
    seconds = time.process_time() - start
    return outcome(sample, [*bases, model.components.T], seconds)


def run_prepared(shards: Sequence[Shard], spec: JobSpec, noise_seed: int, bases: list[FloatArray]) -> Model:
    """Query every shard through its responder, and record every basis that is multiplied."""
    plan = iter(catalogue.plan(spec))
    responders = [
        Responder(catalogue.plan(spec), shard, MemoryLedger(), repeatable_entropy(noise_seed), seat=number)
        for number, shard in enumerate(shards)
    ]
    positions = iter(range(len(catalogue.plan(spec))))

    def ask(query: RowQuery) -> Aggregate:
        position, step = next(positions), next(plan).fit_to(query, spec.unit)
        _note(query, bases)
        return combine(spec, step, [responder.respond(position, query) for responder in responders])

    model = drive(catalogue.run(catalogue.plan(spec)), ask)
    stated = replace(model, statement=replace(model.statement, fresh_noise=False, federated=False))
    return with_warnings(catalogue.plan(spec), stated)


def float_outcome(sample: Sample, spec: JobSpec, noise_seed: int, noise_bound: float) -> Outcome:
    """Run a power loop on floating-point products with noise as for rows of norm ``noise_bound``. This is not private.

    Zero leaves the noise away: the loop's floor.
    """
    bases: list[FloatArray] = []
    steps, generator = iter(catalogue.plan(spec)), np.random.default_rng([noise_seed, 1])

    def ask(query: RowQuery) -> Aggregate:
        _note(query, bases)
        noise = next(steps).noise_std * (query.unit_value(noise_bound) if noise_bound else 0.0)
        product = sample.gram @ bases[-1]
        return Aggregate(product + generator.normal(0.0, noise, product.shape), noise, parties=1)

    start = time.process_time()
    model = drive(catalogue.run(catalogue.plan(spec)), ask)
    return outcome(sample, [*bases, model.components.T], time.process_time() - start)


def leading_outcome(sample: Sample, *, known_support: bool) -> Outcome:
    """Compute the leading eigenvectors without privacy: over all features, or over the known support."""
    kept = sample.support if known_support else len(sample.gram)
    start = time.process_time()
    _, vectors = np.linalg.eigh(sample.gram[:kept, :kept])  # no planted eigenvalue is negative
    basis = np.zeros_like(sample.truth)
    basis[:kept] = vectors[:, : -sample.truth.shape[1] - 1 : -1]
    return outcome(sample, [basis], time.process_time() - start)


def outcome(sample: Sample, bases: Sequence[FloatArray], seconds: float) -> Outcome:
    """Compare bases with the truth, up to its width: a loop may have more columns than it returns."""
    trail = tuple(subspace_distance(sample.truth, basis) for basis in bases if basis.shape == sample.truth.shape)
    return Outcome(trail[-1], trail, seconds)


def _note(query: RowQuery, bases: list[FloatArray]) -> None:
    if isinstance(query, CovarianceProduct):
        bases.append(query.basis)
