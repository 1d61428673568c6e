"""Faults of a settings file by itself. ``checks.py`` examines other files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import ProviderSettings, faults, kind_of, read_any_settings, read_toml
from dpspca.common.trust import Identity
from dpspca.provider.connection import names_warning
from dpspca.provider.data import names_in

from .checks import require_fit

_IN_A_POLICY: Final = frozenset({"lifetime", "per_job", "methods", "minimum_providers", "analysts", "unit"})
_IN_A_JOB: Final = frozenset({"components", "norm_bound", "unit", "job", "schema", "budget", "method"})
_OTHER_FILES: Final[tuple[tuple[str, Callable[[dict[str, Any]], bool], str], ...]] = (
    ("a policy", lambda raw: _is_policy(raw.get("data_sets")), "dpspca policy check"),
    ("a dictionary", lambda raw: {"format", "features"} <= raw.keys(), "dpspca dictionary check"),
    ("a job", lambda raw: bool(_IN_A_JOB & raw.keys()), "dpspca plan"),
)
"""Other TOML files that people write: what each is, how to recognise it, and the command that checks it."""


def problems_in_settings(file: Path) -> tuple[str | None, list[str]]:
    """Return the program that settings are for, or None if that is unknown, and all that is wrong with them."""
    try:
        raw = read_toml(file)
    except DpspcaError as problem:
        return None, [str(problem)]
    for what, marks, command in _OTHER_FILES:
        if marks(raw):
            return None, [f"{file} is {what}, not a settings file. Check it with `{command} {file}`."]
    kind = kind_of(raw)
    problems = [str(fault) for fault in faults(kind, file, raw)]
    return kind.__name__.removesuffix("Settings").lower(), problems or _identity_problems(file)


def _is_policy(tables: object) -> bool:
    rules = tables.values() if isinstance(tables, dict) else ()
    return any(isinstance(each, dict) and _IN_A_POLICY & each.keys() for each in rules)


def remarks_on_settings(file: Path) -> list[str]:
    """Return a warning if a provider cannot send the names of all columns. That is not an error."""
    settings = read_any_settings(file)
    if not isinstance(settings, ProviderSettings):
        return []
    places = settings.places
    no_room = names_warning({name: names_in(place, settings.reading_of(name)) for name, place in places.items()})
    return [no_room] if no_room else []


def _identity_problems(file: Path) -> list[str]:
    """Return an error if the identity that settings name has another role. A missing identity is not an error yet."""
    settings = read_any_settings(file)
    try:
        me = Identity.load(settings.identity)
    except DpspcaError:
        return []
    try:
        require_fit(settings, me)
    except DpspcaError as problem:
        return [f"{file}: identity: {problem}"]
    return []
