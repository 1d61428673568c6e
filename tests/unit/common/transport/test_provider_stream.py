import pytest

from dpspca.common.transport.provider_stream import FEW_BYTES, written
from dpspca.common.transport.wire import FRAME
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

SIZES = (0, 1, 127, 128, FEW_BYTES, 2**20, FRAME)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sequence", [0, 1, 300, 2**32 - 1])
def test_a_frame_is_read_as_the_message_that_was_written(size: int, sequence: int) -> None:
    message = pb.ToProvider(frame=pb.Frame(sequence=sequence, content=b"\xff" * size))
    assert pb.ToProvider.FromString(written(message)) == message


@pytest.mark.parametrize("size", SIZES)
def test_an_answer_is_read_with_every_field_that_it_has(size: int) -> None:
    receipt = pb.Receipt(ledger="of the north", entries=7, hash="h", certificate=b"c", signature=b"s")
    answer = pb.AnswerFrame(job="a job", position=3, sequence=5, content=b"\0" * size, receipt=receipt)
    told = {field.name for field, _ in answer.ListFields()} | {"content"}
    assert told == {field.name for field in pb.AnswerFrame.DESCRIPTOR.fields}
    message = pb.FromProvider(answer=answer)
    assert pb.FromProvider.FromString(written(message)) == message


def test_writing_a_message_leaves_it_as_it_is() -> None:
    message = pb.ToProvider(frame=pb.Frame(sequence=2, content=bytes(FRAME)))
    assert written(message) == written(message)


def test_messages_without_frames_are_written_by_protobuf_alone() -> None:
    messages = [
        pb.ToProvider(),
        pb.ToProvider(ask=pb.Ask(kind="count", content=bytes(FRAME))),
        pb.FromProvider(hello=pb.Hello(software="dpspca", challenge=bytes(FRAME))),
    ]
    assert [written(each) for each in messages] == [each.SerializeToString() for each in messages]
