"""The current time. Code in the lower layers reads no clock: it is given the time."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
