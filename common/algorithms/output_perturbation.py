"""Output perturbation with smooth sensitivity (Gonen & Gilad-Bachrach 2017): eigenvectors with noise, once.

*Smooth Sensitivity Based Approach for Differentially Private Principal Component Analysis*, Algorithm 1. Each provider
computes the leading eigenvectors of its own X^T X, rotates them at random, and adds noise in proportion to a smooth
bound on their sensitivity: little if the eigenvalues have a gap, much if they have none. Without a gap the answer is
only noise, and nothing in it shows this; it is private all the same. The scale of the noise depends on the data and is
never released.

``privacy.smooth`` proves the promise: epsilon alone, or (epsilon, delta) with ``privacy="approximate"``.
``privacy.dither`` extends it to floating-point rounding, for a part of the job's delta. Departures from the paper:

- Pure is the default. Every policy has room for it, and with our noise constants it is the more accurate of the two if
  the gap is small or rows are few (figure ``paper-004`` of ``bench/papers``).
- The printed rotation is d x d, on the left, and would erase the subspace. It has to be k x k, on the right.
- The paper's sensitivity, C/(n GAP), has an unnamed constant. Here the constant is explicit: at most
  arcsin(1/r)/sqrt(2), or arcsin(1/r)/2 for one component, where r is the gap of the SUM matrix divided by 1 (a row
  added or removed, as in the paper) or by 2 (a row replaced). It holds for any number of components; the proof is in
  ``privacy.smooth``.
- The paper caps the distance in L1 at 2, but two unit vectors can be sqrt(d) apart and more. The cap here is at most
  sqrt(2 k d).
- Exact accounting has its own noise constants. For Gaussian noise they follow from the exact privacy curve of a shift
  and a tail bound of chi-square. Pure noise follows a spherical Student distribution instead of the paper's Cauchy
  distribution, with the same scale per entry and nearly normal tails: its error grows with sqrt(d k), not with d k.
- Published accounting uses the paper's noise and smoothness, 5 U sqrt(2 ln(2/delta))/epsilon and Cauchy 6 U/epsilon, at
  the event's epsilon and delta, with our bound U. The former is refused if it does not keep its promise: the lemma
  behind it composes two halves of delta as if they added up to one, and does not cover large epsilon. The latter has
  more noise than needed: it costs a third of epsilon.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, Self

from dpspca.common.checks import check, choice
from dpspca.common.job import Accounting, JobSpec
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

from .steps import delta_left, described, epsilon_left, known_options, plan_subspace, run_subspace


class Privacy(StrEnum):
    """The promise of the noise."""

    APPROXIMATE = "approximate"
    """(epsilon, delta): Gaussian noise."""
    PURE = "pure"
    """epsilon alone: Student noise, or Cauchy noise with published accounting."""


@dataclass(frozen=True)
class OutputPerturbationOptions:
    """The options of this method."""

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
    """List all queries: the opening ones (count, mean), the subspace, and the explained variance."""
    options = OutputPerturbationOptions.of(spec)
    return plan_subspace(spec, _query(spec), _event(spec, options))


def run(plan: Plan) -> Algorithm:
    """Ask for the providers' subspaces, and combine them."""
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
            f"The paper does not prove its noise private for epsilon {left.epsilon:.3g}, delta {left.delta:.3g} and "
            f"{entries} numbers.",
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
