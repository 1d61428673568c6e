"""The providers' one call, with frames written so that their content is copied once; protobuf copies it several times.

Protobuf reads a message that comes in two pieces as one: what the second piece says is added to what the first said.
So protobuf writes all but the content, and the content follows in a second piece, of which only tags and lengths are
left to write. Whoever reads it reads one ordinary message.
"""

import logging
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from . import message_parts

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ProviderService"].full_name

MOST_PARTS: Final = 2**15
"""Of a message to a provider: receipts of 1,024 others, two of each, have eight parts each."""
FEW_BYTES: Final = 2**16
"""Of a message that protobuf writes as quickly."""

_FRAMED: Final = frozenset({"frame", "answer"})
_CONTENT: Final = "content"
_LENGTH_DELIMITED: Final = 2

_log = logging.getLogger(__name__)


def serve(servicer: pb_grpc.ProviderServiceServicer, server: grpc.aio.Server) -> None:
    """Let a server answer the call."""
    handler = grpc.stream_stream_rpc_method_handler(servicer.Connect, pb.FromProvider.FromString, written)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Connect": handler})])


def connect(channel: grpc.aio.Channel) -> "grpc.aio.StreamStreamCall[pb.FromProvider, pb.ToProvider]":
    """Make the call."""
    method = channel.stream_stream(f"/{SERVICE}/Connect", written, read)
    return method()  # type: ignore[call-arg]  # the published types do not know that requests may be written later


def read(content: bytes) -> pb.ToProvider | None:
    """Read a message of a coordinator's; nothing, as at the end, where it is none or has more parts than any has.

    What a reader raises, gRPC would swallow, and write to the log with all that led there.
    """
    try:
        message_parts.count(content, pb.ToProvider.DESCRIPTOR, MOST_PARTS)
        return pb.ToProvider.FromString(content)
    except (message_parts.TooManyPartsError, DecodeError) as problem:
        _log.warning("The connection ends: the coordinator sent what is no message (%s).", type(problem).__name__)
        return None


def written(message: pb.ToProvider | pb.FromProvider) -> bytes:
    """Write a message."""
    kind = message.WhichOneof("message")
    if kind not in _FRAMED or message.ByteSize() < FEW_BYTES:
        return message.SerializeToString()
    framed, content = getattr(message, kind), b""
    envelope = type(message)()
    shell = getattr(envelope, kind)
    shell.SetInParent()
    for field, value in framed.ListFields():
        if field.name == _CONTENT:
            content = value
        elif field.message_type:
            getattr(shell, field.name).CopyFrom(value)
        else:
            setattr(shell, field.name, value)
    inner = _opening(shell, _CONTENT, len(content))
    outer = _opening(message, kind, len(inner) + len(content))
    return b"".join((envelope.SerializeToString(), outer, inner, content))


def _opening(message: Message, name: str, length: int) -> bytes:
    """Write the tag of a message's field that is as long as that, and its length."""
    return _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    """Write a number seven bits at a time, the last of them first."""
    digits = bytearray()
    while value >= 1 << 7:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*digits, value))
