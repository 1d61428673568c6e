"""Which kinds of files are read, by the ends of their names, and what may be declared about each kind."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import InvalidDataError, MissingExtraError

from .databases import (
    columns_of_duckdb,
    columns_of_postgres,
    columns_of_sqlalchemy,
    columns_of_sqlite,
    read_duckdb,
    read_postgres,
    read_sqlalchemy,
    read_sqlite,
    triplets_of_duckdb,
    triplets_of_postgres,
    triplets_of_sqlalchemy,
    triplets_of_sqlite,
)
from .files import (
    COMPANIONS,
    ZARR_PARTS,
    columns_of_arrow,
    columns_of_bed,
    columns_of_h5ad,
    columns_of_orc,
    columns_of_parquet,
    columns_of_pgen,
    columns_of_text,
    columns_of_zarr,
    conversion,
    fault_of_text,
    features_of_bed,
    features_of_pgen,
    index_of_parquet,
    is_convertible,
    kinds_in_text,
    lacking_beside,
    notes_on_bed,
    notes_on_pgen,
    read_arrow,
    read_bed,
    read_h5ad,
    read_hdf5,
    read_npy,
    read_npz,
    read_orc,
    read_parquet,
    read_pgen,
    read_text,
    read_zarr,
    thousands_in_text,
    triplets_of_arrow,
    triplets_of_orc,
    triplets_of_parquet,
    triplets_of_text,
    undecoded_in_text,
    unpacking,
    unstored_in_h5ad,
    unstored_in_hdf5,
    unstored_in_zarr,
)
from .tables import Columns, RawTable, RowSource, TripletBatch, columns_by_place


def _without_names(source: RowSource) -> Columns:
    """Choose among the columns of a file that has no names for them."""
    return columns_by_place(source.reading)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file."""

    read: Callable[[RowSource], RawTable]
    columns: Callable[[RowSource], Columns] = _without_names
    """Reads the names and types of the columns that are used, and nothing else."""
    keys: frozenset[str] = frozenset()
    """Declarations that are allowed for this kind of file, besides ``_KEYS``."""
    triplets: Callable[[RowSource], Iterator[TripletBatch]] | None = None
    """Reads a long table of triplets."""
    fault: Callable[[RowSource, int], str] | None = None
    """Says what is wrong with a row, by its number from 0."""
    kinds: Callable[[RowSource], dict[str, tuple[str, str]]] | None = None
    """Says what columns hold in place of numbers, and what to do about it."""
    thousands: Callable[[RowSource], tuple[str, ...]] | None = None
    """Names columns whose decimal mark may divide thousands."""
    undecoded: Callable[[RowSource], tuple[str, ...]] | None = None
    """Names columns with cells that are not in the encoding in which the file is read."""
    index: Callable[[RowSource], tuple[str, ...]] | None = None
    """Names used columns that number or name rows, as the file says."""
    unstored: Callable[[RowSource], str | None] | None = None
    """Says which part of the rows the file does not hold, so that another number stands there."""
    notes: Callable[[RowSource], list[str]] | None = None
    """Says what people should know of how its rows are read."""
    features: Callable[[RowSource, Dictionary], tuple[str, ...]] | None = None
    """Names the features of a dictionary that the file has, if not those alone that are names of columns."""
    partitions: bool = False
    """Whether the names of folders may hold columns."""
    persons_beside: bool = False
    """Whether the column that says whose each row is stands beside the table of rows."""
    may_hang: bool = False
    """Whether its library may loop for ever or crash on a damaged file. Then another process reads it first."""


_KEYS: Final = frozenset({"columns", "leave_out", "missing_codes", "missing"})

_PERSON: Final = frozenset({"person"})
_TABLE: Final = _PERSON | {"triplets"}
_DATABASE: Final = _TABLE | {"table", "query", "order_by"}
_GENOTYPES: Final = _PERSON | {"alleles"}

_TEXT: Final = Format(
    read_text,
    columns_of_text,
    _TABLE | {"names", "delimiter", "decimal", "encoding"},
    triplets=triplets_of_text,
    fault=fault_of_text,
    kinds=kinds_in_text,
    thousands=thousands_in_text,
    undecoded=undecoded_in_text,
)
_PARQUET: Final = Format(
    read_parquet, columns_of_parquet, _TABLE, triplets=triplets_of_parquet, index=index_of_parquet, partitions=True
)
_ARROW: Final = Format(read_arrow, columns_of_arrow, _TABLE, triplets=triplets_of_arrow, partitions=True)
_ORC: Final = Format(read_orc, columns_of_orc, _TABLE, triplets=triplets_of_orc, may_hang=True, partitions=True)
_ARRAY: Final = frozenset({"array"})
_NAMED: Final = _ARRAY | {"names"}
_HDF5: Final = Format(read_hdf5, keys=_NAMED, may_hang=True, unstored=unstored_in_hdf5)
_H5AD: Final = Format(
    read_h5ad, columns_of_h5ad, _ARRAY | _PERSON, persons_beside=True, may_hang=True, unstored=unstored_in_h5ad
)
_SQLITE: Final = Format(read_sqlite, columns_of_sqlite, _DATABASE - {"order_by"}, triplets=triplets_of_sqlite)

