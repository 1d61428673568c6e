"""A whole federation in one process: the same coroutine, gate, noise and combination as over a network.

With a seed everything repeats, noise included, and the model says that it must not be released. Without one the noise
comes from the operating system's randomness.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import column_names
from dpspca.common.errors import DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.model import Model
from dpspca.common.plan import Step
from dpspca.common.privacy.keystream import Entropy, repeatable_entropy
from dpspca.common.privacy.lattice import MAX_PARTIES
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.question import RowQuery
from dpspca.common.spans import Span
from dpspca.common.spec import JobSpec, check_whole, choice
from dpspca.provider.entropy import system_entropy
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.matrix_shard import MatrixShard, declared
from dpspca.provider.preparation import CheckedRows, check_rows, with_persons
from dpspca.provider.respond import Evaluator, Responder
from dpspca.provider.shard import Shard, Strategy
from dpspca.server.rounds import combine

from .findings import issue, with_warnings


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
Persons: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
"""For each shard as many names or numbers as it has rows."""

_EACH_A_SPAN: Final = "Give a list, or a mapping by the shards' names, of a Span(start, rows, of) or None for each."
_EACH_ITS_PERSONS: Final = (
    "Give a list, or a mapping by the shards' names, with a name or number for each row of each shard: whose it is."
)


def simulate(  # noqa: PLR0913  # a job over shards, and how
    shards: Iterable[Any] | Mapping[str, Any],
    spec: JobSpec,
    *,
    noise_seed: int | None = None,
    strategy: Strategy | str | None = None,
    watch: Watcher | None = None,
    spans: Spans = None,
    persons: Persons = None,
) -> Model:
    """Run a job over shards (dense or sparse rows, one provider each; a list, or a mapping by name).

    Where tables have names of columns, all have to have the same, which are in the model.

    Where the job's unit is about entries or spectral norms, shards are shares of a symmetric matrix. Where that is a
    divided table, ``spans`` says which rows are whose, in the order of the shards or by the same names: each provider
    then adds noise to its own rows and to the columns alone.

    Where the job's unit is about persons, ``persons`` says of each row of each shard whose it is, in the order of the
    shards or by the same names. Of each person a shard's first ``rows_per_person`` rows are used.

    ``noise_seed`` makes the noise repeatable and the result unfit for release. ``strategy`` says how shards are
    evaluated, which changes the time and not one bit of the result; left out, what should be faster is taken.

    What has to be known of the result comes as warnings (``DpspcaWarning``), and its statement carries it.
    """
    tables = _tables(shards, spec)
    spec = spec.with_names({f"shard {number}": column_names(each) for number, each in enumerate(tables, start=1)})
    seed = None if noise_seed is None else check_whole("noise_seed", noise_seed, least=0, most=2**64 - 1)
    chosen = None if strategy is None else choice(Strategy, "the strategy", strategy)
    plan = catalogue.plan(spec)
    own = _spans(spans, shards, len(tables), spec.unit)
    whose = _persons(persons, shards, len(tables), spec.unit)
    checked = [
        _named(number, len(tables), partial(_checked, rows, spec, span, labels))
        for number, (rows, span, labels) in enumerate(zip(tables, own, whose, strict=True), start=1)
    ]
    responders = [
        Responder(spec, _shard(rows, spec, plan, chosen), MemoryLedger(), _entropy(seed), slot=number)
        for number, rows in enumerate(checked)
    ]
    model = drive(catalogue.find(spec.algorithm).run(spec), _Federation(spec, plan, responders, watch))
    model = with_warnings(spec, _state(model, parties=len(tables), fresh_noise=seed is None))
    issue(model.statement)
    return model


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
    """List the shards."""
    if not isinstance(spec, JobSpec):
        raise InvalidTypeError(f"The job is a {type(spec).__name__}.", "Call simulate(shards, job) with a JobSpec.")
    if hasattr(shards, "shape"):
        raise InvalidTypeError("The shards are one table.", "Wrap it in a list: one entry for every provider.")
    tables = list(shards.values() if isinstance(shards, Mapping) else shards)
    if not 0 < len(tables) <= MAX_PARTIES:
        raise InvalidParameterError(f"There are {len(tables)} shards.", f"Give between 1 and {MAX_PARTIES}.")
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
    own = _listed("spans", spans, shards, _EACH_A_SPAN)
    if len(own) != parties:
        raise InvalidParameterError(
            f"There are {parties} shards and {len(own)} spans.", "Give each shard a Span, or None where it has none."
        )
    strangers = [each for each in own if not isinstance(each, Span | None)]
    if strangers:
        raise InvalidTypeError(f"A span is {strangers[0]!r:.80}.", _EACH_A_SPAN)
    _require_apart(own)
    return own


def _persons(persons: Any, shards: Any, parties: int, unit: PrivacyUnit) -> list[Any]:  # noqa: ANN401
    """List whose rows are whose, shard by shard: for units of persons, and for no others."""
    if persons is None and not unit.is_person:
        return [None] * parties
    if persons is None:
        raise InvalidParameterError(f"The unit {unit} protects persons, and none are given.", _EACH_ITS_PERSONS)
    if not unit.is_person:
        raise InvalidParameterError(
            f"Persons are given, and the unit {unit} protects none.",
            f"Leave persons out; or choose {PrivacyUnit.PERSON_ADD_REMOVE} or {PrivacyUnit.PERSON_REPLACE_ONE}.",
        )
    own = _listed("persons", persons, shards, _EACH_ITS_PERSONS)
    if len(own) != parties or any(each is None for each in own):
        raise InvalidParameterError(
            f"There are {parties} shards, and persons for {sum(each is not None for each in own)}.", _EACH_ITS_PERSONS
        )
    return own


def _listed(what: str, given: Any, shards: Any, remedy: str) -> list[Any]:  # noqa: ANN401  # whatever was given
    """Put what is given for each shard in the order of the shards."""
    if not isinstance(given, Iterable):
        raise InvalidTypeError(f"The {what} are of type {type(given).__name__}.", remedy)
    if isinstance(shards, Mapping) and isinstance(given, Mapping) and given.keys() <= shards.keys():
        return [given.get(name) for name in shards]
    if isinstance(shards, Mapping) or isinstance(given, Mapping):
        raise InvalidParameterError(
            f"The {what} are not named as the shards are.", "List both, or give both the same names."
        )
    return list(given)


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


def _named(number: int, parties: int, work: Callable[[], CheckedRows]) -> CheckedRows:
    """Do what one shard needs, and say which it was if that fails."""
    try:
        return work()
    except DpspcaError as problem:
        if parties == 1:
            raise
        raise type(problem)(f"Shard {number} of {parties}: {problem.what}", problem.remedy) from None


def _checked(rows: Any, spec: JobSpec, span: Span | None, whose: Any) -> CheckedRows:  # noqa: ANN401
    """Check a shard's rows, say whose they are, and hold its span against them."""
    checked = check_rows(rows, spec.schema, least=2 if spec.unit.is_row else 1)
    if whose is not None:
        checked = with_persons(checked, whose).bounded(spec.rows_per_person)
    limited = checked.first(catalogue.rows_of(spec))
    return limited if span is None else declared(limited, span)


def _shard(rows: CheckedRows, spec: JobSpec, plan: Sequence[Step], strategy: Strategy | None) -> Evaluator:
    """Make rows ready, or a share of a symmetric matrix, of which there is one strategy alone."""
    if not spec.unit.is_row:
        return MatrixShard(rows, spec.norm_bound, spec.unit)
    chosen = strategy or Strategy.for_plan(rows.dimension, plan, is_sparse=rows.is_sparse)
    return Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=chosen)


def _entropy(noise_seed: int | None) -> Entropy:
    """Choose what noise is made from; every draw's name has the job and the provider in it."""
    return system_entropy if noise_seed is None else repeatable_entropy(noise_seed)


def _state(model: Model, *, parties: int, fresh_noise: bool) -> Model:
    """Say on the model how it came about."""
    statement = replace(model.statement, parties=parties, fresh_noise=fresh_noise, federated=False)
    return replace(model, statement=statement)
