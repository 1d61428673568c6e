"""The privacy statement: what was promised to whom, at what price, under which assumptions, in words and in numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from .plan import Step, events
from .privacy import PrivacyUnit, compose, rounded_up
from .spec import Accounting, Centering, JobSpec

__all__ = ["LARGE_DELTA", "PrivacyStatement", "rounded_up"]

NOT_FOR_RELEASE: Final = "NOT FOR RELEASE"

REPEATABLE: Final = (
    f"{NOT_FOR_RELEASE}. This run's noise came from a fixed seed, so that it can be repeated. Whoever knows or guesses "
    "the seed can subtract the noise. What follows would hold for a run with fresh noise; for this one it does not, "
    "and its results must not leave the house."
)

UNPROVEN: Final = (
    f"{NOT_FOR_RELEASE}. Part of what this job asked has no proof of its price. What follows holds only under the "
    "condition that is named next, and nobody can check whether it held."
)

TRUST = (
    "Each provider had to be trusted with its own rows, and with nothing of the others'. Nobody else had to be "
    "trusted, the coordinator included: noise was added where the rows are, before anything left."
)

ONE_PROCESS = (
    "All rows were in one process: whoever ran it had to be trusted with them. What this statement covers is the "
    "model that came out, not who could look at the rows."
)

SHARES_TRUST = (
    "Each provider had to be trusted with its own share of the matrix, and with nothing of the others'. Nobody else "
    "had to be trusted, the coordinator included: noise was added where the shares are, before anything left."
)

SHARES_ONE_PROCESS = (
    "The whole matrix was in one process: whoever ran it had to be trusted with it. What this statement covers is the "
    "model that came out, not who could look at the matrix."
)

ADDING_UP = (
    "The unit is a row. Somebody with several rows, at one provider or at several, is protected correspondingly less; "
    "so is everybody when further jobs are run on the same rows, for the prices of jobs add up."
)

SEVERAL_ROWS = (
    "All this holds for somebody with at most {0} rows at a provider as well, all of whose rows there are {1}: noise "
    "was sized for {0} rows. Somebody with more, or at several providers, is protected correspondingly less; so is "
    "everybody when further jobs are run on the same rows, for the prices of jobs add up."
)

OF_PERSONS: Final = (
    "A person's rows are those that a provider's own list says are theirs. Of each person a provider used at most {0}, "
    "chosen from that person's rows alone, and noise was sized for all of these together. Somebody at several "
    "providers, or under several names at one, is protected correspondingly less; so is everybody when further jobs "
    "are run on the same rows, for the prices of jobs add up."
)

OF_A_MATRIX: Final = {
    PrivacyUnit.ENTRY: (
        "The unit is an entry: one edge of a graph, say, and not somebody with all of theirs. Somebody whom several "
        "entries are about is protected correspondingly less; so is everybody when further jobs are run on the same "
        "matrix, for the prices of jobs add up."
    ),
    PrivacyUnit.SPECTRAL: (
        "The unit is a change of the matrix that is small in spectral norm. Somebody is protected if leaving them out "
        "changes it by no more than the bound, and correspondingly less if by more; so is everybody when further jobs "
        "are run on the same matrix, for the prices of jobs add up. Whether any entry is larger than sums can hold "
        "(thousands of times the least bound that a job may have) is decided once for each matrix, and is public: both "
        "matrices that are compared here pass, or neither does."
    ),
}

TIMES: Final = (
    "What answers say is covered here, and not when they came. Making an answer takes longer the more rows there are, "
    "and how many there are is what this unit keeps secret. Each provider sent its answers at set intervals, unless "
    "its policy says otherwise, so that the time of one answer tells next to nothing about one row. The times of all "
    "answers together may still tell whoever carried them about how many rows there are."
)

LARGE_DELTA: Final = 1e-3


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """All of it; ``text`` for people, ``to_dict`` for programs.

    The promise: for every pair of neighbouring data sets, as ``unit`` defines them, and every set S of possible
    outcomes of a provider's answers (and of anything computed from them), P(S) <= e^epsilon P'(S) + delta.
    Where all noise is Gaussian it follows from ``mu``: the answers together are mu-Gaussian differentially private
    (Dong, Roth & Su 2022), which the accountant converts to (epsilon, delta), the sampler's distance from the ideal
    noise included. Elsewhere (not ``gaussian``) it follows from composing the events as they are, and ``mu`` is what
    they count as beside other jobs: the ideal noise is mu-Gaussian differentially private as well, and often better.
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
    """Whether the noise came from randomness that nobody can repeat."""
    proven: bool
    """Whether the price of every step holds whatever happens (``RowQuery.is_proven``)."""
    federated: bool
    gaussian: bool = True
    rows_per_person: int = 1
    caveat: str = ""
    warnings: tuple[str, ...] = ()
    """What has to be known of this very result before it is relied on, a sentence each; ``client/findings.py``."""

    @classmethod
    def of(
        cls, spec: JobSpec, steps: Sequence[Step], *, parties: int, fresh_noise: bool = False, federated: bool = False
    ) -> Self:
        """Work the statement out from the plan alone, as anybody with the spec can.

        Whether the noise was fresh, and where the rows were, only the caller knows; unsaid, the worse is assumed.
        Whether every step is proven is never up to the caller.
        """
        loss = compose(events(steps))
        return cls(
            unit=spec.unit,
            epsilon=spec.budget.epsilon,
            delta=spec.budget.delta,
            mu=loss.gdp_bound,
            exact_epsilon=loss.epsilon(spec.budget.delta),
            accounting=spec.accounting,
            norm_bound=spec.norm_bound,
            mean_bound=spec.mean_bound if spec.centering is Centering.PRIVATE else None,
            centering=spec.centering,
            parties=parties,
            answers=len(steps),
            fresh_noise=fresh_noise,
            proven=all(step.query.is_proven for step in steps),
            federated=federated,
            gaussian=loss.is_gaussian,
            rows_per_person=spec.rows_per_person,
            caveat=" ".join(sorted({step.query.caveat for step in steps if step.query.caveat})),
        )

    @property
    def releasable(self) -> bool:
        """Whether the promise holds as it stands: every step is proven, and the noise was fresh."""
        return self.fresh_noise and self.proven

    @property
    def headline(self) -> str:
        """Say in a line what is promised; what stands against it comes first."""
        reasons = [
            *([] if self.fresh_noise else ["the noise came from a fixed seed"]),
            *([] if self.proven else ["the price of its mechanism is not proven"]),
        ]
        promise = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-differentially private, unit: {self.unit}"
        if reasons:
            return f"{NOT_FOR_RELEASE}: {', and '.join(reasons)}; not shown to be {promise}"
        return f"With a caveat that the statement names: {promise}" if self.caveat else promise

    def __repr__(self) -> str:
        return f"<PrivacyStatement: {self.headline}>"

    @property
    def text(self) -> str:
        """Say it so that a lawyer can read it: whatever the promise depends on stands before the promise."""
        paragraphs = [
            None if self.fresh_noise else REPEATABLE,
            None if self.proven else UNPROVEN,
            self.caveat,
            self._promise(),
            self._who(),
            self._bounds(),
            self._price(),
            self._trust(),
            TIMES if self.federated and self.unit.is_add_remove else None,
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)

    def to_dict(self) -> dict[str, Any]:
        """Give every number, and the text, as plain values."""
        told = {"releasable": self.releasable, "headline": self.headline, "text": self.text}
        return asdict(self) | {"warnings": list(self.warnings)} | told

    def _promise(self) -> str:
        epsilon, delta = rounded_up(self.epsilon), rounded_up(self.delta)
        large = (
            f" A delta of {delta} is large: with that probability the promise may not hold at all."
            if self.delta > LARGE_DELTA
            else ""
        )
        change = {
            PrivacyUnit.ROW_ADD_REMOVE: "one row been left out, or one more been there",
            PrivacyUnit.ROW_REPLACE_ONE: "one row been different",
            PrivacyUnit.PERSON_ADD_REMOVE: "one person been left out with all their rows, or one more been there",
            PrivacyUnit.PERSON_REPLACE_ONE: "all rows of one person been different, and more or fewer",
            PrivacyUnit.ENTRY: f"one entry been different, by {self.norm_bound} at most",
            PrivacyUnit.SPECTRAL: f"the matrix been different, by {self.norm_bound} in spectral norm at most",
        }[self.unit]
        what = "This result is" if self.releasable else "Only under these conditions is this result"
        return (
            f"{what} ({epsilon}, {delta})-differentially private. Whatever anyone may conclude from it, they "
            f"would have concluded almost as likely had {change}: every probability changes by a factor "
            f"of at most e^{epsilon}, apart from an additional {delta}.{large}"
        )

    def _who(self) -> str:
        counted = "persons" if self.unit.is_person else "rows"
        counts = (
            f" This applies to each provider's number of {counted}."
            if self.parties > 1 and self.unit.is_replace_one
            else ""
        )
        return f"Who is protected: {self.unit.neighbours}{counts} {self._limits()}"

    def _limits(self) -> str:
        """Say whom this protects less, and how many rows of one person were thought of."""
        if self.unit.is_person:
            return OF_PERSONS.format(_rows(self.rows_per_person))
        if self.rows_per_person > 1:
            return SEVERAL_ROWS.format(self.rows_per_person, self._change_of_rows)
        return OF_A_MATRIX.get(self.unit, ADDING_UP)

    @property
    def _change_of_rows(self) -> str:
        return "left out" if self.unit.is_add_remove else "different"

    def _trust(self) -> str:
        """Say who had to be trusted: with rows, or with a share of a matrix."""
        if self.unit.is_row:
            return TRUST if self.federated else ONE_PROCESS
        return SHARES_TRUST if self.federated else SHARES_ONE_PROCESS

    def _bounds(self) -> str:
        if not self.unit.is_row:
            return (
                f"Bounds: the promise covers changes of at most {self.norm_bound}; entries themselves may be larger, "
                "and a larger change is protected correspondingly less. The bound must have been chosen from public "
                "knowledge, not read off the data."
            )
        centred = "" if self.centering is Centering.NONE else ", after the mean was taken off,"
        mean = {
            Centering.NONE: "",
            Centering.PUBLIC: " The mean that was taken off must not come from these rows.",
            Centering.PRIVATE: f" To find the mean, rows were first shortened to length {self.mean_bound}.",
        }[self.centering]
        return (
            f"Bounds: every row{centred} was shortened to Euclidean length {self.norm_bound} where longer.{mean} "
            "Bounds must have been chosen from public knowledge, not read off the data."
        )

    def _price(self) -> str:
        """Say what the answers cost: in mu where all noise is Gaussian; elsewhere in epsilon, and mu is a bound."""
        answers = f"Price: {self.answers} answers from each of {self.parties} provider(s)"
        published = self.accounting is Accounting.PUBLISHED
        mu, epsilon = rounded_up(self.mu), rounded_up(self.exact_epsilon)
        if self.gaussian:
            rule = (
                f"The noise follows the published formula; exact accounting prices it at epsilon {epsilon}."
                if published
                else "The noise follows from exact Gaussian accounting."
            )
            return f"{answers}; together they are {mu}-Gaussian differentially private (mu = {mu}). {rule}"
        rule = "the published formula" if published else "from the budget"
        return (
            f"{answers}, not all with Gaussian noise. The noise follows {rule}; the answers composed are priced at "
            f"epsilon {epsilon} for this delta. Where jobs add up, they count as no more than mu = {mu}, apart from "
            "what delta pays for."
        )


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count} rows"
