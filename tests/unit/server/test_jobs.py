"""The table of a job's states: what is in it happens, everything else raises and nothing happened."""

import itertools

import pytest

from dpspca.common.errors import RefusedError
from dpspca.server.jobs import TRANSITIONS, Event, Job, Participant, State

JOB = Job("a1", "dpspca://town/analyst/ada", "cohort", 7)


def in_state(state: State) -> Job:
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
