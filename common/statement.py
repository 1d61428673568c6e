"""The privacy statement: what was promised to whom, at what price, under which assumptions, in words and in numbers."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from .plan import Step, events
from .privacy.accountant import compose
from .privacy.units import PrivacyUnit
from .spec import Accounting, Centering, JobSpec

REPEATABLE = (
    "NOT FOR RELEASE. This run's noise came from a fixed seed, so that it can be repeated. Whoever knows or guesses "
    "the seed can subtract the noise: the promise below does not hold, and the results must not leave the house."
)

TRUST = (
    "Each provider had to be trusted with its own rows, and with nothing of the others'. Nobody else had to be "
    "trusted, the coordinator included: noise was added where the rows are, before anything left."
)

ONE_PROCESS = (
    "All rows were in one process: whoever ran it had to be trusted with them. What the statement below covers is the "
    "model that came out, not who could look at the rows."
)


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
    parties: int
    answers: int
    releasable: bool
    federated: bool

    @classmethod
    def of(
        cls, spec: JobSpec, steps: tuple[Step, ...], *, parties: int, releasable: bool = True, federated: bool = True
    ) -> Self:
        """Work the statement out from the plan alone, as anybody with the spec can."""
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
            f"Who is protected: {self.unit.neighbours}",
            self._bounds(),
            self._price(),
            TRUST if self.federated else ONE_PROCESS,
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)

    def to_dict(self) -> dict[str, Any]:
        """Give every number, and the text, as plain values."""
        return asdict(self) | {"text": self.text}

    def _promise(self) -> str:
        return (
            f"This result is ({self.epsilon:g}, {self.delta:g})-differentially private. Whatever anyone may "
            f"conclude from it, they would have concluded almost as likely had one person's data been different: every "
            f"probability changes by a factor of at most e^{self.epsilon:g}, apart from an additional {self.delta:g}."
        )

    def _bounds(self) -> str:
        mean = f" To find the mean, rows were first shortened to length {self.mean_bound:g}." if self.mean_bound else ""
        return (
            f"Bounds: every row was shortened to Euclidean length {self.norm_bound:g} where it was longer.{mean} These "
            "bounds were chosen beforehand and not read off the data."
        )

    def _price(self) -> str:
        rule = (
            "The noise follows from exact Gaussian accounting."
            if self.accounting is Accounting.EXACT
            else "The noise follows the published formula; "
            f"exact accounting prices it at epsilon {self.exact_epsilon:.4g}."
        )
        return (
            f"Price: {self.answers} answers from each of {self.parties} provider(s); together they are "
            f"{self.mu:.6g}-Gaussian differentially private (mu = {self.mu:.6g}). {rule}"
        )
