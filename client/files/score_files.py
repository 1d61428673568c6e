"""Writes scores of rows to a file or into the steward's own database. They are not private and stay on this machine."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.errors import InvalidDataError, InvalidParameterError
from dpspca.common.storage import SAMPLE_LISTS
from dpspca.common.text import to_csv
from dpspca.provider.data import DATABASES, beside, import_extra, sample_ids, write_scores_table

from .phenotypes import Phenotypes

FILES: Final = (".npy", ".csv", ".parquet", ".eigenvec")
ENDINGS: Final = (*FILES, *sorted(DATABASES))


@dataclass(frozen=True, slots=True)
class RowNames:
    """Names of the rows."""

    names: tuple[str, ...]
    families: tuple[str, ...] | None = None
    """Of samples that PLINK lists, their families."""

    @classmethod
    def read(cls, path: Path, rows: int) -> "RowNames":
        """Read a .fam or .psam file, or a file with one name a line."""
        if path.suffix.lower() in SAMPLE_LISTS:
            pairs = sample_ids(path)
            found = cls(tuple(name for _, name in pairs), tuple(family for family, _ in pairs))
        else:
            try:
                found = cls(tuple(map(str.strip, path.read_text(encoding="utf-8-sig").splitlines())))
            except (OSError, UnicodeDecodeError):
                raise InvalidParameterError(f"{path} cannot be read.", "Write one name a line, in UTF-8.") from None
        if len(found.names) != rows:
            raise InvalidDataError(
                f"{path} names {len(found.names)} rows, but there are {rows}.", "Write one name for each row."
            )
        return found


def names_beside(source: Path) -> Path | None:
    """Return the list of samples that belongs to a file of genotypes."""
    stem = source.with_suffix("") if source.suffix.lower() in {".bed", ".pgen"} else source
    return None if source.is_dir() else next(filter(None, (beside(stem, end) for end in SAMPLE_LISTS)), None)


def write_scores(out: Path, scores: FloatArray, names: RowNames | None, table: str | None) -> None:
    """Write scores in the form that the ending says."""
    ending = out.suffix.lower()
    check((table is not None) == (ending in DATABASES), "--table goes with a database.", "Give both or neither.")
    if ending == ".eigenvec" and names is None:
        raise InvalidParameterError(
            "An .eigenvec file names its samples.", "Give --ids, a .fam file or a list of names."
        )
    if ending in DATABASES:
        rows = names.names if names else tuple(map(str, range(1, len(scores) + 1)))
        write_scores_table(out, table or "", rows, scores)
        return
    _write(out, _CONTENT[ending](scores, names))


def write_phenotypes(out: Path, scores: FloatArray, names: RowNames | None, known: Phenotypes) -> int:
    """Write a table of phenotypes with scores. Return how many of its rows have none."""
    if names is None:
        raise InvalidParameterError(
            "Nothing names the samples of the scores.", "Give --ids, a .fam file or a list of names."
        )
    content, without = known.with_scores(names.names, scores, out.suffix.lower())
    _write(out, content)
    return without


def _write(out: Path, content: bytes) -> None:
    try:
        out.write_bytes(content)
    except OSError as problem:
        raise InvalidParameterError(
            f"{out} cannot be written: {problem.strerror or problem}.", "Choose another file."
        ) from None


def _npy(scores: FloatArray, _names: RowNames | None) -> bytes:
    content = io.BytesIO()
    np.save(content, scores, allow_pickle=False)
    return content.getvalue()


def _csv(scores: FloatArray, names: RowNames | None) -> bytes:
    heads = [f"component {number}" for number in range(1, scores.shape[1] + 1)]
    if names is None:
        return to_csv([heads, *scores.tolist()]).encode()
    lines = ([name, *numbers] for name, numbers in zip(names.names, scores.tolist(), strict=True))
    return to_csv([["id", *heads], *lines]).encode()


def _parquet(scores: FloatArray, names: RowNames | None) -> bytes:
    columns: dict[str, Any] = {} if names is None else {"id": names.names}
    columns |= dict(zip(_heads(scores), scores.T, strict=True))
    content = io.BytesIO()
    import_extra("pyarrow.parquet").write_table(import_extra("pyarrow").table(columns), content)
    return content.getvalue()


def _eigenvec(scores: FloatArray, names: RowNames | None) -> bytes:
    """Write covariates as PLINK, REGENIE and SAIGE take them. REGENIE needs exactly these headings."""
    assert names is not None
    families = names.families or ("0",) * len(names.names)
    who = zip(families, names.names, scores.tolist(), strict=True)
    lines = [[family, name, *map(repr, numbers)] for family, name, numbers in who]
    return "".join("\t".join(line) + "\n" for line in (["FID", "IID", *_heads(scores)], *lines)).encode()


def _heads(scores: FloatArray) -> list[str]:
    return [f"PC{number}" for number in range(1, scores.shape[1] + 1)]


_CONTENT: Final = {".npy": _npy, ".csv": _csv, ".parquet": _parquet, ".eigenvec": _eigenvec}
