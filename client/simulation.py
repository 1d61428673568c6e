"""A whole federation in one process. Method, checks, noise and sums are the same code as over a network.

With a noise seed everything repeats, noise included, and the model says that it must not be released. Without a seed
the noise comes from the operating system's randomness. There is no policy, so no job waits for a person's approval.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check_whole, choice
from dpspca.common.dictionary import Dictionary, prepare_table
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, InvalidTypeError
from dpspca.common.frames import NO_ROWS_YET, column_names, require_table
from dpspca.common.job import JobSpec, Span, pairing_of
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import MAX_PROVIDERS, Entropy, PrivacyUnit, repeatable_entropy
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries import RowQuery
from dpspca.common.results import Model, Origin
from dpspca.common.version import __version__
from dpspca.provider.data import CheckedRows, check_names, check_rows, check_size, require_unit, with_persons
from dpspca.provider.evaluate import MatrixShard, Shard, Strategy, with_span
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.release import Evaluator, Responder, system_entropy
from dpspca.server.jobs import JobSums

from .described_jobs import features_of
from .findings import issue, with_warnings


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job: ``done`` of ``total`` queries; ``parties`` providers just answered the query of ``step``.

    ``aggregate`` is the sum of their answers. Over a network it is None, because the sum stays with the coordinator.
    """

    done: int
    total: int
    step: Step
    parties: int
    aggregate: Aggregate | None = None


Done = TypeVar("Done")
Watcher: TypeAlias = Callable[[Progress], None]
Spans: TypeAlias = Sequence[Span | None] | Mapping[str, Span | None] | None
Persons: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
"""For each shard: the person of each of its rows, as a name or number."""

_GIVE_SPANS: Final = (
    "Give a list, or a mapping with the names of the shards, of a Span(start, rows, of) or None for each shard."
)
_GIVE_PERSONS: Final = (
    "Give a list, or a mapping with the names of the shards, that has for each shard one name or number per row: the "
    "person whom the row is about."
)


def simulate(  # noqa: PLR0913  # the shards, the job, and settings of the simulation
    shards: Iterable[Any] | Mapping[str, Any],
    spec: JobSpec | Plan,
    *,
    noise_seed: int | None = None,
    strategy: Strategy | str | None = None,
    watch: Watcher | None = None,
    spans: Spans = None,
    persons: Persons = None,
    dictionary: Dictionary | None = None,
) -> Model:
    """Run a job over shards and return its model. Each shard is the dense or sparse table of one provider.

    The job may be planned already.

    ``shards`` is a list, or a mapping by name. If tables have column names, all must have the same, and the model gets
    them. A shard may also be what a provider reads, with its persons (``dpspca.provider.startup.read_data_set``).

    If the job's unit is "entry" or "spectral", shards are shares of a symmetric matrix. If that is a divided table,
    ``spans`` gives each shard's span, in the order of the shards or by the same names. Each provider then adds noise to
    its own rows and to the columns alone.

    If the job's unit is a person, ``persons`` gives the person of each row of each shard, in the order of the shards or
    by the same names. Of each person a shard uses only the first ``rows_per_person`` rows.

    If the job has a ``dictionary``, give it: shards are then raw rows in its terms, and each is prepared by it.

    ``noise_seed`` makes the noise repeatable and the result unfit for release. ``strategy`` chooses how shards are
    evaluated, which changes the time but not one bit of the result. By default the one expected to be faster is used.

    What to know before you rely on the result is issued as ``DpspcaWarning`` and is in its privacy statement. A
    ``RowsWarning`` is about raw rows that a dictionary hardly knows. It is for you alone, and is stored nowhere.
    """
    spec, planned = (spec.spec, spec) if isinstance(spec, Plan) else (spec, None)
    raw = _tables(shards, spec)
    tables = _prepared(raw, features := features_of(spec, dictionary))
    spec = spec.with_names({f"shard {number}": _names_of(each) for number, each in enumerate(tables, start=1)})
    seed = None if noise_seed is None else check_whole("noise_seed", noise_seed, least=0, most=2**64 - 1)
    chosen = None if strategy is None else choice(Strategy, "strategy", strategy)
    plan = planned if planned and planned.spec == spec else catalogue.plan(spec)
    own_spans = _spans(spans, shards, len(tables), spec.unit)
    own_persons = _persons(persons, shards, raw, spec.unit)
    responders = [
        Responder(plan, _shard(rows, plan, chosen), MemoryLedger(), _entropy(seed), seat=number)
        for number, rows in enumerate(_all_checked(tables, spec, own_spans, own_persons))
    ]
    federation = _Federation(plan, responders, watch)
    model = drive(catalogue.run(plan), federation).weighed_by(federation.sums.weighed)
    made = Origin(method=spec.method, queries=federation.answered, software=__version__)
    model = _state(model, parties=len(tables), fresh_noise=seed is None)
    model = with_warnings(plan, replace(model, dictionary=features, origin=made))
    issue(model.statement)
    return model


