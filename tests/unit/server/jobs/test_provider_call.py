"""A provider that is not ready is asked again until the deadline; any other refusal ends its part in a job at once."""

import asyncio
from itertools import islice

import pytest
from facts import names_facts

from dpspca.common.errors import AskAgainError, BusyError, RowsNotReadyError
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs import provider_call
from dpspca.server.jobs.provider_call import ask_until_replied, pauses
from dpspca.server.jobs.roster import Link

NOT_READY = [BusyError.code, AskAgainError.code, RowsNotReadyError.code]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_call, "FIRST_PAUSE", 0.01)


def ask_provider(*codes: str, seconds: float = 60) -> tuple[str | None, int]:
    """Ask a provider that refuses with these codes, one after the other, and then admits the job.

    Return the reason why it drops out, and how often it was asked.
    """
    asked = 0

    async def scenario() -> str | None:
        link = Link("north", {})

        async def wait() -> Link:
            return link

        async def ask(link: Link, _: asyncio.Timeout) -> None:
            nonlocal asked
            reply = asyncio.ensure_future(link.admit(b"", "a", lambda *_: None))
            await asyncio.sleep(0)
            if asked < len(codes):
                link.receive_refusal(pb.Refusal(job="a", code=codes[asked], what="Not now."))
            else:
                link.receive_admission(pb.Admitted(job="a"))
            await link.next_message(1)
            asked += 1
            await reply

        return await ask_until_replied(wait, ask, seconds, lambda: "No reply.")

    return asyncio.run(scenario()), asked


@pytest.mark.parametrize("code", NOT_READY)
def test_a_provider_that_is_not_ready_is_asked_again(code: str) -> None:
    assert ask_provider(code, code) == (None, 3)


def test_any_other_refusal_is_final() -> None:
    reason, asked = ask_provider("refused", "refused")
    assert asked == 1
    assert reason is not None
    assert names_facts(reason, "Refused", "Not now.")


def test_one_that_never_gets_ready_drops_out_with_its_own_reason() -> None:
    reason, asked = ask_provider(*["busy"] * 100, seconds=0.1)
    assert 1 < asked < 100
    assert reason is not None
    assert reason.startswith("No reply. Refused (busy): Not now.")


def test_pauses_double_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_call, "FIRST_PAUSE", 1.0)
    assert list(islice(pauses(), 8)) == [1, 2, 4, 8, 16, 30, 30, 30]
