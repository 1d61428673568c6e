"""Calls are found in any split of a caller's bytes, and a refusal has the form that gRPC reads."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_http2 import DATA, END_OF_HEADERS, HEADERS, PREFACE, SETTINGS, frame, headers

from dpspca.server.rpc import http2_frames

CALLS = (1, 3, 5)
SENT = (
    PREFACE
    + frame(SETTINGS, 0, 0)
    + b"".join(
        frame(HEADERS, END_OF_HEADERS, each, headers("/a.B/C")) + frame(DATA, 1, each, bytes(300)) for each in CALLS
    )
)
FIRST = SENT.index(frame(HEADERS, END_OF_HEADERS, 1, headers("/a.B/C")))


def pieces(cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(SENT), *(cut % len(SENT) for cut in cuts)})
    return [SENT[begin:end] for begin, end in pairwise(ends)]


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_every_call_is_checked_once_in_any_split(cuts: list[int]) -> None:
    cutter, held, passed, asked = http2_frames.CallCutter(), b"", b"", 0

    def may_begin() -> bool:
        nonlocal asked
        asked += 1
        return True

    for piece in pieces(cuts):
        held += piece
        size = cutter.allowed_bytes(held, may_begin)
        passed, held = passed + held[:size], held[size:]
        assert len(held) < http2_frames.HEAD_BYTES
    assert (passed, held, asked) == (SENT, b"", len(CALLS))


@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(0, 2))
def test_no_bytes_of_a_call_pass_before_it_may_begin(cuts: list[int], allowed: int) -> None:
    cutter, held, passed, left = http2_frames.CallCutter(), b"", b"", allowed

    def may_begin() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    for piece in pieces(cuts):
        held += piece
        size = cutter.allowed_bytes(held, may_begin) if left >= 0 else 0
        passed, held = passed + held[:size], held[size:]
    one = (len(SENT) - FIRST) // len(CALLS)
    assert passed == SENT[: FIRST + allowed * one]
    assert cutter.allowed_bytes(held, lambda: True) == len(held)


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_calls_of_a_refused_caller_are_found_in_any_split(cuts: list[int]) -> None:
    streams = http2_frames.OpenedStreams()
    assert [stream for piece in pieces(cuts) for stream in streams.read(piece)] == list(CALLS)


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 254, 255, 5000])
def test_a_refusal_message_of_any_length_is_valid_hpack(length: int) -> None:
    written = http2_frames.refusal(7, 16, "x" * length, dpspca_code="not-trusted")
    size, kind, flags, stream = int.from_bytes(written[:3]), written[3], written[4], int.from_bytes(written[5:9])
    assert (size, kind, flags, stream) == (len(written) - 9, HEADERS, 5, 7)
    fields, at = {}, 10
    while at < len(written):
        assert written[at] == 0
        at += 1
        parts = []
        for _ in range(2):
            value, at = _number(written, at)
            parts.append(written[at : at + value].decode())
            at += value
        fields[parts[0]] = parts[1]
    assert fields == {
        "content-type": "application/grpc",
        "grpc-status": "16",
        "grpc-message": "x" * length,
        "dpspca-code": "not-trusted",
    }


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Read a number with a prefix of seven bits (RFC 7541, section 5.1)."""
    value = content[at] & 0x7F
    if value < 0x7F:
        return value, at + 1
    digits = [each & 0x7F for each in content[at + 1 : at + 6]]
    more = next(number for number, each in enumerate(content[at + 1 :], start=1) if not each & 0x80)
    return value + list(accumulate(each << 7 * place for place, each in enumerate(digits[:more])))[-1], at + 1 + more
