"""What a daemon's log says of connections that ended, and how long it waits until it dials again."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import virtual_time
from grpc.aio import AioRpcError, Metadata
from local_federation import AllowEverything, now

from dpspca.common.errors import RefusedError
from dpspca.provider.connection import daemon
from dpspca.provider.jobs.registry import ProviderSetup


def ended(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details)


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        ([ended(grpc.StatusCode.UNAUTHENTICATED, "It was revoked.")], "UNAUTHENTICATED, It was revoked."),
        (
            [ended(grpc.StatusCode.INTERNAL, "Internal error from Core")],
            "the coordinator ended it while a message was being sent, so its reason is lost",
        ),
        ([ended(grpc.StatusCode.INTERNAL, "Received RST_STREAM")], "INTERNAL, Received RST_STREAM"),
        ([RefusedError("One.", "Do."), RefusedError("Two.", "Do.")], "One. Do.; Two. Do."),
    ],
)
def test_the_end_of_a_connection_is_logged_in_one_line(problems: list[Exception], said: str) -> None:
    group = ExceptionGroup("several", [ExceptionGroup("within", [problem]) for problem in problems])
    assert daemon._describe_all(group) == said


# --- The pauses between connections -----------------------------------------------------------------------------------

DIALS = 12
LASTING = daemon.LONGEST_PAUSE + 1
GROWING = [*(daemon.FIRST_PAUSE * 2**turn for turn in range(1, 8)), daemon.LONGEST_PAUSE]
"""After connections that do not last: 0.4 seconds, then twice as much each time, up to half a minute."""


@dataclass
class Fate:
    """What becomes of a connection."""

    lasts: float = 0.0
    welcomed: bool = False
    problem: Exception | None = None


class Dialling(daemon.Daemon):
    """A daemon whose connections end as they are fated to, and which notes when it dials."""

    def __init__(self, fates: Iterable[Fate]) -> None:
        super().__init__(ProviderSetup("", _nobody, _nobody, now, {}, AllowEverything))
        self._fates = iter(fates)
        self.dialled: list[float] = []
        self.hung_up: list[float] = []

    async def _serve(self) -> None:
        clock = asyncio.get_running_loop().time
        fate = next(self._fates, None)
        if fate is None:
            raise asyncio.CancelledError
        self.dialled.append(clock())
        if fate.welcomed:
            self.connected.set()
        await asyncio.sleep(fate.lasts)
        self.hung_up.append(clock())
        if fate.problem:
            raise fate.problem


def _nobody() -> Any:
    """Stand for what is asked of whoever connects, which nobody does here."""
    return SimpleNamespace(authority_pem=b"")


def pauses(fates: Sequence[Fate]) -> list[float]:
    """Let connections have these fates, one after the other, and one more, and give the seconds between them.

    The loop's clock jumps to whatever comes next: nobody waits.
    """
    made = Dialling([*fates, Fate()])

    async def scene() -> None:
        with suppress(asyncio.CancelledError):
            await made.run()

    virtual_time.run(scene(), Random(0))
    return [begin - end for end, begin in zip(made.hung_up, made.dialled[1:], strict=False)]


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take chance away: every pause is as long as it is on average."""
    monkeypatch.setattr(daemon, "randbelow", lambda below: below // 2)


ENDINGS = [
    None,
    ended(grpc.StatusCode.UNAVAILABLE, "Nobody is there."),
    TimeoutError(),
    RefusedError("No.", "Go."),
    OSError("A disk is full."),
]


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("problem", ENDINGS, ids=lambda problem: type(problem).__name__)
def test_pauses_double_up_to_the_longest_however_connections_end(problem: Exception | None) -> None:
    longest = [daemon.LONGEST_PAUSE] * (DIALS - len(GROWING))
    assert pauses([Fate(problem=problem)] * DIALS) == pytest.approx([*GROWING, *longest])


@pytest.mark.usefixtures("steady")
def test_pauses_restart_only_after_a_connection_that_lasted() -> None:
    short, lasting, barely = Fate(), Fate(LASTING), Fate(daemon.LONGEST_PAUSE)
    assert pauses([short, short, lasting, short, barely, short]) == pytest.approx(
        [*GROWING[:2], daemon.FIRST_PAUSE, *GROWING[:3]]
    )


@pytest.mark.usefixtures("steady")
def test_pauses_stay_short_while_the_coordinator_welcomes_the_provider() -> None:
    welcomed = [each for each in GROWING if each < daemon.LONGEST_WELCOME_PAUSE]
    met = [*welcomed, *[daemon.LONGEST_WELCOME_PAUSE] * (DIALS - len(welcomed))]
    assert pauses([Fate(welcomed=True)] * DIALS) == pytest.approx(met)
    assert pauses([*[Fate(welcomed=True)] * DIALS, Fate(), Fate()]) == pytest.approx(
        [*met, 2 * daemon.LONGEST_WELCOME_PAUSE, 4 * daemon.LONGEST_WELCOME_PAUSE]
    )


def test_pauses_are_randomised() -> None:
    """From half to one and a half of it, and near either end of that as well, each with a probability of 0.3.

    False alarm: 2 * 0.7^300, less than 1e-46.
    """
    shares = [each / daemon.FIRST_PAUSE for each in pauses([Fate(LASTING)] * 300)]
    assert min(shares) >= 0.5 - 1e-6
    assert max(shares) < 1.5
    assert min(shares) < 0.8
    assert max(shares) > 1.2
