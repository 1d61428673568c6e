"""Strategies for all messages of the protocol: well-formed messages, and messages that were damaged.

A skeleton is a valid message. It is sent as it is, with some fields changed, with some bytes changed, or with arbitrary
values in all fields.
"""

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from fuzz_parties import DIMENSION, FULL, PLAIN, ask, fuzz_parties, welcome
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hypothesis import settings
from hypothesis import strategies as st

from dpspca.common.algorithms import catalogue
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

EDGES: Final = (0, 1, 2, 3, 6, 7, 255, 2**15, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
"""Numbers that often cause bugs. The largest are -1 and -2 if read as signed numbers."""
KINDS: Final = ("count", "column-sums", "norm-histogram", "covariance", "covariance-product")
WORDS: Final = (
    "",
    "done",
    "failed",
    "cohort",
    "plain",
    "full",
    "bob's",
    "\0",
    "a" * 300,
    "dpspca://town/analyst/ada",
    "\u202e\U00010000",
)

ONE_OF: Final = ("FromProvider", "ToProvider")
"""Messages that hold one of several."""
SPECS: Final = {b"plain": PLAIN, b"full": FULL}
PLANS: Final = {word: catalogue.plan(spec) for word, spec in SPECS.items()}

few: Final = settings(max_examples=settings().max_examples // 3)
"""For tests that take long."""

# --- Values -----------------------------------------------------------------------------------------------------------


def spoiled(content: bytes) -> st.SearchStrategy[bytes]:
    """Truncate, flip, repeat, insert or delete some bytes."""
    places = st.integers(0, len(content))
    return st.one_of(
        places.map(lambda end: content[:end]),
        st.tuples(st.integers(0, max(0, len(content) - 1)), st.integers(1, 255)).map(
            lambda flip: (
                content[: flip[0]] + bytes(each ^ flip[1] for each in content[flip[0] :][:1]) + content[flip[0] + 1 :]
            )
        ),
        st.tuples(places, places).map(lambda cut: content[: cut[0]] + content[cut[1] :]),
        st.tuples(places, st.binary(max_size=20)).map(lambda put: content[: put[0]] + put[1] + content[put[0] :]),
    )


def _bytes(known: bytes) -> st.SearchStrategy[bytes]:
    signed = st.sampled_from([*fuzz_parties().good, *fuzz_parties().bad])
    numbers = st.lists(st.floats(width=64), max_size=12).map(_doubles)
    true = st.sampled_from([fuzz_parties().good[b"plain"].to_bytes(), fuzz_parties().identities["hub"].certificate_pem])
    return st.one_of(spoiled(known), st.binary(max_size=120), numbers, signed, true.flatmap(spoiled))


def _doubles(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _value(field: FieldDescriptor, known: Any) -> st.SearchStrategy[Any]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_UINT32:
            return st.sampled_from(EDGES) | st.integers(0, 2**32 - 1)
        case FieldDescriptor.CPPTYPE_UINT64:
            return st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return st.floats()
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return anything(field.message_type.name)
        case _ if field.type == FieldDescriptor.TYPE_BYTES:
            return _bytes(known if isinstance(known, bytes) else b"")
        case _:
            text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)  # no surrogates: gRPC has none
            return st.sampled_from([*WORDS, *KINDS]) | text


# --- Messages ---------------------------------------------------------------------------------------------------------


@st.composite
def anything(draw: st.DrawFn, name: str) -> Any:
    """Fill any fields with any values."""
    kind: Any = getattr(pb, name)
    return draw(altered(kind(), most=len(kind.DESCRIPTOR.fields)))


@st.composite
def altered(draw: st.DrawFn, message: Any, most: int = 3) -> Any:
    """Change some fields."""
    made = type(message).FromString(message.SerializeToString())
    fields = list(made.DESCRIPTOR.fields)
    chosen = draw(st.lists(st.sampled_from(fields), max_size=most, unique_by=lambda it: it.name)) if fields else []
    for field in chosen:
        _put(draw, made, field)
    return made


def _put(draw: st.DrawFn, message: Any, field: FieldDescriptor) -> None:
    if field.is_repeated:
        message.ClearField(field.name)
        getattr(message, field.name).extend(draw(st.lists(_value(field, b""), max_size=4)))
        return
    found = getattr(message, field.name)
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        deeper = altered(found) if message.HasField(field.name) else _value(field, b"")
        getattr(message, field.name).CopyFrom(draw(deeper))
    else:
        setattr(message, field.name, draw(_value(field, found)))


@st.composite
def corrupted(draw: st.DrawFn, message: Any) -> Any:
    """Damage a message's bytes. Return an empty message if they cannot be parsed."""
    content = draw(spoiled(message.SerializeToString()))
    try:
        return type(message).FromString(content)
    except DecodeError:
        return type(message)()


def _wild(true: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw mostly valid messages, and sometimes outdated ones."""
    return st.one_of(true, true, true.flatmap(altered), true.flatmap(corrupted))


# --- Skeletons --------------------------------------------------------------------------------------------------------


@st.composite
def _asks(draw: st.DrawFn) -> pb.Query:
    word = draw(st.sampled_from([b"plain", b"plain", b"full", b"full", b"bob's", *fuzz_parties().bad]))
    spec = SPECS.get(word, PLAIN)
    made = ask(word, spec, draw(st.integers(0, len(catalogue.plan(spec)))), draw(st.integers(0, 1)))
    if draw(st.integers(0, 3)) == 0:
        made.content = b""
    return made


@st.composite
def _welcomes(draw: st.DrawFn) -> pb.Welcome:
    made = welcome(draw(st.sampled_from(["hub", "hub", "hub", "hub", *fuzz_parties().identities]))).welcome
    if draw(st.booleans()):
        made.receipt.CopyFrom(draw(_receipts()))
    return made


def _contents() -> st.SearchStrategy[bytes]:
    """Return the content that belongs to an announcement."""
    return st.sampled_from([ask(word, spec, len(PLANS[word]) - 1).content for word, spec in SPECS.items()])


def _names() -> st.SearchStrategy[str]:
    return st.sampled_from(["plain", "full", "bob's"])


def _jobs() -> st.SearchStrategy[bytes]:
    return st.sampled_from([*fuzz_parties().good, *fuzz_parties().bad])


def _answers() -> st.SearchStrategy[pb.AnswerFrame]:
    """Return as many numbers as a product, a vector or a count has."""
    whole = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**40), 2**40)
    lengths = st.sampled_from([1, 5, DIMENSION, 2 * DIMENSION])
    numbers = lengths.flatmap(lambda count: st.lists(whole, min_size=count, max_size=count)).map(_integers)
    return st.builds(
        pb.AnswerFrame,
        job=_names(),
        position=st.integers(0, 7),
        sequence=st.sampled_from([0, 0, 0, 1]),
        content=numbers,
    )


def _receipts() -> st.SearchStrategy[pb.Receipt]:
    """Return a signed receipt of this ledger or another one."""
    by = st.sampled_from([b"north", b"east", b"hub"])
    return st.builds(pb.Receipt, ledger=st.just("memory"), entries=st.integers(0, 9), hash=st.just("0" * 64)).flatmap(
        lambda made: by.map(lambda who: _stamped(made, who))
    )


def _requests() -> st.SearchStrategy[bytes]:
    """Give words for requests that analysts signed."""
    return st.sampled_from([*fuzz_parties().requests])


def _statements() -> st.SearchStrategy[bytes]:
    """Give what a provider stated, or the bytes of something else."""
    return st.sampled_from([b"", fuzz_parties().statement])


def _held() -> st.SearchStrategy[pb.HeldReceipt]:
    return st.builds(pb.HeldReceipt, provider=st.sampled_from(["north", "east", "hub", ""]), receipt=_receipts())


def _stamped(receipt: pb.Receipt, who: bytes) -> pb.Receipt:
    receipt.certificate = receipt.signature = who
    return receipt


def _integers(values: list[int]) -> bytes:
    return b"".join(each.to_bytes(8, "little", signed=True) for each in values)


@cache
def _skeletons() -> Mapping[str, st.SearchStrategy[Any]]:
    offers = st.builds(pb.DataSet, name=st.just("cohort"), dimension=st.just(DIMENSION))
    return {
        "Welcome": _welcomes(),
        "Heartbeat": st.just(pb.Heartbeat()),
        "Query": _asks(),
        "Frame": st.builds(pb.Frame, sequence=st.sampled_from([0, 0, 0, 1]), content=_contents()),
        "Farewell": st.builds(
            pb.Farewell,
            job=_names(),
            state=st.sampled_from(["done", "failed", "cancelled", "x"]),
            receipts=st.lists(_held(), max_size=2),
        ),
        "Admit": st.builds(pb.Admit, signed_job=_jobs()),
        "Admitted": st.builds(pb.Admitted, job=_names()),
        "AwaitingApproval": st.builds(pb.AwaitingApproval, job=_names(), since=st.floats(), until=st.floats()),
        "ReturnedReceipts": st.builds(pb.ReturnedReceipts, receipts=st.lists(_receipts(), max_size=3)),
        "HeldReceipt": _held(),
        "HeldReceipts": st.builds(pb.HeldReceipts, held=st.lists(_held(), max_size=3)),
        "DataSet": offers,
        "Hello": st.builds(
            pb.Hello,
            data_sets=st.lists(offers, max_size=2),
            challenge=st.binary(min_size=32, max_size=32),
            open_jobs=st.lists(_names(), max_size=2),
            held=st.lists(_held(), max_size=2),
        ),
        "AnswerFrame": _answers(),
        "Refusal": st.builds(pb.Refusal, job=_names(), position=st.integers(0, 7), code=st.just("refused")),
        "SubmitRequest": st.builds(pb.SubmitRequest, signed_job=_jobs()),
        "JobName": st.builds(pb.JobName, job=st.builds("{}{}".format, _names(), st.sampled_from(["", "/8", "/1"]))),
        "ListRequest": st.just(pb.ListRequest()),
        "DataSetsRequest": st.just(pb.DataSetsRequest()),
        "Receipt": _receipts(),
        "Participant": st.builds(pb.Participant, name=st.sampled_from(["north", "south"])),
        "Job": st.builds(pb.Job, job=_names(), state=st.sampled_from(["waiting", "running", "done", "failed"])),
        "Offer": st.builds(pb.Offer, provider=st.just("north"), data_set=offers),
        "StatementsRequest": st.builds(
            pb.StatementsRequest, signed_request=_requests(), providers=st.lists(st.sampled_from(["north", "west"]))
        ),
        "PartiesRequest": st.builds(pb.PartiesRequest, providers=st.lists(st.sampled_from(["north", "west"]))),
        "Party": st.builds(
            pb.Party,
            role=st.sampled_from(["provider", "analyst"]),
            name=st.sampled_from(["north", "west"]),
            state=st.sampled_from(["connected", "away", "revoked", "expired", "unknown"]),
            since=st.floats(),
        ),
        "Statement": st.builds(pb.Statement, provider=st.just("north"), signed_statement=_statements()),
        "StatementRequest": st.builds(pb.StatementRequest, signed_request=_requests()),
        "StatementReply": st.builds(
            pb.StatementReply, request=st.sampled_from(["", "0" * 64]), signed_statement=_statements()
        ),
    }


@cache
def messages(name: str) -> st.SearchStrategy[Any]:
    """Return messages of one type: valid, changed, corrupted or arbitrary."""
    if name in ONE_OF:
        return _one_of(name)
    return _wild(_skeletons()[name]) | anything(name)


@cache
def _one_of(name: str) -> st.SearchStrategy[Any]:
    """Return messages of a type that holds one of several."""
    kind: Any = getattr(pb, name)
    fields = kind.DESCRIPTOR.oneofs_by_name["message"].fields
    each = [messages(field.message_type.name).map(lambda told, n=field.name: kind(**{n: told})) for field in fields]
    return st.one_of(*each, st.just(kind()))


@st.composite
def to_provider(draw: st.DrawFn, most: int = 16) -> list[pb.ToProvider]:
    """Return messages of a coordinator: the queries of plans in order, mixed with anything else."""
    reached = dict.fromkeys(SPECS, 0)
    said = [welcome()]
    for _ in range(draw(st.integers(0, most))):
        word = draw(st.sampled_from([None, *(word for word, number in reached.items() if number < len(PLANS[word]))]))
        if word is None:
            said.append(draw(_one_of("ToProvider") | messages("Query").map(lambda told: pb.ToProvider(query=told))))
            continue
        proper = ask(word, SPECS[word], reached[word])
        reached[word] += 1
        said += draw(_in_pieces(proper) | altered(proper, most=1).map(lambda told: [pb.ToProvider(query=told)]))
    return said


def _in_pieces(query: pb.Query) -> st.SearchStrategy[list[pb.ToProvider]]:
    """Send a query in one message, in a separate frame, or twice."""
    alone = type(query).FromString(query.SerializeToString())
    alone.content = b""
    whole, frame = pb.ToProvider(query=query), pb.ToProvider(frame=pb.Frame(content=query.content))
    framed = [pb.ToProvider(query=alone), *([frame] if query.content else [])]
    return st.sampled_from([[whole], [whole], framed, [whole, whole]])


def from_provider() -> st.SearchStrategy[pb.FromProvider]:
    """Return a message of a provider."""
    return _one_of("FromProvider")


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Any]]:
    """Return a provider's messages on several connections: mostly a greeting first, and answers among anything else."""
    offered = pb.DataSet(name="cohort", dimension=DIMENSION)
    greeting = pb.FromProvider(hello=pb.Hello(data_sets=[offered], challenge=bytes(32)))
    numbers = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4)
    anything_else = from_provider() | st.lists(st.sampled_from(LARGE), min_size=1, max_size=4)
    first = st.just([]) | messages("Hello").map(lambda told: [pb.FromProvider(hello=told)])
    said: list[list[Any]] = []
    for _ in range(draw(st.integers(1, 2))):
        life = draw(draw(st.sampled_from([st.just([greeting])] * 3 + [first])))
        # Chosen first, and not by one_of: that makes one choice of all the choices within.
        kinds = draw(st.lists(st.sampled_from([numbers, numbers, numbers, anything_else]), min_size=1, max_size=8))
        said.append([*life, *(draw(kind) for kind in kinds)])
    return said


LARGE: Final = (0, 1, -1, 2**56 - 1, 1 - 2**56, 2**56, -(2**56), 2**63 - 1, -(2**63))
"""Numbers near the limit for answers, and above it."""

MESSAGES: Final = (*ONE_OF, *_skeletons())
"""Every type that has a strategy."""

REQUESTS: Final = {
    "Submit": "SubmitRequest",
    "Watch": "JobName",
    "List": "ListRequest",
    "Get": "JobName",
    "Cancel": "JobName",
    "Result": "JobName",
    "DataSets": "DataSetsRequest",
    "Statements": "StatementsRequest",
}
"""Methods that an analyst may call, with their messages."""


def requests() -> st.SearchStrategy[tuple[str, Any]]:
    """Return a call of an analyst."""
    return st.sampled_from(sorted(REQUESTS)).flatmap(lambda call: st.tuples(st.just(call), messages(REQUESTS[call])))
