"""What a job would ask, worked out from the job alone by the code that providers use to decide what they answer."""

import json
import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, Centering, JobSpec, Schema, check
from dpspca.common.statement import LARGE_DELTA
from dpspca.common.transport.config import read_toml

from .reading import reading

NEEDED: Final = ("dimension", "components", "sparsity", "norm_bound", "unit", "epsilon", "delta")
ROWS: Final = ("data_set", "providers")
"""What a job's file may say besides the job: of which rows, and whose."""
A_JOB: Final = "a job as JSON or TOML"


class RowUnit(StrEnum):
    """The units that rows can have, by their own names and by the estimator's."""

    ROW_REPLACE_ONE = "row-replace-one"
    ROW_ADD_REMOVE = "row-add-remove"
    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"

    @property
    def unit(self) -> PrivacyUnit:
        """Give the unit that the name stands for."""
        return PrivacyUnit(f"row-{self.value.removeprefix('row-')}")


SHORT_UNITS: Final = (RowUnit.REPLACE_ONE.value, RowUnit.ADD_REMOVE.value)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """A job as the command line describes it; what was not given is None. ``flags.spread`` makes options of them."""

    dimension: Annotated[int | None, typer.Option(help="How many features a row has.")] = None
    components: Annotated[int | None, typer.Option(help="How many components to look for.")] = None
    sparsity: Annotated[int | None, typer.Option(help="How many features may take part, all components together.")] = (
        None
    )
    norm_bound: Annotated[
        float | None, typer.Option(help="Longer rows are shortened to this; from public knowledge, not from the rows.")
    ] = None
    unit: Annotated[
        RowUnit | None,
        typer.Option(
            help="What is hidden of a row: what it holds (replace-one), or also that it is there (add-remove)."
        ),
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget for each provider's rows: smaller is more private.")
    ] = None
    delta: Annotated[float | None, typer.Option(help="Privacy budget: keep it far below one over the rows.")] = None
    rounds: Annotated[int | None, typer.Option(help="Rounds; left out, the budget decides.")] = None
    center: Annotated[Centering | None, typer.Option(help="Which mean is taken off the rows; left out, none.")] = None
    mean_bound: Annotated[float | None, typer.Option(help="For a private mean, longer rows are shortened to this.")] = (
        None
    )
    public_mean: Annotated[Path | None, typer.Option(help="A public mean: a JSON array of a number a column.")] = None
    minimum_parties: Annotated[
        int | None, typer.Option(help="Fail when fewer providers than this are left; 1 if left out.")
    ] = None
    answer_seconds: Annotated[
        int | None, typer.Option(help="How long to wait for a provider's answer; 600 if left out.")
    ] = None


@dataclass(frozen=True, slots=True)
class Order:
    """What a file asks for: a job, and, where it says so, of which rows."""

    spec: JobSpec
    data_set: str | None = None
    providers: tuple[str, ...] | None = None


def from_file(path: Path, flags: Flags) -> Order:
    """Read a job; flags beside it would leave open which of the two counts."""
    given = [_flag(name) for name, value in asdict(flags).items() if value is not None]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job, or leave it out.")
    with reading(path, A_JOB):
        job, rows = _job_in(path)
        spec = JobSpec.from_json(job)
        catalogue.plan(spec)  # an algorithm reads its options only now
        return Order(spec, *_names(path, rows))


def from_flags(flags: Flags, schema: Schema | None = None) -> JobSpec:
    """Make a job of the flags. None of those needed has a default: each is part of what is promised or paid for.

    ``schema`` stands in for the number of columns, where a federation has told them.
    """
    check_given(flags, columns_known=schema is not None)
    values: dict[str, Any] = asdict(flags)
    patience = {name: values[name] for name in ("minimum_parties", "answer_seconds") if values[name] is not None}
    return JobSpec(
        schema=schema or Schema(values["dimension"]),
        unit=values["unit"].unit,
        budget=Budget(values["epsilon"], values["delta"]),
        norm_bound=values["norm_bound"],
        components=values["components"],
        centering=flags.center or Centering.NONE,
        mean_bound=flags.mean_bound,
        public_mean=_public_mean(flags.public_mean) if flags.public_mean else None,
        options={"sparsity": values["sparsity"], "rounds": values["rounds"]},
        **patience,
    )


def check_given(flags: Flags, *, columns_known: bool) -> None:
    """Refuse flags that make no job; the number of columns may come from elsewhere."""
    values = asdict(flags)
    missing = [_flag(name) for name in NEEDED if values[name] is None and not (columns_known and name == "dimension")]
    check(not missing, f"Without a job, these flags are needed: {', '.join(missing)}.", "Give them, or a job.")
    check_sparsity(values["sparsity"], values["components"])
    _check_center(flags)


