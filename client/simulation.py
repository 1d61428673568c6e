"""A whole federation in one process: the same coroutine, gate, noise and combination as over a network.

With a seed everything repeats, noise included, and the model says that it must not be released. Without one the noise
comes from the operating system's randomness.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import column_names
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, InvalidTypeError
from dpspca.common.model import Model
from dpspca.common.plan import Step
from dpspca.common.privacy.keystream import KeyStream, WordSource
from dpspca.common.privacy.lattice import MAX_PARTIES
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries import CovarianceProduct
from dpspca.common.question import RowQuery
from dpspca.common.spans import Span
from dpspca.common.spec import JobSpec, check_whole, choice
from dpspca.provider.entropy import SystemEntropy
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.matrix_shard import MatrixShard, declared
from dpspca.provider.preparation import CheckedRows, check_rows
from dpspca.provider.respond import Evaluator, Responder
from dpspca.provider.shard import Shard, Strategy
from dpspca.server.rounds import combine


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a job stands: ``done`` of ``total`` questions, ``step`` being the one that ``parties`` just answered.

    ``aggregate`` is the sum itself; over a network, where it stays with the coordinator, there is none.
    """

    done: int
    total: int
    step: Step
    parties: int
    aggregate: Aggregate | None = None


Watcher: TypeAlias = Callable[[Progress], None]
Spans: TypeAlias = Sequence[Span | None] | Mapping[str, Span | None] | None

_EACH_A_SPAN: Final = "Give a list, or a mapping by the shards' names, of a Span(start, rows, of) or None for each."


def simulate(  # noqa: PLR0913  # a job over shards, and how
    shards: Iterable[Any] | Mapping[str, Any],
    spec: JobSpec,
    *,
    noise_seed: int | None = None,
    strategy: Strategy | str | None = None,
    watch: Watcher | None = None,
    spans: Spans = None,
) -> Model:
    """Run a job over shards (dense or sparse rows, one provider each; a list, or a mapping by name).

    Where the job's unit is about entries or spectral norms, shards are shares of a symmetric matrix. Where that is a
    divided table, ``spans`` says which rows are whose, in the order of the shards or by the same names: each provider
    then adds noise to its own rows and to the columns alone.

    ``noise_seed`` makes the noise repeatable and the result unfit for release. ``strategy`` says how shards are
    evaluated, which changes the time and not one bit of the result; left out, what should be faster is taken.
    """
    tables = _tables(shards, spec)
    seed = None if noise_seed is None else check_whole("noise_seed", noise_seed, least=0, most=2**64 - 1)
    chosen = None if strategy is None else choice(Strategy, "the strategy", strategy)
    plan = catalogue.plan(spec)
    own = _spans(spans, shards, len(tables), spec.unit)
    checked = [_checked(rows, spec, number, own) for number, rows in enumerate(tables)]
    responders = [
        Responder(
            spec,
            _shard(rows, spec, plan, chosen),
            MemoryLedger(),
            _words(seed, f"{spec.digest()} {number}"),
            slot=number,
        )
        for number, rows in enumerate(checked)
    ]
    model = drive(catalogue.find(spec.algorithm).run(spec), _Federation(spec, plan, responders, watch))
    return _state(model, parties=len(tables), releasable=seed is None)


