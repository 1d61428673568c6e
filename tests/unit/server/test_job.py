"""The table of a job's states: what is in it happens, everything else raises and nothing happened.

And the results of finished jobs: within their limit, fairly shared, oldest first.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import RefusedError
from dpspca.server.job import TRANSITIONS, Event, JobRecord, Participant, ResultGoneError, Results, State

JOB = JobRecord("a1", "dpspca://town/analyst/ada", "cohort", 7)


def in_state(state: State) -> JobRecord:
    path = {
        State.WAITING: [],
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
def test_t09_every_pair_of_state_and_event_is_in_the_table_or_refused(state: State, event: Event) -> None:
    job = in_state(state)
    if (state, event) in TRANSITIONS:
        assert job.after(event, "why").state is TRANSITIONS[state, event]
        assert job.after(event, "why").reason == "why"
    else:
        with pytest.raises(RefusedError, match=f"{state} cannot {event}"):
            job.after(event)
    assert job.state is state


def test_nothing_leaves_a_final_state_and_everything_else_can_end() -> None:
    for state in State:
        onward = {after for (before, _), after in TRANSITIONS.items() if before is state}
        assert state.is_final == (not onward)
        if not state.is_final:
            assert State.FAILED in onward
            assert State.CANCELLED in onward


def test_done_is_reached_only_by_finishing_a_running_job() -> None:
    assert [pair for pair, after in TRANSITIONS.items() if after is State.DONE] == [(State.RUNNING, Event.FINISH)]


def test_a_participant_s_record_is_replaced_and_the_others_stay() -> None:
    job = JOB.with_participant("a", Participant(1)).with_participant("b", Participant(2))
    assert job.with_participant("a", Participant(3)).participants == {"a": Participant(3), "b": Participant(2)}
    assert job.participants["a"] == Participant(1)


def kept(results: Results, analyst: str, finished: list[int]) -> list[bool]:
    """Say of each result of an analyst, from the first finished to the last, whether it is there."""
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
def test_results_stay_within_their_limit_and_of_each_analyst_the_oldest_go_first(order: list[tuple[str, int]]) -> None:
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
def test_who_keeps_no_more_than_an_equal_share_loses_nothing_to_others(
    others: list[tuple[str, int]], own: list[int]
) -> None:
    modest = list(itertools.takewhile(lambda total: total <= MOST // 4, itertools.accumulate(own)))
    results = Results(MOST)
    for number, (theirs, mine) in enumerate(itertools.zip_longest(others, own[: len(modest)])):
        if mine is not None:
            results.keep("dora", str(number), mine)
        if theirs is not None:
            results.keep(theirs[0], f"{number} of {theirs[0]}", theirs[1])
    assert all(kept(results, "dora", own[: len(modest)]))


def test_one_analyst_alone_may_fill_all_the_room() -> None:
    results = Results(MOST)
    for number in range(10):
        results.keep("ada", str(number), 10)
    assert results.size == MOST


def test_a_result_is_there_until_it_makes_room() -> None:
    results = Results(MOST)
    assert results.keep("ada", "a", 10) == []
    results.require("ada", "a")
    assert results.keep("ada", "b", MOST) == ["a"]
    with pytest.raises(ResultGoneError, match=r"made room for newer ones.*costs its privacy again"):
        results.require("ada", "a")


def test_a_result_that_is_larger_than_the_limit_is_not_kept_and_costs_the_others_nothing() -> None:
    results = Results(MOST)
    results.keep("bea", "small", 10)
    assert results.keep("ada", "large", MOST + 1) == ["large"]
    assert results.size == results.size_of("bea") == 10


def test_a_result_of_another_analyst_is_not_read_and_one_that_was_dropped_is_gone() -> None:
    results = Results(MOST)
    results.keep("ada", "a", 1)
    for analyst, job in (("bea", "a"), ("ada", "b")):
        results.drop(analyst, job)
        with pytest.raises(ResultGoneError):
            results.require(analyst, job)
    results.require("ada", "a")
    results.drop("ada", "a")
    assert results.size == 0


def test_after_a_restart_whoever_takes_part_may_have_been_asked_what_was_recorded() -> None:
    here, gone, ahead = Participant(1, 1), Participant(1, 0, "It left."), Participant(3, 2)
    job = replace(JOB, participants={"here": here, "gone": gone, "ahead": ahead}).asked_up_to(2)
    assert job.participants == {"here": Participant(2, 1), "gone": gone, "ahead": ahead}
    assert job.asked_up_to(0) == job
