"""Which open jobs stay in memory when others are opened.

A job that was forgotten is opened again when it is asked about, and loses nothing. A job of range-projection is
different: its nonce and its sketch are random, and in memory alone. If they were forgotten, the rest of the job could
not be answered, though it was paid for. So no other job pushes it out. In return, each analyst has few such jobs.
"""

from collections.abc import Mapping
from typing import Final

from dpspca.common.errors import RefusedError
from dpspca.common.plan import Plan
from dpspca.common.queries import SketchQuery

from .open_job import OpenJob

MOST_SKETCHES: Final = 4
"""Jobs of one analyst whose sketches may be in memory. A sketch has a number for each row and each of its columns."""


class SketchLimit:
    """The jobs with a sketch of each analyst. Used under the lock of the jobs."""

    def __init__(self, jobs: Mapping[str, OpenJob]) -> None:
        self._jobs = jobs
        self._opening: dict[str, str] = {}

    def take(self, name: str, analyst: str, plan: Plan) -> None:
        """Let a job be opened, or refuse it before anything is reserved if its analyst has too many with a sketch."""
        if not _has_sketch(plan):
            return
        held = {each for each, job in self._jobs.items() if job.envelope.analyst == analyst and _has_sketch(job.plan)}
        held |= {each for each, by in self._opening.items() if by == analyst}
        if len(held - {name}) >= MOST_SKETCHES:
            raise RefusedError(
                f"{len(held)} jobs of {analyst} with the method range-projection are in progress at this provider, and "
                f"it keeps the sketches of at most {MOST_SKETCHES} of one analyst in memory.",
                "Wait until one is over, or cancel one. Then sign this job again.",
            )
        self._opening[name] = analyst

    def opened(self, name: str) -> None:
        """Note that a job is among the open ones, or was refused."""
        self._opening.pop(name, None)


def forget_least_used(jobs: dict[str, OpenJob], most: int) -> list[object]:
    """Forget jobs in this order while there are too many: none that is busy or has a sketch, and not the last one.

    Return what has to be freed, which takes longer than anybody may wait.
    """
    return [
        jobs.pop(name)
        for name in list(jobs)[:-1]
        if len(jobs) > most and not _has_sketch(jobs[name].plan) and jobs[name].retire()
    ]


def _has_sketch(plan: Plan) -> bool:
    return any(issubclass(step.query, SketchQuery) for step in plan)
