"""The contract of transports: a job gives the same model, byte for byte, in one process and over mutual TLS.

It holds for every method of the catalogue, any number of providers, any order of connections and answers, and any other
jobs at the same time. To add a method, add a table of examples.
"""

import asyncio
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import examples
import numpy as np
import pytest
import scipy.sparse
from local_federation import NOISE_SEED, Enrolment, RunningFederation, federation, noise_for, spec
from timeouts import TIMEOUT

from dpspca.client.matrices import dilation
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Centering, JobSpec, Schema, Span
from dpspca.common.plan import Step
from dpspca.common.privacy.keystream import Draw, WordSource
from dpspca.common.results import Model
from dpspca.common.transport import wire
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.persons import with_persons
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.matrix_shard import with_span
from dpspca.server.jobs.roster import MAX_QUEUED, Link

EXAMPLES = {name: each.jobs for name, each in examples.EXAMPLES.items()}
NAMED = {f"{method}: {name}": what for method, table in EXAMPLES.items() for name, what in table.items()}
SPARSE = {name: what for name, what in NAMED.items() if what.centering is Centering.NONE}
FIRST = [pytest.param(next(iter(table.values())), id=method) for method, table in EXAMPLES.items()]

PARTIES = (1, 2, 5)
"""Numbers of providers."""


def is_relative(name: str) -> bool:
    method, _, job = name.partition(": ")
    return job in examples.RELATIVES.get(method, ())


def kinds_of(what: JobSpec) -> tuple[Any, ...]:
    """Return what a transport can tell apart of a job: its unit, centring, names of columns, queries and noise."""
    asked = {(step.query, type(step.event), len(step.shape)) for step in catalogue.plan(what)}
    return what.method, what.unit, what.centering, what.schema.names is None, frozenset(asked)


TABLES = [
    pytest.param(what, id=name, marks=pytest.mark.nightly if is_relative(name) else pytest.mark.slow)
    for name, what in NAMED.items()
    if not what.unit.is_row
]


def first_of_methods(jobs: Mapping[str, JobSpec]) -> Collection[str]:
    """Return the name of each method's first job."""
    return {what.method: name for name, what in reversed(jobs.items())}.values()


def by_parties(jobs: Mapping[str, JobSpec]) -> list[Any]:
    """Return each job with each number of providers. A method's first job is fast with one; all others are nightly."""
    first = first_of_methods(jobs)
    return [
        pytest.param(
            what, parties, id=f"{name}-{parties}", marks=mark if place == number % len(PARTIES) else pytest.mark.nightly
        )
        for number, (name, what) in enumerate(jobs.items())
        for mark in [() if name in first else pytest.mark.nightly]
        for place, parties in enumerate(PARTIES)
    ]


CUTS: Mapping[int, Sequence[int]] = {1: [], 2: [41], 3: [2, 41], 5: [2, 5, 41, 160]}
"""Where rows are divided, by number of providers. Parts are as unequal as possible, with at least two rows."""

LONG = spec(schema=Schema(33_000), components=8, options={"sparsity": 40, "rounds": 2})
"""A job whose answers and queries have three frames each."""

Sender: TypeAlias = tuple[str, str]
"""A job and a provider."""
Order: TypeAlias = Callable[[int, Counter[Sender]], Sequence[Sender]]
"""Returns the order in which frames of answers are delivered, given the number of frames of each sender."""


def dense(dimension: int) -> Any:
    return np.random.default_rng(dimension).standard_normal((300, dimension)) * np.r_[5, 4, np.ones(dimension - 2)]


def sparse(dimension: int) -> Any:
    made = scipy.sparse.random_array((300, dimension), density=0.1, rng=np.random.default_rng(dimension))
    return scipy.sparse.csr_array(made)


def divided(rows: Any, parties: int) -> dict[str, Any]:
    edges = [0, *CUTS[parties], rows.shape[0]]
    return {f"site-{number}": rows[edges[number] : edges[number + 1]] for number in range(parties)}


def symmetric(dimension: int, number: int, *, is_sparse: bool) -> Any:
    """Return a share of a symmetric matrix. Shares overlap and add up."""
    rng = np.random.default_rng([dimension, number])
    made = scipy.sparse.random_array((dimension, dimension), density=0.1 if is_sparse else 1.0, rng=rng)
    share = scipy.sparse.csr_array(made + made.T) * 40
    return share if is_sparse else share.toarray()


