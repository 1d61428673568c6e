"""Output perturbation with smooth sensitivity (Gonen & Gilad-Bachrach 2017): eigenvectors with noise, once.

*Smooth Sensitivity Based Approach for Differentially Private Principal Component Analysis*, Algorithm 1. Each provider
finds the leading eigenvectors of its own X^T X, turns them at random, and adds noise as wide as a smooth bound
on their sensitivity asks: little where the eigenvalues have a gap, much where they have none (then the answer is noise
and says so by nothing; it is private all the same). How wide the noise was is data, and is not told.

The promise is by ``privacy.smooth``, epsilon alone unless ``privacy="approximate"`` asks for (epsilon, delta). It
covers how the computer rounds, by ``privacy.dither``, for which the job's delta pays. Where it departs from the paper:

- Pure is the default: every policy has room for it, and with noise of our own constants it is the better of the two
  where the gap is small or the rows are few (figure ``paper-004`` of ``bench/papers``).
- The printed turn is d x d, on the left, and would erase the subspace: it has to be k x k, on the right.
- The paper's sensitivity, C/(n GAP), has a constant without a name. Here the constant is explicit: at most
  arcsin(1/r)/sqrt(2), half of arcsin(1/r) for one component, with r the gap of the SUM matrix over 1 (a row added or
  removed, as in the paper) or over 2 (a row replaced); proof in ``privacy.smooth``. Any number of components.
- The paper caps the distance in L1 at 2; two unit vectors can be sqrt(d) apart and more. The cap is sqrt(2 k d) at
  most.
- Exact accounting has noise constants of its own: for Gaussian noise from the exact curve of a shift and a tail bound
  of chi-square, for pure noise a spherical Student law in place of the paper's Cauchy, with the same scale per entry
  and tails that are nearly normal: its error grows with sqrt(d k), not with d k.
- Published accounting has the paper's noise and smoothness, 5 U sqrt(2 ln(2/delta))/epsilon and Cauchy 6 U/epsilon, at
  the event's own epsilon and delta, around the bound U from here. The former is refused where it does not keep its
  promise (the lemma behind it composes two halves of delta as if they added up to one, and is silent on large
  epsilon); the latter is dearer than need be, costing a third of epsilon.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, Self

from dpspca.common.checks import check, choice
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import (
    ApproximateEvent,
    PureEvent,
    keeps_promise,
    mechanism_event,
    published_gaussian_constants,
)
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import (
    PerturbedSubspace,
    PublishedSubspace,
    SubspaceQuery,
    WeightedPerturbedSubspace,
    WeightedPublishedSubspace,
)
from dpspca.common.spec import Accounting, JobSpec

from .options import described
from .row_steps import known_options
from .subspace_steps import delta_left, epsilon_left, plan_subspace, run_subspace


class Privacy(StrEnum):
    """What the noise promises."""

    APPROXIMATE = "approximate"
    """(epsilon, delta): Gaussian noise."""
    PURE = "pure"
    """epsilon alone: Student noise, or as published Cauchy noise."""


@dataclass(frozen=True)
class OutputPerturbationOptions:
    """What only this algorithm knows."""

    privacy: Privacy = field(
        default=Privacy.PURE,
        metadata=described(
            "Whether the mechanism promises (epsilon, 0) (pure), or uses Gaussian noise and part of delta "
            "(approximate)."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        return cls(choice(Privacy, "privacy", given.get("privacy", Privacy.PURE)))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query: what the opening needs, the subspace, and what it explains."""
    options = OutputPerturbationOptions.of(spec)
    return plan_subspace(spec, _query(spec), _event(spec, options))


def run(plan: Plan) -> Algorithm:
    """Ask for the subspaces, and combine them."""
    return run_subspace(plan, _query(plan.spec))


def _event(spec: JobSpec, options: OutputPerturbationOptions) -> PureEvent | ApproximateEvent:
    epsilon = epsilon_left(spec)
    if options.privacy is Privacy.PURE:
        return PureEvent(epsilon)
    event = ApproximateEvent(epsilon, delta_left(spec))
    if spec.accounting is Accounting.PUBLISHED:
        entries = spec.schema.dimension * spec.components
        constants, left = published_gaussian_constants(entries, event.epsilon, event.delta), mechanism_event(event)
        check(
            keeps_promise(constants, entries, left.epsilon, left.delta),
            "The published noise was not shown to be private for this epsilon, this delta and so many numbers.",
            "Use exact accounting, or a smaller epsilon.",
        )
    return event


def _query(spec: JobSpec) -> type[SubspaceQuery]:
    return _QUERIES[spec.unit.is_replace_one, spec.accounting is Accounting.PUBLISHED]


_QUERIES: Final[dict[tuple[bool, bool], type[SubspaceQuery]]] = {
    (False, False): PerturbedSubspace,
    (True, False): WeightedPerturbedSubspace,
    (False, True): PublishedSubspace,
    (True, True): WeightedPublishedSubspace,
}
