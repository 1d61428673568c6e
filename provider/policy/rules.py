"""The policy of a steward for a provider's data sets: TOML, one table for each data set. Pure: text in, rules out.

Everything that is not allowed is refused: a data set without a table, an analyst who is not named, a value that is not
listed. A table that cannot be read closes its own data set. If the text is not TOML, or says anything outside the
tables, the policy allows nothing. ``faults`` lists everything that is wrong.

What the numbers mean:

- ``lifetime`` is the promise: whatever all analysts together learn from this data set, in all jobs ever, is
  (epsilon, delta)-differentially private for its ``unit``. Nothing refills it. The ledger records what was spent.
- A budget is worth a number of units of mu^2, and jobs add up in these units, whatever epsilon and delta each was
  signed with. Epsilons alone cannot be compared: (0.5, 1e-2) costs nearly twice what (1, 1e-6) does. So a job is
  within ``per_job`` if, and only if, the price of its plan fits into ``Filter.for_budget`` of it. If its noise is not
  Gaussian, it is also within ``per_job`` if its epsilon, its delta and the part of delta for approximate mechanisms
  are.
- ``per_analyst`` divides the lifetime among analysts. It adds no promise, because analysts may tell each other
  what they learned.
- A data set has one ``unit``, because prices for two units cannot be added: under replace-one the number of rows is
  public, and what was paid for that says nothing about whether a row is there at all.
- ``rows_per_person`` is the most rows that one person has here. The steward states it; it is never assumed. With m rows
  for each person the sensitivity is m times as large, so a job must be signed for m rows or more. This holds for units
  of rows. For units of persons the provider itself uses no more rows of each person than the job says, and the noise
  is sized for these. No promise then rests on the number; it keeps jobs from using fewer rows.
- ``answer_interval`` is no rule for jobs. It is the time between the moments at which answers may leave
  (``release/schedule.py``). It changes no answer, only what the time of an answer can reveal.
- ``minimum_providers`` is compared with the signed job, and with the number of providers that the job names. The
  coordinator enforces it. No provider's promise relies on it, because each provider adds all of its noise itself.
- ``norm_bound`` and ``mean_bound`` change no promise about rows, because noise grows with them. They keep an analyst
  from spending the lifetime on rows clipped to almost nothing, or on noise. For scaled columns see ``Range.for_job``.
- For the units ``entry`` and ``spectral``, ``norm_bound`` is part of the promise: a job protects changes up to its
  bound, so ``lifetime`` is about changes up to ``least``. An analyst who may choose a smaller bound gets less noise.
- ``approximate_delta``, in a budget, is the part of its delta for mechanisms that are private except with a probability
  of their own. Gaussian noise needs none of it. Without it, jobs with such mechanisms find no room.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Annotated, Any, Final, NamedTuple, Self, TypeAlias

from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.decoding import By, Filled, Rule, Source, between, decode, distinct, faults_of, one_of, parse_toml
from dpspca.common.dictionary import feature_of
from dpspca.common.errors import (
    BudgetExceededError,
    DpspcaError,
    InvalidInputError,
    RefusedError,
)
from dpspca.common.job import MAX_DIMENSION, PRIVATE, PRIVATE_BOUND, Accounting, Budget, Centering, JobSpec
from dpspca.common.names import PartyName, Role, check_name, shortened
from dpspca.common.privacy import MAX_PROVIDERS, MAX_ROWS, Filter, Price, PrivacyUnit
from dpspca.provider.ledger import Promise, Quotas, extent_of

from .approval import ApprovalKeys, Persons
from .caps import Range, covers_as_signed, filter_of, read_budget
from .job_request import JobRequest
from .phrases import more_columns, providers, rows, written
from .unusable_methods import unusable

MOST_ANSWER_INTERVAL: Final = 10.0  # seconds: with a longer interval, jobs would take too long
_SAMPLE: Final = "`dpspca config sample policy` shows what belongs there."
_ONCE: Final = distinct("Give a list without repetition.")
_COLUMNS: Final = f"Give the largest number of columns, from 1 to {MAX_DIMENSION}, or a list of different names."
_ASK_STEWARD: Final = "The refusal cost nothing. {}, or ask the steward to change the policy."
_WITHIN: Final = "Change the job to what is allowed"
_WITH_DICTIONARY: Final = 'Write dictionary = "FILE" (--dictionary FILE)'


class _Check(NamedTuple):
    """The result of applying a rule to a job."""

    rule: str
    holds: bool
    asked: str
    allowed: str
    do: str = _WITHIN
    """The remedy for the analyst."""


_UNPROVEN: Final = _Check("unproven", False, "a mechanism without a proven price", "mechanisms with a proven price")


Providers: TypeAlias = Annotated[int, between(1, MAX_PROVIDERS)]
Columns: TypeAlias = Annotated[int, between(1, MAX_DIMENSION)] | Annotated[tuple[Filled, ...], _ONCE]
Methods: TypeAlias = Annotated[tuple[Annotated[str, one_of(*catalogue.CATALOGUE)], ...], _ONCE]
AskedBudget: TypeAlias = Annotated[Budget, By(read_budget)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules(ApprovalKeys):
    """The rules of one data set: who may ask what, and at what price. ``Policy.parse`` makes them."""

    data_set: str
    analysts: Persons
    unit: PrivacyUnit
    rows_per_person: Annotated[int, between(1, MAX_ROWS)] = 1
    methods: Methods
    centering: Annotated[tuple[Centering, ...], _ONCE]
    explained_variance: bool
    columns: Annotated[Columns, Rule(_COLUMNS)]
    """The largest number of columns, or the only columns allowed."""
    norm_bound: Range
    minimum_providers: Providers
    lifetime: AskedBudget
    per_job: AskedBudget
    per_analyst: AskedBudget | None = None
    mean_bound: Range | None = None
    accounting: Annotated[tuple[Accounting, ...], _ONCE] = (Accounting.EXACT,)
    dictionary: bool = False  # whether every job must have one
    unproven: bool = False  # whether queries without a proven price are allowed
    answer_interval: Annotated[float, between(0, MOST_ANSWER_INTERVAL, "seconds")] | None = None
    """None for what follows from a job's plan (schedule.py)."""
    quotas: Quotas = field(default_factory=Quotas)  # no promise rests on these

    def __post_init__(self) -> None:
        found = list(self._contradictions())
        check(not found, " ".join(found), "Change one of the keys that contradict each other.")

    @classmethod
    def also_needed(cls, raw: Mapping[str, Any]) -> tuple[str, ...]:
        """Units of rows need to know how many rows a person has."""
        of_matrices = [str(unit) for unit in PrivacyUnit if not unit.is_row]
        return () if raw.get("unit") in of_matrices else ("rows_per_person",)

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Refuse a name that no data set can have."""
        for problem in faults_of(lambda: check_name("the data set", values["data_set"])):
            yield problem.what, problem.remedy

    def check(self, job: JobRequest) -> None:
        """Refuse a job that breaks a rule. The error names the rule, what was asked and what is allowed.

        The norm bound that follows from the job's dictionary is always allowed, as a private one is. The ledger decides
        whether the budget still has room. An analyst who is not in the policy learns of no other rule. Nothing here has
        seen a row.
        """
        for refusal in self.refusals(job):
            raise refusal

    def refusals(self, job: JobRequest) -> Iterator[RefusedError]:
        """Yield a refusal for every rule that a job breaks."""
        held = (self._check_analyst(job.analyst), *self._check_rules(job.spec, job.audience, job.public_bound))
        yield from (self._refusal(each) for each in held if not each.holds)
        yield from self._refusals_of_price(job)

    @property
    def largest_gaussian_job(self) -> Price:
        """The price of the largest job with Gaussian noise."""
        return filter_of(self.per_job).whole.gaussian_part

    def limits(self, analyst: PartyName) -> tuple[Filter, Filter | None]:
        """Return the unspent budgets of the data set and of this analyst, or refuse an analyst who is not named."""
        held = self._check_analyst(analyst)
        if not held.holds:
            raise self._refusal(held)
        return self.budgets

    @property
    def budgets(self) -> tuple[Filter, Filter | None]:
        """The unspent budgets of the data set and of each analyst. None if analysts have no budget of their own."""
        return filter_of(self.lifetime), filter_of(self.per_analyst) if self.per_analyst else None

    @property
    def least_bound(self) -> float:
        """The least norm bound that a job may have."""
        return self.norm_bound.least

    @property
    def promise(self) -> Promise:
        """The neighbours that every job must protect, so that the lifetime's promise holds for them."""
        return Promise(str(self.unit), extent_of(self.unit, self.rows_per_person, self.least_bound))

    def unusable(self) -> dict[str, str]:
        """Name the listed methods that the other rules make unusable, each with the reason."""
        return unusable(self.methods, self.unit, self.accounting, self.centering, self.rows_per_person)

    def _contradictions(self) -> Iterator[str]:
        """Find rules that contradict each other."""
        yield from self.contradictions_of_approval()
        if (self.mean_bound is None) == (Centering.PRIVATE in self.centering):
            yield "mean_bound and the centring 'private' need each other, and only one of them is given."
        if not self.unit.is_row and self.centering != (Centering.NONE,):
            yield f'The unit {self.unit} is for a matrix, which has no rows to centre, so centering must be ["none"].'
        if not self.unit.is_row and self.rows_per_person > 1:
            yield f"The unit {self.unit} does not protect rows, so rows_per_person must be left out."
        elif len(unusable := self.unusable()) == len(set(self.methods)):
            yield f"No job can use any of the listed methods. {' '.join(unusable.values())}"
        named = (("per_job", self.per_job), ("per_analyst", self.per_analyst), ("lifetime", self.lifetime))
        caps = [(name, filter_of(budget)) for name, budget in named if budget]
        for (small, inner), (large, outer) in pairwise(caps):
            if inner.whole.units > outer.whole.units:
                yield f"{small} (mu = {inner.budget:.6g}) allows more than {large} (mu = {outer.budget:.6g})."

    def _check_analyst(self, analyst: PartyName) -> _Check:
        named = analyst.role is Role.ANALYST and analyst.name in self.analysts
        return _Check(
            "analysts", named, f"a job of {analyst.role} {analyst.name}", "jobs of the analysts that the policy names"
        )

    def _check_rules(self, spec: JobSpec, audience: tuple[str, ...], public_bound: float | None) -> Iterator[_Check]:
        yield self._check_rows_per_person(spec)
        yield _Check("unit", spec.unit is self.unit, str(spec.unit), str(self.unit), written("unit", str(self.unit)))
        for rule, key, value, allowed in (
            ("methods", "method", spec.method, self.methods),
            ("accounting", "accounting", spec.accounting, self.accounting),
            ("centering", "centering", spec.centering, self.centering),
        ):
            only = written(key, str(allowed[0])) if len(allowed) == 1 else _WITHIN
            yield _Check(rule, value in allowed, shortened(str(value)), ", ".join(allowed), only)
        explains = self.explained_variance or not spec.explained_variance
        without = "Write explained_variance = false (--no-explained-variance)"
        yield _Check("explained_variance", explains, "the explained variance", "components only", without)
        described = spec.dictionary is not None or not self.dictionary
        yield _Check("dictionary", described, "a job without a dictionary", "jobs with one", _WITH_DICTIONARY)
        yield self._check_columns(spec)
        yield self._check_norm_bound(spec, public_bound)
        # If no private mean is allowed, the rule on centring says so.
        if spec.mean_bound is not None and self.mean_bound is not None:
            within = self.mean_bound.for_job(spec)
            bound = PRIVATE if spec.finds_mean_bound else str(spec.mean_bound)
            yield _Check("mean_bound", spec.finds_mean_bound or spec.mean_bound in within, bound, str(within))
        yield from self._check_parties(spec, audience)

    def _check_parties(self, spec: JobSpec, audience: tuple[str, ...]) -> Iterator[_Check]:
        """Require enough providers among those that the job names, and among those that it may go on with."""
        least, rule = self.minimum_providers, "minimum_providers"
        for asked, parties, do in (
            ("for", len(set(audience)), f"Name {least} or more in providers (--provider), or none to ask all"),
            ("that goes on with", spec.minimum_providers, written(rule, least)),
        ):
            yield _Check(rule, parties >= least, f"a job {asked} {providers(parties)}", f"{least} or more", do)

    def _check_rows_per_person(self, spec: JobSpec) -> _Check:
        return _Check(
            "rows_per_person",
            spec.rows_per_person >= self.rows_per_person,
            f"a job that protects {rows(spec.rows_per_person)} of a person together",
            f"jobs that protect {rows(self.rows_per_person)} or more",
            written("rows_per_person", self.rows_per_person),
        )

    def _check_norm_bound(self, spec: JobSpec, public_bound: float | None) -> _Check:
        bound = PRIVATE if spec.norm_bound == PRIVATE_BOUND else str(spec.norm_bound)
        follows = spec.norm_bound == public_bound or (self.unit.is_row and bound == PRIVATE)
        allowed = self.norm_bound.for_job(spec)
        return _Check("norm_bound", follows or spec.norm_bound in allowed, bound, str(allowed))

    def _check_columns(self, spec: JobSpec) -> _Check:
        schema = spec.schema
        if isinstance(self.columns, int):
            few = schema.dimension <= self.columns
            return _Check("columns", few, f"{schema.dimension} columns", f"at most {self.columns}")
        allowed = f"the {len(self.columns)} columns that the policy names"
        if schema.names is None:
            return _Check("columns", False, f"{schema.dimension} columns without their names", allowed)
        # With a dictionary, the policy names features, and the job the columns that they become.
        asked_for = schema.names if spec.dictionary is None else map(feature_of, schema.names)
        others = sorted(set(asked_for) - set(self.columns))
        asked = f"{more_columns(len(others))}, for example {', '.join(map(shortened, others[:1]))}"
        return _Check("columns", not others, asked, allowed)

    def _refusals_of_price(self, job: JobRequest) -> Iterator[RefusedError]:
        try:
            plan = job.plan
            if not self.unproven and not plan.is_proven:
                yield self._refusal(_UNPROVEN)
            if not covers_as_signed(self.per_job, plan):
                filter_of(self.per_job).charge(plan.price)
        except BudgetExceededError as problem:
            yield BudgetExceededError(f"{self._by_rule('per_job')} {problem.what}", problem.remedy)
        except DpspcaError as problem:
            yield RefusedError(f"This job has no plan. {problem.what}", problem.remedy)

    def _refusal(self, held: _Check) -> RefusedError:
        what = f"{self._by_rule(held.rule)} Asked: {held.asked}. Allowed: {held.allowed}."
        return RefusedError(what, _ASK_STEWARD.format(held.do))

    def _by_rule(self, rule: str) -> str:
        return f"The policy for '{self.data_set}' refuses this job because of its rule '{rule}'."


