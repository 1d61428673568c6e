"""The job that an analyst signs: all numbers from which a provider computes the allowed queries and their prices.

A ``JobSpec`` is checked when it is made, has one canonical form in bytes, and refuses keys it does not know. Plan,
noise and cost follow from it by pure code (``plan.py`` and the method's own ``plan``) that provider and coordinator
share, so that neither has to take the other's word.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated, Any, Final, Self, TypeAlias

from dpspca.common.checks import check, check_bound, check_whole, choice, is_real
from dpspca.common.decoding import By, Rule, Source, decode, parse_json, read_part
from dpspca.common.errors import DpspcaError, InvalidInputError, InvalidTypeError
from dpspca.common.names import shortened
from dpspca.common.privacy import MAX_PROVIDERS, MAX_ROWS, PrivacyUnit
from dpspca.common.text import composed

from .budget import Budget
from .schema import MAX_DIMENSION, Schema, check_components
from .spec_values import Accounting, Centering, CenteringReason, Scaling, Weights

__all__ = [
    "MAX_COMPONENT_ENTRIES",
    "MAX_DIMENSION",
    "MAX_QUERIES",
    "PRIVATE",
    "PRIVATE_BOUND",
    "Accounting",
    "Centering",
    "CenteringReason",
    "JobSpec",
    "MethodOptions",
    "Scalar",
    "Scaling",
    "Schema",
    "Weights",
    "check_components",
]

Scalar: TypeAlias = bool | int | float | str | None

MAX_COMPONENT_ENTRIES: Final = 2**26
"""Components times columns: half a gigabyte an answer, so that no job asks for more memory than a machine has."""
MAX_QUERIES: Final = 10_000
"""Queries in a job's plan, so that reading a job of a kilobyte never takes minutes (``plan.price``).

Everybody lists a whole plan before any quota or policy can refuse the job. It is ten times what the most rounds of one
power loop need; and in the week that a job can last, an answer a minute.
"""

PRIVATE: Final = "private"
PRIVATE_BOUND: Final = 2.0**64
"""Longer than any row: no bound is known, and the method finds one privately, as part of the job's price."""

_WRITTEN_AS: Final = {"method": "algorithm", "minimum_providers": "minimum_parties"}
"""Keys of the canonical form that differ from the field's name. The form is that of version 0.1.0, because signatures,
digests and stored jobs depend on it. People read and write the fields' names."""
_UNWRITTEN: Final[Mapping[str, Any]] = {
    "weights": "auto",
    "scaling": "none",
    "dictionary": None,
    "centering_reason": None,
}
"""Keys that version 0.1.0 did not have, and their defaults: a default is not written, so that the form is the same."""
_READ_AS: Final[Mapping[str, str]] = {written: name for name, written in _WRITTEN_AS.items()}

_DIGEST: Final = re.compile("[0-9a-f]{64}")

_THE_JOB: Final = "The job"


class MethodOptions(Mapping[str, Scalar]):
    """Options of the method, unchangeable: they can be hashed, copied and stored as any value."""

    __slots__ = ("_items",)

    def __init__(self, given: Mapping[str, Scalar] | None = None) -> None:
        if not isinstance(given, Mapping | None):
            raise InvalidTypeError(f"The options are {shortened(given)}, not a mapping.", "Give names and values.")
        for name, value in dict(given or {}).items():
            if not isinstance(name, str) or not (value is None or isinstance(value, bool | str) or is_real(value)):
                raise InvalidTypeError(
                    f"The option {shortened(name)} is {shortened(value)}.", "Give a finite number, text, true or false."
                )
        self._items = tuple(sorted(dict(given or {}).items()))

    def __getitem__(self, key: str) -> Scalar:
        return dict(self._items)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(dict(self._items))

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Scalar]]]:
        return type(self), (dict(self._items),)


def _mean_bound(raw: object, source: Source) -> float | None:
    return None if raw is None else _bound(raw, source)


