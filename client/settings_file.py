"""Faults of a settings file by itself. ``checks.py`` examines other files."""

from pathlib import Path
from typing import Final

from dpspca.common.decoding import faults_of
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import (
    STUDY,
    ProviderSettings,
    Study,
    faults,
    kind_of,
    other_file,
    read_any_settings,
    read_toml,
)
from dpspca.common.trust import Identity
from dpspca.provider.connection import names_warning
from dpspca.provider.data import names_in

from .checks import require_fit

STUDY_PROGRAM: Final = "study"
"""What stands for the program of a study file."""


def problems_in_settings(file: Path) -> tuple[str | None, list[str]]:
    """Return the program that settings are for, or None if that is unknown, and all that is wrong with them.

    A study file is checked, too. For it, ``STUDY_PROGRAM`` is returned.
    """
    try:
        raw = read_toml(file)
    except DpspcaError as problem:
        return None, [str(problem)]
    other = other_file(raw)
    if other == STUDY:
        return STUDY_PROGRAM, [str(fault) for fault in faults_of(lambda: Study.read(file))]
    if other:
        return None, [f"{file} is {other.name}, not a settings file. Check it with `{other.command} {file}`."]
    kind = kind_of(raw)
    problems = [str(fault) for fault in faults(kind, file, raw)]
    return kind.__name__.removesuffix("Settings").lower(), problems or _identity_problems(file)


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
