"""Logging of the daemons: to standard error, one line per event with its time in UTC, as text or as JSON."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from dpspca.common.text import printable
from dpspca.common.transport import LogLimiter, SummaryWriter


class Form(StrEnum):
    """The form of a log line."""

    HUMAN = "human"
    JSON = "json"
    JOURNAL = "journal"


class Level(StrEnum):
    """The log levels, from the most messages to the fewest."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogForm = Annotated[
    Form,
    typer.Option(
        "--log-format", help="Text for people, one JSON object per line, or text for journald, which adds the time."
    ),
]
LogLevel = Annotated[Level, typer.Option("--log-level", help="Log messages of this level and above.")]


@contextmanager
def logging_to_stderr(form: Form, level: Level) -> Iterator[None]:
    """Log this package's messages from ``level`` on, and warnings and errors of libraries, until the block ends."""
    handler = logging.StreamHandler()
    handler.setFormatter(_FORMATTERS[form]())
    limiter = LogLimiter()
    handler.addFilter(limiter)
    summaries = SummaryWriter(limiter)
    summaries.start()
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("dpspca").setLevel(level.value.upper())
    try:
        yield
    finally:
        summaries.stop()
        logging.getLogger().removeHandler(handler)


class HumanLines(logging.Formatter):
    """Log lines for people. Untrusted text in a message can neither begin a new line nor control the terminal."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # its name
        return f"{datetime.fromtimestamp(record.created, UTC):{datefmt or self.default_time_format}}"

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class JournalLines(HumanLines):
    """Log lines for journald: it notes the time itself, and reads the priority from the beginning of the line."""

    def format(self, record: logging.LogRecord) -> str:
        return _PRIORITIES.get(record.levelno, "<6>") + super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # its name
        return record.message


class JsonLines(logging.Formatter):
    """Log lines for programs: one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts)


_PRIORITIES = {logging.ERROR: "<3>", logging.WARNING: "<4>", logging.INFO: "<6>", logging.DEBUG: "<7>"}
_FORMATTERS = {Form.HUMAN: HumanLines, Form.JSON: JsonLines, Form.JOURNAL: JournalLines}
