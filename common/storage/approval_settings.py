"""The table ``[approval]`` in a provider's settings: how long jobs wait for approval, and who is notified."""

from dataclasses import dataclass, fields
from typing import Final, Self

from dpspca.common.checks import check

_SAMPLES: Final = "`dpspca config sample` shows what belongs there."
_MOST_HOURS: Final = 168
_MOST_SECONDS: Final = 600
_MOST_WORDS: Final = 64


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """How jobs wait for approval.

    ``notify`` is a program and its arguments, which the provider runs for each job that begins to wait. It is run
    without a shell, for ``notify_seconds`` at most. A job that waits longer than ``expires_hours`` is refused.
    """

    expires_hours: int = _MOST_HOURS
    notify: tuple[str, ...] = ()
    notify_seconds: int = 30

    @classmethod
    def parse(cls, told: object) -> Self:
        """Read the table, or say what is wrong with it."""
        known = {each.name for each in fields(cls)}
        if not isinstance(told, dict):
            told = {"": told}
        unknown = sorted(set(told) - known)
        check(not unknown, f"unknown keys: {', '.join(map(repr, unknown))}.", _SAMPLES)
        for name, most in (("expires_hours", _MOST_HOURS), ("notify_seconds", _MOST_SECONDS)):
            value = told.get(name, 1)
            fits = type(value) is int and 1 <= value <= most
            check(fits, f"{name} is {value!r:.40}.", f"Give a whole number from 1 to {most}.")
        return cls(**{**told, "notify": _command(told.get("notify", []))})


def _command(told: object) -> tuple[str, ...]:
    """Read a program and its arguments, or nothing."""
    words = told if isinstance(told, list) else [None]
    are_words = len(words) <= _MOST_WORDS and all(isinstance(each, str) and "\0" not in each for each in words)
    check(
        are_words and (not words or bool(str(words[0]).strip())),
        f"notify is {told!r:.80}.",
        'Give a program and its arguments as a list: notify = ["/usr/local/bin/tell-steward"].',
    )
    return tuple(words)