def data_for(what: JobSpec, parties: int, *, is_sparse: bool = False) -> dict[str, Any]:
    """Return rows or a share of a symmetric matrix for every party, depending on the job's unit."""
    dimension = what.schema.dimension
    if what.unit.is_row:
        return divided(sparse(dimension) if is_sparse else dense(dimension), parties)
    return {f"site-{number}": symmetric(dimension, number, is_sparse=is_sparse) for number in range(parties)}


def persons_for(what: JobSpec, shards: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the person of each row if the job's unit is a person. Some persons have many rows, not consecutive."""
    return {name: np.arange(rows.shape[0]) ** 2 % 7 for name, rows in shards.items()} if what.unit.is_person else None


def check_twin(model: Model, what: JobSpec, shards: Mapping[str, Any], spans: Mapping[str, Span] | None = None) -> None:
    """Compare every byte with the model of one process, except for the parts of the statement that must differ."""
    inside = simulate(shards, what, noise_seed=NOISE_SEED, spans=spans, persons=persons_for(what, shards))
    assert (model.statement.federated, model.statement.fresh_noise) == (True, True)
    assert model.statement.releasable is model.statement.proven is inside.statement.proven
    assert (inside.statement.federated, inside.statement.releasable) == (False, False)
    statement = replace(model.statement, federated=False, fresh_noise=False)
    assert model.origin
    assert inside.origin
    assert (model.origin.method, model.origin.queries) == (inside.origin.method, inside.origin.queries)
    assert parts(replace(model, statement=statement, origin=inside.origin)) == parts(inside)


def parts(model: Model) -> dict[str, Any]:
    """Return the parts of a model as bytes, without ``Model.to_bytes``, which was used on the wire."""
    values = {each.name: getattr(model, each.name) for each in fields(model)}
    values["scores"] = values["scores"] and values["scores"].to_dict()
    return {
        name: (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def forward(_: int, frames: Counter[Sender]) -> list[Sender]:
    return sorted(frames.elements())


def backward(_: int, frames: Counter[Sender]) -> list[Sender]:
    return sorted(frames.elements(), reverse=True)


def in_turns(_: int, frames: Counter[Sender]) -> list[Sender]:
    """Deliver the first frames of all senders, then the second frames, and so on."""
    return [sender for turn in range(max(frames.values())) for sender in sorted(frames) if turn < frames[sender]]


def shuffled(seed: int) -> Order:
    """Return a new random order for every query."""

    def order(query: int, frames: Counter[Sender]) -> list[Sender]:
        places = np.random.default_rng([seed, query]).permutation(frames.total())
        return [forward(query, frames)[place] for place in places]

    return order


@dataclass
class DelayedDelivery:
    """Holds answers back until all have arrived, then delivers their frames in the order of a test.

    The frames of one sender stay in order, as in a stream. ``sizes`` has the number of frames of each delivery.
    """

    sizes: Sequence[int]
    order: Order
    delivered: int = 0
    arrivals: "asyncio.Queue[Sender]" = field(default_factory=asyncio.Queue)
    held: dict[Sender, deque[Callable[[], None]]] = field(default_factory=lambda: defaultdict(deque))

    @classmethod
    def of(cls, order: Order, *jobs: JobSpec, parties: int) -> "DelayedDelivery":
        """Deliver each time all providers have answered the next query of every job."""
        plans = [[frames_of(step) * parties for step in catalogue.plan(what)] for what in jobs]
        return cls(list(map(sum, zip(*plans, strict=True))), order)

    def take(self, sender: Sender, hand_on: Callable[[], None]) -> None:
        self.held[sender].append(hand_on)
        self.arrivals.put_nowait(sender)
        frames = Counter({each: len(waiting) for each, waiting in self.held.items() if waiting})
        if frames.total() == self.sizes[self.delivered]:
            self.delivered += 1
            for each in self.order(self.delivered, frames):
                asyncio.get_running_loop().call_soon(self.held[each].popleft())


def frames_of(step: Step) -> int:
    """Return the number of frames of an answer."""
    return math.ceil(8 * math.prod(step.shape) / wire.FRAME)


@contextmanager
def through(post: DelayedDelivery) -> Iterator[DelayedDelivery]:
    """Pass every answer through ``post`` before the coordinator receives it."""
    receive = Link.receive_answer

    def hold(link: Link, frame: pb.AnswerFrame) -> None:
        post.take((frame.job, link.name), partial(receive, link, frame))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Link, "receive_answer", hold)
        yield post
    assert post.delivered == len(post.sizes)


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def check_over_the_wire(
    enrolment: Enrolment, what: JobSpec, shards: Mapping[str, Any], order: Order | None = None
) -> None:
    """Run a job over mutual TLS, with answers in the given order, and compare its model with that of one process."""

    persons = persons_for(what, shards) or {}

    async def scenario() -> None:
        at_once = [name for name in shards if name not in persons]
        async with federation(enrolment, at_once, shards, noise_for(what)) as running:
            for name, whose in persons.items():
                await running.start(name, data_sets={"cohort": with_persons(check_rows(shards[name]), whose)})
            with through(DelayedDelivery.of(order, what, parties=len(shards))) if order else nullcontext():
                check_twin(await running.analyst.fit(what, "cohort", list(shards)), what, shards)

    asyncio.run(scenario())


def test_every_method_of_the_catalogue_has_examples() -> None:
    assert {name: bool(table) for name, table in EXAMPLES.items()} == dict.fromkeys(catalogue.CATALOGUE, True)
    assert all(what.method == name for name, table in EXAMPLES.items() for what in table.values())


@pytest.mark.slow
def test_each_relative_asks_the_same_kinds_as_another_job() -> None:
    others = {kinds_of(what) for name, what in NAMED.items() if not is_relative(name)}
    assert {name for name, what in NAMED.items() if is_relative(name) and kinds_of(what) not in others} == set()
    assert sum(map(is_relative, NAMED)) == sum(map(len, examples.RELATIVES.values()))


@pytest.mark.parametrize(("what", "parties"), by_parties(NAMED))
def test_dense_rows_give_the_same_bytes(enrolment: Enrolment, what: JobSpec, parties: int) -> None:
    check_over_the_wire(enrolment, what, data_for(what, parties))


@pytest.mark.parametrize(("what", "parties"), by_parties(SPARSE))
def test_sparse_rows_give_the_same_bytes(enrolment: Enrolment, what: JobSpec, parties: int) -> None:
    check_over_the_wire(enrolment, what, data_for(what, parties, is_sparse=True))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(forward, id="forward", marks=pytest.mark.nightly),
        pytest.param(backward, id="backward"),
        pytest.param(shuffled(0), id="shuffled 0", marks=pytest.mark.slow),
        pytest.param(shuffled(1), id="shuffled 1", marks=pytest.mark.nightly),
        pytest.param(shuffled(2), id="shuffled 2", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("what", FIRST)
def test_any_order_of_answers_gives_the_same_bytes(enrolment: Enrolment, what: JobSpec, order: Order) -> None:
    shards = data_for(what, 5)
    shards["site-3"] = scipy.sparse.csr_array(shards["site-3"])
    check_over_the_wire(enrolment, what, shards, order)


@pytest.mark.parametrize("what", TABLES)
def test_a_divided_table_with_spans_gives_the_same_bytes(enrolment: Enrolment, what: JobSpec) -> None:
    """The last provider has no span, and adds noise to everything."""
    rows = what.schema.dimension - 5
    spans = {f"site-{number}": Span(start, 4, rows) for number, start in enumerate((0, 4))}
    table = np.random.default_rng(rows).standard_normal((rows, 5))
    shards = {name: dilation(table[own.start :][:4], own.start, rows) for name, own in spans.items()}
    shards["site-2"] = dilation(table[8:], 8, rows)

    async def scenario() -> None:
        async with federation(enrolment, (), shards, noise_for(what)) as running:
            for name, share in shards.items():
                checked = check_rows(share)
                offered = {"cohort": with_span(checked, spans[name]) if name in spans else checked}
                await running.start(name, data_sets=offered)
            model = await running.analyst.fit(what, "cohort", list(shards))
            check_twin(model, what, shards, spans)
            assert parts(model)["components"] != parts(simulate(shards, what, noise_seed=NOISE_SEED))["components"]

    asyncio.run(scenario())


@pytest.mark.parametrize("order", [backward, in_turns, shuffled(3)], ids=["backward", "frame by frame", "shuffled"])
def test_any_order_of_frames_gives_the_same_bytes(enrolment: Enrolment, order: Order) -> None:
    assert max(map(frames_of, catalogue.plan(LONG))) == 3
    check_over_the_wire(enrolment, LONG, divided(sparse(LONG.schema.dimension), 3), order)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
@pytest.mark.parametrize("what", FIRST)
def test_any_order_of_connections_gives_the_same_bytes(enrolment: Enrolment, what: JobSpec, seed: int) -> None:
    shards = data_for(what, 5)
    connecting, named = (np.random.default_rng([seed, draw]).permutation(list(shards)).tolist() for draw in range(2))

    async def scenario() -> None:
        async with federation(enrolment, (), shards, noise_for(what)) as running:
            job = await running.analyst.submit(what, "cohort", named)
            for name in connecting:
                await running.start(name)
            check_twin(await job.result(), what, shards)

    asyncio.run(scenario())


def check_at_once(
    enrolment: Enrolment, jobs: Sequence[tuple[str, JobSpec]], shards: Mapping[str, Mapping[str, Any]], order: Order
) -> None:
    """Run jobs at the same time over the same providers, and compare their models with those of one process.

    Each job has its own data set. Answers are delivered when those of all jobs have arrived, so that all jobs run until
    the end.
    """
    sites = next(iter(shards.values()))
    names, daemons = list(sites), dict[str, Daemon]()

    def entropy(name: str, number: int, draw: Draw) -> WordSource:
        job = daemons[name]._registry.find(draw.job)
        assert job
        return noise_for(JobSpec.from_json(job.envelope.spec))(number)(draw)

    async def scenario() -> None:
        async with federation(enrolment, (), sites) as running:
            for number, name in enumerate(names):
                offered = {data_set: check_rows(rows[name]) for data_set, rows in shards.items()}
                daemons[name] = await running.start(name, data_sets=offered, entropy=partial(entropy, name, number))
            with through(DelayedDelivery.of(order, *(what for _, what in jobs), parties=len(names))) as post:
                models = await asyncio.gather(*[await begun(running, post, job, names) for job in jobs])
            for model, (data_set, what) in zip(models, jobs, strict=True):
                check_twin(model, what, shards[data_set])

    asyncio.run(scenario())


async def begun(
    running: RunningFederation, post: DelayedDelivery, job: tuple[str, JobSpec], names: Sequence[str]
) -> "asyncio.Task[Model]":
    """Submit a job and wait until every provider has answered its first query, in one frame."""
    data_set, what = job
    handle = await running.analyst.submit(what, data_set, names)
    for _ in names:
        await asyncio.wait_for(post.arrivals.get(), TIMEOUT)
    return asyncio.create_task(handle.result())


@pytest.mark.parametrize(
    ("second", "order"),
    [
        pytest.param("cohort", forward, id="one data set, job after job", marks=pytest.mark.nightly),
        pytest.param("cohort", shuffled(4), id="one data set, shuffled", marks=pytest.mark.slow),
        pytest.param("trial", forward, id="two data sets, job after job", marks=pytest.mark.nightly),
        pytest.param("trial", shuffled(4), id="two data sets, shuffled"),
    ],
)
@pytest.mark.parametrize("what", FIRST)
def test_two_jobs_at_once_do_not_change_each_other_s_bytes(
    enrolment: Enrolment, what: JobSpec, second: str, order: Order
) -> None:
    shards = {"cohort": data_for(what, 3), "trial": data_for(what, 3, is_sparse=True)}
    check_at_once(enrolment, [("cohort", what), (second, replace(what, seed=1))], shards, order)


def test_frames_of_two_jobs_may_be_interleaved(enrolment: Enrolment) -> None:
    longer = replace(LONG, components=32, options={"sparsity": 40, "rounds": 1})
    assert max(map(frames_of, catalogue.plan(longer))) > MAX_QUEUED, (
        "frames wait for their turn half-way through a query"
    )
    jobs = [("cohort", replace(longer, seed=seed)) for seed in range(2)]
    check_at_once(enrolment, jobs, {"cohort": divided(sparse(LONG.schema.dimension), 2)}, in_turns)
