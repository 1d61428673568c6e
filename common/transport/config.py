"""Settings of the programs, in TOML. A key that is not known is refused, and paths are taken from the file's folder."""

import tomllib
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from dpspca.common.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorConfig:
    """What a coordinator is told."""

    listen: str
    identity: Path
    revocations: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderConfig:
    """What a provider is told; ``data_sets`` maps the names that jobs use to files."""

    coordinator: str
    identity: Path
    revocations: Path
    data_sets: dict[str, Path]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalystConfig:
    """What an analyst's commands are told."""

    coordinator: str
    identity: Path


Config = TypeVar("Config", CoordinatorConfig, ProviderConfig, AnalystConfig)


def read_config(kind: type[Config], path: Path) -> Config:
    """Read a program's settings, or say what is wrong with which key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidParameterError(f"{path} cannot be read: {problem.strerror}.", "Give the path of a file.") from None
    except ValueError as problem:
        raise InvalidParameterError(f"{path} is not valid TOML: {problem}.", "Mend that line.") from None
    known = {each.name: each for each in fields(kind)}
    _check_keys(path, set(raw), known)
    return kind(**{name: _value(path, known[name], value) for name, value in raw.items()})


def _check_keys(path: Path, given: set[str], known: dict[str, "Field[Any]"]) -> None:
    unknown = sorted(given - set(known))
    missing = sorted(name for name, each in known.items() if name not in given and each.default is MISSING)
    for keys, what, remedy in ((unknown, "does not know", "Remove or correct"), (missing, "lacks", "Add")):
        if keys:
            raise InvalidParameterError(f"{path} {what} {', '.join(keys)}.", f"{remedy} it: see the sample file.")


def _value(path: Path, each: "Field[Any]", value: object) -> Any:  # noqa: ANN401  # text, a path, or a table of paths
    if each.type is str and isinstance(value, str):
        return value
    if each.type is Path and isinstance(value, str):
        return path.parent / value
    if each.type == dict[str, Path] and isinstance(value, dict) and all(isinstance(v, str) for v in value.values()):
        return {name: path.parent / place for name, place in value.items()}
    raise InvalidParameterError(f"{path}: {each.name} is {value!r}.", "See the sample file for what belongs there.")
