"""Quotas: how much of a provider's disk, memory and log one analyst's jobs may take, apart from privacy. Pure.

What a job takes follows from its signed plan, before it is admitted, and from the ledger. Quotas are not part of the
privacy promise. A day is a UTC day by the provider's clock, so a wrong clock can only start a daily quota too early.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from dpspca.common.checks import check_whole
from dpspca.common.decoding import between
from dpspca.common.errors import RefusedError

DAY: Final = 86_400
MEBIBYTE: Final = 2**20
MOST: Final = 2**40
_END: Final = "Wait until other jobs are over, or cancel one"
_TOMORROW: Final = "Sign it after 00:00 UTC"
_SMALLER: Final = "Plan fewer rounds, columns or components"


class QuotaError(RefusedError):
    """A job would exceed a quota. Refusing it costs no budget."""

    code = "quota-exceeded"


Amount: TypeAlias = Annotated[int, between(1, MOST)]


@dataclass(frozen=True, slots=True)
class Quotas:
    """The most that one analyst's jobs may take at this provider, on all its data sets together."""

    open_jobs: Amount = 100
    """Jobs that are open at the same time."""
    jobs_a_day: Amount = 1_000
    """Jobs that are admitted in a day."""
    queries_a_day: Amount = 50_000
    """Queries in the plans of these jobs."""
    answer_mebibytes: Amount = 4_096
    """Planned answers of open jobs. They are stored until their job is over."""
    answer_mebibytes_in_all: Amount = 16_384
    """The same for all analysts together."""

    @property
    def largest_answers(self) -> int:
        """The bytes that the answers of one job may take, if no other job is open."""
        return MEBIBYTE * min(self.answer_mebibytes, self.answer_mebibytes_in_all)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_whole(name, getattr(self, name), least=1, most=MOST)


@dataclass(frozen=True, slots=True)
class JobSize:
    """The resources that a job uses: its number of queries, and the bytes of their answers."""

    queries: int = 0
    answer_bytes: int = 0


@dataclass(slots=True)
class _Taken:
    """The resources that one analyst's jobs use."""

    open_jobs: int = 0
    answer_bytes: int = 0
    day: int = 0
    jobs: int = 0
    queries: int = 0

    def of_day(self, at: int) -> tuple[int, int]:
        """Return the number of jobs that were admitted on the day of a time, and of their queries."""
        return (self.jobs, self.queries) if self.day == at // DAY else (0, 0)


class Usage:
    """The resources that every analyst's jobs use."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, _Taken] = defaultdict(_Taken)
        self._answer_bytes = 0

    def begin(self, analyst: str, plan: JobSize, at: int) -> None:
        """Count a job that is admitted."""
        taken = self._taken[analyst]
        jobs, queries = taken.of_day(at)
        taken.day, taken.jobs, taken.queries = at // DAY, jobs + 1, queries + plan.queries
        taken.open_jobs += 1
        taken.answer_bytes += plan.answer_bytes
        self._answer_bytes += plan.answer_bytes

    def end(self, analyst: str, plan: JobSize) -> None:
        """Count a job that is over, whose stored answers are deleted."""
        taken = self._taken[analyst]
        taken.open_jobs -= 1
        taken.answer_bytes -= plan.answer_bytes
        self._answer_bytes -= plan.answer_bytes

    def require_room(self, analyst: str, plan: JobSize, quotas: Quotas, at: int) -> None:
        """Refuse a job that would exceed a quota. Nothing is counted."""
        for quota, needed, what, remedy in self._needed(analyst, plan, at):
            most = getattr(quotas, quota)
            if needed > most:
                raise QuotaError(
                    f"This job exceeds the provider's quota {quota} = {most}. {what}",
                    f"{remedy}, or ask the steward to raise {quota} in the policy's quotas.",
                )

    def _needed(self, analyst: str, plan: JobSize, at: int) -> Iterator[tuple[str, int, str, str]]:
        """Yield each quota's name, how much of it would be taken, that in words, and what an analyst can do."""
        taken, who = self._taken.get(analyst, _Taken()), analyst.rpartition("/")[2]
        jobs, queries = taken.of_day(at)
        yield "open_jobs", taken.open_jobs + 1, f"{taken.open_jobs} jobs of {who} are open here.", _END
        yield "jobs_a_day", jobs + 1, f"{jobs} jobs of {who} were admitted here today (UTC).", _TOMORROW
        yield (
            "queries_a_day",
            queries + plan.queries,
            f"It plans {plan.queries} queries, and {who}'s other jobs of today (UTC) {queries}.",
            f"Plan fewer rounds. {_TOMORROW}",
        )
        own, everybody = taken.answer_bytes + plan.answer_bytes, self._answer_bytes + plan.answer_bytes
        its = f"Its answers take {_mebibytes(plan.answer_bytes)} MiB"
        others = f"those of {who}'s open jobs {_mebibytes(taken.answer_bytes)} MiB"
        yield "answer_mebibytes", _mebibytes(own), f"{its}, and {others}.", f"{_SMALLER}. {_END}"
        beside = f"{its}, which is more than the answers of all open jobs leave."
        yield "answer_mebibytes_in_all", _mebibytes(everybody), beside, f"{_SMALLER}. {_END}"


def _mebibytes(size: int) -> int:
    return -(-size // MEBIBYTE)