class _Federation:
    """Carries each question to every responder and the sum back."""

    def __init__(
        self, spec: JobSpec, plan: Sequence[Step], responders: Sequence[Responder], watch: Watcher | None
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._responders = responders
        self._watch = watch
        self._position = 0

    def __call__(self, query: RowQuery) -> Aggregate:
        position = self._position
        answers = [responder.respond(position, query) for responder in self._responders]
        self._position += 1
        step = self._plan[position].fitted(query, self._spec.unit)
        aggregate = combine(self._spec, step, answers)
        if self._watch:
            self._watch(Progress(self._position, len(self._plan), step, len(answers), aggregate))
        return aggregate


def _tables(shards: Any, spec: JobSpec) -> list[Any]:  # noqa: ANN401  # whatever was given
    """List the shards; tables whose columns have names have to agree on them."""
    if not isinstance(spec, JobSpec):
        raise InvalidTypeError(f"The job is a {type(spec).__name__}.", "Call simulate(shards, job) with a JobSpec.")
    if hasattr(shards, "shape"):
        raise InvalidTypeError("The shards are one table.", "Wrap it in a list: one entry for every provider.")
    tables = list(shards.values() if isinstance(shards, Mapping) else shards)
    if not 0 < len(tables) <= MAX_PARTIES:
        raise InvalidParameterError(f"There are {len(tables)} shards.", f"Give between 1 and {MAX_PARTIES}.")
    if len({names for names in map(column_names, tables) if names}) > 1:
        raise InvalidDataError("The shards' columns have different names or orders.", "Give all the same columns.")
    return tables


def _spans(spans: Any, shards: Any, parties: int, unit: PrivacyUnit) -> list[Span | None]:  # noqa: ANN401
    """List the shards' spans; shards with names have spans with names."""
    if spans is None:
        return [None] * parties
    if unit.is_row:
        raise InvalidParameterError(
            f"Spans are for shares of a matrix; this job's unit is {unit}.",
            "Leave spans out; or give shares of a matrix, and a unit that is about one: entry or spectral.",
        )
    own = _listed(spans, shards)
    if len(own) != parties:
        raise InvalidParameterError(
            f"There are {parties} shards and {len(own)} spans.", "Give each shard a Span, or None where it has none."
        )
    _require_apart(own)
    return own


def _listed(spans: Any, shards: Any) -> list[Span | None]:  # noqa: ANN401  # whatever was given
    """Put spans in the order of the shards."""
    if not isinstance(spans, Iterable):
        raise InvalidTypeError(f"The spans are of type {type(spans).__name__}.", _EACH_A_SPAN)
    if isinstance(shards, Mapping) and isinstance(spans, Mapping) and spans.keys() <= shards.keys():
        own = [spans.get(name) for name in shards]
    elif isinstance(shards, Mapping) or isinstance(spans, Mapping):
        raise InvalidParameterError(
            "The spans are not named as the shards are.", "List both, or give both the same names."
        )
    else:
        own = list(spans)
    strangers = [each for each in own if not isinstance(each, Span | None)]
    if strangers:
        raise InvalidTypeError(f"A span is {strangers[0]!r:.80}.", _EACH_A_SPAN)
    return own


def _require_apart(spans: Sequence[Span | None]) -> None:
    """Refuse spans that cannot be of one table whose rows are divided: here all are seen, as nowhere else."""
    told = sorted(((span, number) for number, span in enumerate(spans, 1) if span), key=lambda each: each[0].start)
    if len({span.of for span, _ in told}) > 1:
        raise InvalidParameterError(
            "The spans are of tables of different numbers of rows.",
            "Give all the same `of`: how many rows the whole table has.",
        )
    for (span, number), (after, other) in pairwise(told):
        if span.start + span.rows > after.start:
            raise InvalidParameterError(
                f"The spans of shards {number} and {other} both have row {after.start}.",
                "Give each row of the table to one shard: `rows` is how many there are from `start` on.",
            )


def _checked(rows: Any, spec: JobSpec, number: int, spans: Sequence[Span | None]) -> CheckedRows:  # noqa: ANN401
    """Check a shard's rows, hold its span against them, and say which shard it was."""
    span = spans[number]
    try:
        checked = check_rows(rows, spec.schema, least=2 if spec.unit.is_row else 1).first(catalogue.rows_of(spec))
        return checked if span is None else declared(checked, span)
    except DpspcaError as problem:
        if len(spans) == 1:
            raise
        raise type(problem)(f"Shard {number + 1} of {len(spans)}: {problem.what}", problem.remedy) from None


def _shard(rows: CheckedRows, spec: JobSpec, plan: Sequence[Step], strategy: Strategy | None) -> Evaluator:
    """Make rows ready, or a share of a symmetric matrix, of which there is one strategy alone."""
    if not spec.unit.is_row:
        return MatrixShard(rows, spec.norm_bound, spec.unit)
    products = sum(step.question is CovarianceProduct for step in plan)
    chosen = strategy or Strategy.for_rounds(rows, products)
    return Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=chosen)


def _words(noise_seed: int | None, label: str) -> WordSource:
    """Give every provider of every job randomness of its own."""
    if noise_seed is None:
        return SystemEntropy()
    return KeyStream.repeatable(noise_seed, label)


def _state(model: Model, *, parties: int, releasable: bool) -> Model:
    """Say on the model how it came about."""
    statement = replace(model.statement, parties=parties, releasable=releasable, federated=False)
    return replace(model, statement=statement)
