"""Forecast every method that a job of this shape can use, and recommend one, or say that none can tell anything."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Final

from dpspca.common.checks import check
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_EPSILON, MAX_PROVIDERS, MAX_ROWS, PrivacyUnit

from . import words
from .candidates import Within, as_it_is, candidates, of_candidate
from .curves import Curves, curves, draw
from .methods import MethodForecast, about, chance, label_of, of_job
from .population import Hints, Population

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT: Final = "auto"
AS_GOOD: Final = 1.15
"""The default method is recommended unless another's error is smaller by more than this factor."""
USEFUL: Final = 0.5
"""A change counts as a help if it brings the error below this part of that of random directions."""
_PRECISE: Final = 1.0001
"""Bisection ends when it knows the value up to this factor."""
_MOST_STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a job, from public facts alone. ``methods`` are in the order of their errors.

    ``recommended`` is None if no method can tell anything; then ``remedies`` say what would help. ``print`` shows it as
    a table with sentences, as ``dpspca plan`` does, and so does a notebook.
    """

    assumed: dict[str, float]
    chance: float
    methods: tuple[MethodForecast, ...]
    refused: dict[str, str]
    recommended: str | None
    reason: str
    remedies: tuple[str, ...] = ()
    _asked: "tuple[JobSpec | Plan, Hints, Within] | None" = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "assumed": dict(self.assumed),
            "chance": self.chance,
            "methods": [each.to_dict() for each in self.methods],
            "refused": dict(self.refused),
            "recommended": self.recommended,
            "reason": self.reason,
            "remedies": list(self.remedies),
        }

    def __str__(self) -> str:
        """Return the table and the sentences of the forecast."""
        return words.as_text(self.to_dict())

    def _repr_html_(self) -> str:
        return words.as_html(self.to_dict())

    def curves(self) -> Curves:
        """Forecast the best methods for budgets from a tenth of the job's own to ten times as much."""
        assert self._asked is not None  # of every forecast that was not made by hand
        return curves(*self._asked)

    def plot(self, path: str | PathLike[str] | IO[bytes] | None = None) -> "Figure":
        """Plot the curves. Write a PNG if a path is given. It needs matplotlib."""
        return draw(self.curves(), path)


def forecast(  # noqa: PLR0913  # public facts, all of them optional but one
    spec: JobSpec | Plan,
    *,
    rows: int,
    providers: int = 1,
    leading: float | None = None,
    following: float | None = None,
    largest: float | None = None,
    support: int | None = None,
    row_length: float | None = None,
) -> Forecast:
    """Forecast a job over this many rows of all providers together. See ``Hints`` for the rest; nothing reads data.

    The job may be planned already.
    """
    hints = Hints(
        rows=rows,
        providers=providers,
        leading=leading,
        following=following,
        largest=largest,
        support=support,
        row_length=row_length,
    )
    return of_hints(spec, hints)


def require_rows(unit: PrivacyUnit) -> None:
    """Refuse a unit of matrices."""
    check(unit.is_row, f"The unit is {unit}; a forecast is about rows.", "Choose a unit of rows or persons.")


def of_hints(job: JobSpec | Plan, hints: Hints, within: Within = as_it_is) -> Forecast:
    """Forecast all methods for these hints. If the job is planned already, it is not planned again.

    ``within`` makes each candidate one that providers would admit, or raises an error that says why there is none.
    """
    whole = job.spec if isinstance(job, Plan) else job
    job = about(job, hints)
    spec = job.spec if isinstance(job, Plan) else job
    require_rows(spec.unit)
    population = Population.of(spec, hints)
    found, refused = [], {}
    for each in candidates(spec, hints):
        try:
            found.append(of_candidate(job, within(each), hints))
        except DpspcaError as problem:
            refused[label_of(each.method, each.options)] = problem.what
    found.sort(key=lambda each: each.error)
    best = _recommended(found) if spec.schema.dimension > 1 else None
    return Forecast(
        assumed=_assumed(population) | {"used_rows": hints.used(spec).rows},
        chance=chance(spec),
        methods=tuple(found),
        refused=refused,
        recommended=best.label if best else None,
        reason=_reason(best, found, spec) + _about_fewer(whole, spec),
        remedies=()
        if best or not found or spec.schema.dimension == 1
        else tuple(_remedies(spec, hints, found, within)),
        _asked=(job, hints, within),
    )


def _assumed(population: Population) -> dict[str, float]:
    return {
        "rows": population.rows,
        "providers": population.providers,
        "largest": float(population.leading[0]),
        "leading": float(population.leading[-1]),
        "following": float(population.others[0]) if population.others.size else 0.0,
        "components": population.components,
        "support": population.support,
        "row_length": population.row_length,
    }


# --- Which method -----------------------------------------------------------------------------------------------------


