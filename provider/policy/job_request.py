"""A job as a policy sees it. Pure."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from dpspca.common.algorithms import catalogue
from dpspca.common.job import JobSpec
from dpspca.common.names import PartyName
from dpspca.common.plan import Plan


@dataclass(frozen=True)
class JobRequest:
    """An analyst's request for a job on a data set."""

    spec: JobSpec
    analyst: PartyName
    audience: tuple[str, ...]
    """The providers that the job names."""
    public_bound: float | None = None
    """The norm bound that follows from the job's dictionary, if that is known here."""

    @classmethod
    def of_plan(
        cls, plan: Plan, analyst: PartyName, audience: tuple[str, ...], public_bound: float | None = None
    ) -> Self:
        """Ask for a job that has been planned already."""
        made = cls(plan.spec, analyst, audience, public_bound)
        made.__dict__["plan"] = plan  # where the property below keeps it
        return made

    @cached_property
    def plan(self) -> Plan:
        """The job's plan, made once and only if it is needed: a policy refuses a stranger without one.

        Raises the error of a job that has no plan.
        """
        return catalogue.plan(self.spec)