FORMATS: Final[Mapping[str, Format]] = MappingProxyType({
    ".csv": _TEXT, ".tsv": _TEXT, ".tab": _TEXT, ".txt": _TEXT,
    ".parquet": _PARQUET, ".pq": _PARQUET, ".arrow": _ARROW, ".feather": _ARROW, ".orc": _ORC,
    ".h5": _HDF5, ".hdf5": _HDF5, ".h5ad": _H5AD,
    ".sqlite": _SQLITE, ".sqlite3": _SQLITE, ".db": _SQLITE,
    ".bed": Format(read_bed, columns_of_bed, _GENOTYPES, notes=notes_on_bed, features=features_of_bed),
    ".pgen": Format(
        read_pgen, columns_of_pgen, _GENOTYPES, may_hang=True, notes=notes_on_pgen, features=features_of_pgen
    ),
    ".duckdb": Format(read_duckdb, columns_of_duckdb, _DATABASE, triplets=triplets_of_duckdb),
    ".postgresql": Format(read_postgres, columns_of_postgres, _DATABASE, triplets=triplets_of_postgres),
    ".sqlalchemy": Format(
        read_sqlalchemy, columns_of_sqlalchemy, _DATABASE, triplets=triplets_of_sqlalchemy
    ),
    ".zarr": Format(read_zarr, columns_of_zarr, _NAMED | _PERSON, persons_beside=True, unstored=unstored_in_zarr),
    ".npy": Format(read_npy, keys=frozenset({"names"})), ".npz": Format(read_npz, keys=_NAMED),
})  # fmt: skip
_PACKED: Final = (".gz", ".bz2", ".xz", ".zst")


def format_of(source: RowSource) -> Format:
    """Return the kind of a file. Refuse an unknown one, and declarations that say nothing about this kind."""
    ending = ending_of(source.path)
    found = FORMATS.get(ending)
    if found is None:
        raise _unknown(source.path, ending)
    stray = sorted(source.reading.declared - found.keys - _KEYS)
    if stray:
        raise InvalidDataError(
            f"[reading] has {', '.join(stray)}, which does not apply to {ending} files.", "Remove it there."
        )
    if source.reading.expressions and "query" not in found.keys:
        raise InvalidDataError(
            f"The settings give an {next(iter(source.reading.expressions))!r:.80}, but {ending} files compute nothing.",
            "Compute the column before you save the file, or put its rows into a DuckDB database.",
        )
    if source.partition and not found.partitions:
        raise InvalidDataError(
            f"It is in a folder that states {source.partition[0][0]!r:.60}, which {ending} files may not be.",
            "Move its files into the outer folder, with that column in them. Parquet, ORC, Feather and Arrow files may "
            "be in such folders.",
        )
    return found


def ending_of(path: Path) -> str:
    """Return the end of a name in lower case, without the end that says how a text file is packed."""
    both = "".join(path.suffixes[-2:]).lower()
    if is_convertible(both):
        return both
    plain = Path(path.stem) if path.suffix.lower() in _PACKED else path
    is_text = FORMATS.get(plain.suffix.lower()) is _TEXT
    return (plain if is_text else path).suffix.lower()


def unpacked_name(path: Path) -> str:
    """Return a file's name without the end that says how a text file is packed."""
    return path.stem if path.suffix.lower() in _PACKED else path.name


def _unknown(path: Path, ending: str) -> MissingExtraError:
    if not path.exists() and (lacking := lacking_beside(path)) is not None:
        return MissingExtraError(
            f"There is {' and '.join(lacking[1])}, but no {lacking[0]}.", "Put it into the same folder."
        )
    if not ending and not path.exists():
        return MissingExtraError("There is no such file or folder.", "Check the name, and the folder that it is in.")
    what = f"Files ending in {ending!r} cannot be read."
    unpack, within = unpacking(path), Path(path.stem).suffix.lower()
    if unpack is not None and ending == path.suffix.lower() and (within in FORMATS or is_convertible(within)):
        return MissingExtraError(f"Files ending in '{within}{ending}' cannot be read.", f"Unpack it first: {unpack}")
    if is_convertible(ending):
        is_part = path.name in ZARR_PARTS
        convert = f"Convert it first: {conversion(path, ending)}"
        return MissingExtraError(what, "It is part of a Zarr folder: end that name in .zarr." if is_part else convert)
    whole = next((each for each in (f"{within}{ending}", ending) if each in COMPANIONS), None)
    if whole is not None:
        return MissingExtraError(
            f"Files ending in {whole!r} cannot be read.", f"Name the {COMPANIONS[whole]} file beside it."
        )
    known = f"{', '.join(FORMATS)}, and text also with {', '.join(_PACKED)}"
    return MissingExtraError(what, f"Use one of: {known}.")
