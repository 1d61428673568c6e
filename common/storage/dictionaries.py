"""Reads the files of shared dictionaries: TOML or JSON, and the files of allele frequencies that they name."""

from pathlib import Path
from typing import Any, Final

from dpspca.common.checks import is_real
from dpspca.common.dictionary import Dictionary, check_keys, faults, parse_frequencies, parse_json
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
    """Return the file's content, with the variants of a file of frequencies as features."""
    try:
        raw = parse_json(read_text(path)) if path.suffix.lower() == ".json" else read_toml(path)
        if not isinstance(raw, dict) or "genotypes" not in raw:
            return raw
        variants = _genotypes(path.parent, raw["genotypes"])
        own = raw.get("features", {})
        if not isinstance(own, dict):
            return raw
    except DpspcaError as problem:
        named = problem.what if str(path) in problem.what else f"{path}: {problem.what}"
        raise InvalidParameterError(named, problem.remedy) from None
    twice = sorted(variants.keys() & own.keys())
    if twice:
        raise InvalidParameterError(
            f"{path}: {shortened(twice[0])} is a feature and a variant of the file under genotypes.",
            "Remove one of them.",
        )
    return {key: value for key, value in raw.items() if key != "genotypes"} | {"features": own | variants}


def _genotypes(folder: Path, table: object) -> dict[str, dict[str, Any]]:
    told = check_keys("genotypes", table, {"file", _LEAST}, {"file"})
    least, file = told.get(_LEAST, 0.0), told["file"]
    if not isinstance(file, str) or not is_real(least):
        raise InvalidParameterError(
            f"genotypes is {shortened(dict(told))}.", f'Write file = "panel.afreq", and {_LEAST} = 0.01 if you like.'
        )
    place = folder / Path(file).expanduser()
    try:
        return parse_frequencies(read_text(place), float(least))
    except InvalidParameterError as problem:
        named = problem.what if str(place) in problem.what else f"{place}: {problem.what}"
        raise InvalidParameterError(named, problem.remedy) from None
