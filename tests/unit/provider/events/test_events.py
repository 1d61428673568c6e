"""The stream of events: what each says, where it is written, and what happens if it cannot be."""

import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import LIMITS, opening
from local_federation import now
from timeouts import TIMEOUT

from dpspca.common.names import PartyName, Role
from dpspca.common.storage import EventSettings, EventStream
from dpspca.provider.events import EVENTS, emit_fact
from dpspca.provider.ledger import Decided, MemoryLedger, Named
from dpspca.provider.ledger.accounts import JobPosition
from dpspca.server import events as coordinator_events

NORTH = PartyName("town", Role.PROVIDER, "north")
PAGE = Path(__file__).parents[4] / "docs" / "events.md"


@contextmanager
def stream(settings: EventSettings, waiting: int = 100) -> Iterator[EventStream]:
    made = EventStream(settings, EVENTS, NORTH, now, waiting)
    try:
        yield made
    finally:
        made.end()


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_page_lists_every_event_with_its_fields() -> None:
    of_providers, of_coordinators = PAGE.read_text(encoding="utf-8").split("## Of a coordinator")
    for text, kinds in ((of_providers, EVENTS), (of_coordinators, coordinator_events.EVENTS)):
        rows = re.findall(r"^\| `([a-z-]+)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
        assert {name: tuple(re.findall(r"`(\w+)`", fields)) for name, fields in rows} == dict(kinds)


def test_a_line_says_when_what_and_where(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with stream(EventSettings(file=path)) as emit:
        emit("started", data_sets=["cohort"])
        emit("refused", job="j", query=None, code="refused", reason="Zeile\n2 — no")
    first, second = read(path)
    assert [first["number"], second["number"]] == [1, 2]
    assert first.keys() == {"time", "number", "provider", "event", "data_sets"}
    assert (second["event"], second["provider"], second["reason"]) == ("refused", NORTH.uri, "Zeile\n2 — no")
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_event_without_its_fields_is_a_bug(tmp_path: Path) -> None:
    with stream(EventSettings(file=tmp_path / "events.jsonl")) as emit, pytest.raises(AssertionError):
        emit("started")


def test_a_full_file_is_renamed_and_few_older_ones_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with stream(EventSettings(file=path, mebibytes=1, files=2), waiting=1000) as emit:
        for _ in range(4 * 17):
            emit("quarantined", reason="x" * 2**16)
    found = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
    assert found.keys() == {"events.jsonl", "events.jsonl.1", "events.jsonl.2"}
    assert all(size <= 2**20 for size in found.values())
    numbers = [each["number"] for name in sorted(found, reverse=True) for each in read(tmp_path / name)]
    assert numbers[-1] == 4 * 17
    assert numbers == list(range(numbers[0], 4 * 17 + 1))


def test_a_renamed_file_is_opened_again_after_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    settings = EventSettings(file=path)
    with stream(settings) as emit:
        emit("stopped")
        emit.reload(settings)
        path.rename(tmp_path / "rotated")
        emit.reload(settings)
        emit("stopped")
        emit.reload(replace(settings, file=tmp_path / "other"))
        emit("stopped")
    assert [len(read(tmp_path / name)) for name in ("rotated", "events.jsonl", "other")] == [1, 1, 1]


def test_syslog_gets_each_event_as_one_datagram(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(tmp_path / "log"))
        log.settimeout(TIMEOUT)
        with stream(EventSettings(syslog=str(tmp_path / "log"))) as emit:
            emit("lapsed", job="j", state="expired %s")
            datagram = log.recv(4096).rstrip(b"\0").decode()
    priority, _, rest = datagram.partition("dpspca: ")
    assert priority == "<86>"  # authpriv, informational
    assert json.loads(rest)["state"] == "expired %s"


def test_what_cannot_be_written_is_logged_once_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "away"
    with caplog.at_level(logging.ERROR), stream(EventSettings(file=folder / "events.jsonl")) as emit:
        for _ in range(3):
            emit("stopped")
        emit.reload(EventSettings(file=folder / "events.jsonl"))
        folder.mkdir()
        emit("stopped")
    assert len(caplog.records) == 1
    assert [each["number"] for each in read(folder / "events.jsonl")] == [4]


@pytest.mark.slow
def test_a_stream_that_hangs_delays_nothing_and_says_what_was_lost(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(tmp_path / "log"))
        log.settimeout(TIMEOUT)
        emit = EventStream(EventSettings(syslog=str(tmp_path / "log")), EVENTS, NORTH, now, waiting=5)
        begun = time.monotonic()
        for _ in range(5000):  # far beyond what a socket that nobody reads holds
            emit("stopped")
        assert time.monotonic() - begun < TIMEOUT / 2
        seen: list[Any] = []
        lost = 0
        while lost <= 100:  # what was lost is said in parts, as the reader gets on
            emit("stopped")
            seen.append(json.loads(log.recv(4096).rstrip(b"\0").partition(b"dpspca: ")[2]))
            lost += seen[-1]["events"] if seen[-1]["event"] == "lost" else 0
        emit.end()
    assert [each["number"] for each in seen] == list(range(1, len(seen) + 1))


def test_t25_events_of_the_ledger_say_nothing_of_rows() -> None:
    """Digests and fingerprints of the rows, and the hash of an answer, are in the ledger; no event has them."""
    told: list[tuple[str, dict[str, Any]]] = []

    def emit(event: str, /, **fields: Any) -> None:
        assert fields.keys() == set(EVENTS[event])
        told.append((event, fields))

    ledger = MemoryLedger()
    ledger.observer = partial(emit_fact, emit)
    job = replace(opening("one"), data_digest="d" * 64)
    ledger.open(job, LIMITS, Named(job.data_set, ["f" * 64], "b" * 32))
    after = JobPosition(1, job.price)
    ledger.reserve("one", "covariance", "q" * 64, None, after)
    ledger.store("one", 0, np.zeros((2, 2), dtype=np.int64))
    ledger.close("one", "done")
    ledger.open(opening("two"), LIMITS)
    ledger.decide(Decided(
        job="two", data_set="cohort", verdict="approve", person="kim", login="k", reason="", decided_at=0,
        expires_at=2**40, certificate="c" * 64, signature="s" * 64,
    ))  # fmt: skip
    ledger.close("two", "cancelled")
    assert [event for event, _ in told] == [
        "admitted", "reserved", "released", "ended", "admitted", "decided", "ended", "lapsed",
    ]  # fmt: skip
    text = json.dumps(told)
    for secret in "dfbqcs":
        assert secret * 32 not in text
    assert told[0][1]["queries"] == job.queries
    assert told[-2][1]["returned_units"] == opening("two").units
