"""The rate limit of each party does not depend on the others."""

from dpspca.common.names import PartyName, Role
from dpspca.server.rpc.call_rates import CALLS_A_SECOND, MAX_BURST, CallRates

ADA, BEA = (PartyName("town", Role.ANALYST, name) for name in ("ada", "bea"))


def test_a_party_above_its_rate_waits_and_others_do_not() -> None:
    now = 0.0
    rates = CallRates(lambda: now)
    assert [rates.take(ADA) for _ in range(MAX_BURST + 1)] == [True] * MAX_BURST + [False]
    assert rates.seconds_until(ADA) == 1 / CALLS_A_SECOND
    assert rates.take(BEA)
    now = 1.0
    assert [rates.take(ADA) for _ in range(CALLS_A_SECOND + 1)] == [True] * CALLS_A_SECOND + [False]
    now = 1000.0
    assert sum(rates.take(ADA) for _ in range(10 * MAX_BURST)) == MAX_BURST
