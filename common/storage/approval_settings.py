"""The table ``[approval]`` in a provider's settings: how long jobs wait for approval, and who is notified."""

from dataclasses import dataclass
from typing import Annotated, Final

from dpspca.common.decoding import Rule, between

_MOST_HOURS: Final = 168
_MOST_WORDS: Final = 64


def _is_command(words: tuple[str, ...]) -> bool:
    """Tell whether this is a program and its arguments, or nothing."""
    named = not words or bool(words[0].strip())
    return named and len(words) <= _MOST_WORDS and not any("\0" in each for each in words)


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """How jobs wait for approval.

    ``notify`` is a program and its arguments, which the provider runs for each job that begins to wait. It is run
    without a shell, for ``notify_seconds`` at most. A job that waits longer than ``expires_hours`` is refused.
    """

    expires_hours: Annotated[int, between(1, _MOST_HOURS)] = _MOST_HOURS
    notify: Annotated[
        tuple[str, ...],
        Rule(
            'Give a program and its arguments as a list: notify = ["/usr/local/bin/tell-steward"].',
            _is_command,
        ),
    ] = ()
    notify_seconds: Annotated[int, between(1, 600)] = 30
