"""The party that caused a log line. ``dpspca.common.transport.log_limits`` limits the lines of each party."""

from collections.abc import Mapping
from typing import Final

from .names import PartyName

OURSELVES: Final = "this program"
"""Stands for the party of lines about this program's own errors that repeat with every call."""
THE_COORDINATOR: Final = "the coordinator"
"""Stands for the party of a provider's lines that its coordinator can cause."""
STRANGERS: Final = "strangers"
"""Stands for all callers without a certificate of this federation together."""


def about(party: PartyName | str) -> Mapping[str, object]:
    """Return the ``extra`` of a log line that this party caused."""
    return {"about": str(party)}
