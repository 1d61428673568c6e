"""Whatever an analyst asks, the answer is about the providers that it named, once each, and about no analyst."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs import Link, Roster
from dpspca.server.rpc import PartyService

ADA, BOB = (PartyName("town", Role.ANALYST, name) for name in ("ada", "bob"))
NAMES = st.sampled_from(["north", "south", "bob", "ada", "hub", "nobody"]) | st.text(max_size=3)


class Door:
    """Admits one caller."""

    authority_pem = b""

    def __init__(self, caller: PartyName) -> None:
        self._caller = caller

    async def admit(self, *_: Any) -> PartyName:
        return self._caller

    def revocations(self) -> None:
        return None

    def clock(self) -> None:
        return None


def answers(caller: PartyName, names: list[str]) -> list[pb.Party]:
    async def ask() -> list[pb.Party]:
        roster = Roster()
        for name in ("north", "south"):
            roster.join(Link(name, {}))
        door: Any = Door(caller)
        service = PartyService(door, roster, lambda: [(ADA, b""), (BOB, b"")])
        nowhere: Any = None
        return [each async for each in service.Parties(pb.PartiesRequest(providers=names), nowhere)]

    return asyncio.run(ask())


@given(st.lists(NAMES, max_size=MAX_PROVIDERS + 2))
def test_t36_an_analyst_learns_about_the_providers_that_it_names(names: list[str]) -> None:
    try:
        told = answers(ADA, names)
    except DpspcaError:
        return
    assert 0 < len(names) <= MAX_PROVIDERS
    assert [each.name for each in told] == [*dict.fromkeys(names)]
    assert {each.role for each in told} == {Role.PROVIDER}
    assert {each.name for each in told if each.state == "connected"} == {"north", "south"} & {*names}
