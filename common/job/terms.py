"""The terms of a data set: what its provider allows one analyst to ask, and how much budget is left. Pure.

A provider states its terms to an analyst whom its policy names, and to nobody else. They hold what a refusal of a job
would also tell that analyst: the rules of the policy, and the room that is left for one more job. They hold no other
analyst's name and no other analyst's spending, and nothing of them depends on a row.

Terms have one canonical form in bytes. The provider signs it (``trust/statements.py``), and any other form is refused.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final, Self

from dpspca.common.checks import check
from dpspca.common.decoding import STORED, decode, parse_form
from dpspca.common.errors import DpspcaError, InvalidDataError
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import Filter, Price, PrivacyUnit, epsilon_within

from .spec import Accounting, Centering, Schema

FORMAT: Final = "dpspca-terms-1"
_UNWRITTEN: Final[Mapping[str, Any]] = {"dictionary_required": False}
"""Conditions that this format did not have at first, and their defaults: a default is not written, so that terms that
were signed before have the same form."""
_ASK: Final = "Use the provider's version of dpspca."


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values that a job may choose from, both ends included."""

    least: float
    most: float

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most


@dataclass(frozen=True, slots=True)
class StatedCap:
    """The most that one job, or all jobs of one analyst, may cost. ``approximate_delta`` is a part of ``delta``."""

    epsilon: float
    delta: float
    approximate_delta: float = 0.0

    @property
    def price(self) -> Price:
        """Its size in the units in which the prices of jobs are added."""
        return Filter.for_budget(self.epsilon, self.delta, self.approximate_delta).whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The rules of a policy that concern an analyst, as ``provider/policy/rules.py`` explains them."""

    unit: PrivacyUnit
    rows_per_person: int
    methods: tuple[str, ...]
    accounting: tuple[Accounting, ...]
    centering: tuple[Centering, ...]
    explained_variance: bool
    columns: int | tuple[str, ...]
    norm_bound: Bounds
    mean_bound: Bounds | None
    minimum_providers: int
    unproven: bool
    approvals_needed: int
    """How many persons at the provider have to approve each job; 0 if it decides by itself."""
    per_job: StatedCap
    per_analyst: StatedCap | None
    quotas: Mapping[str, int]
    dictionary_required: bool = False
    """Whether each job must name the dictionary of the terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one data set at one provider, for one analyst, at one moment."""

    provider: str
    data_set: str
    analyst: str
    stated_at: int
    dimension: int
    columns_digest: str | None
    """A digest of the names of the columns in their order (``columns_digest``), or None if they have no names."""
    dictionary_digest: str | None
    """The digest of the shared dictionary by which the rows were prepared, or None if there is none."""
    software: str
    conditions: Conditions
    left: Price
    """The most that one further job of this analyst may cost: of the data set's budget and, if there is one, of the
    analyst's. Other limits, such as ``per_job``, are not counted in."""
    refused: str | None
    """Why no job at all is admitted at the moment, as the code of a refusal, or None."""

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        plain = self.to_dict()
        stated: dict[str, Any] = plain["conditions"]
        written = {key: value for key, value in stated.items() if key not in _UNWRITTEN or value != _UNWRITTEN[key]}
        form = {"format": FORMAT, **plain, "conditions": written}
        return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the canonical form. Refuse any other bytes, also if they could be understood."""
        try:
            read: Self = decode(cls, parse_form(content, FORMAT), STORED)
        except DpspcaError:
            raise _unreadable() from None
        if read.to_bytes() != content:
            raise _unreadable()
        read._check()
        return read

    @property
    def party(self) -> PartyName:
        """The provider."""
        return PartyName.parse(self.provider)

    @property
    def most_for_next_job(self) -> Price:
        """The most that the next job may cost: within ``per_job`` and what is left."""
        return self.conditions.per_job.price.at_most(self.left)

    @property
    def left_delta(self) -> float:
        """The delta at which ``left_epsilon`` is stated: that of the budget of all your jobs, or else of one job."""
        return (self.conditions.per_analyst or self.conditions.per_job).delta

    @property
    def left_epsilon(self) -> float:
        """The rest of the budget as an epsilon at ``left_delta``, never too large: no larger budget fits.

        The units of ``left`` decide. Epsilons of several jobs do not add up; their units do.
        """
        return epsilon_within(self.left, self.left_delta)

    @property
    def largest_gaussian_job(self) -> Price:
        """The price of the largest job with Gaussian noise, whatever is left."""
        return self.conditions.per_job.price.gaussian_part

    def further_jobs(self) -> int:
        """Return how many jobs of the largest size allowed, with Gaussian noise, fit into what is left."""
        return 0 if self.refused else self.largest_gaussian_job.times_in(self.left)

    def _check(self) -> None:
        """Refuse values that no policy has."""
        rules, amounts = self.conditions, (*self.left.pair, self.stated_at)
        spans = [span for span in (rules.norm_bound, rules.mean_bound) if span]
        columns = rules.columns if isinstance(rules.columns, int) else len(rules.columns)
        positive = min(self.dimension, rules.rows_per_person, rules.minimum_providers, columns) > 0 <= min(amounts)
        positive = positive and rules.approvals_needed >= 0
        ordered = all(0 < span.least <= span.most < math.inf for span in spans)
        some = rules.methods and rules.accounting and rules.centering
        check(
            positive and ordered and bool(some),
            "The terms have a number, or an empty list, that no policy can have.",
            _ASK,
        )
        for name, role in ((self.provider, Role.PROVIDER), (self.analyst, Role.ANALYST)):
            check(PartyName.parse(name).role is role, "The terms name a party of another role.", _ASK)
        caps = [cap.price for cap in (rules.per_job, rules.per_analyst) if cap]  # raises for an impossible budget
        check(min(cap.units for cap in caps) > 0, "The terms have a budget that pays for nothing.", _ASK)


def scaled_bounds(dimension: int) -> Bounds:
    """Return the bounds that a job which scales its columns may have, whatever a policy says about raw rows.

    A policy's range is in the units of the rows, and such a job's bounds are in multiples of each column's root mean
    square: the two cannot be compared. A scaled row is about as long as the root of the number of columns. So a bound
    may be a thousand times shorter or longer. No promise about rows rests on it, because noise grows with the bound.
    """
    usual = math.sqrt(dimension)
    return Bounds(usual / 1000, usual * 1000)


def columns_digest(schema: Schema) -> str | None:
    """Return a digest of the names of columns in their order, or None if they have no names."""
    if schema.names is None:
        return None
    return sha256(json.dumps(schema.names, separators=(",", ":")).encode()).hexdigest()


def _unreadable() -> InvalidDataError:
    return InvalidDataError("The terms cannot be read.", _ASK)
