"""Where a model comes from: the method, the data set, who took part, who dropped out and why, and the software. Pure.

In a federation, the names of providers and of the data set come from the signed job. Who dropped out, and how many
queries were answered, is what the coordinator reported.
"""

from dataclasses import asdict, dataclass
from typing import Any

from dpspca.common.decoding import Count


@dataclass(frozen=True, slots=True)
class Participant:
    """A provider that the job names: how many queries it answered, and why it dropped out, if it did."""

    name: str
    answered: Count
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a model was made. Fields that do not apply to a run in one process are None or empty."""

    method: str
    queries: Count
    """Queries that were answered and added up."""
    software: str
    """The version of dpspca that made the model."""
    data_set: str | None = None
    job: str | None = None
    participants: tuple[Participant, ...] = ()

    @property
    def took_part(self) -> tuple[str, ...]:
        """The providers that answered every query."""
        return tuple(each.name for each in self.participants if each.answered == self.queries)

    @property
    def dropped_out(self) -> tuple[Participant, ...]:
        """The providers that the job names and that did not answer every query."""
        return tuple(each for each in self.participants if each.answered != self.queries)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"participants": [asdict(each) for each in self.participants]}
