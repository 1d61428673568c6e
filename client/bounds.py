"""How much a client reads of what a coordinator sends, for the coordinator may be malicious.

Each call has a bound on the bytes of one message, on the number of messages, on their bytes together and on its time.
A message that is too long, or has too many parts, is refused before protobuf reads it (see ``transport/parts.py``).
Each bound is a multiple of what an honest coordinator can have to say, and small beside a machine's
memory. Whatever exceeds one ends the call with a ``TooMuchError``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

from dpspca.common.algorithms import catalogue
from dpspca.common.privacy.lattice import MAX_PARTIES
from dpspca.common.spec import JobSpec
from dpspca.common.transport import parts
from dpspca.common.transport.signing import MAX_JOB_BYTES, MAX_JOB_LIFE
from dpspca.common.transport.wire import FRAME
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .errors import TooMuchError, UnreadableError

ANSWER_SECONDS: Final = 60.0
"""For an answer that should come at once."""
LIST_SECONDS: Final = 600.0
"""For a whole list, over a slow connection too."""
SLOWEST: Final = 1024
"""Bytes a second: a model that comes more slowly is given up."""

MOST_JOBS: Final = 1000
"""A coordinator remembers 250 jobs of one analyst."""
MOST_OFFERS: Final = 2**15
MOST_LIST_BYTES: Final = 2**24
"""Of a list of jobs, with what each participant takes."""
MOST_OFFER_BYTES: Final = 2**29
"""Of a list of offers as it is sent; providers that offer the same columns repeat their names."""
MOST_COLUMN_BYTES: Final = 2**25
"""Of the columns that differ, with what each name takes: 400,000 names of 15 letters."""
PER_PARTICIPANT: Final = 128
PER_COLUMN: Final = 64
PER_OFFER: Final = 512
"""Bytes of memory beyond those that are sent."""

_STATUS: Final = 2**20
"""A job's state: 1,024 participants, each with a reason of 300 letters, and all of these reasons once more."""
_OFFER: Final = 2**21
"""A data set: a provider tells 262,144 letters of its columns' names at most."""
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["AnalystService"]
_ENVELOPE: Final = 64
_HEADING: Final = 2**16
"""A model's heading without the names of its features: shapes, and the privacy statement."""

MESSAGE_BYTES: Final = MappingProxyType(
    {
        "Submit": _STATUS,
        "Watch": _STATUS,
        "List": _STATUS,
        "Get": _STATUS + MAX_JOB_BYTES,
        "Cancel": _STATUS,
        "Result": FRAME + _ENVELOPE,
        "DataSets": _OFFER,
    }
)
"""The longest reply of each method; a method that is not listed is never called."""

MOST_PARTS: Final = 5 * MAX_PARTIES + 100
"""Of a reply: a participant is one, and each of its four fields."""
MOST_COLUMNS: Final = 2**18
"""Of an offer: a provider tells so many letters of names."""

Reader: TypeAlias = Callable[[bytes], Any]
Reply = TypeVar("Reply")


class Sized(Protocol):
    """A message."""

    def ByteSize(self) -> int:  # noqa: N802  # protobuf's name
        """Give its length in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one call is replied: so many messages called ``what``, with so many bytes together."""

    what: str
    messages: int
    size: int


class Count:
    """What one call was replied so far."""

    def __init__(self, most: Bound) -> None:
        self._most = most
        self._messages = 0
        self._size = 0

    def add(self, message: Sized) -> None:
        """Count a message; one too many, or a byte too many, is refused."""
        self._messages += 1
        self.add_bytes(message.ByteSize())
        if self._messages > self._most.messages:
            raise TooMuchError.of(f"more than {self._most.messages} {self._most.what}", self._most.messages)

    def add_bytes(self, size: int) -> None:
        """Count bytes beyond those of messages."""
        self._size += size
        if self._size > self._most.size:
            raise TooMuchError.of(f"{self._most.what} of more than {self._most.size} bytes", self._most.size)


OFFERS: Final = Bound("offers of data sets", MOST_OFFERS, MOST_OFFER_BYTES)
COLUMNS: Final = Bound("names of columns", MOST_OFFERS, MOST_COLUMN_BYTES)
JOBS: Final = Bound("jobs", MOST_JOBS, MOST_JOBS * _STATUS)
LISTED: Final = Bound("jobs and participants", MOST_JOBS, MOST_LIST_BYTES)
WATCH_SECONDS: Final = MAX_JOB_LIFE + LIST_SECONDS
"""For the states of a job: its signature holds no longer than ``MAX_JOB_LIFE``."""


def states_of(spec: JobSpec, providers: int) -> Bound:
    """Bound the states that a job goes through: each question is asked of each provider, answered, and summed up."""
    messages = 100 + 4 * (len(catalogue.plan(spec)) + 1) * (providers + 1)
    return Bound("states of a job", messages, messages * _STATUS)


def model_of(spec: JobSpec) -> Bound:
    """Bound a job's model: components, a mean, two rows of variances, and its heading; and the frames of it."""
    k, d = spec.components, spec.schema.dimension
    size = 8 * (k * d + d + 2 * k) + heading_of(spec)
    return Bound("frames of a model", size // FRAME + 2, size + _ENVELOPE * (size // FRAME + 2))


def heading_of(spec: JobSpec) -> int:
    """Bound a model's heading: JSON that is read whole, which takes far more memory than it has bytes."""
    return _HEADING + len(json.dumps(spec.schema.names))


def seconds_for(size: int) -> float:
    """Give the seconds for so many bytes."""
    return ANSWER_SECONDS + size / SLOWEST


class Bounded:
    """A channel that holds each reply to the size that its method allows, before the reply is read.

    gRPC swallows what a reader raises and writes it to the log, so a problem is given in the place of the message;
    ``message_of`` raises it.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def unary_unary(self, path: str, *, response_deserializer: Reader, **others: Any) -> Any:  # noqa: ANN401
        """Make a method with one reply."""
        return self._channel.unary_unary(path, response_deserializer=_reader(path, response_deserializer), **others)

    def unary_stream(self, path: str, *, response_deserializer: Reader, **others: Any) -> Any:  # noqa: ANN401
        """Make a method with any number of replies."""
        return self._channel.unary_stream(path, response_deserializer=_reader(path, response_deserializer), **others)


def _reader(path: str, read: Reader) -> Reader:
    method = path.rpartition("/")[2]
    most, of = MESSAGE_BYTES[method], _SERVICE.methods_by_name[method].output_type
    most_parts = MOST_PARTS + (MOST_COLUMNS if method == "DataSets" else 0)

    def read_or_refuse(content: bytes) -> Any:  # noqa: ANN401  # a message, or what is wrong with it
        if len(content) > most:
            return TooMuchError.of(f"{len(content)} bytes in reply to {method}", most)
        try:
            parts.count(content, of, most_parts)
            return read(content)
        except parts.TooManyPartsError:
            return TooMuchError.of(f"more than {most_parts} parts in reply to {method}", most_parts)
        except DecodeError:
            return UnreadableError(
                f"The coordinator's reply to {method} is no message of its service.", "Use a matching version."
            )

    return read_or_refuse


def message_of(reply: Reply) -> Reply:
    """Give a message, or raise what was put in its place."""
    if isinstance(reply, TooMuchError | UnreadableError):
        raise reply
    return reply
