"""Changes a job so that it fits the terms of all its providers, and says what was changed, and for which provider.

Each change is the smallest that a rule asks for: the nearest bound of a range, the largest budget that is left, the
first method of the list that has a plan. What cannot be chosen for an analyst, such as a public mean, is left as an
obstacle. The result is compared with all terms again, so a job that is said to fit does.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import BudgetExceededError, DpspcaError, RefusedError
from dpspca.common.job import (
    PRIVATE_BOUND,
    Bounds,
    Budget,
    Centering,
    Conditions,
    JobSpec,
    Scaling,
    Schema,
    Terms,
    columns_digest,
    scaled_bounds,
)
from dpspca.common.names import PartyName
from dpspca.provider.policy import JobRequest

from .rules import is_too_large, refusals

STEPS: Final = 1000
"""A budget that is too large is cut to a number of thousandths of epsilon."""
NO_PROVIDER: Final = "No provider shows you terms for this data set."
DIGITS: Final = 3
_TINY: Final = 1e-300

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Change:
    """One key of a job that has to change, and the providers whose terms ask for it."""

    key: str
    was: Any
    becomes: Any
    providers: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"key": self.key, "was": self.was, "becomes": self.becomes, "providers": [*self.providers]}


@dataclass(frozen=True, slots=True)
class Fit:
    """A job that keeps all terms, or comes as close to it as changes lead, and what is then still in its way."""

    spec: JobSpec
    providers: tuple[str, ...]
    changes: tuple[Change, ...]
    obstacles: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether every provider would admit the job, by its terms."""
        return not self.obstacles


def fit(
    spec: JobSpec,
    providers: Sequence[str] | None,
    terms: Sequence[Terms],
    schema: Schema | None = None,
    public_bound: float | None = None,
) -> Fit:
    """Change a job for these providers, or for all that state terms, until it keeps their terms.

    ``schema`` are the columns on offer. They are used only if the providers' signed terms confirm them.
    ``public_bound`` is the norm bound that follows from the job's dictionary. Providers that hold that dictionary allow
    this bound whatever their range is.
    """
    asked = [each for each in terms if providers is None or each.party.name in providers]
    names = tuple(sorted(each.party.name for each in asked))
    if not asked:
        return Fit(spec, tuple(providers or ()), (), (NO_PROVIDER,))
    made, obstacles = spec, list[str]()
    ask = _asking_all(asked, public_bound)
    for adapt in (
        _columns(schema),
        partial(_rules, public_bound=public_bound),
        partial(_method, ask=ask),
        partial(_size, ask=ask),
        partial(_budget, ask=ask),
    ):
        try:
            made = adapt(made, asked)
        except DpspcaError as problem:
            obstacles.append(problem.what)
    changes = [*_changes(spec, made, asked, ask)]
    if providers is not None and set(providers) != set(names):
        changes.append(Change("providers", [*providers], [*names], tuple(sorted(set(providers) - set(names)))))
    obstacles += [f"{who}: {why}" for who, why in _refused(made, asked, ask)]
    return Fit(made, names, tuple(changes), tuple(obstacles))


# --- One step after the other -----------------------------------------------------------------------------------------

Adapt: TypeAlias = Callable[[JobSpec, Sequence[Terms]], JobSpec]
Ask: TypeAlias = Callable[[JobSpec], JobRequest]
"""Asks all providers of the job for a changed job."""


def _columns(schema: Schema | None) -> Adapt:
    """Take the columns on offer if the job's are others, or if a policy names columns and the job does not."""

    def adapt(spec: JobSpec, terms: Sequence[Terms]) -> JobSpec:
        confirmed = schema is not None and all(
            (each.dimension, each.columns_digest) == (schema.dimension, columns_digest(schema)) for each in terms
        )
        if schema is None or not confirmed or spec.dictionary is not None:
            return spec
        others = spec.schema.dimension != schema.dimension or (spec.schema.names and spec.schema != schema)
        missing = spec.schema.names is None and any(isinstance(each.conditions.columns, tuple) for each in terms)
        return replace(spec, schema=schema) if others or missing else spec

    return adapt


