"""Suggestions for an unknown name: the name that was probably meant, and the names that exist."""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import Final

_MOST_NAMED: Final = 30
_LONGEST: Final = 80
"""Letters of an unknown name that are compared with the known names. A stranger may have sent a long one."""
_LONGEST_SHOWN: Final = 60
_BARE: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")


def plain(name: object) -> str:
    """Return a name as it is if it is short and harmless, and escaped and shortened if it is not."""
    return name if isinstance(name, str) and _BARE.fullmatch(name) else f"{str(name)[:_LONGEST_SHOWN]!a}"


def choices(value: object, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and which there are: the remedy for an unknown name."""
    names = sorted(map(str, known)) if isinstance(known, AbstractSet) else list(map(str, known))
    near = near_miss(value, names)
    more = ", ..." if len(names) > _MOST_NAMED else ""
    listed = f"Available: {', '.join(map(_listed, names[:_MOST_NAMED])) or 'none'}{more}."
    return listed if near is None else f"Did you mean {near!r:.60}? {listed}"


def _listed(name: str) -> str:
    return name if _BARE.fullmatch(name) else f"{name!r:.60}"


def near_miss(value: object, known: Iterable[str]) -> str | None:
    """Return the known name that is most like this one, if one is. Capital and small letters are alike."""
    if not isinstance(value, str):
        return None
    by_lower_case = {name.lower(): name for name in reversed(list(known))}
    near = get_close_matches(value[:_LONGEST].strip().lower(), by_lower_case, n=1)
    return by_lower_case[near[0]] if near else None