def _bound(raw: object, source: Source) -> float:
    """Read a norm bound; files write that there is none as "private"."""
    bound: float = PRIVATE_BOUND if raw == PRIVATE else read_part(float, raw, source)
    return bound


def _found(given: Any) -> Any:  # noqa: ANN401  # the caller's value, not yet checked
    """Return the bound that stands for one that the method finds, if that was asked for in words."""
    return PRIVATE_BOUND if isinstance(given, str) and given == PRIVATE else given


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """One job. ``options`` belong to the method, which refuses those it does not know.

    ``rows_per_person`` is how many rows of one person are protected together, at each provider: they may move an
    answer as many times as far, and noise is sized for that. Where the unit is a person, a provider uses no more than
    this many rows of each. If the unit is a row, all rows are used, and the steward declares that nobody has more.
    A ``norm_bound`` of "private" leaves it to the method to find one; it is kept as ``PRIVATE_BOUND``.
    With a private ``scaling``, bounds are about columns that were divided by their scales.
    ``weights`` changes no query and no price: it says how the coordinator adds up the providers' answers.
    ``dictionary`` is the digest of the shared dictionary by which every provider prepares its rows. The schema then
    names columns of prepared rows, and ``centering`` is about these, which have their public centres at zero already.
    ``centering_reason`` says why a centring was chosen that nobody named. It changes no query and no price.
    ``minimum_providers`` and ``answer_seconds`` say when a federation goes on without a provider that does not answer,
    and when it gives up; in one process all providers always answer.
    """

    schema: Schema
    unit: PrivacyUnit
    budget: Budget
    norm_bound: Annotated[float, By(_bound), Rule(f'Give a finite number without quotes, or "{PRIVATE}".')]
    components: int
    method: str = "auto"
    accounting: Accounting = Accounting.EXACT
    centering: Centering = Centering.NONE
    mean_bound: Annotated[float | None, By(_mean_bound), Rule(f'Give a finite number, or "{PRIVATE}".')] = None
    public_mean: tuple[float, ...] | None = None
    scaling: Scaling = Scaling.NONE
    explained_variance: bool = True
    weights: Weights = Weights.AUTO
    rows_per_person: int = 1
    minimum_providers: int = 1
    answer_seconds: int = 600
    seed: int = 0
    options: Annotated[Mapping[str, Scalar], By(lambda given, _: MethodOptions(given), Mapping[str, Scalar])] = field(
        default_factory=MethodOptions
    )
    dictionary: str | None = None
    centering_reason: CenteringReason | None = None

    def __post_init__(self) -> None:
        put, wrong = object.__setattr__, list[DpspcaError]()
        for name, settle in _SETTLED.items():
            try:
                put(self, name, settle(getattr(self, name)))
            except DpspcaError as problem:
                wrong.append(problem)
        if wrong:
            raise wrong[0] if len(wrong) == 1 else InvalidInputError(wrong)
        dimension = self.schema.dimension
        put(self, "components", check_components("components", self.components, dimension))
        check(
            self.components * dimension <= MAX_COMPONENT_ENTRIES,
            f"{self.components} components of {dimension} columns are more than {MAX_COMPONENT_ENTRIES} numbers.",
            "Ask for fewer components.",
        )
        check(
            self.rows_per_person == 1 or self.unit.is_row,
            f"rows_per_person is {self.rows_per_person}, but the unit {self.unit} does not protect rows.",
            "Leave it out.",
        )
        self._check_mean()
        self._check_dictionary()
        self._check_reason()

    def _check_dictionary(self) -> None:
        if self.dictionary is None:
            return
        check(
            isinstance(self.dictionary, str) and _DIGEST.fullmatch(self.dictionary) is not None,
            f"dictionary is {shortened(self.dictionary)}, which is not a digest.",
            "Give the digest that `dpspca dictionary check` prints, or in a job's file the path of a dictionary.",
        )
        check(
            self.unit.is_row,
            f"The job has a dictionary, but the unit {self.unit} does not protect rows.",
            "Leave the dictionary out, or choose another unit.",
        )

    def _check_mean(self) -> None:
        is_open = self.mean_bound is None or check_bound("mean_bound", self.mean_bound) == PRIVATE_BOUND
        if self.centering is Centering.PRIVATE and self.scaling is Scaling.PRIVATE and is_open:
            # Where the mean is looked for, the mean square of each column is about 1.
            object.__setattr__(self, "mean_bound", 2 * math.sqrt(self.schema.dimension))
        if self.centering is Centering.PRIVATE:
            object.__setattr__(self, "mean_bound", check_bound("mean_bound", self.mean_bound))
        else:
            bound = PRIVATE if self.finds_mean_bound else shortened(self.mean_bound)
            given = f"mean_bound is {bound}, but centering is {self.centering}."
            check(self.mean_bound is None, given, f"Leave it out, or use the centering {Centering.PRIVATE}.")
        if self.centering is Centering.PUBLIC:
            object.__setattr__(self, "public_mean", _public_mean(self.public_mean, self.schema))
        else:
            given = f"public_mean is set, but centering is {self.centering}."
            check(self.public_mean is None, given, f"Leave it out, or use the centering {Centering.PUBLIC}.")

    def _check_reason(self) -> None:
        """Refuse a reason that does not go with the job, because its privacy statement repeats it."""
        reason = self.centering_reason
        others = {CenteringReason.MATRIX: not self.unit.is_row, CenteringReason.DICTIONARY: self.dictionary is not None}
        check(
            reason is None or (self.centering in reason.centerings and others.get(reason, True)),
            f"The reason {reason} does not go with this job, whose centering is {self.centering}.",
            "Leave centering_reason out: it is written where a centring is chosen.",
        )

    @property
    def weighs_providers(self) -> bool:
        """Whether answers may be weighted: they are sums over rows, and accounting is exact, not as a paper has it."""
        return self.weights is Weights.AUTO and self.unit.is_row and self.accounting is Accounting.EXACT

    @property
    def finds_mean_bound(self) -> bool:
        """Whether the job leaves it to the method to find a bound for a private mean."""
        return self.mean_bound == PRIVATE_BOUND

    @property
    def divides_columns(self) -> bool:
        """Whether queries may divide columns by numbers that were found before."""
        return self.scaling is not Scaling.NONE or self.finds_mean_bound

    def to_json(self) -> str:
        """Write the one canonical form: what is signed and hashed."""
        canonical = {_WRITTEN_AS.get(name, name): value for name, value in _plain(self).items()}
        return json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the canonical form. Anything unknown or missing is refused by name."""
        raw = parse_json(text, _THE_JOB)
        if isinstance(raw, dict):
            _refuse_keys(raw, _WRITTEN_AS, _THE_JOB)
            raw = {_READ_AS.get(key, key): value for key, value in raw.items()}
        return decode(cls, raw, Source(_THE_JOB))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by the names of the fields, as people read and write them."""
        found = {name: getattr(self, name) == PRIVATE_BOUND for name in ("norm_bound", "mean_bound")}
        return {name: PRIVATE if found.get(name) else value for name, value in _plain(self).items()}

    @classmethod
    def from_dict(cls, raw: object, name: str) -> Self:
        """Read what a person wrote: plain values of TOML or JSON. ``name`` says where they come from."""
        if isinstance(raw, dict):
            _refuse_keys(raw, _READ_AS, name)
        return decode(cls, raw, Source(name))

    def with_names(self, offered: Mapping[str, Sequence[str] | None]) -> Self:
        """Return the job with the column names that the holders of the rows offer; by holder.

        Answers are added up column by column, so two orders of names, the job's own included, are refused.
        """
        known = {"the job": self.schema.names} | dict(offered)
        named = [(holder, tuple(names)) for holder, names in known.items() if names]
        if not named:
            return self
        first, names = named[0]
        for holder, others in named[1:]:
            _check_same_names(first, names, holder, others)
        return self if self.schema.names else replace(self, schema=Schema(self.schema.dimension, names))

    def digest(self) -> str:
        """Name this job's content."""
        return sha256(self.to_json().encode()).hexdigest()


