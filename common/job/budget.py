"""The privacy budget of a job."""

from dataclasses import dataclass

from dpspca.common.checks import check_all, is_real
from dpspca.common.names import shortened
from dpspca.common.privacy import MAX_EPSILON, MIN_DELTA


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a job may cost one person, at each provider."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_all(
            (
                is_real(self.epsilon) and 0 < self.epsilon <= MAX_EPSILON,
                f"epsilon is {_described(self.epsilon)}. It must be greater than 0 and at most {MAX_EPSILON:g}.",
                f"{_hint(self.epsilon)}Values up to about 1 are strong promises, 10 is a weak one.",
            ),
            (
                is_real(self.delta) and MIN_DELTA < self.delta < 1,
                f"delta is {_described(self.delta)}. It must be greater than {MIN_DELTA} and less than 1.",
                f"{_hint(self.delta)}Choose a value far below 1 / (number of people), for example 1e-6.",
            ),
        )
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))


def _described(value: object) -> str:
    """Write a value, and say if it is text where a number is needed."""
    return f"the text {shortened(value)}, not a number" if isinstance(value, str) else shortened(value)


def _hint(value: object) -> str:
    return "Give a number, without quotes. " if isinstance(value, str) else ""
