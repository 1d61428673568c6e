"""The table of a job's states, and the limit on stored results.

An event that the table does not list raises. Results are shared fairly between analysts, and the oldest go first.
"""

import itertools
from dataclasses import replace

import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import RefusedError
from dpspca.server.job_states import TRANSITIONS, Event, JobParticipant, JobRecord, ResultGoneError, Results, State

JOB = JobRecord("a1", "dpspca://town/analyst/ada", "cohort", 7)


def in_state(state: State) -> JobRecord:
    path = {
        State.WAITING: [],
        State.AWAITING_APPROVAL: [Event.AWAIT],
        State.RUNNING: [Event.BEGIN],
        State.DONE: [Event.BEGIN, Event.FINISH],
        State.FAILED: [Event.FAIL],
        State.CANCELLED: [Event.CANCEL],
    }[state]
    job = JOB
    for event in path:
        job = job.after(event)
    return job


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_t09_an_event_is_in_the_table_of_states_or_refused(state: State, event: Event) -> None:
    job = in_state(state)
    if (state, event) in TRANSITIONS:
        assert job.after(event, "why").state is TRANSITIONS[state, event]
        assert job.after(event, "why").reason == "why"
    else:
        with pytest.raises(RefusedError, match=facts(state, event)):
            job.after(event)
    assert job.state is state


def test_final_states_have_no_transitions_and_all_others_can_end() -> None:
    for state in State:
        onward = {after for (before, _), after in TRANSITIONS.items() if before is state}
        assert state.is_final == (not onward)
        if not state.is_final:
            assert State.FAILED in onward
            assert State.CANCELLED in onward


def test_done_is_reached_only_by_finishing_a_running_job() -> None:
    assert [pair for pair, after in TRANSITIONS.items() if after is State.DONE] == [(State.RUNNING, Event.FINISH)]


def test_a_reason_of_several_providers_is_said_once() -> None:
    participants = {
        name: JobParticipant(reason=reason)
        for name, reason in (("north", "Refused: No."), ("south", ""), ("east", "Refused: No."), ("west", "Gone."))
    }
    assert replace(JOB, participants=participants).losses == "north, east: Refused: No. west: Gone."
    assert JOB.losses == ""


def test_a_job_that_begins_or_ends_waits_for_no_approval() -> None:
    job = JOB.with_participant("north", JobParticipant(awaiting_since=5.0, awaiting_until=9.0)).after(Event.AWAIT)
    assert job.participants["north"].awaiting_since == 5.0
    for event in (Event.BEGIN, Event.FAIL, Event.CANCEL):
        assert job.after(event).participants["north"] == JobParticipant()


def test_replacing_one_participant_keeps_the_others() -> None:
    job = JOB.with_participant("a", JobParticipant(1)).with_participant("b", JobParticipant(2))
    assert job.with_participant("a", JobParticipant(3)).participants == {"a": JobParticipant(3), "b": JobParticipant(2)}
    assert job.participants["a"] == JobParticipant(1)


def kept(results: Results, analyst: str, finished: list[int]) -> list[bool]:
    """Return which of an analyst's results are stored, from the first finished to the last."""
    return [is_there(results, analyst, str(number)) for number, _ in enumerate(finished)]


def is_there(results: Results, analyst: str, job: str) -> bool:
    try:
        results.require(analyst, job)
    except ResultGoneError:
        return False
    return True


MOST = 100
FINISHED = st.lists(st.tuples(st.sampled_from(["ada", "bea", "cleo"]), st.integers(1, 60)), max_size=40)


@given(FINISHED)
def test_results_stay_within_their_limit_and_the_oldest_go_first(order: list[tuple[str, int]]) -> None:
    results = Results(MOST)
    finished: dict[str, list[int]] = {}
    for analyst, size in order:
        own = finished.setdefault(analyst, [])
        results.keep(analyst, str(len(own)), size)
        own.append(size)
        assert results.size <= MOST
        for name, sizes in finished.items():
            there = kept(results, name, sizes)
            assert there == sorted(there)
            assert results.size_of(name) == sum(itertools.compress(sizes, there))


@given(FINISHED, st.lists(st.integers(1, 15), max_size=40))
def test_an_analyst_within_an_equal_share_loses_no_result(others: list[tuple[str, int]], own: list[int]) -> None:
    modest = list(itertools.takewhile(lambda total: total <= MOST // 4, itertools.accumulate(own)))
    results = Results(MOST)
    for number, (theirs, mine) in enumerate(itertools.zip_longest(others, own[: len(modest)])):
        if mine is not None:
            results.keep("dora", str(number), mine)
        if theirs is not None:
            results.keep(theirs[0], f"{number} of {theirs[0]}", theirs[1])
    assert all(kept(results, "dora", own[: len(modest)]))


def test_one_analyst_alone_may_use_the_whole_limit() -> None:
    results = Results(MOST)
    for number in range(10):
        results.keep("ada", str(number), 10)
    assert results.size == MOST


def test_a_result_is_stored_until_a_newer_one_needs_its_room() -> None:
    results = Results(MOST)
    assert results.keep("ada", "a", 10) == []
    results.require("ada", "a")
    assert results.keep("ada", "b", MOST) == ["a"]
    with pytest.raises(ResultGoneError, match=facts(MOST)):
        results.require("ada", "a")


def test_a_result_above_the_limit_is_not_stored_and_displaces_no_other() -> None:
    results = Results(MOST)
    results.keep("bea", "small", 10)
    assert results.keep("ada", "large", MOST + 1) == ["large"]
    assert results.size == results.size_of("bea") == 10


def test_another_analyst_s_or_a_dropped_result_is_refused() -> None:
    results = Results(MOST)
    results.keep("ada", "a", 1)
    for analyst, job in (("bea", "a"), ("ada", "b")):
        results.drop(analyst, job)
        with pytest.raises(ResultGoneError):
            results.require(analyst, job)
    results.require("ada", "a")
    results.drop("ada", "a")
    assert results.size == 0


def test_after_a_restart_remaining_participants_count_as_asked() -> None:
    here, gone, ahead = JobParticipant(1, 1), JobParticipant(1, 0, "It left."), JobParticipant(3, 2)
    job = replace(JOB, participants={"here": here, "gone": gone, "ahead": ahead}).with_asked_at_least(2)
    assert job.participants == {"here": JobParticipant(2, 1), "gone": gone, "ahead": ahead}
    assert job.with_asked_at_least(0) == job
