"""A short run of ``make random-kills``: real daemons over mutual TLS are killed and stopped while jobs run."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_invariants import JobOutcome, ProcessDeath, RunRecord, problems
from random_kills import random_strikes, run_with_kills

from dpspca.common.job import Budget
from dpspca.provider.ledger.entries import Head

SEED, STRIKES = 4, 20


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return asyncio.run(run_with_kills(tmp_path_factory.mktemp("random-kills"), SEED, STRIKES))


@pytest.mark.nightly
def test_i1_to_i5_hold_for_real_daemons_killed_and_stopped_at_random(record: RunRecord) -> None:
    summary = record.summary()
    assert summary["problems"] == [], f"make random-kills KILLS={STRIKES} SEED={SEED}: {summary}"
    assert sum(record.strikes.values()) == STRIKES
    assert summary["jobs"]["done"] > 0


def _done(record: RunRecord) -> JobOutcome:
    return next(each for each in record.outcomes if each.model)


def _with(record: RunRecord, **changes: Any) -> RunRecord:
    """Return the record with changes to the first job that is done."""
    done = _done(record)
    return replace(record, outcomes=[replace(each, **changes) if each is done else each for each in record.outcomes])


def _overstated(record: RunRecord) -> RunRecord:
    status = _done(record).status
    participants = tuple(replace(each, answered=each.answered + 1) for each in status.participants)
    return _with(record, status=replace(status, participants=participants))


def _other_model(record: RunRecord) -> RunRecord:
    model = _done(record).model
    assert model
    return _with(record, model=replace(model, components=-model.components))


DISHONEST_ANSWERS: dict[str, Callable[[RunRecord], RunRecord]] = {
    "ended with 9": lambda record: replace(record, codes={"north": 9}),
    "jobs that nobody signed": lambda record: replace(record, outcomes=[]),
    "became another": lambda record: replace(record, remembered=[replace(record.remembered[0], reason="other")]),
    "no end, or no reason": lambda record: _with(record, status=replace(_done(record).status, state="running")),
    "has no answer to": _overstated,
    "the model is not the one": _other_model,
    "what was asked costs": lambda record: _with(record, spec=replace(_done(record).spec, budget=Budget(0.2, 1e-6))),
    "is not there any more": lambda record: replace(record, deaths=[ProcessDeath("north", Head("", 2, "0" * 64))]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("found", DISHONEST_ANSWERS)
def test_the_checks_find_every_changed_record(record: RunRecord, found: str) -> None:
    assert any(found in problem for problem in problems(DISHONEST_ANSWERS[found](record)))


@pytest.mark.nightly
def test_the_checks_find_a_lost_answer(record: RunRecord, tmp_path: Path) -> None:
    folder = shutil.copytree(record.daemons.enrolment.folder, tmp_path / "copy")
    spoiled = replace(
        record, daemons=replace(record.daemons, enrolment=replace(record.daemons.enrolment, folder=folder))
    )
    done = _done(record)
    site = next(each.name for each in done.status.participants if each.answered)
    with closing(sqlite3.connect(spoiled.daemons.ledger(site), isolation_level=None)) as ledger:
        ledger.execute("DELETE FROM answers WHERE job = ? AND position = 0", (done.name,))
    assert any("has no answer to 1" in problem for problem in problems(spoiled))


def test_equal_seeds_draw_equal_strikes() -> None:
    assert random_strikes(7, 50) == random_strikes(7, 50) != random_strikes(8, 50)
    assert random_strikes(7, 50)[:20] == random_strikes(7, 20)
