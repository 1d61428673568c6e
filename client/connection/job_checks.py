"""Checks of a job: how long it has to be valid, whether it fits the data sets on offer, and whether it has a model."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.job import JobSpec
from dpspca.common.plan import Plan
from dpspca.common.trust import MAX_JOB_LIFE

from .errors import JobFailedError, UnpaidJobError
from .jobs import JobStatus, Offer

VALIDITY: Final = timedelta(hours=12)
"""How long a signed job is valid, unless its answers may take longer."""
_MOST_NAMED: Final = 8


def validity_of(plan: Plan) -> timedelta:
    """Return how long a signed job is valid: as long as all its answers may take, but at most ``MAX_JOB_LIFE``.

    A job with a fixed number of rows may wait days for rows that still arrive. If it expired meanwhile, it would end
    without a model after part of its price was spent. So such a job is refused if its answers might take longer than
    ``MAX_JOB_LIFE``. Other jobs are not refused: their answers come as soon as they are computed, so the sum of all
    timeouts says nothing about how long they take.
    """
    spec, waits = plan.spec, len(plan) + 2  # two more: until the providers are connected, and until they take part
    check(
        waits * spec.answer_seconds <= MAX_JOB_LIFE or catalogue.rows_of(spec) is None,
        f"The job may have to wait {waits} times answer_seconds={spec.answer_seconds} seconds (twice for its providers "
        f"and once for each answer), but a signed job is valid for at most {MAX_JOB_LIFE} seconds "
        f"({MAX_JOB_LIFE // 86_400} days).",
        f"Set answer_seconds to at most {MAX_JOB_LIFE // waits}, or use fewer rounds.",
    )
    return max(VALIDITY, timedelta(seconds=min(waits * spec.answer_seconds, MAX_JOB_LIFE)))


def require_fit(spec: JobSpec, data_set: str, names: Sequence[str], asked: Sequence[Offer]) -> None:
    """Refuse a job that cannot succeed, judged by the providers that are connected now. Others may still connect."""
    check(
        len(names) >= spec.minimum_providers,
        f"The job needs at least {spec.minimum_providers} providers (minimum_providers), but would ask {len(names)}.",
        "Name more providers, or lower minimum_providers.",
    )
    if spec.dictionary is not None:
        _require_offered(spec.schema.names or (), data_set, {each.provider: each.schema.names for each in asked})
        return
    columns = spec.schema.dimension
    for each in asked:
        check(
            each.schema.dimension == columns,
            f"The job has {columns} columns, but {data_set!r} at {each.provider} has {each.schema.dimension}.",
            "Describe the columns as they are on offer, or leave that provider out.",
        )


def require_done(status: JobStatus) -> None:
    """Raise ``JobFailedError`` if a job that is over has no model."""
    if status.state != "done":
        asked = any(each.asked for each in status.participants)
        nothing = "According to the coordinator no provider was sent a query, so this job cost nothing."
        cost = "What was asked stays spent." if asked else nothing
        kind = JobFailedError if asked else UnpaidJobError
        raise kind(f"The job ended ({status.state}): {status.reason}", cost)  # the reason ends with what to do


def _require_offered(columns: Sequence[str], data_set: str, offered: Mapping[str, Sequence[str] | None]) -> None:
    """Refuse a job whose columns a provider does not offer. ``offered`` has each provider's columns, or None."""
    for provider, names in offered.items():
        held = frozenset(columns if names is None else names)
        absent = [column for column in columns if column not in held]
        more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
        listed = ", ".join(f"{name!r:.60}" for name in absent[:_MOST_NAMED])
        check(
            not absent,
            f"{data_set!r} at {provider} does not have {listed}{more}.",
            "Leave these features out, or ask other providers. Nothing was sent.",
        )
