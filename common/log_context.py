"""On whose account a line of the log is written: see ``dpspca.common.transport.log_limits``."""

from collections.abc import Mapping
from typing import Final

from .names import PartyName

OURSELVES: Final = "this program"
"""Of lines that repeat as often as somebody calls, and are nobody's doing but ours."""
THE_COORDINATOR: Final = "the coordinator"
"""Of lines of a provider that its coordinator can cause as often as it likes."""
STRANGERS: Final = "strangers"
"""Of lines about callers who showed no certificate of this federation, all of them together."""


def about(party: PartyName | str) -> Mapping[str, object]:
    """Give the ``extra`` of a line of the log that a party caused, by what the party is called."""
    return {"about": str(party)}
