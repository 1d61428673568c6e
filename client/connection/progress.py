"""The progress of a job: answers, bytes transferred, epsilon spent, and time.

The counts come from the coordinator, which is not trusted, and no promise depends on them. The epsilon is computed
here, from the job.
"""

from dataclasses import dataclass

from dpspca.common.plan import Plan

from .jobs import JobStatus


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job. ``answers`` counts those to the latest query; other numbers cover all queries so far."""

    done: int
    total: int
    name: str
    answers: int
    bytes_moved: int
    epsilon: float
    budget: float
    seconds: float


def job_progress(plan: Plan, status: JobStatus, seconds: float) -> JobProgress:
    """Return the progress of a watched job ``seconds`` after its start."""
    return JobProgress(
        done=status.answered,
        total=status.queries,
        name=status.step or status.state,
        answers=sum(0 < status.answered <= each.answered for each in status.participants),
        bytes_moved=status.bytes_moved,
        epsilon=plan.epsilon_after(status.answered),
        budget=plan.spec.budget.epsilon,
        seconds=seconds,
    )
