"""The privacy statement: what was promised to whom, at what price, under which assumptions, in words and in numbers."""

from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Final, Self

from .plan import Step, events
from .privacy.accountant import compose
from .privacy.units import PrivacyUnit
from .spec import Accounting, Centering, JobSpec

REPEATABLE = (
    "NOT FOR RELEASE. This run's noise came from a fixed seed, so that it can be repeated. Whoever knows or guesses "
    "the seed can subtract the noise. What follows would hold for a run with fresh noise; for this one it does not, "
    "and its results must not leave the house."
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

OF_A_MATRIX: Final = {
    PrivacyUnit.ENTRY: (
        "The unit is an entry: one edge of a graph, say, and not somebody with all of theirs. Somebody whom several "
        "entries are about is protected correspondingly less; so is everybody when further jobs are run on the same "
        "matrix, for the prices of jobs add up."
    ),
    PrivacyUnit.SPECTRAL: (
        "The unit is a change of the matrix that is small in spectral norm. Somebody is protected if leaving them out "
        "changes it by no more than the bound, and correspondingly less if by more; so is everybody when further jobs "
        "are run on the same matrix, for the prices of jobs add up."
    ),
}

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
    releasable: bool
    federated: bool
    gaussian: bool = True
    rows_per_person: int = 1
    caveat: str = ""

    @classmethod
    def of(
        cls, spec: JobSpec, steps: tuple[Step, ...], *, parties: int, releasable: bool = False, federated: bool = False
    ) -> Self:
        """Work the statement out from the plan alone, as anybody with the spec can.

        Whether the noise was fresh, and where the rows were, only the caller knows; unsaid, the worse is assumed.
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
            releasable=releasable,
            federated=federated,
            gaussian=loss.is_gaussian,
            rows_per_person=spec.rows_per_person,
            caveat=" ".join(sorted({step.question.caveat for step in steps if step.question.caveat})),
        )

    @property
    def text(self) -> str:
        """Say it so that a lawyer can read it."""
        paragraphs = [
            None if self.releasable else REPEATABLE,
            self._promise(),
            self.caveat,
            self._who(),
            self._bounds(),
            self._price(),
            self._trust(),
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)

    def to_dict(self) -> dict[str, Any]:
        """Give every number, and the text, as plain values."""
        return asdict(self) | {"text": self.text}

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
            PrivacyUnit.ENTRY: f"one entry been different, by {self.norm_bound} at most",
            PrivacyUnit.SPECTRAL: f"the matrix been different, by {self.norm_bound} in spectral norm at most",
        }[self.unit]
        return (
            f"This result is ({epsilon}, {delta})-differentially private. Whatever anyone may conclude from it, they "
            f"would have concluded almost as likely had {change}: every probability changes by a factor "
            f"of at most e^{epsilon}, apart from an additional {delta}.{large}"
        )

    def _who(self) -> str:
        counts = (
            " This applies to each provider's number of rows."
            if self.parties > 1 and self.unit == PrivacyUnit.ROW_REPLACE_ONE
            else ""
        )
        one = OF_A_MATRIX.get(self.unit, ADDING_UP)
        limits = one if self.rows_per_person == 1 else SEVERAL_ROWS.format(self.rows_per_person, self._change_of_rows)
        return f"Who is protected: {self.unit.neighbours}{counts} {limits}"

    @property
    def _change_of_rows(self) -> str:
        return "left out" if self.unit is PrivacyUnit.ROW_ADD_REMOVE else "different"

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


def rounded_up(value: float, digits: int = 6) -> str:
    """Write a number of privacy in a few digits, never less than it is."""
    raised = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(raised):.{digits}g}"
