"""PPCA (Chaudhuri, Sarwate & Sinha, NIPS 2012): each provider draws its subspace by the exponential mechanism, once.

A frame V is drawn with density proportional to exp(c tr(V^T S V)), S = X^T X over rows of norm at most one: a matrix
Bingham distribution. Purely private: see ``exponent`` in ``dpspca.provider.evaluate.mechanisms`` for c and its proof.
The promise covers how the computer rounds, by ``privacy.dither``, for which the job's delta pays. Where it departs from
the paper:

- The paper samples by a Gibbs chain (Hoff 2009) and assumes that it converged. Nobody knows when it has, and where it
  has not there is NO GUARANTEE: what is released then follows some other law than the one that is private. So the
  default, ``sampler="exact"``, draws one axis at a time, exactly, by rejection (Kent, Ganeiban & Mardia 2013), each
  within what the axes before it leave of the space and for an equal share of epsilon. For one component this is the
  paper's mechanism; for k of them each is drawn with a k-th of the paper's exponent.
- ``sampler="gibbs"`` is the paper's: all axes with the whole exponent, from a chain that is stopped after a fixed
  number of sweeps. It reproduces figures. It is priced as the mechanism that it approaches, so its privacy statement
  is only as true as the chain has converged: do not release what it gives.
- The paper's neighbours differ in a row that is replaced, for which its exponent, epsilon/2 (n times that on the mean),
  is the largest there is. A row added or removed allows epsilon. Published accounting keeps the paper's exponent: then
  it costs half of epsilon under add/remove, and that is what it is charged.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, Self

from dpspca.common.checks import choice
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
from dpspca.common.spec import Accounting, JobSpec

from .options import described
from .row_steps import known_options
from .subspace_steps import epsilon_left, plan_subspace, run_subspace


class Sampler(StrEnum):
    """How a subspace is drawn."""

    EXACT = "exact"
    """Axis by axis, exactly."""
    GIBBS = "gibbs"
    """All at once, as near as a Markov chain comes to it: without a guarantee."""


@dataclass(frozen=True)
class PpcaOptions:
    """What only this algorithm knows."""

    sampler: Sampler = field(
        default=Sampler.EXACT,
        metadata=described("Draw exactly, or as in the paper by a Gibbs chain, whose results must not be released."),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        return cls(choice(Sampler, "the sampler", given.get("sampler", Sampler.EXACT)))


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List every query: what the opening needs, the subspace, and what it explains."""
    return plan_subspace(spec, _query(spec, PpcaOptions.of(spec)), PureEvent(_epsilon(spec)))


def run(plan: Plan) -> Algorithm:
    """Ask for the subspaces, and combine them."""
    return run_subspace(plan, _query(plan.spec, PpcaOptions.of(plan.spec)))


def _epsilon(spec: JobSpec) -> float:
    """Give what the draw costs. The paper's exponent is worth half as much where rows are added or removed."""
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
