"""Who has to approve a job before it is admitted. Pure.

With ``approval = "human"``, the named persons decide about each job. With ``approvals_needed = 2``, two different
persons have to approve it. The rule changes no promise: policy and budgets hold for an approved job as for every other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, TypeAlias

from dpspca.common.decoding import By, between, distinct, one_of
from dpspca.common.names import check_name

AUTOMATIC: Final = "automatic"
HUMAN: Final = "human"
MODES: Final = (AUTOMATIC, HUMAN)
MOST_NEEDED: Final = 2

Name: TypeAlias = Annotated[str, By(lambda name, _: check_name("It", name))]
Persons: TypeAlias = Annotated[tuple[Name, ...], distinct("Give a list of different names.")]


class ApprovalRule(NamedTuple):
    """The persons who may approve a job, and how many of them have to."""

    approvers: tuple[str, ...]
    needed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalKeys:
    """The keys of a data set's table that say who has to approve jobs."""

    approval: Annotated[str, one_of(*MODES)] = AUTOMATIC
    approvers: Persons = ()
    approvals_needed: Annotated[int, between(1, MOST_NEEDED)] = 1

    @property
    def approval_rule(self) -> ApprovalRule | None:
        """Who has to approve a job before it is admitted, or None if no approval is needed."""
        return None if self.approval == AUTOMATIC else ApprovalRule(self.approvers, self.approvals_needed)

    def contradictions_of_approval(self) -> Iterator[str]:
        """Find keys that contradict each other."""
        if self.approval == AUTOMATIC and (self.approvers or self.approvals_needed > 1):
            yield f'approvers or approvals_needed is given, but approval is "{AUTOMATIC}", so nobody would be asked.'
        if self.approval == HUMAN and not self.approvers:
            yield f'approval is "{HUMAN}", but approvers names nobody who could approve a job.'
        elif self.approvals_needed > len(self.approvers) > 0:
            yield f"approvals_needed is {self.approvals_needed}, but approvers names only {len(self.approvers)}."
