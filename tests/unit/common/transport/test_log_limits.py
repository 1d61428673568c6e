"""The lines that one party can cause in a log are limited, and dropped lines are counted."""

import logging
import threading

import pytest

from dpspca.cli.render.logs import Form, Level, logging_to_stderr
from dpspca.common.log_context import about
from dpspca.common.transport.log_limits import MAX_BYTES, MAX_LINE, MAX_LINES, MINUTE, LogLimiter

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
def limiter(clock: Clock) -> LogLimiter:
    return LogLimiter(clock)


def line(message: str, *args: object, party: str | None = MALLORY, name: str = "dpspca.server") -> logging.LogRecord:
    record = logging.LogRecord(name, logging.WARNING, "", 0, message, args, None)
    if party:
        vars(record).update(about(party))
    return record


def written(limiter: LogLimiter, records: list[logging.LogRecord]) -> list[str]:
    return [each.getMessage() for each in records if limiter.filter(each)]


def test_lines_of_one_party_and_kind_are_limited_per_minute(limiter: LogLimiter, clock: Clock) -> None:
    assert len(written(limiter, [line("Refused: %d", number) for number in range(1000)])) == MAX_LINES
    assert len(written(limiter, [line("Left: %d", number) for number in range(1000)])) == MAX_LINES
    assert len(written(limiter, [line("Refused: %d", 1, party=ADA)])) == 1
    clock.now = MINUTE
    dropped = 1000 - MAX_LINES
    summary = f"Within a minute, {2 * dropped} more lines about {MALLORY} were dropped: "
    assert limiter.take_summaries() == [f"{summary}{dropped} of 'Refused: %d', {dropped} of 'Left: %d'."]
    assert len(written(limiter, [line("Refused: %d", 1)])) == 1
    assert limiter.take_summaries() == []


def test_one_party_can_log_at_most_50_mebibytes_a_day(limiter: LogLimiter) -> None:
    """Long lines of very many kinds, with their overhead, for every minute of a day."""
    lines = written(limiter, [line(f"{kind} %s", "x" * 10_000) for kind in range(1000)])
    assert lines
    assert max(map(len, lines)) < MAX_LINE + 50
    assert sum(len(each) + 200 for each in lines) <= MAX_BYTES
    assert (MAX_BYTES + 2 * MAX_LINE) * DAY < 50 * 2**20


def test_lines_that_name_no_party_are_never_dropped(limiter: LogLimiter) -> None:
    assert len(written(limiter, [line("listening on %d", number, party=None) for number in range(1000)])) == 1000


def test_a_library_writes_one_line_without_a_traceback(limiter: LogLimiter) -> None:
    failed = line("Task exception was never retrieved\nfuture: text of a caller", party=None, name="asyncio")
    failed.exc_info = (ValueError, ValueError("text of a caller"), None)
    assert written(limiter, [failed]) == ["asyncio: Task exception was never retrieved (ValueError)"]
    assert failed.exc_info is None
    many = [line(f"{number} failed", party=None, name="grpc._cython.cygrpc") for number in range(1000)]
    assert len(written(limiter, many)) == MAX_LINES


def test_logging_ends_with_its_block(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
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
