"""A message with too many parts is refused before protobuf parses it."""

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from messages import messages

from dpspca.common.transport import message_parts, provider_stream
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MANY = 100_000


def test_parts_are_counted_at_every_depth() -> None:
    job = pb.Job(job="a", state="done", participants=[pb.Participant(name="b", asked=3), pb.Participant()])
    assert message_parts.count(job.SerializeToString(), pb.Job.DESCRIPTOR, 6) == 6
    with pytest.raises(message_parts.TooManyPartsError):
        message_parts.count(job.SerializeToString(), pb.Job.DESCRIPTOR, 5)


def test_text_and_bytes_count_as_one_part() -> None:
    ask = pb.ToProvider(frame=pb.Frame(sequence=1, content=b"\x0a\x00" * MANY))
    assert message_parts.count(ask.SerializeToString(), pb.ToProvider.DESCRIPTOR, 3) == 3


@given(messages("Job"))
def test_every_message_that_protobuf_writes_can_be_counted(job: pb.Job) -> None:
    message_parts.count(job.SerializeToString(), pb.Job.DESCRIPTOR, MANY)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_counted_or_refused(content: bytes) -> None:
    with suppress(DecodeError, message_parts.TooManyPartsError):
        message_parts.count(content, pb.ToProvider.DESCRIPTOR, 20)


def test_a_deeply_nested_message_is_refused() -> None:
    content = b""
    for _ in range(200):  # a participant in a job, and so on: no real message, but it has the form of one
        content = b"\x4a" + bytes([len(content) & 0x7F]) + content[: len(content) & 0x7F]
    with pytest.raises((DecodeError, message_parts.TooManyPartsError)):
        message_parts.count(content + b"\xff", pb.Job.DESCRIPTOR, MANY)


BOMBS = {
    "returned receipts": pb.ToProvider(returned_receipts=pb.ReturnedReceipts(receipts=[pb.Receipt()] * MANY)),
    "receipts to keep": pb.ToProvider(farewell=pb.Farewell(receipts=[pb.HeldReceipt()] * MANY)),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_provider_refuses_a_message_with_100000_parts(what: str) -> None:
    assert provider_stream.parse(BOMBS[what].SerializeToString()) is None


def test_a_provider_reads_an_honest_coordinator_s_largest_message() -> None:
    receipt = pb.Receipt(ledger="l" * 32, entries=9, hash="h" * 64, certificate=b"c" * 900, signature=b"s" * 72)
    held = [pb.HeldReceipt(provider=f"site-{number}", receipt=receipt) for number in range(2 * 1024)]
    farewell = pb.ToProvider(farewell=pb.Farewell(job="j" * 64, state="done", receipts=held))
    assert provider_stream.parse(farewell.SerializeToString()) == farewell
