"""The dictionary and the features of a job in a file or in flags. The schema and the norm bound follow from them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dpspca.client.described_jobs import load_dictionary
from dpspca.common.checks import check
from dpspca.common.dictionary import Dictionary
from dpspca.common.names import shortened
from dpspca.common.spec import Centering

FEATURES: Final = "features"
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def names_a_file(job: object) -> bool:
    """Tell whether a job's file names a dictionary by its path, and not by its digest, or names features."""
    if not isinstance(job, Mapping):
        return False
    given = job.get("dictionary")
    return FEATURES in job or (isinstance(given, str) and not _DIGEST.fullmatch(given))


def resolved(job: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], Dictionary]:
    """Return a job of a file with what follows from its dictionary, and the dictionary.

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
    known = load_dictionary(folder / Path(str(file)).expanduser())
    others = {key: value for key, value in job.items() if key not in {FEATURES, "dictionary"}}
    return {**follows(known, features, others.get("centering")), **others, "dictionary": known.digest()}, known


def follows(known: Dictionary, features: object, centering: object) -> dict[str, Any]:
    """Return what follows from a job's features: the schema, the norm bound, and the bound of a private mean."""
    chosen = known if features is None else known.subset(_names(features))
    columns, bound = list(chosen.columns), chosen.norm_bound()
    mean = {"mean_bound": bound} if centering == Centering.PRIVATE else {}
    return {"schema": {"dimension": len(columns), "names": columns}, "norm_bound": bound, **mean}


def _names(features: object) -> Sequence[str]:
    given = isinstance(features, list | tuple) and bool(features) and all(isinstance(each, str) for each in features)
    check(given, f"features is {shortened(features)}.", 'Give a list of names, as in ["age", "bmi"].')
    return list(features) if isinstance(features, list | tuple) else []