def _prepared(tables: Sequence[Any], features: Dictionary | None) -> Sequence[Any]:
    """Prepare raw tables by a dictionary, if there is one. What a provider reads is prepared already."""
    if features is None:
        return tables
    return [
        each
        if isinstance(each, CheckedRows)
        else _for_shard(number, len(tables), partial(prepare_table, features, each))
        for number, each in enumerate(tables, start=1)
    ]


def _all_checked(
    tables: Sequence[Any], spec: JobSpec, spans: Sequence[Span | None], persons: Sequence[Any]
) -> list[CheckedRows]:
    return [
        _for_shard(number, len(tables), partial(_checked, rows, spec, span, labels))
        for number, (rows, span, labels) in enumerate(zip(tables, spans, persons, strict=True), start=1)
    ]


class _Federation:
    """Sends each query to every responder, and returns the sum of their answers."""

    def __init__(self, plan: Plan, responders: Sequence[Responder], watch: Watcher | None) -> None:
        self._plan = plan
        self._responders = responders
        self._watch = watch
        self._position = 0
        self.sums = JobSums(plan.spec)

    @property
    def answered(self) -> int:
        """How many queries were answered so far."""
        return self._position

    def __call__(self, query: RowQuery) -> Aggregate:
        position = self._position
        answers = [responder.respond(position, query) for responder in self._responders]
        self._position += 1
        step = self._plan[position].fit_to(query, self._plan.spec.unit)
        aggregate = self.sums.add(step, dict(enumerate(answers)))
        if self._watch:
            self._watch(Progress(self._position, len(self._plan), step, len(answers), aggregate))
        return aggregate


def _tables(shards: Any, spec: JobSpec) -> list[Any]:  # noqa: ANN401  # the caller's values, not yet checked
    """Return the shards as a list."""
    if not isinstance(spec, JobSpec):
        raise InvalidTypeError(
            f"The job is a {type(spec).__name__}, not a JobSpec.", "Call simulate(shards, spec) with a JobSpec."
        )
    if not isinstance(shards, Mapping):
        require_table(shards)
    kind = type(shards).__name__
    if hasattr(shards, "shape") or kind in NO_ROWS_YET or not isinstance(shards, Iterable):
        what = "a single table" if hasattr(shards, "shape") or kind in NO_ROWS_YET else f"a {kind}"
        raise InvalidTypeError(
            f"The shards are {what}, not a list of tables.", "Wrap it in a list: one table for each provider."
        )
    tables = list(shards.values() if isinstance(shards, Mapping) else shards)
    if not 0 < len(tables) <= MAX_PROVIDERS:
        raise InvalidParameterError(
            f"There are {len(tables)} shards.", f"Give between 1 and {MAX_PROVIDERS} shards, one for each provider."
        )
    return tables


def _spans(spans: Any, shards: Any, parties: int, unit: PrivacyUnit) -> list[Span | None]:  # noqa: ANN401
    """Return each shard's span, or None, in the order of the shards. Only jobs over a matrix may have spans."""
    if spans is None:
        return [None] * parties
    if unit.is_row:
        raise InvalidParameterError(
            f"spans were given, but this job's unit is {unit}. Spans are for shares of a matrix.",
            "Leave spans out. Or give shares of a matrix, with the unit entry or spectral.",
        )
    own = _listed("spans", spans, shards, _GIVE_SPANS)
    if len(own) != parties:
        raise InvalidParameterError(
            f"There are {parties} shards and {len(own)} spans.", "Give for each shard a Span, or None if it has none."
        )
    invalid = [each for each in own if not isinstance(each, Span | None)]
    if invalid:
        raise InvalidTypeError(f"One of the spans is {invalid[0]!r:.80}, not a Span.", _GIVE_SPANS)
    _require_disjoint(own)
    return own


def _persons(persons: Any, shards: Any, tables: Sequence[Any], unit: PrivacyUnit) -> list[Any]:  # noqa: ANN401
    """Return the persons of each shard's rows, in the order of the shards. Units of persons need them, others none."""
    parties = len(tables)
    if persons is None and (not unit.is_person or all(isinstance(each, CheckedRows) for each in tables)):
        return [None] * parties  # what a provider reads has its own
    if persons is None:
        raise InvalidParameterError(f"The unit is {unit}, but persons were not given.", _GIVE_PERSONS)
    if not unit.is_person:
        raise InvalidParameterError(
            f"Persons were given, but the unit {unit} does not protect persons.",
            f"Leave persons out, or choose {PrivacyUnit.PERSON_ADD_REMOVE} or {PrivacyUnit.PERSON_REPLACE_ONE}.",
        )
    own = _listed("persons", persons, shards, _GIVE_PERSONS)
    if len(own) != parties or any(each is None for each in own):
        raise InvalidParameterError(
            f"There are {parties} shards, but persons for {sum(each is not None for each in own)}.", _GIVE_PERSONS
        )
    for number, (table, labels) in enumerate(zip(tables, own, strict=True), start=1):
        _for_shard(number, parties, partial(require_one_index, table, labels))
    return own


