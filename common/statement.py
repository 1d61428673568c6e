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

ADDING_UP = (
    "The unit is a row. Somebody with several rows, at one provider or at several, is protected correspondingly less; "
    "so is everybody when further jobs are run on the same rows, for the prices of jobs add up."
)

LARGE_DELTA: Final = 1e-3


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """All of it; ``text`` for people, ``to_dict`` for programs.

    The promise: for every pair of neighbouring data sets, as ``unit`` defines them, and every set S of possible
    outcomes of a provider's answers (and of anything computed from them), P(S) <= e^epsilon P'(S) + delta.
    It follows from ``mu``: the answers together are mu-Gaussian differentially private (Dong, Roth & Su 2022), which
    the accountant converts to (epsilon, delta), the sampler's distance from the ideal noise included.
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
        )

    @property
    def text(self) -> str:
        """Say it so that a lawyer can read it."""
        paragraphs = [
            None if self.releasable else REPEATABLE,
            self._promise(),
            self._who(),
            self._bounds(),
            self._price(),
            TRUST if self.federated else ONE_PROCESS,
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
        change = (
            "been left out, or one more been there" if self.unit is PrivacyUnit.ROW_ADD_REMOVE else "been different"
        )
        return (
            f"This result is ({epsilon}, {delta})-differentially private. Whatever anyone may conclude from it, they "
            f"would have concluded almost as likely had one row {change}: every probability changes by a factor "
            f"of at most e^{epsilon}, apart from an additional {delta}.{large}"
        )

    def _who(self) -> str:
        counts = (
            " This applies to each provider's number of rows."
            if self.parties > 1 and self.unit == PrivacyUnit.ROW_REPLACE_ONE
            else ""
        )
        return f"Who is protected: {self.unit.neighbours}{counts} {ADDING_UP}"

    def _bounds(self) -> str:
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
        mu = rounded_up(self.mu)
        rule = (
            "The noise follows from exact Gaussian accounting."
            if self.accounting is Accounting.EXACT
            else "The noise follows the published formula; "
            f"exact accounting prices it at epsilon {rounded_up(self.exact_epsilon)}."
        )
        return (
            f"Price: {self.answers} answers from each of {self.parties} provider(s); together they are "
            f"{mu}-Gaussian differentially private (mu = {mu}). {rule}"
        )


def rounded_up(value: float, digits: int = 6) -> str:
    """Write a number of privacy in a few digits, never less than it is."""
    raised = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(raised):.{digits}g}"
