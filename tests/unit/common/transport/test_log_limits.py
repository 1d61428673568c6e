"""What one party can make a daemon log is bounded, and what is left out is counted."""

import logging
import threading

import pytest

from dpspca.cli.render.logs import Form, Level, logging_to_stderr
from dpspca.common.log_context import about
from dpspca.common.transport.log_limits import LONGEST_LINE, MINUTE, MOST_BYTES, MOST_LINES, Rationing

DAY = 24 * 60
MALLORY, ADA = "dpspca://town/analyst/mallory", "dpspca://town/analyst/ada"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rationing(clock: Clock) -> Rationing:
    return Rationing(clock)


def line(message: str, *args: object, party: str | None = MALLORY, name: str = "dpspca.server") -> logging.LogRecord:
    record = logging.LogRecord(name, logging.WARNING, "", 0, message, args, None)
    if party:
        vars(record).update(about(party))
    return record


def written(rationing: Rationing, records: list[logging.LogRecord]) -> list[str]:
    return [each.getMessage() for each in records if rationing.filter(each)]


def test_one_party_writes_so_many_lines_of_a_kind_a_minute(rationing: Rationing, clock: Clock) -> None:
    assert len(written(rationing, [line("Refused: %d", number) for number in range(1000)])) == MOST_LINES
    assert len(written(rationing, [line("Left: %d", number) for number in range(1000)])) == MOST_LINES
    assert len(written(rationing, [line("Refused: %d", 1, party=ADA)])) == 1
    clock.now = MINUTE
    gone = 1000 - MOST_LINES
    summary = f"Within a minute, {2 * gone} more lines about {MALLORY} were left out: "
    assert rationing.due() == [f"{summary}{gone} of 'Refused: %d', {gone} of 'Left: %d'."]
    assert len(written(rationing, [line("Refused: %d", 1)])) == 1
    assert rationing.due() == []


def test_a_day_of_one_party_is_at_most_50_mebibytes(rationing: Rationing) -> None:
    """Long lines of very many kinds: what is written in a minute, with all that stands beside it, times a day."""
    lines = written(rationing, [line(f"{kind} %s", "x" * 10_000) for kind in range(1000)])
    assert lines
    assert max(map(len, lines)) < LONGEST_LINE + 50
    assert sum(len(each) + 200 for each in lines) <= MOST_BYTES
    assert (MOST_BYTES + 2 * LONGEST_LINE) * DAY < 50 * 2**20


def test_lines_of_our_own_are_never_left_out(rationing: Rationing) -> None:
    assert len(written(rationing, [line("listening on %d", number, party=None) for number in range(1000)])) == 1000


def test_a_library_writes_one_line_without_a_traceback(rationing: Rationing) -> None:
    failed = line("Task exception was never retrieved\nfuture: the words of a stranger", party=None, name="asyncio")
    failed.exc_info = (ValueError, ValueError("the words of a stranger"), None)
    assert written(rationing, [failed]) == ["asyncio: Task exception was never retrieved (ValueError)"]
    assert failed.exc_info is None
    many = [line(f"{number} failed", party=None, name="grpc._cython.cygrpc") for number in range(1000)]
    assert len(written(rationing, many)) == MOST_LINES


def test_lines_are_written_until_the_block_ends_and_nobody_writes_any_after_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    before = threading.active_count()
    with logging_to_stderr(Form.HUMAN, Level.INFO):
        logging.getLogger("dpspca.server").info("here")
        assert threading.active_count() == before + 1
    logging.getLogger("dpspca.server").info("after")
    assert capsys.readouterr().err.splitlines()[0].endswith("here")
    assert threading.active_count() == before
    assert root.handlers == []
