"""Jobs whose answers providers keep: ``auto`` does without its largest matrix where a policy asks for that.

Privacy: nothing but the job and the terms that providers sign decides. The job that is signed says what was decided.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dpspca.common.errors import DpspcaError
from dpspca.common.job import JobSpec, Terms

from .connection import AwayError, DishonestCoordinatorError
from .terms import may_be_smaller, sized

_LEAST: Final = 2**20
"""Bytes that every policy keeps, so that smaller jobs need no look at the terms."""


async def sized_to_terms(
    spec: JobSpec,
    answer_bytes: int,
    ask_terms: Callable[[], Awaitable[Sequence[Terms]]],
    notify: Callable[[str], None],
) -> JobSpec:
    """Return the job, without its largest matrix if a provider would not keep an answer of that size.

    ``answer_bytes`` are those of the job's plan. Providers that show no terms, or none that can be read, change
    nothing: they decide about the job itself. A coordinator that is away or lies is an error, as everywhere.
    """
    if not may_be_smaller(spec) or answer_bytes <= _LEAST:
        return spec
    try:
        made = sized(spec, await ask_terms())
    except (AwayError, DishonestCoordinatorError):
        raise
    except DpspcaError as problem:
        notify(f"The size of the job's answers was not compared with the terms of its providers: {problem.what}")
        return spec
    if made != spec:
        notify(
            "A provider does not keep answers as large as a matrix of all columns. The job does without this matrix "
            "(matrix = false)."
        )
    return made