def check_sparsity(sparsity: int, components: int) -> None:
    """Refuse fewer features than components, in the words of the flags."""
    check(
        sparsity >= components,
        f"--sparsity is {sparsity} and --components is {components}: that many components cannot be at right angles to "
        "one another on fewer features than there are components.",
        f"Give a --sparsity of at least {components}, or fewer components.",
    )


def facts(spec: JobSpec) -> dict[str, Any]:
    """Give the plan, its prices and their total as plain values."""
    steps = catalogue.plan(spec)
    loss = compose(events(steps))
    return {
        "job": json.loads(spec.to_json()),
        "digest": spec.digest(),
        "questions": [_question(step, loss.gdp_bound) for step in steps],
        "total": {
            "mu": loss.gdp_bound,
            "epsilon": loss.epsilon(spec.budget.delta),
            "delta": spec.budget.delta,
            "budget_epsilon": spec.budget.epsilon,
        },
        "remarks": remarks(spec),
    }


def remarks(spec: JobSpec) -> list[str]:
    """Say what is allowed in a job and seldom meant."""
    sparsity, columns, delta = spec.options.get("sparsity"), spec.schema.dimension, spec.budget.delta
    said = {
        f"A sparsity of {sparsity} is no limit: of {columns} columns, all may take part.": isinstance(sparsity, int)
        and sparsity >= columns,
        f"A delta of {delta:g} is large: with that probability the promise may not hold at all. Keep it far below one "
        "over the rows.": delta > LARGE_DELTA,
    }
    return [sentence for sentence, holds in said.items() if holds]


def _job_in(path: Path) -> tuple[str | bytes, dict[str, Any]]:
    """Take a job out of TOML, or of a plan as `plan --json` prints it, and what it says of rows.

    Any other job stays as it is, byte for byte.
    """
    text = path.read_bytes()
    try:
        raw = read_toml(path) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=_once_each)
    except DpspcaError:
        raise
    except ValueError:
        return text, {}  # the reader of jobs says what is wrong
    if not isinstance(raw, dict):
        return text, {}
    if path.suffix != ".toml" and not (raw.keys() & {*ROWS, "job"} or raw.get("unit") in SHORT_UNITS):
        return text, {}
    rows = {name: raw.pop(name) for name in ROWS if name in raw}
    return json.dumps(_with_whole_unit(raw.get("job", raw))), rows


def _with_whole_unit(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Take a unit by the estimator's name too, as the flags do."""
    if isinstance(job, dict) and job.get("unit") in SHORT_UNITS:
        return job | {"unit": RowUnit(job["unit"]).unit.value}
    return job


def _names(path: Path, rows: dict[str, Any]) -> tuple[str | None, tuple[str, ...] | None]:
    data_set, providers = map(rows.get, ROWS)
    check(isinstance(data_set, str | None), f"{path}: data_set is {data_set!r:.120}.", "Give a name.")
    named = providers is None or (isinstance(providers, list) and all(isinstance(each, str) for each in providers))
    check(named, f"{path}: providers is {providers!r:.120}.", "Give a list of names, or leave it out to ask all.")
    return data_set, None if providers is None else tuple(providers)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Read no object that gives a key twice: written anew, it would seem to have given it once."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _check_center(flags: Flags) -> None:
    """Refuse a mean or a bound on it that the centring asked for would not use, or lacks."""
    for center, name in ((Centering.PRIVATE, "mean_bound"), (Centering.PUBLIC, "public_mean")):
        given = getattr(flags, name) is not None
        check(
            given == (flags.center is center),
            f"{_flag(name)} goes with --center {center.value}, and only one of the two is given.",
            "Give both or neither.",
        )


def _public_mean(path: Path) -> tuple[float, ...]:
    with reading(path, "a mean: a JSON array of one number a column"):
        return tuple(json.loads(path.read_bytes()))


def _question(step: Step, total_mu: float) -> dict[str, Any]:
    """Describe a step; its noise is in units of the most that one row of the greatest length can add to the answer."""
    mu = step.event.mu if step.event else 0.0
    return {
        "name": step.name,
        "kind": step.question.kind,
        "numbers": math.prod(step.shape),
        "noise_std": step.noise_std * step.question.unit_value(1.0),
        "mu": mu,
        "share": (mu / total_mu) ** 2,
    }


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