def _rules(spec: JobSpec, terms: Sequence[Terms], public_bound: float | None) -> JobSpec:
    """Take the nearest values that all providers allow. A value for which there is none stays as it is."""
    rules = [each.conditions for each in terms]
    unit = _allowed(spec.unit, [(each.unit,) for each in rules])
    centering = _centering(spec, rules)
    changed: dict[str, Any] = {
        "unit": unit,
        "accounting": _allowed(spec.accounting, [each.accounting for each in rules]),
        "centering": centering,
        "centering_reason": spec.centering_reason if centering is spec.centering else None,
        "mean_bound": _mean_bound(spec, rules) if centering is Centering.PRIVATE else None,
        "public_mean": spec.public_mean if centering is Centering.PUBLIC else None,
        "explained_variance": spec.explained_variance and all(each.explained_variance for each in rules),
        "rows_per_person": max([spec.rows_per_person, *(each.rows_per_person for each in rules)]) if unit.is_row else 1,
        "minimum_providers": max([spec.minimum_providers, *(each.minimum_providers for each in rules)]),
    }
    scaled = [scaled_bounds(spec.schema.dimension)] if spec.scaling is not Scaling.NONE else None
    if spec.norm_bound != public_bound and (spec.norm_bound != PRIVATE_BOUND or not unit.is_row):
        changed["norm_bound"] = _nearest(spec.norm_bound, scaled or [each.norm_bound for each in rules])
    return replace(spec, **changed)


def _centering(spec: JobSpec, rules: Sequence[Conditions]) -> Centering:
    """Choose a centring. A public mean is nothing that can be chosen here."""
    possible = [[way for way in each.centering if way in {spec.centering, *_NO_MEAN_NEEDED}] for each in rules]
    return _allowed(spec.centering, possible)


_NO_MEAN_NEEDED: Final = (Centering.NONE, Centering.PRIVATE)


def _mean_bound(spec: JobSpec, rules: Sequence[Conditions]) -> float:
    if spec.finds_mean_bound:  # which every policy with a private mean allows
        return PRIVATE_BOUND
    wanted = spec.mean_bound or (1.0 if spec.norm_bound == PRIVATE_BOUND else spec.norm_bound)
    if spec.scaling is not Scaling.NONE:
        wanted = spec.mean_bound or 2 * math.sqrt(spec.schema.dimension)
        return _nearest(wanted, [scaled_bounds(spec.schema.dimension)])
    return _nearest(wanted, [each.mean_bound for each in rules if each.mean_bound])


def _method(spec: JobSpec, terms: Sequence[Terms], ask: Ask) -> JobSpec:
    """Keep the method if all providers allow it. Otherwise take the first one that they allow and that has a plan."""
    lists = [each.conditions.methods for each in terms]
    common = [name for name in lists[0] if all(name in each for each in lists)]
    if spec.method in common:
        return spec
    for name in common:
        known = {option.name for option in catalogue.find(name).options} if name in catalogue.CATALOGUE else set()
        options = {key: value for key, value in spec.options.items() if key in known}
        made = replace(spec, method=name, options=options)
        if _has_plan(ask(made)):
            return made
    return spec


def _size(spec: JobSpec, terms: Sequence[Terms], ask: Ask) -> JobSpec:
    """Have the method do without its largest matrix, if it can, and if a provider keeps the answers only then."""
    if not may_be_smaller(spec):
        return spec
    smaller = replace(spec, options={**spec.options, "matrix": False})
    before, after = ask(spec), ask(smaller)
    if not _has_plan(after):
        return spec
    helps = any(is_too_large(each, before) and not is_too_large(each, after) for each in terms)
    return smaller if helps else spec


def may_be_smaller(spec: JobSpec) -> bool:
    """Tell whether the job's method can do without its largest matrix, and the job leaves that to it."""
    return "matrix" not in spec.options and _has_option(spec.method, "matrix")


def sized(spec: JobSpec, terms: Sequence[Terms]) -> JobSpec:
    """Return the job, without its largest matrix if some provider keeps its answers only then."""
    return _size(spec, terms, _asking_all(terms)) if terms else spec


def admitted(
    spec: JobSpec, providers: Sequence[str] | None, terms: Sequence[Terms], public_bound: float | None = None
) -> JobSpec:
    """Return a job as providers would admit it, perhaps without the largest matrix, or raise the first refusal.

    It is a candidate of a forecast (``client/forecast/candidates.py``). Bounds that are only supposed to be known are
    not held against it.
    """
    asked = [each for each in terms if providers is None or each.party.name in providers]
    if not asked:
        return spec
    made = sized(spec, asked)
    request = _asking_all(asked, public_bound)(_rules(made, asked, public_bound))
    for each in asked:
        for why in refusals(each, request):
            raise RefusedError(f"{each.party.name}: {why.what}", why.remedy)
    return made


