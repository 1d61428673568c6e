"""What a job's questions cost, as plain values: the noise and the price of each, their total, and what is unusual."""

import json
import math
from typing import Any, Final

from dpspca.client import findings
from dpspca.common.algorithms import catalogue
from dpspca.common.plan import Noise, Step, events
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.events import GaussianEvent, LaplaceEvent
from dpspca.common.spec import JobSpec

NO_NOISE: Final = "none"
MECHANISM: Final = "mechanism"


def facts(spec: JobSpec) -> dict[str, Any]:
    """Give the plan, its prices and their total as plain values."""
    steps = catalogue.plan(spec)
    loss = compose(events(steps))
    mu = loss.gdp_bound
    return {
        "job": json.loads(spec.to_json()),
        "digest": spec.digest(),
        "questions": [_question(step, mu) for step in steps],
        "total": {
            "mu": mu,
            "mu_is_exact": loss.is_gaussian,
            "epsilon": loss.epsilon(spec.budget.delta),
            "delta": spec.budget.delta,
            "budget_epsilon": spec.budget.epsilon,
        },
        "remarks": findings.of_job(spec),
    }


def _question(step: Step, total_mu: float) -> dict[str, Any]:
    """Describe a step; its noise is in units of the most that one row of the greatest length can add to the answer.

    Over a matrix the unit is the bound on its change. Noise that fits what is asked is at most as planned. Where noise
    is not Gaussian, ``mu`` is a bound: it is what the ledger counts.
    """
    mu, noise = compose([step.event]).gdp_bound if step.event else 0.0, _noise(step)
    return {
        "name": step.name,
        "kind": step.question.kind,
        "numbers": math.prod(step.shape),
        "block": f"{step.extent.block} of {step.extent.blocks}" if step.extent.blocks else None,
        "noise": noise,
        "noise_fits": step.question.fits_noise,
        "mechanism": step.question.mechanism if noise == MECHANISM else None,
        "noise_std": step.noise_std * step.question.unit_value(1.0),
        "mu": mu,
        "share": (mu / total_mu) ** 2 if total_mu else 0.0,
    }


def _noise(step: Step) -> str:
    """Say what keeps an answer private: noise that is added, a mechanism that the question is, or nothing."""
    if step.event and step.question.is_private:
        return MECHANISM
    match step.event:
        case None:
            return NO_NOISE
        case GaussianEvent():
            return Noise.GAUSSIAN.value
        case LaplaceEvent():
            return Noise.LAPLACE.value
        case _:
            return MECHANISM
