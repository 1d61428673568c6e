"""The result of a job is printed completely, including what is missing and why."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from facts import names_facts
from local_federation import spec

from dpspca import simulate
from dpspca.cli.render import progress
from dpspca.client.connection.jobs import JobStatus, ParticipantStatus
from dpspca.common.algorithms import catalogue

ROWS = [np.random.default_rng(site).standard_normal((200, 30)) for site in range(2)]
STAYED = ParticipantStatus("north", 5, 5, "")
LEFT = ParticipantStatus("south", 3, 2, "Refused: no more.")
NEVER_CAME = ParticipantStatus("west", 0, 0, "Not connected.")


def status(*participants: ParticipantStatus) -> JobStatus:
    return JobStatus(
        "a" * 64, "dpspca://town/analyst/ada", "cohort", "done", "", 5, 5, "", 0, datetime.now(UTC), None, participants
    )


@pytest.mark.parametrize("others", [[], [NEVER_CAME]])
@pytest.mark.parametrize("left", [[], [LEFT]])
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_a_result_explains_missing_variance_if_a_provider_left(
    tmp_path: Path, others: list[ParticipantStatus], left: list[ParticipantStatus], *, asked: bool, known: bool
) -> None:
    model = simulate(ROWS, spec(explained_variance=known))
    files = progress.ResultFiles(tmp_path / "model.dpspca", None, replace=False)
    facts = files.write(catalogue.plan(spec(explained_variance=asked)), status(STAYED, *left, *others), model)
    notes = [re.match("The explained variance is not known: south ", note) for note in facts["notes"]]
    assert len(notes) == (asked and bool(left) and not known)
    assert all(notes)


REFUSED = ParticipantStatus("west", 0, 0, "Refused: no policy.")


@pytest.mark.parametrize(
    ("lost", "states", "output"),
    [
        (
            LEFT,
            [("running", 2, ""), ("running", 3, ""), ("running", 4, ""), ("done", 5, "")],
            ["", LEFT.reason, "", ""],
        ),
        (LEFT, [("running", 2, ""), ("failed", 2, f"Too few: {LEFT.reason}")], ["", ""]),
        (LEFT, [("running", 2, ""), ("cancelled", 2, "Cancelled.")], ["", LEFT.reason]),
        (REFUSED, [("waiting", 0, ""), ("running", 0, ""), ("running", 1, "")], ["", REFUSED.reason, ""]),
        (REFUSED, [("waiting", 0, ""), ("failed", 0, f"Too few: {REFUSED.reason}")], ["", ""]),
    ],
)
def test_a_lost_provider_is_reported_once_unless_it_ends_the_job(
    lost: ParticipantStatus, states: list[tuple[str, int, str]], output: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    follower = progress.Follower(catalogue.plan(spec()))
    for (state, answered, reason), words in zip(states, output, strict=True):
        now = replace(status(STAYED, lost), state=state, answered=answered, reason=reason)
        follower.follow(now, lambda _: None)
        assert capsys.readouterr().err == (f"{lost.name} dropped out: {words}\n" if words else "")


def test_a_provider_name_cannot_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = progress.ResultFiles(tmp_path / "model.dpspca", None, replace=False)
    strange = ParticipantStatus("\x1b[2Jgone", 3, 2, "no")
    model = simulate(ROWS, spec(explained_variance=False))
    progress.print_result(files.write(catalogue.plan(spec(explained_variance=True)), status(STAYED, strange), model))
    printed = capsys.readouterr().out
    assert "not known: \\x1b[2Jgone " in printed
    assert "\x1b[2J" not in printed


def test_a_wait_for_approval_and_its_end_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    since = datetime(2026, 1, 31, 12, tzinfo=UTC)
    waits = ParticipantStatus("north", 0, 0, "", since, since + timedelta(hours=1))
    plan = catalogue.plan(spec())
    states = [
        replace(status(waits, NEVER_CAME), state="waiting for approval", answered=0),
        replace(status(waits), state="waiting for approval", answered=0),
        replace(status(replace(waits, awaiting_approval_since=None)), state="running", answered=0),
        replace(status(replace(waits, awaiting_approval_since=None)), state="running", answered=1),
    ]
    with progress.show_job_progress(plan, quiet=False) as show:
        for each in states:
            show(each)
    written = capsys.readouterr().err
    assert written.count("waiting for approval by north") == 1
    assert names_facts(written, "2026-01-31 12:00:00", "2026-01-31 13:00:00")
    assert written.count("approved by north") == 1
