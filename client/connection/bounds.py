"""Limits on what a client reads from a coordinator, which may be malicious.

Each call has a limit on the bytes of one message, on the number of messages, on their total bytes and on its time. A
message that is too long, or has too many parts, is refused before protobuf parses it (see
``transport/message_parts.py``). Each limit is a multiple of what an honest coordinator may need, and small compared to
a machine's memory. A reply that exceeds a limit ends the call with a ``TooMuchError``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

from dpspca.common.job import JobSpec
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.queries import MOST_GROUPS, SIDE
from dpspca.common.transport import FRAME, message_parts
from dpspca.common.trust import MAX_JOB_BYTES, MAX_JOB_LIFE, MAX_STATEMENT_BYTES
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .errors import TooMuchError, UnreadableReplyError
from .renewable_channel import RenewableChannel

ANSWER_SECONDS: Final = 60.0
"""Timeout of a call that should be answered at once."""
LIST_SECONDS: Final = 600.0
"""Timeout of a whole list, also over a slow connection."""
SLOWEST: Final = 1024
"""Bytes per second: the download of a model is given up if it is slower."""

MOST_JOBS: Final = 1000
"""Jobs in one list. A coordinator remembers 250 jobs of one analyst."""
MOST_OFFERS: Final = 2**15
MOST_STATEMENT_BYTES: Final = 2**26
"""Bytes of all statements in reply to one request: most are a few kilobytes long."""
MOST_LIST_BYTES: Final = 2**24
"""Memory for a list of jobs, including ``PER_PARTICIPANT``."""
MOST_OFFER_BYTES: Final = 2**29
"""Bytes of a list of offers as sent: providers that offer the same columns repeat their names."""
MOST_COLUMN_BYTES: Final = 2**25
"""Memory for column names, without repetitions but including ``PER_COLUMN``: 400,000 names of 15 letters."""
PER_PARTICIPANT: Final = 128
PER_COLUMN: Final = 64
PER_OFFER: Final = 512
"""Bytes of memory that each takes beyond the bytes that were sent."""

_STATUS: Final = 2**20
"""Bytes of a job's status: three times what ``MAX_PROVIDERS`` participants take, each with a reason of 300 letters, and
all these reasons once more."""
_OFFER: Final = 2**21
"""Bytes of an offer: a provider sends at most 262,144 letters of column names."""
_PARTY: Final = 2**15
"""Bytes about a party: the names of 256 data sets, of 63 letters each."""
_SERVICES: Final = [pb.DESCRIPTOR.services_by_name[name] for name in ("AnalystService", "PartyService")]
_ENVELOPE: Final = 64
_HEADING: Final = 2**16
"""Bytes of a model's heading without feature names: shapes, and the privacy statement."""
_GROUPS: Final = (MOST_GROUPS + 1) * SIDE**2 * 24
"""Bytes of counts of scores in each cell and group, as text."""

MESSAGE_BYTES: Final = MappingProxyType(
    {
        "Submit": _STATUS,
        "Watch": _STATUS,
        "List": _STATUS,
        "Get": _STATUS + MAX_JOB_BYTES,
        "Cancel": _STATUS,
        "Result": FRAME + _ENVELOPE,
        "DataSets": _OFFER,
        "Statements": MAX_STATEMENT_BYTES + _ENVELOPE * 2,
        "Parties": _PARTY,
    }
)
"""The longest reply to each method. A method that is not listed is never called."""

MOST_PARTS: Final = 6 * MAX_PROVIDERS + 100
"""Parts of a reply: a participant is one part, and so is each of its five fields."""
MOST_COLUMNS: Final = 2**18
"""Columns of an offer: as many as a provider sends letters of their names."""

Reader: TypeAlias = Callable[[bytes], Any]
Reply = TypeVar("Reply")