def _refuse_keys(raw: Mapping[str, Any], renamed: Mapping[str, str], name: str) -> None:
    """Refuse keys of the other form. ``renamed`` says what each is called in this one."""
    for key, now in renamed.items():
        check(key not in raw, f"{name} has an unknown key {key!r}.", f"Write {now!r} instead.")


def _of(kind: type, name: str) -> Callable[[Any], Any]:
    """Return a check that a value is of a type."""

    def settle(value: Any) -> Any:  # noqa: ANN401  # any value
        if not isinstance(value, kind):
            raise InvalidTypeError(f"{name} is {shortened(value)}.", f"Give a {kind.__name__}.")
        return value

    return settle


_SETTLED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "schema": _of(Schema, "schema"),
    "unit": partial(choice, PrivacyUnit, "unit"),
    "budget": _of(Budget, "budget"),
    "norm_bound": lambda given: check_bound("norm_bound", _found(given)),
    "mean_bound": _found,
    "method": _of(str, "method"),
    "accounting": partial(choice, Accounting, "accounting"),
    "centering": partial(choice, Centering, "centering"),
    "centering_reason": lambda given: None if given is None else choice(CenteringReason, "centering_reason", given),
    "scaling": partial(choice, Scaling, "scaling"),
    "explained_variance": _of(bool, "explained_variance"),
    "weights": partial(choice, Weights, "weights"),
    "rows_per_person": partial(check_whole, "rows_per_person", least=1, most=MAX_ROWS),
    "minimum_providers": partial(check_whole, "the least number of providers", least=1, most=MAX_PROVIDERS),
    "answer_seconds": partial(check_whole, "the seconds for an answer", least=1, most=86_400),
    "seed": partial(check_whole, "the seed", least=0, most=2**64 - 1),
    "options": MethodOptions,
}
"""Makes the value of a field from raw input, or refuses it."""


