"""How the daemons log: to standard error, one line an event, its time in UTC; for people or for programs."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from .output import printable
from .rationing import Rationing, Reporter


class Form(StrEnum):
    """How a line is written."""

    HUMAN = "human"
    JSON = "json"


class Level(StrEnum):
    """What is told, from the most to the least."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogForm = Annotated[Form, typer.Option("--log-format", help="Lines for people, or a JSON object a line.")]
LogLevel = Annotated[Level, typer.Option("--log-level", help="What to log: this, and what is graver.")]


@contextmanager
def logging_to_stderr(form: Form, level: Level) -> Iterator[None]:
    """Log what this package says from ``level`` on, and what libraries warn of, until the block ends."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form is Form.JSON else HumanLines())
    rationing = Rationing()
    handler.addFilter(rationing)
    reporter = Reporter(rationing)
    reporter.start()
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("dpspca").setLevel(level.value.upper())
    try:
        yield
    finally:
        reporter.stop()
        logging.getLogger().removeHandler(handler)


class HumanLines(logging.Formatter):
    """Lines for people; nothing that a stranger said can begin a line of its own, or steer a terminal."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # its name
        return f"{datetime.fromtimestamp(record.created, UTC):{datefmt or self.default_time_format}}"

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class JsonLines(logging.Formatter):
    """An object a line."""

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
