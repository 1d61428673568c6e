"""The plan of a job as plain values: noise and price of each query, the total, and warnings."""

from typing import Any, Final

from dpspca.common.plan import Noise, Plan, Step
from dpspca.common.privacy import GaussianEvent, LaplaceEvent, compose

from . import findings

NO_NOISE: Final = "none"
MECHANISM: Final = "mechanism"


def facts(plan: Plan) -> dict[str, Any]:
    """Return the plan, its prices and their total as plain values."""
    spec, loss = plan.spec, plan.loss
    mu = loss.gdp_bound
    return {
        "job": spec.to_dict(),
        "digest": spec.digest(),
        "queries": [_query(step, mu) for step in plan],
        "total": {
            "mu": mu,
            "mu_is_exact": loss.is_gaussian,
            "epsilon": loss.epsilon(spec.budget.delta),
            "delta": spec.budget.delta,
            "budget_epsilon": spec.budget.epsilon,
        },
        "remarks": findings.of_job(plan),
    }


def _query(step: Step, total_mu: float) -> dict[str, Any]:
    """Return a step as plain values. ``noise_std`` is in units of the most that one row can add to the answer.

    For a matrix the unit is the bound on its change. If ``noise_fits``, the noise depends on the query and is at most
    as planned. If the noise is not Gaussian, ``mu`` is a bound, which is what the ledger counts. ``or_kind`` is the
    kind of query that may be asked in its place, at the same price; ``numbers`` are those of the larger answer.
    """
    mu, noise = compose([step.event]).gdp_bound if step.event else 0.0, _noise(step)
    return {
        "name": step.name,
        "kind": step.query.kind,
        "or_kind": step.instead.query.kind if step.instead else None,
        "numbers": step.largest,
        "block": f"{step.extent.block} of {step.extent.blocks}" if step.extent.blocks else None,
        "noise": noise,
        "noise_fits": step.query.fits_noise,
        "mechanism": step.query.mechanism if noise == MECHANISM else None,
        "noise_std": step.noise_std * step.query.unit_value(1.0),
        "mu": mu,
        "share": (mu / total_mu) ** 2 if total_mu else 0.0,
    }


def _noise(step: Step) -> str:
    """Return the source of an answer's privacy: a kind of added noise, a mechanism in the query itself, or nothing."""
    if step.event and step.query.is_private:
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
