"""Reads the files of shared dictionaries: TOML or JSON, and the lists of concepts and variants that they name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dpspca.common.checks import check
from dpspca.common.decoding import Filled, Source, decode, faults_of, parse_json
from dpspca.common.dictionary import Dictionary, parse_concepts, parse_frequencies
from dpspca.common.errors import DpspcaError, InvalidInputError, InvalidParameterError
from dpspca.common.names import shortened

from .packed_text import read_packed_text
from .toml_file import read_text, read_toml


def read_dictionary(path: Path) -> Dictionary:
    """Read a dictionary, or raise an error that lists everything that is wrong with its file."""
    content = _content(path)
    try:
        return Dictionary.parse(content)
    except InvalidParameterError as problem:
        found = problem.faults if isinstance(problem, InvalidInputError) else [problem]
        raise InvalidInputError(
            [InvalidParameterError(f"{path}: {each.what}", each.remedy) for each in found]
        ) from None


def read_frequencies(path: Path) -> dict[str, dict[str, Any]]:
    """Read a list of allele frequencies as features."""
    return _parsed(Path(), str(path), parse_frequencies)


def dictionary_faults(path: Path) -> Sequence[DpspcaError]:
    """Return everything that is wrong with a dictionary's file."""
    return faults_of(lambda: read_dictionary(path))


def _content(path: Path) -> Any:  # noqa: ANN401  # whatever the file holds
    """Return the file's content, with the concepts and variants of the files that it names as features."""
    try:
        raw = parse_json(read_text(path), str(path)) if path.suffix.lower() == ".json" else read_toml(path)
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


@dataclass(frozen=True, slots=True)
class _File:
    """A file of features."""

    file: Filled


@dataclass(frozen=True, slots=True)
class _Panel(_File):
    """A file of allele frequencies, and how frequent the rarer allele of a variant must be."""

    least_frequency: float = 0.0


def _genotypes(folder: Path, table: object) -> dict[str, dict[str, Any]]:
    panel = decode(_Panel, table, Source("genotypes"))
    return _parsed(folder, panel.file, lambda text: parse_frequencies(text, panel.least_frequency))


def _concepts(folder: Path, table: object) -> dict[str, dict[str, Any]]:
    return _parsed(folder, decode(_File, table, Source("concepts")).file, parse_concepts)


def _parsed(folder: Path, file: str, parse: Callable[[str], dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Read a list of features. Every error names its file."""
    try:
        place = folder / Path(file).expanduser()
    except RuntimeError:
        raise InvalidParameterError(
            f"{shortened(file)}: there is no such home folder.", "Give the path of a file."
        ) from None
    try:
        endless = place.is_char_device() or place.is_fifo() or place.is_socket()
        check(not endless, f"{place} is not a text file.", "Give the path of a file.")
        return parse(read_packed_text(place))
    except InvalidParameterError as problem:
        named = problem.what if str(place) in problem.what else f"{place}: {problem.what}"
        raise InvalidParameterError(named, problem.remedy) from None


_LISTS: Final[Mapping[str, Callable[[Path, object], dict[str, dict[str, Any]]]]] = MappingProxyType(
    {"concepts": _concepts, "genotypes": _genotypes}
)
"""Keys that name a file whose lines are features."""
