"""What a party that joins finds in its settings."""

import pytest

from dpspca.client.enrolment import joining


@pytest.mark.parametrize(
    ("reached", "listened"),
    [
        ("localhost:7443", "localhost:7443"),
        ("127.0.0.1:7443", "127.0.0.1:7443"),
        ("127.0.0.2:7443", "127.0.0.2:7443"),
        ("hub.example:7443", "0.0.0.0:7443"),
        ("192.0.2.7:7443", "0.0.0.0:7443"),
        ("[::1]:7443", "[::1]:7443"),
        ("[2001:db8::7]:7443", "[::]:7443"),
    ],
)
def test_a_coordinator_on_this_machine_alone_listens_to_this_machine_alone(reached: str, listened: str) -> None:
    assert str(joining._everywhere(reached)) == listened
