"""An audit of what leaves a provider: made-up data, the provider's own code, and the bytes that it would send.

A provider answers a job many times over two neighbouring data sets. The audit compares the bytes of the answers with
the plan only. Their noise must be as wide as planned in every query, normal, and uncorrelated between entries, rounds
and jobs. Along the line on which the neighbours differ most, the answers must not be further apart than the price says.
The data are chosen so that the neighbours are nearly that far apart, so that a sensitivity that is too small shows too.

If noise is not Gaussian, or the answer is that of a private mechanism without noise of its own, the audit tests
probabilities. Half of the answers choose a set that distinguishes the neighbours. In the other half, the set must not
be more probable over one neighbour than the event's (epsilon, delta) allow. Such a test finds a fault only if epsilon
is small and runs are many; every finding says up to which epsilon it could find anything. Also, the rows have a large
gap, with which subspaces hardly move, so only large faults of such a mechanism are found.

If daemons answer, the audit also compares the times of their answers, pair by pair: those over one neighbour may take
longer than those over the other in at most 55 of 100 cases (``provider/release/schedule.py``).

Promise: an audit of an honest provider fails with probability at most ``false_alarm``. For the default job and number
of runs, it finds noise that is 5 % too narrow with probability above 0.99, even in a single round, and a forgotten
factor of sqrt(2) as well; every finding says what it would find. Counts of rows are also computed over the neighbours
that move them the furthest (``worst_case.py``), where no chance is involved. An audit proves nothing: a fault that
shows in none of these ways is not found.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from secrets import SystemRandom
from time import perf_counter
from typing import Final, TypeAlias

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.checks import check, check_whole
from dpspca.common.errors import InvalidAnswerError
from dpspca.common.job import Budget, Centering, JobSpec, Schema, Span, pairing_of
from dpspca.common.plan import Plan, Step, events
from dpspca.common.privacy import (
    ApproximateEvent,
    AuditResult,
    Draw,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PrivacyUnit,
    PureEvent,
    Purpose,
    compose,
    uniforms,
)
from dpspca.common.privacy import audit as audits
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries import MatrixProduct, RowQuery
from dpspca.common.transport import wire
from dpspca.provider.data import check_rows, with_persons
from dpspca.provider.evaluate import MatrixShard, Shard, Strategy, with_span
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.release import Evaluator, Responder, system_entropy
from dpspca.server.jobs import combine

from .neighbours import neighbours, row_owners
from .worst_case import CommonRows, reach_judges

RUNS: Final = 100
MOST_RUNS: Final = 10**6
MOST_NUMBERS: Final = 2**25
"""Most numbers in all answers together; with everything computed from them they take half a gigabyte."""
FALSE_ALARM: Final = 1e-6
NAMES: Final = ("first", "second")
"""The names of the two data sets."""
WIDE: Final = 2.0**10
"""Width in lattice units from which integer noise cannot be distinguished from normal noise."""

Provider: TypeAlias = Callable[[int, RowQuery], memoryview]
"""Answers the query at a position of the plan, in bytes."""
Judge: TypeAlias = Callable[[float], AuditResult]
"""Runs a test at a level."""
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of answered jobs and the number of all jobs."""


@dataclass(frozen=True, eq=False, slots=True)
class Neighbour:
    """One of two made-up data sets, and the evaluator of its exact answers."""

    name: str
    data: FloatArray
    exactly: Evaluator


JobOpener: TypeAlias = Callable[[JobSpec, Neighbour, str], Provider]
"""Opens a job of this name at a provider of these data; the job before it gets no more queries."""