class UnreadablePolicyError(RefusedError):
    """The policy, or a data set's table in it, cannot be read. Only its steward can correct it."""

    code = "policy-unreadable"


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of one provider. Without data sets it allows nothing."""

    data_sets: tuple[Rules, ...] = ()
    unreadable: frozenset[str] | None = frozenset()
    """Data sets whose tables cannot be read, or None if the whole policy cannot be read."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a policy, or raise an error that lists everything that is wrong with it."""
        read, wrong = cls.readable_part(text)
        if wrong:
            raise InvalidInputError(wrong)
        return read

    @classmethod
    def readable_part(cls, text: str) -> tuple[Self, list[DpspcaError]]:
        """Read every readable table, and return everything that is wrong with the others, or with the whole."""
        try:
            raw = parse_toml(text, _WHOLE.name)
        except DpspcaError as problem:
            return cls(unreadable=None), [problem]
        wrong = list(faults_of(lambda: decode(_Tables, raw, _WHOLE)))
        tables = raw.get("data_sets")
        good, bad = list[Rules](), dict[str, Sequence[DpspcaError]]()
        for name, table in tables.items() if isinstance(tables, dict) else ():
            try:
                good.append(_rules(name, table))
            except InvalidInputError as problem:
                bad[name] = problem.faults
        found = [*wrong, *chain.from_iterable(bad.values())]
        return (cls(unreadable=None) if wrong else cls(tuple(good), frozenset(bad))), found

    def rules(self, data_set: str) -> Rules:
        """Return the rules of a data set. A data set without rules refuses everything."""
        for rules in self.data_sets:
            if rules.data_set == data_set:
                return rules
        if self.unreadable is None or data_set in self.unreadable:
            raise UnreadablePolicyError(
                f"The policy for the data set {shortened(data_set)} cannot be read at the moment, so every job is "
                "refused.",
                "Try again later, or tell the steward.",
            )
        raise RefusedError(
            f"This provider's policy has no table for the data set {shortened(data_set)}, so every job on it is "
            "refused.",
            "Ask the steward to add one.",
        )


@dataclass(frozen=True, slots=True)
class _Tables:
    """The whole file. Each table is read by itself, so that one that is wrong closes its own data set only."""

    data_sets: dict[str, Any]


_WHOLE: Final = Source("The policy", sample=_SAMPLE)


def _rules(name: str, table: object) -> Rules:
    return decode(Rules, table, Source(f"The policy for {shortened(name)}", sample=_SAMPLE), data_set=name)


def faults(text: str) -> Sequence[DpspcaError]:
    """Return everything that is wrong with a policy."""
    return Policy.readable_part(text)[1]
