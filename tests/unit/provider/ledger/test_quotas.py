"""Quotas bound what one analyst's jobs take, from their signed plans, however little privacy they cost."""

from pathlib import Path
from typing import Any

import pytest
from facts import facts
from ledgers import LIMITS, Place, opening, reserve, respond

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.provider.ledger.ledger import Limits, MemoryLedger
from dpspca.provider.ledger.quotas import DAY, MEBIBYTE, QuotaError, Quotas
from dpspca.provider.policy.rules import Policy

NOON = 100 * DAY + DAY // 2
OTHER = "dpspca://town/analyst/second"
FREE: dict[str, Any] = {"units": 0, "slack_units": 0}


def held(**quotas: int) -> Limits:
    return Limits(LIMITS.data_set, quotas=Quotas(**quotas))


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> MemoryLedger:
    return MemoryLedger(clock)


def test_open_jobs_of_an_analyst_are_bounded(ledger: MemoryLedger) -> None:
    limits = held(open_jobs=2)
    for job in ("first", "second"):
        ledger.open(opening(job, **FREE), limits)
    with pytest.raises(QuotaError, match=facts("open_jobs = 2", "2 jobs", "first")):
        ledger.open(opening("third", **FREE), limits)
    ledger.open(opening("first", **FREE), limits)  # it is open already
    ledger.open(opening("another's", analyst=OTHER, **FREE), limits)
    ledger.close("first", "done")
    ledger.open(opening("third", **FREE), limits)


def test_jobs_a_day_are_bounded_with_or_without_queries(ledger: MemoryLedger, clock: Clock) -> None:
    limits = held(jobs_a_day=3)
    for number in range(3):
        ledger.open(opening(f"job {number}", **FREE), limits)
        ledger.close(f"job {number}", "cancelled")
    with pytest.raises(QuotaError, match=facts("jobs_a_day = 3", "3 jobs", "first", "00:00 UTC")):
        ledger.open(opening("late", **FREE), limits)
    ledger.open(opening("another's", analyst=OTHER, **FREE), limits)
    clock.now = 101 * DAY
    ledger.open(opening("late", **FREE), limits)


@pytest.mark.parametrize("days", [-3650, -1, 1, 3650])
def test_a_wrong_clock_locks_no_analyst_out(ledger: MemoryLedger, clock: Clock, days: int) -> None:
    clock.now += days * DAY
    ledger.open(opening("under the wrong clock", **FREE), held(jobs_a_day=1))
    clock.now = NOON
    ledger.open(opening("under the right clock", **FREE), held(jobs_a_day=1))


def test_planned_queries_count_against_the_quota(ledger: MemoryLedger) -> None:
    limits = held(queries_a_day=100)
    ledger.open(opening("first", queries=60, **FREE), limits)
    with pytest.raises(QuotaError, match=facts("queries_a_day = 100", "41 queries", 60)):
        ledger.open(opening("second", queries=41, **FREE), limits)
    ledger.open(opening("second", queries=40, **FREE), limits)


def test_answers_of_open_jobs_are_bounded_by_analyst_and_in_all(ledger: MemoryLedger) -> None:
    limits = held(answer_mebibytes=10, answer_mebibytes_in_all=15)
    ledger.open(opening("first", answer_bytes=8 * MEBIBYTE, **FREE), limits)
    with pytest.raises(QuotaError, match=facts("answer_mebibytes = 10", "3 MiB", "8 MiB")):
        ledger.open(opening("second", answer_bytes=2 * MEBIBYTE + 1, **FREE), limits)
    with pytest.raises(QuotaError, match=facts("answer_mebibytes_in_all = 15", "8 MiB")):
        ledger.open(opening("another's", analyst=OTHER, answer_bytes=8 * MEBIBYTE, **FREE), limits)
    ledger.close("first", "done")
    ledger.open(opening("another's", analyst=OTHER, answer_bytes=8 * MEBIBYTE, **FREE), limits)


def test_quotas_survive_a_restart_for_jobs_that_were_asked(tmp_path: Path) -> None:
    place = Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")
    limits = held(jobs_a_day=2, answer_mebibytes=10)
    with place.start() as ledger:
        ledger.open(opening("first", answer_bytes=6 * MEBIBYTE), limits)
        respond(ledger, "first", 0)
        ledger.open(opening("never asked", answer_bytes=MEBIBYTE), limits)
    with place.start() as ledger:
        with pytest.raises(QuotaError, match=facts("answer_mebibytes = 10", "5 MiB", "6 MiB")):
            ledger.open(opening("second", answer_bytes=5 * MEBIBYTE), limits)
        ledger.open(opening("second", answer_bytes=4 * MEBIBYTE), limits)
        assert reserve(ledger, "second", 0)
        with pytest.raises(QuotaError, match=facts("jobs_a_day = 2", "2 jobs", "first")):
            ledger.open(opening("third"), limits)


def test_an_exceeded_quota_is_a_refusal_with_its_own_code() -> None:
    assert issubclass(QuotaError, RefusedError)
    assert QuotaError.code == "quota-exceeded"


def test_quotas_are_whole_numbers_from_one() -> None:
    for wrong in (0, -1, 2**41):
        with pytest.raises(InvalidParameterError, match=facts("open_jobs")):
            Quotas(open_jobs=wrong)


SAMPLE = Path(__file__).parents[4] / "deploy" / "samples" / "policy.toml"


def test_the_default_quotas_are_those_of_the_sample_policy() -> None:
    said = SAMPLE.read_text()
    silent = "\n".join(line for line in said.splitlines() if not line.startswith("quotas"))
    assert Policy.parse(silent).rules("cohort").quotas == Policy.parse(said).rules("cohort").quotas == Quotas()
    some = f"{silent}\n[data_sets.cohort.quotas]\nopen_jobs = 3"
    assert Policy.parse(some).rules("cohort").quotas == Quotas(open_jobs=3)
    with pytest.raises(InvalidParameterError, match=facts("'jobs'", "'open_jobs'")):
        Policy.parse(some.replace("open_jobs", "jobs"))


@pytest.mark.parametrize(("own", "everybody"), [(3, 7), (7, 3)])
def test_the_answers_of_one_job_may_be_as_large_as_both_quotas_allow(own: int, everybody: int) -> None:
    allowed = Quotas(answer_mebibytes=own, answer_mebibytes_in_all=everybody)
    assert allowed.largest_answers == 3 * MEBIBYTE
