"""Says how a job stands: who answered, how much was moved, how much privacy was spent, how long it took.

The counts are the coordinator's word, and nothing rests on them. What the answers cost is worked out here, from the
job.
"""

from dataclasses import dataclass

from dpspca.client.jobs import JobStatus, spent
from dpspca.common.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands; answers are those to the latest question, the rest is of all answers so far."""

    done: int
    total: int
    name: str
    answers: int
    bytes_moved: int
    epsilon: float
    budget: float
    seconds: float


def standing_of(spec: JobSpec, status: JobStatus, seconds: float) -> Standing:
    """Describe a watched job as it is now, ``seconds`` after its start."""
    return Standing(
        done=status.answered,
        total=status.questions,
        name=status.step or status.state,
        answers=sum(0 < status.answered <= each.answered for each in status.participants),
        bytes_moved=status.bytes_moved,
        epsilon=spent(spec, status.answered),
        budget=spec.budget.epsilon,
        seconds=seconds,
    )
