"""The privacy statement: what is promised to whom, at what price and under which assumptions, in words and numbers."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from dpspca.common.job import PRIVATE_BOUND, Accounting, Centering, Scaling, reason_in_words
from dpspca.common.plan import Plan
from dpspca.common.privacy import PrivacyUnit, format_up

NOT_FOR_RELEASE: Final = "NOT FOR RELEASE"

REPEATABLE: Final = (
    f"{NOT_FOR_RELEASE}. The noise of this run came from a fixed seed, so that the run can be repeated. Anybody who "
    "knows or guesses the seed can subtract the noise. The promise below would hold for a run with fresh noise. It "
    "does not hold for this run, and the results of this run must not be published or passed on."
)

UNPROVEN: Final = (
    f"{NOT_FOR_RELEASE}. The price of part of this job is not proven. The promise below holds only under the condition "
    "that is stated next, and nobody can check whether this condition was met."
)

TRUST = (
    "Who had to be trusted: each provider with its own rows, but not with the rows of others. Nobody else had to be "
    "trusted, not even the coordinator, because each provider added noise before anything left it."
)

ONE_PROCESS = (
    "Who had to be trusted: whoever ran the job, because all rows were in one process. This statement covers "
    "the model that came out. It does not cover who could look at the rows."
)

SHARES_TRUST = (
    "Who had to be trusted: each provider with its own share of the matrix, but not with the shares of others. Nobody "
    "else had to be trusted, not even the coordinator, because each provider added noise before anything left it."
)

SHARES_ONE_PROCESS = (
    "Who had to be trusted: whoever ran the job, because the whole matrix was in one process. This statement "
    "covers the model that came out. It does not cover who could look at the matrix."
)

FURTHER_JOBS: Final = "Each further job on the same data weakens the protection, because the prices of jobs add up."

ADDING_UP = (
    "The unit is one row. A person with several rows, at one provider or at several, is protected less, in proportion "
    f"to the number of their rows. {FURTHER_JOBS}"
)

SEVERAL_ROWS = (
    "The promise also holds for a person with at most {0} rows at a provider if all of these are {1}, because "
    "the noise was sized for {0} rows. A person with more rows, or with rows at several providers, is protected "
    f"less, in proportion to the number of their rows. {FURTHER_JOBS}"
)

OF_PERSONS: Final = (
    "Each provider knows the person of each row, and used at most {0} of each person. The choice depends only on that "
    "person's rows, and the noise was sized for all of the rows used. A person at several providers, or under several "
    f"names at one, is protected less, in proportion to their number. {FURTHER_JOBS}"
)

OF_A_MATRIX: Final = {
    PrivacyUnit.ENTRY: (
        "The unit is one entry, for example one edge of a graph, and not a person with all their entries. A person "
        f"with several entries is protected less, in proportion to their number. {FURTHER_JOBS}"
    ),
    PrivacyUnit.SPECTRAL: (
        "The unit is a change of the matrix that is small in spectral norm. A person is protected if leaving them out "
        "changes the matrix by at most the bound, and is protected less if the change is larger. "
        f"{FURTHER_JOBS} Each provider checks once whether any entry of its matrix is too large to be added up "
        "(thousands of times the least bound that a job may have). The result of this check is public: the promise "
        "compares only matrices for which the result is the same."
    ),
}

PREPARED: Final = (
    "Preparation: every provider prepared its rows with the shared dictionary whose digest is {0}. Each value was "
    "clipped to a public range, centred at a public value and scaled by a public number, each row by itself. So "
    "preparation reveals nothing and costs nothing. The promise assumes that the dictionary was written from public "
    "knowledge, not from the data."
)

TIMES: Final = (
    "Timing: this statement covers the content of the answers, but not the times at which they were sent. An answer "
    "takes longer to compute if there are more rows, and this unit keeps the number of rows secret. Therefore each "
    "provider sent its answers at set intervals, unless its policy says otherwise, so that the time of one answer "
    "reveals almost nothing about {0}. The times of all answers together may still show the coordinator roughly "
    "how many rows there are."
)

LARGE_DELTA: Final = 1e-3
LARGE_EPSILON: Final = 20
_LONG: Final = 1000


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """The promise of one job. ``text`` is for people, ``to_dict`` for programs.

    The promise: for every pair of neighbouring data sets, as ``unit`` defines them, and every set S of possible
    outcomes of a provider's answers (and of anything computed from them), P(S) <= e^epsilon P'(S) + delta.
    If all noise is Gaussian, it follows from ``mu``: the answers together are mu-Gaussian differentially private
    (Dong, Roth & Su 2022), and the accountant converts mu to (epsilon, delta), including the sampler's distance from
    ideal noise. Otherwise (not ``gaussian``) it follows from composing the events as they are. ``mu`` is then an upper
    bound that is used to add up jobs: the ideal noise is mu-Gaussian differentially private too, and often better.
    """

    unit: PrivacyUnit
    epsilon: float
    delta: float
    mu: float
    exact_epsilon: float
    accounting: Accounting
    norm_bound: float
    mean_bound: float | None
    centering: Centering
    parties: int
    answers: int
    fresh_noise: bool
    """Whether the noise came from fresh randomness, and not from a seed."""
    proven: bool
    """Whether the price of every step is proven without further conditions (``RowQuery.is_proven``)."""
    federated: bool
    gaussian: bool = True
    rows_per_person: int = 1
    dictionary: str = ""
    """Digest of the dictionary by which rows were prepared, if there is one."""
    scaling: Scaling = Scaling.NONE
    centering_reason: str = ""
    """How rows were centred and why, in words, if that was chosen by public facts (``common/job/centering.py``)."""
    caveat: str = ""
    decision: str = ""
    """How the method decided to spend the budget, in words, if it is one that decides (``client/findings.py``)."""
    weights: str = ""
    """How much each provider counted, in words, if they did not count by their rows (``client/findings.py``)."""
    warnings: tuple[str, ...] = ()
    """Warnings for a reader who relies on this result, one sentence each (``client/findings.py``)."""

    @classmethod
    def of(cls, plan: Plan, *, parties: int, fresh_noise: bool = False, federated: bool = False) -> Self:
        """Derive the statement from the plan alone, as anybody with the signed job can.

        Only the caller knows whether the noise was fresh and where the rows were. The defaults assume the worse case.
        The caller cannot say whether every step is proven; the plan does.
        """
        spec = plan.spec
        return cls(
            unit=spec.unit,
            epsilon=spec.budget.epsilon,
            delta=spec.budget.delta,
            mu=plan.loss.gdp_bound,
            exact_epsilon=plan.loss.epsilon(spec.budget.delta),
            accounting=spec.accounting,
            norm_bound=spec.norm_bound,
            mean_bound=spec.mean_bound if spec.centering is Centering.PRIVATE else None,
            centering=spec.centering,
            parties=parties,
            answers=len(plan),
            fresh_noise=fresh_noise,
            proven=plan.is_proven,
            federated=federated,
            gaussian=plan.loss.is_gaussian,
            rows_per_person=spec.rows_per_person,
            dictionary=spec.dictionary or "",
            scaling=spec.scaling,
            centering_reason=reason_in_words(spec.centering, spec.centering_reason, spec.unit),
            caveat=" ".join(plan.caveats),
        )

    @property
    def releasable(self) -> bool:
        """Whether the promise holds as it stands: every step is proven, and the noise was fresh."""
        return self.fresh_noise and self.proven

    @property
    def headline(self) -> str:
        """State the promise in one line, after anything that weakens it."""
        reasons = [
            *([] if self.fresh_noise else ["the noise came from a fixed seed"]),
            *([] if self.proven else ["the price of its mechanism is not proven"]),
        ]
        promise = f"({format_up(self.epsilon)}, {format_up(self.delta)})-differentially private, unit: {self.unit}"
        if reasons:
            return f"{NOT_FOR_RELEASE}: {', and '.join(reasons)}; not shown to be {promise}"
        return f"With a caveat (see the statement): {promise}" if self.caveat else promise

    def __repr__(self) -> str:
        return f"<PrivacyStatement: {self.headline}>"

    @property
    def text(self) -> str:
        """The whole statement in words. The conditions of the promise come before the promise."""
        paragraphs = [
            None if self.fresh_noise else REPEATABLE,
            None if self.proven else UNPROVEN,
            self.caveat,
            self._promise(),
            self._who(),
            PREPARED.format(self.dictionary) if self.dictionary else None,
            self._bounds(),
            f"Centring was chosen from public facts: {self.centering_reason}." if self.centering_reason else None,
            self._price(),
            f"How the budget was spent: {self.decision}" if self.decision else None,
            f"How much each provider counted: {self.weights}" if self.weights else None,
            self._trust(),
            TIMES.format(self._timed) if self.federated and self._has_secret_count else None,
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)

    def to_dict(self) -> dict[str, Any]:
        """Return every number, and the text, as plain values."""
        derived = {
            "norm_bound_is_private": self.norm_bound == PRIVATE_BOUND,
            "mean_bound_is_private": self.mean_bound == PRIVATE_BOUND,
            "releasable": self.releasable,
            "headline": self.headline,
            "text": self.text,
        }
        return asdict(self) | {"warnings": list(self.warnings)} | derived

    def _promise(self) -> str:
        epsilon, delta = format_up(self.epsilon), format_up(self.delta)
        large = (
            f" A delta of {delta} is large: with that probability the promise may not hold at all."
            if self.delta > LARGE_DELTA
            else ""
        )
        change = {
            PrivacyUnit.ROW_ADD_REMOVE: "one row had been left out or added",
            PrivacyUnit.ROW_REPLACE_ONE: "one row had been different",
            PrivacyUnit.PERSON_ADD_REMOVE: "one person had been left out with all their rows, or added",
            PrivacyUnit.PERSON_REPLACE_ONE: "all rows of one person had been different, or more or fewer",
            PrivacyUnit.ENTRY: f"one entry had been different by at most {self.norm_bound}",
            PrivacyUnit.SPECTRAL: f"the matrix had been different by at most {self.norm_bound} in spectral norm",
        }[self.unit]
        what = "This result is" if self.releasable else "Only under these conditions, this result would be"
        return (
            f"{what} ({epsilon}, {delta})-differentially private. If {change}, any conclusion from it would have been "
            f"more or less likely by a factor of at most e^{epsilon} ({self._factor()}), apart from an "
            f"additional probability of {delta}.{large}"
        )

    def _factor(self) -> str:
        """Write e^epsilon as a number, rounded up."""
        value = math.exp(min(self.epsilon, LARGE_EPSILON))
        if self.epsilon > LARGE_EPSILON:
            return f"more than {math.floor(value):,}"
        return format_up(value, 3) if value < _LONG else f"{math.ceil(value):,}"

    def _who(self) -> str:
        counted = "persons" if self.unit.is_person else "rows"
        counts = (
            f" This applies to each provider's number of {counted}."
            if self.parties > 1 and self.unit.is_replace_one
            else ""
        )
        return f"Who is protected: {self.unit.neighbours}{counts} {self._limits()}"

    def _limits(self) -> str:
        """Describe who is protected less, and for how many rows of a person the noise was sized."""
        if self.unit.is_person:
            return OF_PERSONS.format(_rows(self.rows_per_person))
        if self.rows_per_person > 1:
            return SEVERAL_ROWS.format(self.rows_per_person, self._change_of_rows)
        return OF_A_MATRIX.get(self.unit, ADDING_UP)

    @property
    def _has_secret_count(self) -> bool:
        """Whether the number of rows, or of those of a person, is protected."""
        return self.unit.is_add_remove or self.unit.is_person

    @property
    def _timed(self) -> str:
        """Say of what an interval is ten times the time."""
        if self.unit.is_person:
            return "one person, unless they have far more rows than were used"
        return _rows(self.rows_per_person)

    @property
    def _change_of_rows(self) -> str:
        return "left out" if self.unit.is_add_remove else "different"

    def _trust(self) -> str:
        """Describe who had to be trusted with the rows, or with a share of the matrix."""
        if self.unit.is_row:
            return TRUST if self.federated else ONE_PROCESS
        return SHARES_TRUST if self.federated else SHARES_ONE_PROCESS

    def _bounds(self) -> str:
        if not self.unit.is_row:
            return (
                f"Bounds: the promise covers changes of at most {self.norm_bound}. A larger change is protected less, "
                "in proportion to its size. Entries themselves may be larger. The promise assumes that the bound was "
                "chosen from public knowledge, not from the data."
            )
        taken = {Centering.NONE: [], Centering.PAIRS: ["differences of pairs of rows were taken"]}
        before = [
            *taken.get(self.centering, ["the mean was subtracted"]),
            *([] if self.scaling is Scaling.NONE else ["columns were divided by their scales"]),
        ]
        centred = f", after {' and '.join(before)}," if before else ""
        mean = {
            Centering.NONE: "",
            Centering.PUBLIC: " The promise assumes that the mean that was subtracted does not come from these rows.",
            Centering.PAIRS: " Each row is in one pair, and the pairs follow from public numbers alone.",
            Centering.PRIVATE: f" To find the mean, rows were first clipped to {self._mean_length}.",
        }[self.centering]
        if self.scaling is Scaling.PRIVATE:
            mean += " Scales were found privately, which is part of the price."
        if self.norm_bound == PRIVATE_BOUND:
            return (
                f"Bounds: before rows were added up, each row{centred} was clipped to a length that was found "
                f"privately, as part of the price.{mean}"
            )
        scaled = " in multiples of the scales" if self.scaling is Scaling.PRIVATE else ""
        return (
            f"Bounds: every row{centred} was clipped to Euclidean length {self.norm_bound}{scaled}; longer rows were "
            f"shortened to it.{mean} The promise assumes that bounds were chosen from public knowledge, not from the "
            "data."
        )

    @property
    def _mean_length(self) -> str:
        found = self.mean_bound == PRIVATE_BOUND
        return "a length that was found privately, as part of the price" if found else f"length {self.mean_bound}"

    def _price(self) -> str:
        """State the cost of the answers: in mu if all noise is Gaussian, otherwise in epsilon, with mu as a bound."""
        providers = "one provider" if self.parties == 1 else f"each of {self.parties} providers"
        answers = f"Price: {self.answers} answers from {providers}"
        published = self.accounting is Accounting.PUBLISHED
        mu, epsilon = format_up(self.mu), format_up(self.exact_epsilon)
        if self.gaussian:
            rule = (
                f"The noise follows the published formula; exact accounting prices it at epsilon {epsilon}."
                if published
                else "The noise follows from exact Gaussian accounting."
            )
            return f"{answers}. Together they are {mu}-Gaussian differentially private (mu = {mu}). {rule}"
        rule = "the published formula" if published else "from the budget"
        return (
            f"{answers}, not all with Gaussian noise. The noise follows {rule}. Together, the answers cost epsilon "
            f"{epsilon} at this delta. When the prices of jobs are added up, they count as at most mu = {mu}, apart "
            "from the part that delta covers."
        )


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count} rows"
