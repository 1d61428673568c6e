"""Compares settings that are in force with settings that were just read again."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from .settings import CoordinatorSettings, ProviderSettings

Daemon = TypeVar("Daemon", CoordinatorSettings, ProviderSettings)


def keep_until_restart(before: Daemon, now: Daemon, keys: Iterable[str]) -> tuple[Daemon, list[str]]:
    """Return the new settings without changes that a running program cannot take up, and the keys of these changes."""
    changed = [key for key in keys if getattr(before, key) != getattr(now, key)]
    return replace(now, **{key: getattr(before, key) for key in changed}), changed