def _recommended(found: list[MethodForecast]) -> MethodForecast | None:
    useful = [each for each in found if not each.at_chance and each.norm_bound is None]
    if not useful:
        return None
    default = next((each for each in useful if each.method == DEFAULT), None)
    return default if default and default.error <= AS_GOOD * useful[0].error else useful[0]


def _reason(best: MethodForecast | None, found: list[MethodForecast], spec: JobSpec) -> str:
    at_chance = chance(spec)
    if spec.schema.dimension == 1:
        return "There is only one column, and so only one direction: nothing has to be found."
    if best is None:
        if not found:
            return "No method can run this job."
        least = f"{found[0].label} has {found[0].error:.3g}"
        return f"No method can tell anything: random directions have an error of {at_chance:.3g}, and {least}."
    others = [each for each in found if each.method != best.method]
    beside = ""
    if others:
        even = " about as good," if others[0].error < best.error else ""
        known = "" if others[0].norm_bound is None else " with a known norm bound"
        beside = f"; the next method, {others[0].label}{known}, is{even} at {others[0].error:.3g}"
    return (
        f"Take {best.label}: its expected error is {best.error:.3g}, where random directions have "
        f"{at_chance:.3g}{beside}."
    )


def _about_fewer(whole: JobSpec, spec: JobSpec) -> str:
    if whole.components == spec.components or spec.schema.dimension == 1:
        return ""
    first = f"{spec.components} components" if spec.components > 1 else "component"
    return f" This is about the first {first} of up to {whole.components}."


# --- What would help --------------------------------------------------------------------------------------------------


def _remedies(spec: JobSpec, hints: Hints, found: list[MethodForecast], within: Within) -> Iterator[str]:
    """Say how many rows, which epsilon or how few columns would make the default method useful.

    Where providers do not admit it, the best of those that they admit is in its place. Budgets that they do not admit
    are not advised.
    """
    if spec.schema.dimension == 1:
        return
    best = next((each for each in found if each.method == DEFAULT), found[0])
    asked = next(each for each in candidates(spec, hints) if label_of(each.method, each.options) == best.label)
    goal = USEFUL * chance(spec)
    rows = least(
        lambda value: _error(asked, replace(hints, rows=round(value))) <= goal, hints.rows, MAX_ROWS * MAX_PROVIDERS
    )
    if rows:
        instead = f"{math.ceil(rows):,} rows in place of {hints.rows:,}"
        yield f"{instead} would bring the error of {best.label} to {goal:.3g}."
    epsilon = epsilon_for(asked, hints, goal)
    if epsilon and _is_admitted(replace(asked, budget=Budget(epsilon, spec.budget.delta)), within):
        instead = f"An epsilon of {epsilon:.3g} in place of {spec.budget.epsilon:g}"
        yield f"{instead} would bring the error of {best.label} to {goal:.3g}."
    columns = fewest_columns(asked, hints)
    if columns:
        yield (
            f"{columns:,} columns in place of {spec.schema.dimension:,} would halve the error of random directions, "
            "if they hold the components."
        )
    if not (rows or epsilon or columns):
        yield "Neither more rows, nor a larger budget, nor fewer columns alone would help. Ask for fewer components."


def _is_admitted(spec: JobSpec, within: Within) -> bool:
    try:
        within(spec)
    except DpspcaError:
        return False
    return True


def _error(spec: JobSpec, hints: Hints) -> float:
    try:
        return of_job(spec, hints).error
    except DpspcaError:
        return math.inf


def epsilon_for(spec: JobSpec, hints: Hints, goal: float) -> float | None:
    """Return the least epsilon for which the expected error of the job's own method is at most ``goal``."""

    def reached(epsilon: float) -> bool:
        return _error(replace(spec, budget=Budget(epsilon, spec.budget.delta)), hints) <= goal

    return least(reached, 1e-3, MAX_EPSILON)


def fewest_columns(spec: JobSpec, hints: Hints) -> int | None:
    """Return the largest number of columns, below the job's own, for which the job is useful.

    The components are taken to lie in these columns, and to explain as much of a row as before: the forecast of a job
    with fewer columns, and otherwise the same hints, says the same. With other queries, fewer columns may be worse than
    more, so there may be a larger number.
    """
    whole = spec.schema.dimension
    first = Population.of(spec, hints)

    def useful(columns: int) -> bool:
        if columns <= spec.components:
            return True
        fewer = replace(
            spec, schema=Schema(columns), public_mean=None if spec.public_mean is None else (0.0,) * columns
        )
        hinted = replace(hints, support=None if hints.support is None else min(columns, first.support))
        return _error(fewer, hinted) <= USEFUL * chance(fewer)

    low, high = spec.components, whole
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if useful(middle) else (low, middle)
    return low if low > spec.components else None


def least(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Bisect for the least value, on a logarithmic scale, for which a condition holds; None if it holds for none."""
    if not holds(high):
        return None
    for _ in range(_MOST_STEPS):
        if high / low < _PRECISE:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
