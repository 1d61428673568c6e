"""PPCA (Chaudhuri, Sarwate & Sinha, NIPS 2012): each provider draws its subspace by the exponential mechanism, once.

An orthonormal V is drawn with density proportional to exp(c tr(V^T S V)), where S = X^T X over rows of norm at most
one: a matrix Bingham distribution. This is purely private; ``exponent`` in ``dpspca.provider.evaluate.mechanisms`` has
c and the proof. ``privacy.dither`` extends the promise to floating-point rounding, for a part of the job's delta.
Departures from the paper:

- The paper samples with a Gibbs chain (Hoff 2009) and assumes that it converged. Convergence cannot be checked, and
  without it there is NO GUARANTEE: the release then follows some other distribution than the private one. So the
  default, ``sampler="exact"``, draws one axis at a time, exactly, by rejection (Kent, Ganeiban & Mardia 2013). Each
  axis is drawn from the orthogonal complement of the axes before it, for an equal share of epsilon. For one component
  this is the paper's mechanism. For k components, each is drawn with 1/k of the paper's exponent.
- ``sampler="gibbs"`` is the paper's way: all axes are drawn with the whole exponent, from a chain that stops after a
  fixed number of sweeps. It serves to reproduce figures. It is priced as the mechanism that it approximates, so its
  privacy statement holds only if the chain has converged: do not release its results.
- The paper's neighbours differ by replacing a row, for which its exponent, epsilon/2 (n times that on the mean), is the
  largest possible. Adding or removing a row allows epsilon. Published accounting keeps the paper's exponent, which
  costs only half of epsilon under add/remove, and is charged that.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, Self

from dpspca.common.checks import choice
from dpspca.common.job import Accounting, JobSpec
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import PureEvent
from dpspca.common.protocol import Algorithm
from dpspca.common.queries import (
    DrawnSubspace,
    SubspaceQuery,
    WalkedSubspace,
    WeightedDrawnSubspace,
    WeightedWalkedSubspace,
)

from .steps import described, epsilon_left, known_options, plan_subspace, run_subspace


class Sampler(StrEnum):
    """How a subspace is drawn."""

    EXACT = "exact"
    """Axis by axis, from the exact distribution."""
    GIBBS = "gibbs"
    """All axes at once, by a Markov chain that need not have converged: without a guarantee."""


@dataclass(frozen=True)
class PpcaOptions:
    """The options of this method."""

    sampler: Sampler = field(
        default=Sampler.EXACT,
        metadata=described("Draw exactly, or as in the paper by a Gibbs chain, whose results must not be released."),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        return cls(choice(Sampler, "sampler", given.get("sampler", Sampler.EXACT)))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries: the opening ones (count, mean), the subspace, and the explained variance."""
    return plan_subspace(spec, _query(spec, PpcaOptions.of(spec)), PureEvent(_epsilon(spec)))


def run(plan: Plan) -> Algorithm:
    """Ask for the providers' subspaces, and combine them."""
    return run_subspace(plan, _query(plan.spec, PpcaOptions.of(plan.spec)))


def _epsilon(spec: JobSpec) -> float:
    """Return the price of the draw. The paper's exponent costs half as much under add/remove."""
    halved = spec.accounting is Accounting.PUBLISHED and spec.unit.is_add_remove
    return epsilon_left(spec) / (2 if halved else 1)


def _query(spec: JobSpec, options: PpcaOptions) -> type[SubspaceQuery]:
    return _QUERIES[spec.unit.is_replace_one, options.sampler]


_QUERIES: Final[dict[tuple[bool, Sampler], type[SubspaceQuery]]] = {
    (False, Sampler.EXACT): DrawnSubspace,
    (True, Sampler.EXACT): WeightedDrawnSubspace,
    (False, Sampler.GIBBS): WalkedSubspace,
    (True, Sampler.GIBBS): WeightedWalkedSubspace,
}
