"""Jobs with a shared dictionary: what the analyst's side knows about their features."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

from dpspca.common.checks import check, check_list
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import InvalidParameterError, InvalidTypeError
from dpspca.common.job import JobSpec
from dpspca.common.storage import located, read_dictionary


def load_dictionary(path: str | PathLike[str]) -> Dictionary:
    """Read a shared dictionary from a TOML or JSON file, and check it."""
    return read_dictionary(located(Path(), fspath(path)))


def dictionary_of(given: object) -> Dictionary | None:
    """Return a dictionary that was given as such or as the path of its file."""
    if given is None or isinstance(given, Dictionary):
        return given
    if not isinstance(given, str | PathLike):
        raise InvalidTypeError(
            f"dictionary is a {type(given).__name__}.", "Give a Dictionary, or the path of a dictionary's file."
        )
    return load_dictionary(given)


def whole_and_chosen(given: object, features: Sequence[str] | None) -> tuple[Dictionary, Dictionary] | None:
    """Return a dictionary that was given, and that of the features to use. None if no dictionary was given."""
    whole = dictionary_of(given)
    check(whole is not None or features is None, "features is set without a dictionary.", "Give dictionary=.")
    if whole is None:
        return None
    return whole, whole if features is None else whole.subset(check_list("features", features))


def features_of(spec: JobSpec, dictionary: Dictionary | None) -> Dictionary | None:
    """Return the features of a job, or None if it has no dictionary. Refuse another dictionary than the job names."""
    if spec.dictionary is None and dictionary is None:
        return None
    if dictionary is None:
        raise InvalidParameterError(
            f"The job names the dictionary {spec.dictionary:.12}, which was not given.", "Give dictionary=."
        )
    return attached(spec, dictionary)


def attached(spec: JobSpec, dictionary: Dictionary) -> Dictionary:
    """Return the features of a job by its dictionary."""
    check(
        spec.dictionary == dictionary.digest(),
        f"The job names the dictionary {spec.dictionary or 'none'}, and {dictionary.digest()} was given.",
        "Give the dictionary that the job names, or make the job again with this one.",
    )
    check(spec.schema.names is not None, "The job does not name its columns.", "Make it with dictionary.job(...).")
    return dictionary.with_columns(spec.schema.names or ())
