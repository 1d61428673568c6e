"""Answer what people ask before they sign: which budget, one more provider, the cost of local noise, what is left."""

from dataclasses import dataclass, replace
from typing import Any

from dpspca.common.checks import check
from dpspca.common.job import Budget
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_PROVIDERS, NOTHING, Price, epsilon_within
from dpspca.provider.ledger import Balance
from dpspca.provider.policy import filter_of

from .forecast import epsilon_for
from .methods import of_job
from .population import Hints


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers about the job's own method. Errors are expected ones; None where it was not asked, or cannot be had.

    ``with_another_provider`` has as many rows more as each provider has; None if there are as many as there may be.
    ``with_one_owner`` is the error if one party held all rows and added noise once; None if one party holds them.
    ``jobs_in_lifetime`` is how many jobs like this the lifetime budget has room for, and ``left_epsilon`` what one of
    them leaves of it, at its delta.
    """

    error: float
    with_another_provider: float | None
    with_one_owner: float | None
    target_error: float | None = None
    epsilon_for_target: float | None = None
    share_of_lifetime: float | None = None
    jobs_in_lifetime: int | None = None
    left_epsilon: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def answer(plan: Plan, hints: Hints, *, target_error: float | None = None, lifetime: Budget | None = None) -> Answers:
    """Answer all questions about a job."""
    spec = plan.spec
    check(
        target_error is None or 0 < target_error <= spec.components**0.5,
        f"The target for the error is {target_error!r}.",
        f"Give a number above 0 and at most {spec.components**0.5:.3g}, the largest error there is.",
    )
    share, jobs, left = (None, None, None) if lifetime is None else _left(plan.price, lifetime)
    each = hints.rows // hints.providers
    more = hints.providers + 1
    another = None if more > MAX_PROVIDERS else replace(hints, rows=hints.rows + each, providers=more)
    return Answers(
        error=of_job(plan, hints).error,
        with_another_provider=of_job(plan, another).error if another else None,
        with_one_owner=of_job(plan, replace(hints, providers=1)).error if hints.providers > 1 else None,
        target_error=target_error,
        epsilon_for_target=None if target_error is None else epsilon_for(spec, hints, target_error),
        share_of_lifetime=share,
        jobs_in_lifetime=jobs,
        left_epsilon=left,
    )


def _left(price: Price, lifetime: Budget) -> tuple[float, int, float]:
    """Return which share of a lifetime budget the job takes, for how many there is room, and what one leaves."""
    balance = Balance.of(filter_of(lifetime))
    after = Balance(balance.budget, price, NOTHING)
    return balance.share(price), balance.jobs(price), epsilon_within(after.left, lifetime.delta)
