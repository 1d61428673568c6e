"""What a coordinator says about who is connected: read within bounds, in words, and never believed further."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from facts import facts

from dpspca.client.connection.bounds import MESSAGE_BYTES
from dpspca.client.connection.calls import CoordinatorLink
from dpspca.client.connection.errors import TooMuchError
from dpspca.client.connection.presence import Presence, presences, require_admissible
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.names import MAX_NAME
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.storage import MAX_DATA_SETS
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs.roster import MAX_REASON_LENGTH

SINCE = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def party(**changes: Any) -> Presence:
    usual: dict[str, Any] = {"role": "provider", "name": "north", "state": "away", "since": SINCE}
    return Presence.of(pb.Party(**usual | changes))


class Teller:
    """A coordinator that says whatever a test wants."""

    def __init__(self, *told: pb.Party, endless: bool = False) -> None:
        self._told = told
        self._endless = endless

    async def Parties(self, _: Any, timeout: float) -> AsyncIterator[pb.Party]:  # noqa: ASYNC109, N802  # its signature
        for each in self._told:
            yield each
        for number in count() if self._endless else ():
            yield pb.Party(name=f"site-{number}", state="away")


def asked(teller: Teller, *providers: str) -> list[Presence]:
    return asyncio.run(presences(teller, CoordinatorLink(retry_seconds=0), providers))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "not connected since 2023-11-14 22:13:20 UTC"),
        ({"since": 0.0}, "not connected"),
        ({"since_start": True}, "not connected since the coordinator started at 2023-11-14 22:13:20 UTC"),
        ({"state": "revoked"}, "its certificate was revoked; not connected since 2023-11-14 22:13:20 UTC"),
        ({"state": "expired", "since": 0.0}, "its certificate has expired; not connected"),
        ({"state": "unknown", "since": 0.0}, "unknown to the coordinator: check the name; not connected"),
        ({"state": "of a later version"}, "not connected since 2023-11-14 22:13:20 UTC"),
    ],
)
def test_an_absence_is_explained_in_words(changes: dict[str, Any], words: str) -> None:
    assert party(**changes).absence == words
    assert not party(**changes).is_connected


@pytest.mark.parametrize(
    "changes",
    [{"name": "a b"}, {"name": ""}, {"since": 1e300}, {"since": float("nan")}, {"data_sets": ["\x1b[2J"]}],
)
def test_what_no_coordinator_says_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DpspcaError):
        party(**changes)


def test_without_names_no_call_is_made_and_other_names_are_left_out() -> None:
    told = pb.Party(name="north", state="connected"), pb.Party(name="mallory", state="connected")
    assert asked(Teller(*told)) == []
    assert [each.name for each in asked(Teller(*told), "north", "south")] == ["north"]


@pytest.mark.parametrize("name", ["a b", "", 3, None])
def test_an_invalid_name_is_refused_before_a_call(name: Any) -> None:
    with pytest.raises(DpspcaError, match=facts("provider", repr(name))):
        asked(Teller(), "north", name)


def test_t35_an_endless_answer_is_given_up() -> None:
    with pytest.raises(TooMuchError, match=facts("2 parties")):
        asked(Teller(endless=True), "north", "south")


def test_t35_one_provider_is_not_revoked_a_thousand_times() -> None:
    told = [pb.Party(name="north", state="revoked")] * 1000
    with pytest.raises(TooMuchError, match=facts("1 parties")):
        asked(Teller(*told), "north")
    assert len(asked(Teller(*told[:2]), "north", "south")) == 1


def test_t35_an_answer_takes_no_more_memory_than_an_honest_one() -> None:
    """The names of as many data sets as a provider may offer, of one letter: many times as large when they are read."""
    names = [f"site-{number}" for number in range(MAX_PROVIDERS)]
    most = MESSAGE_BYTES["Parties"]
    honest = pb.Party(name="x" * MAX_NAME, data_sets=["x" * MAX_NAME] * MAX_DATA_SETS, since=SINCE)
    assert honest.ByteSize() <= most < 2 * honest.ByteSize()
    told = [pb.Party(name=each, data_sets=["ab"] * (most // 4)) for each in names]
    with pytest.raises(TooMuchError, match=facts(2**22)):
        asked(Teller(*told), *names)


def test_the_longest_status_of_a_job_is_read_with_room_for_new_fields() -> None:
    reason = "\U0001f40c" * MAX_REASON_LENGTH
    whole = pb.Participant(name="x" * MAX_NAME, reason=reason, answered=2**32 - 1, asked=2**32 - 1)
    whole.awaiting_approval_since = SINCE
    status = pb.Job(job="0" * 64, reason=reason * MAX_PROVIDERS, participants=[whole] * MAX_PROVIDERS)
    assert 2 * status.ByteSize() < MESSAGE_BYTES["Watch"] < 4 * status.ByteSize()


def test_only_a_revoked_provider_is_not_waited_for() -> None:
    require_admissible([party(state=state) for state in ("connected", "away", "expired", "unknown")])
    with pytest.raises(RefusedError, match=facts("north")):
        require_admissible([party(state="revoked"), party(name="south")])