def default_job() -> JobSpec:
    """Return a job of the power loop with a private mean, and a budget that is large enough to be measured."""
    return JobSpec(
        schema=Schema(60),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(20.0, 1e-2),
        norm_bound=1.0,
        components=4,
        centering=Centering.PRIVATE,
        mean_bound=1.0,
        method="dps-pca",
        options={"sparsity": 20, "rounds": 5},
    )


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings about a job."""

    spec: JobSpec
    runs: int
    false_alarm: float
    findings: tuple[AuditResult, ...]

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return all(each.passed for each in self.findings)


def answer_locally(spec: JobSpec, about: Neighbour, job: str) -> Provider:
    """Open a job in this process as a daemon does, with system randomness and a ledger for this job only."""
    responder = Responder(catalogue.plan(spec), about.exactly, MemoryLedger(), system_entropy, job=job)
    return lambda position, query: wire.answer_content(responder.respond(position, query))


def audit(  # noqa: PLR0913  # what is audited, and how
    spec: JobSpec | None = None,
    *,
    runs: int = RUNS,
    false_alarm: float = FALSE_ALARM,
    opening: JobOpener = answer_locally,
    span: Span | None = None,
    progress: Progress = lambda _answered, _of: None,
    check_times: bool = False,
) -> Audit:
    """Have a job answered ``runs`` times over each of two neighbours, and test the answers.

    With a ``span``, the neighbours are shares of a divided table (``common/job/spans.py``) that differ within its rows.
    Without an ``opening``, answers are computed in this process, by the code of a daemon. Set ``check_times`` if
    answers of that opening leave on a schedule, so that their times must disclose nothing either.
    """
    job = spec or default_job()
    planned = _auditable(job, runs, span)
    pair = [
        Neighbour(name, data, _shard(data, job, runs * planned.steps, span))
        for name, data in zip(NAMES, neighbours(job, span), strict=True)
    ]
    queries = _queries(planned, opening(job, pair[0], "rehearsal"))
    plan = tuple(step.fit_to(query, job.unit) for step, query in zip(planned, queries, strict=True))
    asked = {about.name: _Answers([[] for _ in plan], [[] for _ in plan]) for about in pair}
    for run in range(runs):
        for place, about in enumerate(SystemRandom().sample(pair, 2)):  # in random order, so that times can be compared
            asked[about.name].ask(plan, queries, opening(job, about, f"{about.name} {run}"))
            progress(2 * run + place + 1, 2 * runs)
    sides = [_side(plan, queries, about, asked[about.name], span) for about in pair]
    judges = [
        *_judges(plan, *sides),
        *(_worst_case(job, plan, queries, pair[0]) if job.unit.is_row else ()),
        *(_time_judges(plan, *sides) if check_times else ()),
    ]
    return Audit(job, runs, false_alarm, tuple(judge(false_alarm / len(judges)) for judge in judges))


def _auditable(job: JobSpec, runs: int, span: Span | None) -> Plan:
    """Return the plan of a job, or refuse one that an audit could say nothing about."""
    check(
        span is None or (not job.unit.is_row and span.of < job.schema.dimension),
        "A span is given, but the job is not over the dilation of a table.",
        "Leave the span out, or audit a job over matrices with more columns than the whole table has rows.",
    )
    check_whole("the number of runs", runs, least=2, most=MOST_RUNS)
    planned = catalogue.plan(job)
    check(
        all(step.query.is_repeatable for step in planned),
        f"The queries of {job.method} depend on the random numbers of each job, so no two runs are alike.",
        "Audit another method. The tests of this project check the noise of this one.",
    )
    numbers = 2 * runs * sum(step.largest for step in planned)
    check(
        numbers <= MOST_NUMBERS,
        f"This audit would keep {numbers} numbers; {MOST_NUMBERS} are allowed.",
        "Audit a smaller job, or reduce runs.",
    )
    return planned


# --- Made-up data, and the queries about them -------------------------------------------------------------------------


def _shard(data: FloatArray, spec: JobSpec, asked: Sequence[Step], span: Span | None) -> Evaluator:
    checked = check_rows(data, least=2 if spec.unit.is_row else 1)
    if not spec.unit.is_row:
        return MatrixShard(with_span(checked, span) if span else checked, spec.norm_bound, spec.unit)
    persons = row_owners(spec, data)
    if persons is not None:
        checked = with_persons(checked, persons).bounded(spec.rows_per_person)
    strategy = Strategy.for_plan(checked.dimension, asked, is_sparse=checked.is_sparse)
    return Shard(checked, spec.norm_bound, mean_bound=spec.mean_bound, strategy=strategy, pairing=pairing_of(spec))


def _worst_case(spec: JobSpec, plan: Sequence[Step], queries: Sequence[RowQuery], about: Neighbour) -> Iterator[Judge]:
    """List tests over the neighbours that move counts of rows the furthest. They share all rows but the last ones."""
    rows = CommonRows(about.data[: -spec.rows_per_person], lambda table: _shard(table, spec, plan, None))
    return reach_judges(spec, plan, queries, rows)


def _queries(plan: Plan, provider: Provider) -> list[RowQuery]:
    """Run the method with one provider; for each step of the plan return the method's last query that it admits.

    A coordinator may do so. The last queries lie along the axes of the rows, and so along the neighbours' difference.
    """
    asked: list[RowQuery] = []

    def ask(query: RowQuery) -> Aggregate:
        step = plan[len(asked)].fit_to(query, plan.spec.unit)
        answer = _read(step, provider(len(asked), query)).reshape(step.shape)
        asked.append(query)
        return combine(plan.spec, step, [answer])

    drive(catalogue.run(plan), ask)
    return [next(query for query in reversed(asked) if step.admits(query)) for step in plan]


def _read(step: Step, content: memoryview) -> Integers:
    """Decode an answer."""
    if len(content) != 8 * math.prod(step.shape):
        raise InvalidAnswerError(f"An answer to '{step.name}' has {len(content)} bytes.", "Report this as a bug.")
    return np.frombuffer(content, dtype="<i8").astype(np.int64)


# --- Tests ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answers:
    """All answers over one neighbour and the seconds that each took: for each query a list with one per run."""

    answers: list[list[Integers]]
    seconds: list[list[float]]

    def ask(self, plan: Sequence[Step], queries: Sequence[RowQuery], provider: Provider) -> None:
        """Send the queries of one more job."""
        for at, (step, query) in enumerate(zip(plan, queries, strict=True)):
            begun = perf_counter()
            content = provider(at, query)
            self.seconds[at].append(perf_counter() - begun)
            self.answers[at].append(_read(step, content))


@dataclass(slots=True)
class _Side:
    """One of two neighbours: the exact answer to each query that has one, and all given answers, a row for each run.

    For a divided table, both hold only the provider's own rows and the columns; ``silent`` holds the other entries.
    """

    exact: list[Integers | None]
    given: list[Integers]
    silent: Integers
    seconds: list[list[float]]


def _side(
    plan: Sequence[Step], queries: Sequence[RowQuery], about: Neighbour, asked: _Answers, span: Span | None
) -> _Side:
    side = _Side([], [], np.empty(0, dtype=np.int64), asked.seconds)
    for step, query, answered in zip(plan, queries, asked.answers, strict=True):
        given = np.stack(answered)
        exact = None if query.is_private else about.exactly.evaluate(query).ravel()
        if span and exact is not None and isinstance(query, MatrixProduct):
            silent = np.repeat(span.rows_of_others(step.shape[0]), step.shape[1])
            side.silent = np.concatenate([side.silent, given[:, silent].ravel()])
            given, exact = given[:, ~silent], exact[~silent]
        side.exact.append(exact)
        side.given.append(given)
    return side


def _judges(plan: Sequence[Step], some: _Side, others: _Side) -> Iterator[Judge]:
    """List all tests; each still needs its level, which depends on their number."""
    if some.silent.size:
        yield partial(audits.silence, "zeros in the rows of others", np.concatenate([some.silent, others.silent]))
    noisy = [at for at, step in enumerate(plan) if step.event and not step.query.is_private]
    residuals = {at: np.vstack([_residuals(plan[at], side, at) for side in (some, others)]) for at in noisy}
    for at in noisy:
        yield partial(audits.width, f"width of the noise on '{plan[at].name}'", residuals[at])
    if noisy:
        yield partial(audits.width, "width of all noise", np.concatenate([each.ravel() for each in residuals.values()]))
    wide = [residuals[at] for at in noisy if plan[at].noise_std >= WIDE or isinstance(plan[at].event, LaplaceEvent)]
    if sum(each.size for each in wide) >= audits.FEWEST:
        yield partial(audits.shape, "shape of all noise", np.concatenate([each.ravel() for each in wide]))
    yield from _correlation_judges([residuals[at] for at in noisy])
    gaussian = [at for at in noisy if isinstance(plan[at].event, GaussianEvent)]
    yield from _distance_judges(plan, gaussian, some, others)
    for at, step in enumerate(plan):
        if step.event and at not in gaussian:
            yield _event_judge(step, some.given[at], others.given[at])


def _time_judges(plan: Sequence[Step], some: _Side, others: _Side) -> Iterator[Judge]:
    for step, first, second in zip(plan, some.seconds, others.seconds, strict=True):
        yield partial(audits.answer_time, f"time of the answer to '{step.name}'", np.array(first) > np.array(second))


def _residuals(step: Step, side: _Side, at: int) -> FloatArray:
    """Return the noise in answers as numbers that are standard normal if the noise is as planned."""
    exact = side.exact[at]
    noise = side.given[at] - (0 if exact is None else exact)
    if isinstance(step.event, LaplaceEvent):
        words = system_entropy(Draw("audit", 0, at, step.name, Purpose.AUDIT))
        drawn = uniforms(noise.size, words).reshape(noise.shape)
        return audits.laplace_as_normal(noise, step.event.scale, drawn)
    return noise / step.noise_std


def _event_judge(step: Step, some: Integers, others: Integers) -> Judge:
    """Choose a set by every second answer, on the line between the means, and test it on the others."""
    line = some[::2].mean(axis=0) - others[::2].mean(axis=0)
    line /= np.abs(line).max(initial=0.0) or 1.0
    learnt, unseen = ([part[start::2] @ line for part in (some, others)] for start in (0, 1))
    middle = _best_threshold(*learnt)
    first, second = (part > middle for part in unseen)
    return partial(audits.event, f"probabilities of events in '{step.name}'", first, second, _claim(step.event))


def _best_threshold(some: FloatArray, others: FloatArray) -> float:
    """Find the threshold above which the shares of the two kinds of numbers differ most."""
    places = np.sort(np.concatenate([some, others]))
    above = [1 - np.searchsorted(np.sort(part), places, "right") / part.size for part in (some, others)]
    return float(places[np.argmax(np.abs(above[0] - above[1]))])


def _claim(event: Event | None) -> tuple[float, float]:
    """Return the (epsilon, delta) that an event promises."""
    match event:
        case PureEvent(epsilon=epsilon, slack=slack) | LaplaceEvent(epsilon=epsilon, slack=slack):
            return epsilon, slack * (1 + math.exp(epsilon))
        case ApproximateEvent(epsilon=epsilon, delta=delta, slack=slack):
            return epsilon, delta + slack * (1 + math.exp(epsilon))
        case None:
            return 0.0, 0.0
        case _:
            return 1.0, compose([event]).delta(1.0)


def _correlation_judges(residuals: Sequence[FloatArray]) -> Iterator[Judge]:
    """Correlate each entry of an answer, each run and each query of the same shape with the next."""
    pairs = {
        "correlation of neighbouring entries": [(each[:, :-1], each[:, 1:]) for each in residuals],
        "correlation of successive jobs": [(each[:-1], each[1:]) for each in residuals],
        "correlation of successive queries": [
            (each, following) for each, following in pairwise(residuals) if each.shape == following.shape
        ],
    }
    for name, found in pairs.items():
        some, others = (np.concatenate([pair[side].ravel() for pair in found] or [np.empty(0)]) for side in (0, 1))
        if some.size >= audits.FEWEST:
            yield partial(audits.correlation, name, some, others)


def _distance_judges(plan: Sequence[Step], noisy: Sequence[int], some: _Side, others: _Side) -> Iterator[Judge]:
    """Project answers with Gaussian noise on the line between the exact ones: each alone and, as an attacker, all."""
    total: list[FloatArray] = [np.zeros(len(side.given[0])) for side in (some, others)]
    squared, angles = 0.0, list[FloatArray]()
    for at in noisy:
        one, other, event, std = some.exact[at], others.exact[at], plan[at].event, plan[at].noise_std
        if one is None or other is None or event is None or not (one != other).any():
            continue
        moved = (one - other).astype(np.float64)
        length = float(np.linalg.norm(moved))
        first, second = ((side.given[at] - other) @ (moved / length) / std for side in (some, others))
        yield partial(audits.distance, f"distance of the neighbours in '{plan[at].name}'", first, second, _mu(event))
        if std >= WIDE and moved.size > 1:
            angles += [audits.angles_as_normal(_residuals(plan[at], side, at), moved) for side in (some, others)]
        squared += (length / std) ** 2
        total = [sum_so_far + length / std * each for sum_so_far, each in zip(total, (first, second), strict=True)]
    if squared:
        first, second = (each / math.sqrt(squared) for each in total)
        allowed = compose(events(plan)).gdp_bound
        yield partial(audits.distance, "distance of the neighbours in all answers", first, second, allowed)
    if angles:
        yield partial(audits.width, "angle of the noise to the difference of the neighbours", np.concatenate(angles))


def _mu(event: Event) -> float:
    """Return the largest distance of neighbours that an event allows."""
    return compose([event]).gdp_bound