def require_one_index(table: Any, labels: Any) -> None:  # noqa: ANN401  # the caller's table, and its persons
    """Refuse persons of pandas whose index is not that of the rows: they may be in another order."""
    one, other = (getattr(each, "index", None) for each in (table, labels))
    if one is not None and other is not None and hasattr(one, "equals") and not one.equals(other):
        raise InvalidDataError(
            "The index of the persons is not that of the rows, so they may be in another order.",
            "Take both from one data frame. Or, if each person is that of the row in its place, give "
            "persons.to_numpy().",
        )


def _listed(what: str, given: Any, shards: Any, remedy: str) -> list[Any]:  # noqa: ANN401  # not yet checked
    """Return the values given for each shard, in the order of the shards."""
    if not isinstance(given, Iterable):
        raise InvalidTypeError(f"The {what} are of type {type(given).__name__}.", remedy)
    if isinstance(shards, Mapping) and isinstance(given, Mapping) and given.keys() <= shards.keys():
        return [given.get(name) for name in shards]
    if isinstance(shards, Mapping) or isinstance(given, Mapping):
        raise InvalidParameterError(
            f"The names of the {what} ({_names(given)}) are not those of the shards ({_names(shards)}).",
            "Give both as lists, or both as mappings with the same names.",
        )
    return list(given)


def _names(given: object) -> str:
    return ", ".join(map(str, given)) if isinstance(given, Mapping) else "none"


def _require_disjoint(spans: Sequence[Span | None]) -> None:
    """Raise if the spans do not divide the rows of one table. Only a simulation knows all spans and can check this."""
    ordered = sorted(((span, number) for number, span in enumerate(spans, 1) if span), key=lambda each: each[0].start)
    sizes = sorted({span.of for span, _ in ordered})
    if len(sizes) > 1:
        raise InvalidParameterError(
            f"The spans are of tables of different sizes: {', '.join(map(str, sizes))} rows.",
            "Give every span the same `of`: the number of rows of the whole table.",
        )
    for (span, number), (after, other) in pairwise(ordered):
        if span.start + span.rows > after.start:
            raise InvalidParameterError(
                f"The spans of shards {number} and {other} both contain row {after.start}.",
                "Give each row of the table to one shard: `rows` counts the rows from `start` on.",
            )


def _for_shard(number: int, parties: int, work: Callable[[], Done]) -> Done:
    """Do the work for one shard. An error names the shard, if there are several."""
    try:
        return work()
    except DpspcaError as problem:
        if parties == 1:
            raise
        raise type(problem)(f"Shard {number} of {parties}: {problem.what}", problem.remedy) from None


def _checked(rows: Any, spec: JobSpec, span: Span | None, persons: Any) -> CheckedRows:  # noqa: ANN401
    """Check a shard's rows, attach their persons, and check its span against them."""
    checked = _as_read(rows, spec) if isinstance(rows, CheckedRows) else _as_given(rows, spec)
    if persons is not None:
        checked = with_persons(checked, persons).bounded(spec.rows_per_person)
    limited = checked.first(catalogue.rows_of(spec))
    return limited if span is None else with_span(limited, span)


def _names_of(table: Any) -> tuple[str, ...] | None:  # noqa: ANN401  # a table, or rows that were read
    return table.names if isinstance(table, CheckedRows) else column_names(table)


def _as_given(rows: Any, spec: JobSpec) -> CheckedRows:  # noqa: ANN401  # the caller's table
    return check_rows(rows, spec.schema, least=2 if spec.unit.is_row else 1)


def _as_read(rows: CheckedRows, spec: JobSpec) -> CheckedRows:
    """Take the rows that a provider would offer, as its settings say how to read them."""
    check_names(rows.names, spec.schema)
    check_size(*rows.matrix.shape, least=2 if spec.unit.is_row else 1)
    require_unit(spec.unit, persons=rows.persons is not None, cut=rows.uncut is not None)
    return rows.bounded(spec.rows_per_person)


def _shard(rows: CheckedRows, plan: Plan, strategy: Strategy | None) -> Evaluator:
    """Return the evaluator of queries on rows, or on a share of a matrix, for which there is only one strategy."""
    spec = plan.spec
    if not spec.unit.is_row:
        return MatrixShard(rows, spec.norm_bound, spec.unit)
    chosen = strategy or Strategy.for_plan(rows.dimension, plan, is_sparse=rows.is_sparse)
    return Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=chosen, pairing=pairing_of(spec))


def _entropy(noise_seed: int | None) -> Entropy:
    """Return the source of randomness for noise. The job and the provider are part of the name of every draw."""
    return system_entropy if noise_seed is None else repeatable_entropy(noise_seed)


def _state(model: Model, *, parties: int, fresh_noise: bool) -> Model:
    """Return the model with a privacy statement that says how it was computed."""
    statement = replace(model.statement, parties=parties, fresh_noise=fresh_noise, federated=False)
    return replace(model, statement=statement)
