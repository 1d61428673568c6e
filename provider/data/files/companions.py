"""Files that PLINK writes together: which of them belongs to which, and under which names they are found."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dpspca.common.errors import InvalidDataError

GENOTYPES: Final = (".bed", ".pgen")
COMPANIONS: Final[Mapping[str, str]] = MappingProxyType(
    {".bim": ".bed", ".fam": ".bed", ".pvar": ".pgen", ".pvar.zst": ".pgen", ".psam": ".pgen"}
)
"""Files that are read with another one, which the settings name."""
_LOG: Final = ".log"
SAME_VARIANTS: Final = "Variants are columns, and several files of a data set are rows: they need the same variants."
JOIN_VARIANTS: Final = (
    "If each file has the variants of a chromosome, join the files: ls chr*.bed | sed 's/.bed$//' > files.txt; "
    "plink2 --pmerge-list files.txt bfile --make-bed --out OTHER (of .pgen files: chr*.pgen, .pgen, pfile, --make-pgen)"
)
"""What to do about files that have different variants."""


def beside(stem: Path, ending: str) -> Path | None:
    """Find the file of a stem and an ending, which is in small or in capital letters."""
    names = (stem.name + ending, stem.name + ending.upper())
    return next((each for name in names if (each := stem.with_name(name)).exists()), None)


def located(path: Path) -> Path:
    """Find the file of a name without ending, as PLINK's users write it."""
    if path.exists():
        return path
    found = [each for ending in GENOTYPES if (each := beside(path, ending)) is not None]
    if len(found) > 1:
        raise InvalidDataError(f"{path} may be {found[0].name} or {found[1].name}.", "Write the ending, too.")
    return found[0] if found else path


def is_companion(path: Path) -> bool:
    """Tell whether a file belongs to genotypes beside it: a list of their variants or samples, or PLINK's log."""
    owners = {**{ending: (owner,) for ending, owner in COMPANIONS.items()}, _LOG: GENOTYPES}
    for ending, those in owners.items():
        if path.name.lower().endswith(ending):
            stem = path.with_name(path.name[: -len(ending)])
            return any(beside(stem, owner) is not None for owner in those)
    return False


def lacking_beside(path: Path) -> tuple[str, list[str]] | None:
    """Return which file of genotypes a stem lacks, and which of its companions are there, or None if there are none."""
    for owner in GENOTYPES:
        there = [each for ending, its in COMPANIONS.items() if its == owner and (each := beside(path, ending))]
        if there:
            return path.name + owner, [each.name for each in there]
    return None
