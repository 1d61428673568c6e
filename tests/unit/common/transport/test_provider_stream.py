import pytest

from dpspca.common.transport.provider_stream import SMALL_MESSAGE_BYTES, serialize
from dpspca.common.transport.wire import FRAME
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

SIZES = (0, 1, 127, 128, SMALL_MESSAGE_BYTES, 2**20, FRAME)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sequence", [0, 1, 300, 2**32 - 1])
def test_a_serialised_frame_is_parsed_as_the_same_message(size: int, sequence: int) -> None:
    message = pb.ToProvider(frame=pb.Frame(sequence=sequence, content=b"\xff" * size))
    assert pb.ToProvider.FromString(serialize(message)) == message


@pytest.mark.parametrize("size", SIZES)
def test_a_serialised_answer_keeps_every_field(size: int) -> None:
    receipt = pb.Receipt(ledger="of the north", entries=7, hash="h", certificate=b"c", signature=b"s")
    answer = pb.AnswerFrame(job="a job", position=3, sequence=5, content=b"\0" * size, receipt=receipt)
    fields = {field.name for field, _ in answer.ListFields()} | {"content"}
    assert fields == {field.name for field in pb.AnswerFrame.DESCRIPTOR.fields}
    message = pb.FromProvider(answer=answer)
    assert pb.FromProvider.FromString(serialize(message)) == message


def test_serialising_a_message_does_not_change_it() -> None:
    message = pb.ToProvider(frame=pb.Frame(sequence=2, content=bytes(FRAME)))
    assert serialize(message) == serialize(message)


def test_messages_without_frames_are_serialised_by_protobuf() -> None:
    messages = [
        pb.ToProvider(),
        pb.ToProvider(query=pb.Query(kind="count", content=bytes(FRAME))),
        pb.FromProvider(hello=pb.Hello(software="dpspca", challenge=bytes(FRAME))),
    ]
    assert [serialize(each) for each in messages] == [each.SerializeToString() for each in messages]
