"""Since when each provider is connected or not, and the newest certificate that it showed.

It is kept in memory, for the operator and for analysts whose jobs wait. A restart clears it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dpspca.common.trust import newest_certificate

MOST_REMEMBERED: Final = 4096
"""Providers that are remembered. Beyond this, one that is not connected is forgotten."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The known state of one provider. ``since`` is when it connected, or else when its last connection ended."""

    is_connected: bool
    since: float | None
    """Seconds since 1970, or None if it has not been connected since the coordinator started."""
    certificate: bytes


class PresenceLog:
    """Remembers who came, who left, and whose certificate was seen elsewhere."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.began = clock().timestamp()
        self._seen: dict[str, Seen] = {}

    @property
    def names(self) -> frozenset[str]:
        """Name all providers about which something is known."""
        return frozenset(self._seen)

    def of(self, name: str) -> Seen | None:
        """Return the known state of a provider, or None."""
        return self._seen.get(name)

    def note_connected(self, name: str, certificate: bytes) -> None:
        """Note that a provider is connected from now on."""
        self._note(name, Seen(is_connected=True, since=self._now(), certificate=certificate))

    def note_disconnected(self, name: str) -> None:
        """Note that a provider is no longer connected."""
        known = self._seen.get(name)
        if known:
            self._seen[name] = replace(known, is_connected=False, since=self._now())

    def note_certificate(self, name: str, certificate: bytes) -> None:
        """Note a certificate of this provider: one that was not accepted, or that lies in the mailbox.

        An older certificate than the newest one that is known says nothing: its key may be a thief's by now.
        """
        known = self._seen.get(name) or Seen(is_connected=False, since=None, certificate=certificate)
        newest = newest_certificate([known.certificate, certificate])
        self._note(name, replace(known, certificate=newest))

    def _note(self, name: str, seen: Seen) -> None:
        self._seen.pop(name, None)  # the latest comes last
        self._seen[name] = seen
        if len(self._seen) > MOST_REMEMBERED:
            away = (each for each, known in self._seen.items() if not known.is_connected)
            self._seen.pop(next(away, name))

    def _now(self) -> float:
        return self._clock().timestamp()
