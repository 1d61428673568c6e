"""Whatever a coordinator sends, a provider continues or closes the stream, and spends only what it answers."""

import logging
import tracemalloc
from collections.abc import Sequence

import pytest
from fuzz_parties import ODD_SPECS, PLAIN, ask, seeds, welcome
from hypothesis import given
from hypothesis import strategies as st
from messages import MESSAGES, to_provider
from provider_harness import ProviderHarness

from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MEBIBYTE = 2**20


def test_every_type_of_message_is_fuzzed() -> None:
    assert set(MESSAGES) == set(pb.DESCRIPTOR.message_types_by_name)


@pytest.mark.slow
@given(to_provider(), st.booleans(), st.booleans())
def test_t36_no_message_crashes_a_provider_or_spends_on_a_refusal(
    said: Sequence[pb.ToProvider], without_pauses: bool, reads_replies: bool
) -> None:
    harness = ProviderHarness()
    harness.run_conversation(said, without_pauses=without_pauses, reads_replies=reads_replies)
    harness.require_consistent()


@pytest.mark.parametrize("number", range(len(seeds())))
def test_plausible_messages_are_answered_or_refused_in_order(number: int) -> None:
    harness = ProviderHarness()
    harness.run_conversation(seeds()[number])
    assert bool(harness.answers) == (number < 2)
    harness.require_consistent()


def test_t35_no_announcement_takes_more_memory_than_its_job() -> None:
    ProviderHarness().require_consistent()  # what is remembered for good is remembered before it is measured
    harness = ProviderHarness()
    announced = [ask(b"plain", PLAIN, 0) for _ in range(64)]
    for number, each in enumerate(announced):
        each.content = b""
        for bit, field in enumerate(("dimension", "columns", "nonzero_rows", "position", "power", "centred")):
            if number >> bit & 1:
                setattr(each, field, 2**32 - 1 if field != "centred" else True)
    tracemalloc.start()
    try:
        harness.run_conversation([welcome(), *(pb.ToProvider(query=each) for each in announced)])
        assert tracemalloc.get_traced_memory()[1] < 4 * MEBIBYTE
    finally:
        tracemalloc.stop()
    harness.require_consistent()


@pytest.mark.parametrize("word", sorted(ODD_SPECS))
def test_t25_t36_a_spec_with_odd_text_is_refused_in_a_printable_line(
    word: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(logging.getLogger("dpspca.provider"), "propagate", False)  # pytest cannot write such lines
    monkeypatch.setattr(logging.getLogger("dpspca.provider"), "handlers", [log])
    harness = ProviderHarness()
    harness.run_conversation([welcome(), pb.ToProvider(query=pb.Query(signed_job=word))])
    (refused,) = [each for each in harness.sent if each.HasField("refusal")]
    said = [refused.refusal.what, *log.lines]
    assert [len(each) < 1000 and each.isprintable() for each in said] == [True] * len(said)


class Log(logging.Handler):
    """The log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "Refused" in record.getMessage():
            self.lines.append(record.getMessage())
