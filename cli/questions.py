"""What a job would ask, worked out from the job alone by the code that providers use to decide what they answer."""

import json
import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from dpspca.common.algorithms import catalogue
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, Centering, JobSpec, Schema, check

from .reading import reading

NEEDED: Final = ("dimension", "components", "sparsity", "norm_bound", "unit", "epsilon", "delta")
A_JOB: Final = "a job as JSON"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags:
    """A job as the command line describes it; what was not given is None."""

    dimension: int | None
    components: int | None
    sparsity: int | None
    norm_bound: float | None
    unit: RowUnit | None
    epsilon: float | None
    delta: float | None
    rounds: int | None
    center: Centering | None
    mean_bound: float | None
    public_mean: Path | None


def from_file(path: Path, flags: Flags) -> JobSpec:
    """Read a job; flags beside it would leave open which of the two counts."""
    given = [_flag(name) for name, value in asdict(flags).items() if value is not None]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job, or leave it out.")
    with reading(path, A_JOB):
        spec = JobSpec.from_json(_job_in(path.read_bytes()))
        catalogue.plan(spec)  # an algorithm reads its options only now
        return spec


def from_flags(flags: Flags) -> JobSpec:
    """Make a job of the flags. None of those needed has a default: each is part of what is promised or paid for."""
    values: dict[str, Any] = asdict(flags)
    missing = [_flag(name) for name in NEEDED if values[name] is None]
    check(not missing, f"Without a job, these flags are needed: {', '.join(missing)}.", "Give them, or a job as JSON.")
    check_sparsity(values["sparsity"], values["components"])
    _check_center(flags)
    return JobSpec(
        schema=Schema(values["dimension"]),
        unit=values["unit"].unit,
        budget=Budget(values["epsilon"], values["delta"]),
        norm_bound=values["norm_bound"],
        components=values["components"],
        centering=flags.center or Centering.NONE,
        mean_bound=flags.mean_bound,
        public_mean=_public_mean(flags.public_mean) if flags.public_mean else None,
        options={"sparsity": values["sparsity"], "rounds": values["rounds"]},
    )


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
    }


def _job_in(text: bytes) -> str | bytes:
    """Take the job out of a plan, as `plan --json` prints it; anything else stays as it is, byte for byte."""
    try:
        raw = json.loads(text, object_pairs_hook=_once_each)
    except ValueError:
        return text  # the reader of jobs says what is wrong
    return json.dumps(raw["job"]) if isinstance(raw, dict) and "job" in raw else text


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