def _asking_all(terms: Sequence[Terms], public_bound: float | None = None) -> Ask:
    names = tuple(sorted(each.party.name for each in terms))
    return partial(JobRequest, analyst=PartyName.parse(terms[0].analyst), audience=names, public_bound=public_bound)


def _has_option(method: str, option: str) -> bool:
    return method in catalogue.CATALOGUE and catalogue.find(method).option(option) is not None


def _budget(spec: JobSpec, terms: Sequence[Terms], ask: Ask) -> JobSpec:
    """Lower the budget until the price of the plan is within what one job may cost and what is left."""
    asked = ask(spec)
    if any(each.refused for each in terms) or not _has_plan(asked) or _is_affordable(asked, terms):
        return spec
    caps = [each.conditions.per_job for each in terms]
    epsilon = min([spec.budget.epsilon, *(each.epsilon for each in caps)])
    delta = min([spec.budget.delta, *(each.delta for each in caps)])
    low, high = 0, STEPS + 1  # affordable (nothing), and not known to be
    while high - low > 1:
        middle = (low + high) // 2
        made = replace(spec, budget=Budget(_rounded_down(epsilon * middle / STEPS), delta))
        low, high = (middle, high) if _is_affordable(ask(made), terms) else (low, middle)
    if not low:
        return spec
    return replace(spec, budget=Budget(epsilon if low == STEPS else _rounded_down(epsilon * low / STEPS), delta))


# --- Parts ------------------------------------------------------------------------------------------------------------


def _allowed(value: _Value, lists: Sequence[Sequence[_Value]]) -> _Value:
    """Return the value if it is in all lists, or else the first that is; the value itself if there is none."""
    common = [each for each in lists[0] if all(each in allowed for allowed in lists)]
    return value if value in common or not common else common[0]


def _nearest(value: float, ranges: Sequence[Bounds]) -> float:
    """Return the nearest value that is in all ranges; the value itself if there is none."""
    least, most = (
        max((each.least for each in ranges), default=value),
        min((each.most for each in ranges), default=value),
    )
    return min(max(value, least), most) if least <= most else value


def _is_affordable(job: JobRequest, terms: Sequence[Terms]) -> bool:
    if not all(job.plan.price.is_within(each.left) for each in terms):
        return False
    return not any(isinstance(why, BudgetExceededError) for each in terms for why in refusals(each, job))


def _has_plan(job: JobRequest) -> bool:
    try:
        _ = job.plan
    except DpspcaError:
        return False
    return True


def _rounded_down(value: float) -> float:
    """Round down to a few digits, as a person would write it. A number too small for that stays as it is."""
    if value < _TINY:
        return value
    scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(value)))
    return min(value, math.floor(value * scale) / scale)


def _refused(spec: JobSpec, terms: Sequence[Terms], ask: Ask) -> Iterator[tuple[str, str]]:
    """Yield what each provider would still refuse."""
    job = ask(spec)
    return ((each.party.name, f"{why.what} {why.remedy}") for each in terms for why in refusals(each, job))


def _changes(before: JobSpec, after: JobSpec, terms: Sequence[Terms], ask: Ask) -> Iterator[Change]:
    """Yield each key that changed. Providers that would refuse the job with the old value ask for the change."""
    for each in fields(JobSpec):
        was, becomes = getattr(before, each.name), getattr(after, each.name)
        if was != becomes:
            old = _with(after, each.name, was)
            yield Change(each.name, _plain(was), _plain(becomes), _asking(None if old is None else ask(old), terms))


def _with(spec: JobSpec, key: str, value: Any) -> JobSpec | None:  # noqa: ANN401  # a value of that key
    """Return the spec with another value, or None if the two do not go together."""
    try:
        return replace(spec, **{key: value})
    except DpspcaError:
        return None


def _asking(old: JobRequest | None, terms: Sequence[Terms]) -> tuple[str, ...]:
    who = [each.party.name for each in terms if old is not None and refusals(each, old)]
    return tuple(sorted(who or (each.party.name for each in terms)))


def _plain(value: Any) -> Any:  # noqa: ANN401  # whatever a spec holds
    """Return a value as it is written in a job's file."""
    match value:
        case Schema():
            return {"dimension": value.dimension, "names": None if value.names is None else [*value.names]}
        case Budget():
            return {"epsilon": value.epsilon, "delta": value.delta}
        case tuple():
            return list(value)
        case float() if value == PRIVATE_BOUND:
            return "private"
        case _:
            return dict(value) if hasattr(value, "items") else value
