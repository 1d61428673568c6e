import asyncio
import math
from pathlib import Path

import numpy as np
import pytest
from facts import facts
from local_federation import Enrolment, now

from dpspca.common.errors import RefusedError
from dpspca.common.job import Schema
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.transport.wire import AnswerReader
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs.roster import (
    MAX_QUEUED,
    MAX_REASON_LENGTH,
    Link,
    ProviderLostError,
    ProviderRefusedError,
    Roster,
)
from dpspca.server.rpc.provider_service import ProviderService


def reader() -> AnswerReader:
    return AnswerReader(np.zeros(1, dtype=np.int64), 100)


def ask(link: Link, job: str, frames: int = 1) -> "asyncio.Task[None]":
    content = [memoryview(job.encode())] * frames
    return asyncio.ensure_future(link.ask(pb.Query(position=0, kind=job), job, content, reader()))


def test_frames_of_two_queries_do_not_mix() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        asked = [ask(link, "a", 3 * MAX_QUEUED), ask(link, "b", 3 * MAX_QUEUED)]
        messages = [await link.next_message(5) for _ in range(2 + 6 * MAX_QUEUED)]
        kinds = [message.query.kind or message.frame.content.decode() for message in messages if message]
        assert kinds == ["a"] * (3 * MAX_QUEUED + 1) + ["b"] * (3 * MAX_QUEUED + 1)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(scenario())


def admit(link: Link, job: str) -> "asyncio.Task[None]":
    return asyncio.ensure_future(link.admit(job.encode(), job, lambda *_: None))


def test_a_wait_for_approval_is_heard_only_with_times_that_are_numbers() -> None:
    async def scenario() -> None:
        link, heard = Link("north", {}), list[tuple[float, float]]()
        asked = asyncio.ensure_future(link.admit(b"a", "a", lambda *times: heard.append(times)))
        await asyncio.sleep(0)
        for since, until in ((1.0, math.nan), (-math.inf, 2.0), (1.0, 2.0)):
            link.receive_wait(pb.AwaitingApproval(job="a", since=since, until=until))
        link.receive_wait(pb.AwaitingApproval(job="b", since=1.0, until=2.0))
        assert heard == [(1.0, 2.0)]
        assert not asked.done()
        link.receive_admission(pb.Admitted(job="a"))
        await asked

    asyncio.run(scenario())


def test_a_job_is_admitted_by_an_admission_and_not_by_an_answer() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        asked = admit(link, "a")
        message = await link.next_message(5)
        assert message
        assert message.admit.signed_job == b"a"
        link.receive_admission(pb.Admitted(job="b"))
        for position in (0, 2**32 - 1):
            link.receive_answer(pb.AnswerFrame(job="a", position=position, content=bytes(8)))
        await asyncio.sleep(0)
        assert not asked.done()
        link.receive_admission(pb.Admitted(job="a"))
        await asked
        link.receive_admission(pb.Admitted(job="a"))  # a second one, for which nobody waits

    asyncio.run(scenario())


def test_admission_fails_if_the_provider_refuses_or_is_lost() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        refused, lost = admit(link, "a"), admit(link, "b")
        await asyncio.sleep(0)
        link.receive_refusal(pb.Refusal(job="a", what="No.", remedy="Ask."))
        with pytest.raises(ProviderRefusedError, match=facts("No")):
            await refused
        link.close()
        with pytest.raises(ProviderLostError):
            await lost
        with pytest.raises(ProviderLostError):
            await link.admit(b"a", "a", lambda *_: None)

    asyncio.run(scenario())


def test_an_admission_is_not_sent_between_the_frames_of_a_query() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        asked = [ask(link, "a", 3 * MAX_QUEUED)]
        await asyncio.sleep(0)
        asked.append(admit(link, "b"))
        messages = [await link.next_message(5) for _ in range(2 + 3 * MAX_QUEUED)]
        kinds = [message.WhichOneof("message") for message in messages if message]
        assert kinds == ["query", *["frame"] * (3 * MAX_QUEUED), "admit"]
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(scenario())


def test_a_query_without_frames_is_sent_at_once_but_not_between_frames() -> None:
    def whole(link: Link, job: str) -> "asyncio.Task[None]":
        return asyncio.ensure_future(link.ask(pb.Query(kind=job, content=b"all of it"), job, [], reader()))

    async def scenario() -> None:
        link = Link("north", {})
        asked = [whole(link, "a")]
        await asyncio.sleep(0)
        first = link.next_message(5)
        with pytest.raises(StopIteration) as found:
            first.send(None)  # the message is ready, so this does not wait
        assert found.value.value.query.kind == "a"
        asked += [ask(link, "b", 3 * MAX_QUEUED)]
        for _ in range(3):
            await asyncio.sleep(0)
        asked += [whole(link, "c")]
        messages = [await link.next_message(5) for _ in range(2 + 3 * MAX_QUEUED)]
        kinds = [message.query.kind or message.frame.content.decode() for message in messages if message]
        assert kinds == ["b"] * (3 * MAX_QUEUED + 1) + ["c"]
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(scenario())


