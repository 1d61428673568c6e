"""Files in TOML that people write and that are not settings of a program, recognised by their keys."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import InvalidParameterError

_IN_A_POLICY: Final = frozenset({"lifetime", "per_job", "methods", "minimum_providers", "analysts", "unit"})
_IN_A_JOB: Final = frozenset({"components", "norm_bound", "unit", "job", "schema", "budget", "method"})
_IN_A_STUDY: Final = frozenset({"federation", "address", "providers", "analysts"})
_FEWEST_OF_A_STUDY: Final = 2
"""So many of these keys make a study file: a job names providers, too."""


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A kind of file that is not a settings file: its name, and the command that checks it."""

    name: str
    command: str


STUDY: Final = OtherFile("a study file", "dpspca config check")
_POLICY: Final = OtherFile("a policy", "dpspca policy check")
_DICTIONARY: Final = OtherFile("a dictionary", "dpspca dictionary check")
JOB: Final = OtherFile("a job", "dpspca plan")
_MARKS: Final[tuple[tuple[OtherFile, Callable[[dict[str, Any]], bool]], ...]] = (
    (STUDY, lambda raw: len(_IN_A_STUDY & raw.keys()) >= _FEWEST_OF_A_STUDY),
    (_POLICY, lambda raw: _is_policy(raw.get("data_sets"))),
    (_DICTIONARY, lambda raw: {"format", "features"} <= raw.keys()),
    (JOB, lambda raw: bool(_IN_A_JOB & raw.keys())),
)


def other_file(raw: dict[str, Any]) -> OtherFile | None:
    """Return which other kind of file this is, or None if it may be a settings file."""
    return next((kind for kind, has_marks in _MARKS if has_marks(raw)), None)


def require_settings(path: Path, raw: dict[str, Any]) -> None:
    """Refuse a file of another kind."""
    found = other_file(raw)
    if found:
        raise InvalidParameterError(
            f"{path} is {found.name}, not a settings file.", "Name a program's settings with --config."
        )


def _is_policy(tables: object) -> bool:
    rules = tables.values() if isinstance(tables, dict) else ()
    return any(isinstance(each, dict) and _IN_A_POLICY & each.keys() for each in rules)
