"""What a job would ask, worked out from the job alone by the code that providers use to decide what they answer."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema, check

NEEDED: Final = ("dimension", "components", "sparsity", "norm_bound", "unit", "epsilon", "delta")


@dataclass(frozen=True, slots=True)
class Flags:
    """A job as the command line describes it; what was not given is None."""

    dimension: int | None
    components: int | None
    sparsity: int | None
    norm_bound: float | None
    unit: PrivacyUnit | None
    epsilon: float | None
    delta: float | None
    rounds: int | None


def from_file(path: Path, flags: Flags) -> JobSpec:
    """Read a job; flags beside it would leave open which of the two counts."""
    given = [_flag(name) for name, value in asdict(flags).items() if value is not None]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job, or leave it out.")
    try:
        return JobSpec.from_json(path.read_bytes())
    except OSError as problem:
        raise InvalidParameterError(
            f"{path} cannot be read: {problem.strerror}.", "Give the path of a job as JSON."
        ) from None


def from_flags(flags: Flags) -> JobSpec:
    """Make a job of the flags. None of those needed has a default: each is part of what is promised or paid for."""
    values: dict[str, Any] = asdict(flags)
    missing = [_flag(name) for name in NEEDED if values[name] is None]
    check(not missing, f"Without a job, these flags are needed: {', '.join(missing)}.", "Give them, or a job as JSON.")
    return JobSpec(
        schema=Schema(values["dimension"]),
        unit=values["unit"],
        budget=Budget(values["epsilon"], values["delta"]),
        norm_bound=values["norm_bound"],
        components=values["components"],
        options={"sparsity": values["sparsity"], "rounds": values["rounds"]},
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
