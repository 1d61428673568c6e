"""The dictionary and the features of a job in a file or in flags. The schema and the norm bound follow from them."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from dpspca.client.described_jobs import attached, load_dictionary
from dpspca.common.checks import check
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import Centering, JobSpec
from dpspca.common.names import shortened

FEATURES: Final = "features"
FILE: Final = "dictionary_file"
"""The key that says where the dictionary of a written job is, which the job itself names by its digest."""
MOST_BYTES: Final = 2**26
"""Of a dictionary that a job's file names."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def names_a_file(job: object) -> bool:
    """Tell whether a job's file names a dictionary by its path, and not by its digest, or names features."""
    if not isinstance(job, Mapping):
        return False
    given = job.get("dictionary")
    return FEATURES in job or (isinstance(given, str) and not _DIGEST.fullmatch(given))


def file_beside(keys: Mapping[str, Any], folder: Path) -> Path | None:
    """Return where the dictionary of a written job is, or None if its file does not say so or is not there.

    A written job is complete without it. So it may be sent to somebody who keeps the dictionary elsewhere. It may also
    come from somebody who is not trusted. So the path leads from the folder of the job's file and to no other machine.
    """
    file = keys.get(FILE)
    if file is None:
        return None
    check(
        isinstance(file, str) and bool(file.strip()),
        f"{FILE} is {shortened(file)}.",
        "Give the path of the job's dictionary, or leave it out.",
    )
    check(
        _is_beside(file),
        f"{FILE} is {shortened(file)}, which is not a path from the folder of the job's file.",
        "Give a path from that folder, or leave it out and give --dictionary FILE.",
    )
    place = folder / file
    return place if _is_there(place, FILE) else None


def _is_beside(file: str) -> bool:
    """Tell whether a path leads from a folder, on every system."""
    return not (PurePosixPath(file).anchor or PureWindowsPath(file).anchor or file.startswith("~"))


def _is_there(place: Path, key: str) -> bool:
    """Tell whether there is anything. Refuse what is read without end or would fill the memory, before it is opened."""
    try:
        found = place.stat()
    except (OSError, ValueError):  # there is nothing, or it is not a path at all
        return False
    check(
        stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES,
        f"{key} leads to {shortened(str(place))}, which is not a regular file of at most {MOST_BYTES} bytes.",
        "Give the path of the job's dictionary.",
    )
    return True


def of_written(spec: JobSpec, file: Path) -> Dictionary:
    """Read the dictionary that a written job found."""
    return _of_job(spec, _named_by_a_job(file, FILE), file)


def _named_by_a_job(place: Path, key: str) -> Dictionary:
    """Read a dictionary. An error quotes nothing of what is there: a job's file may lead to any file, also to rows."""
    if not _is_there(place, key):
        raise InvalidParameterError(f"{place} cannot be read.", "Give the path of the job's dictionary.")
    try:
        return load_dictionary(place)
    except DpspcaError:
        raise InvalidParameterError(
            f"{place} is not a dictionary, but the job's file names it as {key}.",
            f"See what `dpspca dictionary check {place}` says of it, or correct {key}.",
        ) from None


def of_file(spec: JobSpec, file: Path) -> Dictionary:
    """Read the dictionary of a job. Refuse another dictionary than the job names."""
    return _of_job(spec, load_dictionary(file), file)


def _of_job(spec: JobSpec, known: Dictionary, file: Path) -> Dictionary:
    check(
        spec.dictionary == known.digest(),
        f"{file}: The job names the dictionary {spec.dictionary or 'none'}, and {known.digest()} was given.",
        "Give the file as it was when the job was written. Or write the job again with this file, from the flags or "
        "the file that describe it: `dpspca plan --write`.",
    )
    try:
        attached(spec, known)
    except DpspcaError as problem:
        raise type(problem)(f"{file}: {problem.what}", problem.remedy) from None
    return known


def from_folder(file: Path, folder: Path) -> str | None:
    """Return the path of a file as seen from a folder, so that the two may be moved together, or None if it has none.

    There is none on another drive, or if the path would be taken for one there.
    """
    place = file.absolute()
    place = place.parent.resolve() / place.name
    try:
        seen = Path(os.path.relpath(place, folder.resolve())).as_posix()
    except ValueError:
        return None
    return seen if _is_beside(seen) else None


def resolved(job: Mapping[str, Any], folder: Path) -> tuple[Path, dict[str, Any], Dictionary]:
    """Return the dictionary's file, the job with what follows from the dictionary, and the dictionary.

    The path of the dictionary is taken from the folder of the job's file.
    """
    file, features = job.get("dictionary"), job.get(FEATURES)
    check(
        isinstance(file, str) and bool(file.strip()),
        f"The job names features, and its dictionary is {shortened(file)}.",
        'Name the file of a dictionary, as in dictionary = "dictionary.toml".',
    )
    check(
        "schema" not in job,
        "The job has a dictionary and a schema.",
        "Remove the schema: columns follow from the dictionary. Name features to use some of them.",
    )
    place = _located(str(file), folder)
    known = _named_by_a_job(place, "dictionary")
    others = {key: value for key, value in job.items() if key not in {FEATURES, "dictionary"}}
    made = {**follows(known, features, others.get("centering")), **others, "dictionary": known.digest()}
    return place, made, known


def _located(file: str, folder: Path) -> Path:
    try:
        return folder / Path(file).expanduser()
    except RuntimeError:
        raise InvalidParameterError(
            f"dictionary is {shortened(file)}, and there is no such home folder.", "Give the path of the dictionary."
        ) from None


def follows(known: Dictionary, features: object, centering: object) -> dict[str, Any]:
    """Derive from a job's features the schema, the norm bound, and the bound of a private mean."""
    chosen = known if features is None else known.subset(_names(features))
    columns, bound = list(chosen.columns), chosen.norm_bound()
    mean = {"mean_bound": bound} if centering == Centering.PRIVATE else {}
    return {"schema": {"dimension": len(columns), "names": columns}, "norm_bound": bound, **mean}


def _names(features: object) -> Sequence[str]:
    given = isinstance(features, list | tuple) and bool(features) and all(isinstance(each, str) for each in features)
    check(given, f"features is {shortened(features)}.", 'Give a list of names, as in ["age", "bmi"].')
    return list(features) if isinstance(features, list | tuple) else []
