"""Answer what people ask before they sign: which budget, one more provider, the cost of local noise, what is left."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from dpspca.common.checks import check, is_real
from dpspca.common.errors import InvalidTypeError
from dpspca.common.job import Budget
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_PROVIDERS, NOTHING, Price, epsilon_within
from dpspca.provider.ledger import share_of
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
    them leaves of it, at its delta. ``share_of_left``, ``jobs_in_left`` and ``left_after_job`` say the same about what
    providers have left for the analyst, at the job's delta.
    """

    error: float
    with_another_provider: float | None
    with_one_owner: float | None
    target_error: float | None = None
    epsilon_for_target: float | None = None
    share_of_lifetime: float | None = None
    jobs_in_lifetime: int | None = None
    left_epsilon: float | None = None
    share_of_left: float | None = None
    jobs_in_left: int | None = None
    left_after_job: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def answer(
    plan: Plan,
    hints: Hints,
    *,
    target_error: float | None = None,
    lifetime: Budget | None = None,
    left: Price | None = None,
) -> Answers:
    """Answer all questions about a job. ``left`` is the least that a provider has left for the analyst, if known."""
    spec = plan.spec
    check(
        target_error is None or (is_real(target_error) and 0 < target_error <= spec.components**0.5),
        f"The target for the error is {target_error!r}.",
        f"Give a number above 0 and at most {spec.components**0.5:.3g}, the largest error there is.",
    )
    if lifetime is not None and not isinstance(lifetime, Budget):
        raise InvalidTypeError(f"lifetime is {lifetime!r:.60}.", "Give a Budget, such as Budget(8.0, 1e-5).")
    of_lifetime = _Share.of(plan.price, filter_of(lifetime).whole, lifetime.delta) if lifetime else _Share()
    of_left = _Share.of(plan.price, left, spec.budget.delta) if left else _Share()
    each = hints.rows // hints.providers
    more = hints.providers + 1
    another = None if more > MAX_PROVIDERS else replace(hints, rows=hints.rows + each, providers=more)
    return Answers(
        error=of_job(plan, hints).error,
        with_another_provider=of_job(plan, another).error if another else None,
        with_one_owner=of_job(plan, replace(hints, providers=1)).error if hints.providers > 1 else None,
        target_error=target_error,
        epsilon_for_target=None if target_error is None else epsilon_for(spec, hints, target_error),
        share_of_lifetime=of_lifetime.share,
        jobs_in_lifetime=of_lifetime.jobs,
        left_epsilon=of_lifetime.after,
        share_of_left=of_left.share,
        jobs_in_left=of_left.jobs,
        left_after_job=of_left.after,
    )


class _Share(NamedTuple):
    """Which share of a budget a job takes, for how many such jobs there is room, and the epsilon that one leaves.

    There is no share of a budget of which nothing is left.
    """

    share: float | None = None
    jobs: int | None = None
    after: float | None = None

    @classmethod
    def of(cls, price: Price, whole: Price, delta: float) -> Self:
        after = (whole - price).at_least(NOTHING)
        share = share_of(price, whole) if all(whole.pair) else None
        return cls(share, price.times_in(whole), epsilon_within(after, delta))