def test_queries_wait_while_a_provider_does_not_read() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        queries = [pb.Query(position=number, content=b"all of it") for number in range(3 * MAX_QUEUED)]
        asked = [asyncio.ensure_future(link.ask(each, "a", [], reader())) for each in queries]
        await asyncio.sleep(0)
        assert link._outbound.qsize() == MAX_QUEUED
        found = [await link.next_message(5) for _ in queries]
        assert [message.query.position for message in found if message] == list(range(3 * MAX_QUEUED))
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(scenario())


def test_waiting_for_a_message_ends_at_its_time_limit() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        assert await link.next_message(0.01) is None
        link.send_farewell("a", "done")
        message = await link.next_message(0.01)
        assert message is not None
        assert message.farewell.job == "a"
        await asyncio.sleep(0.03)  # the first call's timer was cancelled
        assert await link.next_message(0.01) is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "quoted"),
    [
        ("data-changed", "Refused (data-changed): "),
        ("refused", "Refused: "),
        ("", "Refused: "),
        ("Oh\x1b[2J no", "Refused: "),
    ],
)
def test_a_refusal_quotes_its_code_if_it_has_the_form_of_one(code: str, quoted: str) -> None:
    async def scenario() -> None:
        link = Link("north", {})
        task = ask(link, "a")
        await asyncio.sleep(0)
        link.receive_refusal(pb.Refusal(job="a", position=0, code=code, what="No.", remedy="Ask."))
        with pytest.raises(ProviderRefusedError) as caught:
            await task
        assert caught.value.what == f"{quoted}No."

    asyncio.run(scenario())


def test_a_provider_s_reason_becomes_one_short_line() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        task = ask(link, "a")
        await asyncio.sleep(0)
        link.receive_refusal(pb.Refusal(job="a", position=0, what="\x1b[2J\n" + "x" * 5000, remedy="Wait."))
        with pytest.raises(ProviderRefusedError) as caught:
            await task
        assert caught.value.what.isprintable()
        assert len(caught.value.what) <= MAX_REASON_LENGTH + 20
        assert caught.value.remedy == "Wait."

    asyncio.run(scenario())


def test_a_new_link_replaces_the_provider_s_old_link() -> None:
    async def scenario() -> None:
        roster = Roster()
        first, second = Link("north", {"cohort": Schema(3)}), Link("north", {"cohort": Schema(3)})
        roster.join(first)
        task = ask(first, "a")
        await asyncio.sleep(0)
        roster.join(second)
        with pytest.raises(ProviderLostError):
            await task
        assert isinstance(first.ended_by, RefusedError)
        roster.leave(first)  # late: the new link stays
        assert roster.find("north", "cohort", 3) is second
        assert roster.find("north", "cohort", 4) is None
        await roster.close_all()
        assert second.closed

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_closed_link_sends_nothing_and_accepts_no_query() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        link.close()
        assert await link.next_message(5) is None
        with pytest.raises(ProviderLostError):
            await ask(link, "a")
        link.send_farewell("a", "done")
        assert await link.next_message(5) is None

    asyncio.run(scenario())


def frame(entries: int | None) -> pb.AnswerFrame:
    return pb.AnswerFrame(receipt=pb.Receipt(entries=entries) if entries is not None else None)


def test_at_most_one_receipt_is_read_for_each_query() -> None:
    async def scenario() -> None:
        link = Link("north", {})
        assert link.take_receipt(frame(1)) is None
        asked = [ask(link, job) for job in "ab"]
        await asyncio.sleep(0)
        assert link.take_receipt(frame(None)) is None
        asked[0].cancel()
        await asyncio.gather(*asked[:1], return_exceptions=True)
        assert [link.take_receipt(frame(number)) is not None for number in range(4)] == [True, True, False, False]
        asked.append(ask(link, "c"))
        await asyncio.sleep(0)
        link.close()
        assert link.take_receipt(frame(5)) is None
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(scenario())


def test_t12_the_longest_receipt_of_the_last_connection_is_kept() -> None:
    async def scenario() -> None:
        roster = Roster()
        first, second = Link("north", {}), Link("north", {})
        for entries, kept in ((7, 7), (9, 9), (8, 9)):
            roster.keep_receipt(first, pb.Receipt(entries=entries))
            assert roster.receipts["north"].entries == kept
        roster.keep_receipt(second, pb.Receipt(entries=3))
        recorded = roster.receipts_of(["north", "south"])
        assert {name: pb.Receipt.FromString(each).entries for name, each in recorded.items()} == {"north": 3}

    asyncio.run(scenario())


def test_a_receipt_held_for_an_invalid_name_does_not_end_the_stream(tmp_path: Path) -> None:
    """Provider names in messages are not trusted."""
    enrolment = Enrolment.create(tmp_path)
    me = enrolment.identity(Role.PROVIDER, "north")

    async def scenario() -> None:
        roster, link = Roster(), Link("north", {})
        door = rpc.CallerCheck(me.authority_pem, enrolment.revocations, now, {})
        service = ProviderService(door, roster, lambda: me)
        odd = [pb.HeldReceipt(provider=name) for name in ("", "a b", "x" * 10_000, "north")]
        await service._exchange_held_receipts(link, me.name, odd)
        assert roster.held_receipts == {}

    asyncio.run(scenario())
