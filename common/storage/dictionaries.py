"""Reads the files of shared dictionaries: TOML or JSON, and the lists of concepts and variants that they name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dpspca.common.checks import is_real
from dpspca.common.dictionary import Dictionary, check_keys, faults, parse_concepts, parse_frequencies, parse_json
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import shortened

from .toml_file import read_text, read_toml

_LEAST: Final = "least_frequency"


def read_dictionary(path: Path) -> Dictionary:
    """Read a dictionary, or raise the first fault."""
    content = _content(path)
    try:
        return Dictionary.parse(content)
    except InvalidParameterError as problem:
        raise InvalidParameterError(f"{path}: {problem.what}", problem.remedy) from None


def dictionary_faults(path: Path) -> list[InvalidParameterError]:
    """Return everything that is wrong with a dictionary's file."""
    try:
        return [InvalidParameterError(f"{path}: {each.what}", each.remedy) for each in faults(_content(path))]
    except InvalidParameterError as problem:
        return [problem]


def _content(path: Path) -> Any:  # noqa: ANN401  # whatever the file holds
    """Return the file's content, with the concepts and variants of the files that it names as features."""
    try:
        raw = parse_json(read_text(path)) if path.suffix.lower() == ".json" else read_toml(path)
        if not isinstance(raw, dict) or not _LISTS.keys() & raw.keys():
            return raw
        features = raw.get("features", {})
        if not isinstance(features, dict):
            return raw
        for key in sorted(_LISTS.keys() & raw.keys()):
            features = _joined(features, key, _LISTS[key](path.parent, raw[key]))
    except DpspcaError as problem:
        named = problem.what if str(path) in problem.what else f"{path}: {problem.what}"
        raise InvalidParameterError(named, problem.remedy) from None
    return {key: value for key, value in raw.items() if key not in _LISTS} | {"features": features}


def _joined(features: dict[str, Any], key: str, listed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    twice = sorted(listed.keys() & features.keys())
    if twice:
        raise InvalidParameterError(
            f"{shortened(twice[0])} is a feature, and also in the file under {key}.", "Remove one of them."
        )
    return features | listed


def _genotypes(folder: Path, table: object) -> dict[str, dict[str, Any]]:
    told = check_keys("genotypes", table, {"file", _LEAST}, {"file"})
    least, file = told.get(_LEAST, 0.0), told["file"]
    if not isinstance(file, str) or not is_real(least):
        raise InvalidParameterError(
            f"genotypes is {shortened(dict(told))}.", f'Write file = "panel.afreq", and {_LEAST} = 0.01 if you like.'
        )
    return _parsed(folder, file, lambda text: parse_frequencies(text, float(least)))


def _concepts(folder: Path, table: object) -> dict[str, dict[str, Any]]:
    told = check_keys("concepts", table, {"file"}, {"file"})
    file = told["file"]
    if not isinstance(file, str):
        raise InvalidParameterError(f"concepts is {shortened(dict(told))}.", 'Write file = "concepts.csv".')
    return _parsed(folder, file, parse_concepts)


def _parsed(folder: Path, file: str, parse: Callable[[str], dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Read a list of features. Every error names its file."""
    place = folder / Path(file).expanduser()
    try:
        return parse(read_text(place))
    except InvalidParameterError as problem:
        named = problem.what if str(place) in problem.what else f"{place}: {problem.what}"
        raise InvalidParameterError(named, problem.remedy) from None


_LISTS: Final[Mapping[str, Callable[[Path, object], dict[str, dict[str, Any]]]]] = MappingProxyType(
    {"concepts": _concepts, "genotypes": _genotypes}
)
"""Keys that name a file whose lines are features."""
