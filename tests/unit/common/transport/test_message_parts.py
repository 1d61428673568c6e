"""A message with more parts than any has is refused before protobuf reads it."""

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


def test_text_and_bytes_are_one_part_whatever_they_hold() -> None:
    ask = pb.ToProvider(frame=pb.Frame(sequence=1, content=b"\x0a\x00" * MANY))
    assert message_parts.count(ask.SerializeToString(), pb.ToProvider.DESCRIPTOR, 3) == 3


@given(messages("Job"))
def test_whatever_protobuf_writes_is_counted(job: pb.Job) -> None:
    message_parts.count(job.SerializeToString(), pb.Job.DESCRIPTOR, MANY)


@given(st.binary(max_size=200))
def test_whatever_bytes_come_are_counted_or_refused(content: bytes) -> None:
    with suppress(DecodeError, message_parts.TooManyPartsError):
        message_parts.count(content, pb.ToProvider.DESCRIPTOR, 20)


def test_a_message_nested_without_end_is_refused() -> None:
    content = b""
    for _ in range(200):  # a participant in a job, and so on: no real message, yet it has the form of one
        content = b"\x4a" + bytes([len(content) & 0x7F]) + content[: len(content) & 0x7F]
    with pytest.raises((DecodeError, message_parts.TooManyPartsError)):
        message_parts.count(content + b"\xff", pb.Job.DESCRIPTOR, MANY)


BOMBS = {
    "receipts to witness": pb.ToProvider(witness=pb.Witness(receipts=[pb.Receipt()] * MANY)),
    "receipts to keep": pb.ToProvider(farewell=pb.Farewell(receipts=[pb.HeldReceipt()] * MANY)),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_provider_reads_no_message_of_a_hundred_thousand_parts(what: str) -> None:
    assert provider_stream.read(BOMBS[what].SerializeToString()) is None


def test_a_provider_reads_the_longest_message_that_an_honest_coordinator_sends() -> None:
    receipt = pb.Receipt(ledger="l" * 32, entries=9, hash="h" * 64, certificate=b"c" * 900, signature=b"s" * 72)
    held = [pb.HeldReceipt(provider=f"site-{number}", receipt=receipt) for number in range(2 * 1024)]
    farewell = pb.ToProvider(farewell=pb.Farewell(job="j" * 64, state="done", receipts=held))
    assert provider_stream.read(farewell.SerializeToString()) == farewell
