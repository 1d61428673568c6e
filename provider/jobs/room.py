"""Which open jobs stay in memory when others are opened.

A job that was forgotten is opened again when it is asked about, and loses nothing. A job of range-projection is
different: its nonce and its sketch are random, and in memory alone. If they were forgotten, the rest of the job could
not be answered, though it was paid for. So no other job pushes it out. In return, each analyst has few such jobs.
"""

from typing import Final

from dpspca.common.errors import RefusedError
from dpspca.common.plan import Plan
from dpspca.common.queries import SketchQuery

from .open_job import OpenJob

MOST_SKETCHES: Final = 4
"""Jobs of one analyst whose sketches may be in memory. A sketch has a number for each row and each of its columns."""


def require_room_for_sketch(jobs: dict[str, OpenJob], signed: str, analyst: str, plan: Plan) -> None:
    """Refuse a job with a sketch if its analyst has too many. Those without draws so far are forgotten instead."""
    if not _has_sketch(plan):
        return
    own = [name for name, job in jobs.items() if job.envelope.analyst == analyst and _has_sketch(job.plan)]
    own = [name for name in own if name != signed]
    for name in own:
        if len(own) >= MOST_SKETCHES and jobs[name].retire(loses_draws=False):
            del jobs[name]
            own = [each for each in own if each != name]
    if len(own) >= MOST_SKETCHES:
        raise RefusedError(
            f"{len(own)} jobs of {analyst} with the method range-projection are in progress at this "
            f"provider, and it keeps the sketches of at most {MOST_SKETCHES} of one analyst in memory.",
            "Wait until one is over, or cancel one. Then sign this job again.",
        )


def forget_least_used(jobs: dict[str, OpenJob], most: int) -> None:
    """Forget jobs in this order while there are too many: none that is busy or has draws, and not the last one."""
    for name, job in list(jobs.items())[:-1]:
        if len(jobs) > most and job.retire(loses_draws=False):
            del jobs[name]


def _has_sketch(plan: Plan) -> bool:
    return any(issubclass(step.query, SketchQuery) for step in plan)