class Sized(Protocol):
    """A message of known size."""

    def ByteSize(self) -> int:  # noqa: N802  # protobuf's name
        """Return its length in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """Limits on the replies to one call: the number of messages and their total size. ``what`` names the messages."""

    what: str
    messages: int
    size: int


class ReplyCount:
    """Counts the replies to one call, and raises when they exceed a bound."""

    def __init__(self, most: Bound) -> None:
        self._most = most
        self._messages = 0
        self._size = 0

    def add(self, message: Sized) -> None:
        """Count a message and its bytes. Raise if there are too many of either."""
        self._messages += 1
        self.add_bytes(message.ByteSize())
        if self._messages > self._most.messages:
            raise TooMuchError.of(f"more than {self._most.messages} {self._most.what}", self._most.messages)

    def add_bytes(self, size: int) -> None:
        """Count bytes. Raise if there are too many."""
        self._size += size
        if self._size > self._most.size:
            raise TooMuchError.of(f"more than {self._most.size} bytes of {self._most.what}", self._most.size)


OFFERS: Final = Bound("data set offers", MOST_OFFERS, MOST_OFFER_BYTES)
COLUMNS: Final = Bound("column names", MOST_OFFERS, MOST_COLUMN_BYTES)
JOBS: Final = Bound("jobs", MOST_JOBS, MOST_JOBS * _STATUS)
LISTED: Final = Bound("jobs and participants", MOST_JOBS, MOST_LIST_BYTES)
STATEMENTS: Final = Bound("statements", MAX_PROVIDERS, MOST_STATEMENT_BYTES)
WATCH_SECONDS: Final = MAX_JOB_LIFE + LIST_SECONDS
"""Timeout of watching a job. A job's signature is valid for ``MAX_JOB_LIFE`` at most."""


def parties_of(providers: int) -> Bound:
    """Return the bound on messages about providers: one for each that was asked about."""
    return Bound("parties", providers, providers * _PARTY)


def states_of(plan: Plan, providers: int) -> Bound:
    """Return the bound on a job's status messages: each query is sent to each provider, answered, and added up."""
    messages = 100 + 4 * (len(plan) + 1) * (providers + 1)
    return Bound("job states", messages, messages * _STATUS)


def model_of(spec: JobSpec) -> Bound:
    """Return the bound on a job's model and its frames: everything that is as long as they are, weights, heading."""
    k, d = spec.components, spec.schema.dimension
    size = 8 * (2 * k * d + 2 * d + 2 * k + 2 * MAX_PROVIDERS) + heading_of(spec)
    return Bound("model frames", size // FRAME + 2, size + _ENVELOPE * (size // FRAME + 2))


def heading_of(spec: JobSpec) -> int:
    """Return the most bytes of a model's heading. It is JSON, which takes far more memory than bytes when parsed."""
    groups = _GROUPS if spec.options.get("picture_by") else 0
    return _HEADING + groups + len(json.dumps(spec.schema.names))


def seconds_for(size: int) -> float:
    """Return the timeout for downloading ``size`` bytes."""
    return ANSWER_SECONDS + size / SLOWEST


class Bounded:
    """A channel that checks the size of each reply against its method's limit before the reply is parsed.

    gRPC swallows what a deserializer raises and logs it. So the deserializer returns the error instead of the message,
    and ``message_of`` raises it.
    """

    def __init__(self, channel: grpc.aio.Channel | RenewableChannel) -> None:
        self._channel = channel

    def unary_unary(self, path: str, *, response_deserializer: Reader, **others: Any) -> Any:  # noqa: ANN401
        """Return a callable for a method with one reply."""
        return self._channel.unary_unary(path, response_deserializer=_reader(path, response_deserializer), **others)

    def unary_stream(self, path: str, *, response_deserializer: Reader, **others: Any) -> Any:  # noqa: ANN401
        """Return a callable for a method with any number of replies."""
        return self._channel.unary_stream(path, response_deserializer=_reader(path, response_deserializer), **others)


def _reader(path: str, read: Reader) -> Reader:
    method = path.rpartition("/")[2]
    most = MESSAGE_BYTES[method]
    of = next(each.methods_by_name[method].output_type for each in _SERVICES if method in each.methods_by_name)
    most_parts = MOST_PARTS + (MOST_COLUMNS if method == "DataSets" else 0)

    def read_or_refuse(content: bytes) -> Any:  # noqa: ANN401  # a message, or the error to raise
        if len(content) > most:
            return TooMuchError.of(f"{len(content)} bytes in reply to {method}", most)
        try:
            message_parts.count(content, of, most_parts)
            return read(content)
        except message_parts.TooManyPartsError:
            return TooMuchError.of(f"more than {most_parts} parts in reply to {method}", most_parts)
        except DecodeError:
            return UnreadableReplyError(
                f"The coordinator's reply to {method} cannot be parsed.",
                "Use the same version of dpspca as the coordinator.",
            )

    return read_or_refuse


def message_of(reply: Reply) -> Reply:
    """Return a reply, or raise the error that was returned in its place."""
    if isinstance(reply, TooMuchError | UnreadableReplyError):
        raise reply
    return reply
