"""Where the time of a job goes, for ``federation.py``: how often each part runs in a real job, and its time alone.

The calls are counted in one job of a federation in one event loop, by a hook on every call in every thread. The hook
slows them, so each part is then timed alone, repeatedly, in processor time. The time of the parties beyond the sum goes
to messages, event loops and threads, and to caches that are cold because work comes only every few milliseconds.
"""

import asyncio
import inspect
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import numpy as np
from federation_cases import NORM_BOUND, Case
from federation_jobs import federation
from federation_parties import ANALYST, create_federation, in_this_process, now

from dpspca.common.algorithms import catalogue, dps_pca
from dpspca.common.linalg import largest_rows, thin_qr
from dpspca.common.plan import Plan
from dpspca.common.privacy.keystream import Draw, Purpose
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.queries.base import Query
from dpspca.common.queries.content import read_basis
from dpspca.common.queries.rows import BasisQuery, CovarianceProduct
from dpspca.common.results import PrivacyStatement
from dpspca.common.trust import signing
from dpspca.common.trust.identity import Identity, load_revocations
from dpspca.provider.data.checked import preparation
from dpspca.provider.evaluate import integer_rows, moments
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.ledger.accounts import JobPosition
from dpspca.provider.release import gate
from dpspca.provider.release.entropy import system_entropy
from dpspca.server.jobs import sums

Result: TypeAlias = dict[str, Any]

REPEATS: Final = 21


@dataclass(frozen=True, slots=True)
class Part:
    """A function whose calls are counted, and a call of it to time."""

    name: str
    counted: Callable[..., object]
    call: Callable[[], object]


def parts_result(case: Case) -> list[Result]:
    """Measure every part of a job."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [*_once_a_job(case, Path(folder)), *_sums(case)]
        calls = asyncio.run(_counted(case, [part.counted for part in parts]))
        return [_priced(part, calls[_code(part.counted)]) for part in parts]


def _once_a_job(case: Case, folder: Path) -> list[Part]:
    """Return the parts that each party does once or twice in a job."""
    spec = case.spec
    create_federation(folder, [case.names[0]])
    analyst, provider = Identity.load(folder / ANALYST), Identity.load(folder / case.names[0])
    revoked = load_revocations(folder / "revoked.pem", provider.authority_pem)
    signed = signing.sign(case.envelope(), analyst)
    steps = dps_pca.steps_of(spec)
    return [
        Part("sign", signing.sign, lambda: signing.sign(case.envelope(), analyst)),
        Part(
            "verify",
            signing.verify,
            lambda: signing.verify(signed, provider.authority_pem, me=provider.name, now=now(), revoked=revoked),
        ),
        Part("plan", dps_pca.steps_of, lambda: dps_pca.steps_of(spec)),
        Part(
            "privacy statement",
            PrivacyStatement.of.__func__,  # type: ignore[attr-defined]  # what the class method wraps
            lambda: PrivacyStatement.of(Plan(spec, steps), parties=case.providers),
        ),
    ]


def _sums(case: Case) -> list[Part]:
    """Return the parts that are done in or for every round."""
    spec, rows = case.spec, case.shard(0)
    step = dps_pca.steps_of(spec)[1]
    basis = np.zeros((case.dimension, case.components))
    basis[: case.sparsity], _ = thin_qr(np.random.default_rng(0).standard_normal((case.sparsity, case.components)))
    query, noise = CovarianceProduct(basis), DiscreteGaussian.with_std_at_least(step.noise_std)
    checked = preparation.check_rows(rows)
    strategy = Strategy.for_plan(case.dimension, dps_pca.steps_of(spec), is_sparse=False)
    shard = Shard(checked, NORM_BOUND, strategy=strategy)
    answer = shard.evaluate(query)
    standing, rules = JobPosition(), gate.Gate(catalogue.plan(spec))
    streamed = moments.StreamedMoments(moments.DenseRows(integer_rows.integer_rows(rows, NORM_BOUND)))
    draw = Draw("bench", 0, 0, query.digest(), Purpose.NOISE)
    announced, first = query.announcement, dps_pca.steps_of(spec)[0]
    return [
        Part("prepare rows", integer_rows.integer_rows, lambda: integer_rows.integer_rows(rows, NORM_BOUND)),
        Part("Gram matrix", moments.StreamedMoments.gram, streamed.gram),
        Part("product", Shard._evaluated, lambda: shard.evaluate(query)),  # noqa: SLF001  # of the first query and of later ones
        Part("noise", DiscreteGaussian.sample, lambda: noise.sample(answer.size, system_entropy(draw))),
        Part("gate", gate.Gate.grant, lambda: rules.grant(0, query, standing)),
        Part("digest", Query.digest, query.digest),
        Part("check a basis", BasisQuery.__post_init__, lambda: CovarianceProduct(basis)),
        Part("write a query", type(query).content, query.content),
        Part("read a query", read_basis, lambda: read_basis(announced, query.content(), "")),  # without the check
        Part("sum in units", sums.aggregate, lambda: sums.aggregate(spec, first, answer, 1)),
        Part("thin QR", thin_qr, lambda: thin_qr(answer.astype(np.float64))),
        Part("cut", largest_rows, lambda: largest_rows(answer.astype(np.float64), case.sparsity)),
    ]


async def _counted(case: Case, functions: list[Callable[..., object]]) -> Counter[Any]:
    """Count the calls of these functions in the second job of a federation, in all threads."""
    codes = {_code(function) for function in functions}
    calls: Counter[Any] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            calls[frame.f_code] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        async with federation(case, in_this_process) as running:
            await running.run_job()
            calls.clear()
            await running.run_job()
            return calls.copy()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _code(function: Callable[..., object]) -> Any:  # noqa: ANN401  # code objects have no public type here
    return inspect.unwrap(function).__code__  # type: ignore[attr-defined]


def _priced(part: Part, calls: int) -> Result:
    part.call()
    milliseconds = 1e3 * statistics.median(_seconds(part.call) for _ in range(REPEATS))
    return {"part": part.name, "calls": calls, "call_ms": milliseconds, "job_ms": calls * milliseconds}


def _seconds(work: Callable[[], object]) -> float:
    """Return processor time of all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start
