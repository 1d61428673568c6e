"""The providers' stream, with frames serialised so that their content is copied only once. Protobuf copies it often.

Protobuf parses two concatenated messages as one and merges their fields. So protobuf serialises everything except the
content, and the content follows as a second message, of which only tags and lengths are written here. The receiver
parses one ordinary message.
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

MAX_PARTS: Final = 2**15
"""Parts of a message to a provider: two receipts of each of 1,024 other providers have eight parts each."""
SMALL_MESSAGE_BYTES: Final = 2**16
"""Below this size, protobuf serialises a message just as fast."""

_FRAMED: Final = frozenset({"frame", "answer"})
_CONTENT: Final = "content"
_LENGTH_DELIMITED: Final = 2

_log = logging.getLogger(__name__)


def serve(servicer: pb_grpc.ProviderServiceServicer, server: grpc.aio.Server) -> None:
    """Make a server accept the call."""
    handler = grpc.stream_stream_rpc_method_handler(servicer.Connect, pb.FromProvider.FromString, serialize)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Connect": handler})])


def connect(channel: grpc.aio.Channel) -> "grpc.aio.StreamStreamCall[pb.FromProvider, pb.ToProvider]":
    """Make the call."""
    method = channel.stream_stream(f"/{SERVICE}/Connect", serialize, parse)
    return method()  # type: ignore[call-arg]  # the published types do not allow requests to be written later


def parse(content: bytes) -> pb.ToProvider | None:
    """Parse a coordinator's message. Return None, as at the end of the stream, if it is invalid or has too many parts.

    If this raised instead, gRPC would swallow the error and log its whole traceback.
    """
    try:
        message_parts.count(content, pb.ToProvider.DESCRIPTOR, MAX_PARTS)
        return pb.ToProvider.FromString(content)
    except (message_parts.TooManyPartsError, DecodeError) as problem:
        _log.warning("The connection ends: the coordinator sent an invalid message (%s).", type(problem).__name__)
        return None


def serialize(message: pb.ToProvider | pb.FromProvider) -> bytes:
    """Serialise a message."""
    kind = message.WhichOneof("message")
    if kind not in _FRAMED or message.ByteSize() < SMALL_MESSAGE_BYTES:
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
    inner = _field_start(shell, _CONTENT, len(content))
    outer = _field_start(message, kind, len(inner) + len(content))
    return b"".join((envelope.SerializeToString(), outer, inner, content))


def _field_start(message: Message, name: str, length: int) -> bytes:
    """Return the tag and the length that precede a field's content."""
    return _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    """Encode a number in groups of seven bits, lowest first."""
    digits = bytearray()
    while value >= 1 << 7:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*digits, value))