def _check_same_names(first: str, names: Sequence[str], other: str, others: Sequence[str]) -> None:
    """Refuse columns that two holders call differently, or have in another order; say where the first difference is."""
    for place, (one, two) in enumerate(zip_longest(names, others), start=1):
        check(
            one == two,
            f"The names of the columns differ: column {place} is {one!r:.60} for {first}, and {two!r:.60} for {other}.",
            "Have all use the same names in the same order; or leave the names out of the job, or ask other providers.",
        )


def _public_mean(given: Any, schema: Schema) -> tuple[float, ...]:  # noqa: ANN401  # whatever was given
    """Read one number for each column: in their order, or by their names."""
    names = _names_of_numbers(given)
    if names:
        by_name = {composed(each) if isinstance(each, str) else each: given[each] for each in names}
        check(
            by_name.keys() == set(columns := [*map(composed, schema.names or ())]),
            "public_mean has names, which are not those of the columns.",
            "Give a number for each column by its name, or numbers alone, in the order of the columns.",
        )
        given = [by_name[name] for name in columns]
    try:
        mean = () if isinstance(given, Mapping) else tuple(given)
    except TypeError:
        mean = ()
    check(
        len(mean) == schema.dimension and all(map(is_real, mean)),
        "Centring by a public mean needs that mean: public_mean, one finite number a column.",
        "Give it, known from elsewhere than these data; or centre privately, or not at all.",
    )
    return tuple(map(float, mean))


def _names_of_numbers(given: Any) -> list[str]:  # noqa: ANN401  # whatever was given
    """Return the names that a mapping, or a column of pandas, gives its numbers. If none is text, it gives none."""
    keys = given.keys() if hasattr(given, "keys") else ()
    return [*keys] if any(isinstance(each, str) for each in keys) else []


def _plain(value: object) -> Any:  # noqa: ANN401  # whatever JSON holds
    if isinstance(value, JobSpec | Schema | Budget):
        named = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return {name: each for name, each in named.items() if name not in _UNWRITTEN or each != _UNWRITTEN[name]}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return value.value if isinstance(value, StrEnum) else value
