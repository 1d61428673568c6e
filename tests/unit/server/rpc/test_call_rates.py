"""Each party begins so many calls a second, whatever others do."""

from dpspca.common.names import PartyName, Role
from dpspca.server.rpc.call_rates import CALLS_A_SECOND, MOST_AT_ONCE, Rations

ADA, BEA = (PartyName("town", Role.ANALYST, name) for name in ("ada", "bea"))


def test_a_party_that_has_spent_its_share_waits_and_others_do_not() -> None:
    now = 0.0
    rations = Rations(lambda: now)
    assert [rations.take(ADA) for _ in range(MOST_AT_ONCE + 1)] == [True] * MOST_AT_ONCE + [False]
    assert rations.wait(ADA) == 1 / CALLS_A_SECOND
    assert rations.take(BEA)
    now = 1.0
    assert [rations.take(ADA) for _ in range(CALLS_A_SECOND + 1)] == [True] * CALLS_A_SECOND + [False]
    now = 1000.0
    assert sum(rations.take(ADA) for _ in range(10 * MOST_AT_ONCE)) == MOST_AT_ONCE
