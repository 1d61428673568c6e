"""Reads genotypes that PLINK wrote: .bed with .bim and .fam, or .pgen with .pvar and .psam.

Rows are samples. Columns are variants, and count copies of one allele: the first allele of a .bim, or ALT of a .pvar,
or what a public reference declares (``variants.py``). Cells take two bits in memory (``genotypes.py``). A .bed file is
read here, because its form is two bits a cell under three bytes of magic number. For .pgen there is pgenlib.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from io import FileIO
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.dictionary import SEVERAL_ALLELES, Dictionary, Genotype, counted_as
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading
from dpspca.provider.data.memory import CELLS_A_BYTE, MISSING, Bytes, Genotypes, from_bed, of_codes, swapped
from dpspca.provider.data.tables import GENOTYPE, Columns, RawTable, RowSource, columns_used, import_extra, require_room

from .companions import JOIN_VARIANTS, SAME_VARIANTS, beside
from .folders import files_of
from .variants import NO_AUTOSOME, Agreement, Variant, agree, counting, described, read_variants, sample_ids
from .variants_by_place import named_as_features, require_any

_MAGIC: Final = b"\x6c\x1b"
_HEADER: Final = 3
_BY_VARIANT, _BY_SAMPLE = b"\x01", b"\x00"
_PGEN_HEAD: Final = Struct("<2sBII")
_WITH_COUNTS: Final = frozenset({0x02, 0x03, 0x04, 0x10})
"""Forms of .pgen whose head has the numbers of variants and samples."""
_BLOCK_BYTES: Final = 2**20
_RENAMING: Final = (
    "Name variants by place and alleles: plink2 --bfile PREFIX --set-all-var-ids '@:#:$r:$a' --make-bed --out OTHER "
    "(of .pgen files: --pfile and --make-pgen)."
)
_REMOVE_FEATURE: Final = "remove the feature from the dictionary"
_WRITE_AGAIN: Final = "Write the files again, whole and together, for example with plink2 --make-bed or --make-pgen."


def read_bed(source: RowSource) -> RawTable:
    """Read a .bed file. The .bim and .fam beside it must describe it."""
    variants, samples = _listed(source, ".bim", ".fam")
    with source.path.open("rb") as file:
        magic, order = file.read(2), file.read(1)
        size = os.fstat(file.fileno()).st_size
    if magic != _MAGIC:
        raise InvalidDataError("This is not a .bed file of PLINK: its first bytes are wrong.", _WRITE_AGAIN)
    if order == _BY_SAMPLE:
        raise InvalidDataError(
            "The .bed file is ordered by sample, as only old programs write it.",
            "Convert it with PLINK 2, which keeps the order of alleles: plink2 --bfile PREFIX --make-bed --out OTHER",
        )
    width = -(-samples // CELLS_A_BYTE)
    if order != _BY_VARIANT or size != _HEADER + len(variants) * width:
        raise InvalidDataError(
            f"The .bed file has {size} bytes, which do not fit {len(variants)} variants in .bim and {samples} samples "
            "in .fam.",
            _WRITE_AGAIN,
        )
    with source.path.open("rb", buffering=0) as file:
        shape = samples, len(variants)
        return _table(source, _chosen(source, variants), shape, lambda places: from_bed(_rows_of(file, places, width)))


def _rows_of(file: FileIO, places: NDArray[np.intp], width: int) -> Bytes:
    """Read the bytes of some variants. Those that follow one another are read together."""
    found = np.empty((len(places), width), dtype=np.uint8)
    edges = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    for first, last in pairwise(edges):
        file.seek(_HEADER + int(places[first]) * width)
        if file.readinto(found[first:last].data) != (last - first) * width:
            raise InvalidDataError("The .bed file became shorter while it was read.", _WRITE_AGAIN)
    return found


def read_pgen(source: RowSource) -> RawTable:
    """Read the hard calls of a .pgen file. The .pvar (or .pvar.zst) and .psam beside it must describe it."""
    variants, samples = _listed(source, *_PGEN_LISTS)
    _require_counts(source.path, len(variants), samples)
    chosen = _chosen(source, variants)
    with import_extra("pgenlib").PgenReader(
        os.fsencode(source.path),
        raw_sample_ct=samples,
        variant_ct=len(variants),
        allele_idx_offsets=_offsets(variants),
    ) as stored:

        def bytes_of(places: NDArray[np.intp]) -> Bytes:
            counts = np.empty((len(places), samples), dtype=np.int8)
            stored.read_list(places.astype(np.uint32), counts)
            return of_codes(np.where(counts < 0, MISSING, counts).astype(np.uint8))

        return _table(source, chosen, (samples, len(variants)), bytes_of)


def _require_counts(path: Path, variants: int, samples: int) -> None:
    """Refuse lists that are not those of a .pgen file whose head says how much it holds."""
    with path.open("rb") as file:
        head = file.read(_PGEN_HEAD.size)
    if len(head) == _PGEN_HEAD.size:
        magic, mode, *held = _PGEN_HEAD.unpack(head)
        if magic == _MAGIC and mode in _WITH_COUNTS and held != [variants, samples]:
            raise InvalidDataError(
                f"The .pgen file has {held[0]} variants of {held[1]} samples, which do not fit {variants} variants in "
                f".pvar and {samples} samples in .psam.",
                _WRITE_AGAIN,
            )


def notes_on_bed(source: RowSource) -> list[str]:
    """Return remarks if variants on chromosome X, Y or MT are used, which depend on sex, or samples are there twice."""
    return [*_notes_on_sex(source, _variants(source, ".bim")), *_notes_on_samples(source, ".fam")]


def notes_on_pgen(source: RowSource) -> list[str]:
    """Return remarks as ``notes_on_bed``, and one if dosages are between whole counts: only hard calls are read."""
    variants, samples = _listed(source, *_PGEN_LISTS)
    places = _chosen(source, variants)[0].places
    used = list(range(len(variants)) if places is None else places)[:_LOOKED_AT]
    dosages = np.empty((1, samples), dtype=np.float32)
    between = 0
    with import_extra("pgenlib").PgenReader(
        os.fsencode(source.path), raw_sample_ct=samples, variant_ct=len(variants), allele_idx_offsets=_offsets(variants)
    ) as stored:
        for place in used:
            stored.read_dosages_list(np.array([place], dtype=np.uint32), dosages)
            between += int(np.any((dosages != np.rint(dosages)) & (dosages >= 0)))
    notes = [*_notes_on_sex(source, variants), *_notes_on_samples(source, _PGEN_LISTS[1])]
    if between:
        notes.append(
            f"{source.path.name} has dosages between whole counts, at {between} of the first {len(used)} variants. The "
            "hard calls are read, and a dosage without one is missing. To round all dosages: plink2 --pfile PREFIX "
            "--hard-call-threshold 0.499999 --make-pgen erase-dosage --out OTHER"
        )
    return notes


def _notes_on_sex(source: RowSource, variants: Sequence[Variant]) -> list[str]:
    places = _chosen(source, variants)[0].places
    used = variants if places is None else [variants[place] for place in places]
    named = [each.name for each in used if each.place is not None and each.place[0] in NO_AUTOSOME]
    some = "1 variant is" if len(named) == 1 else f"{len(named)} variants are"
    note = (
        f"{some} on chromosome X, Y or MT, such as {named[0]!r:.60}. They are counted like all others, so a component "
        f"may be the sex of the samples: {source.reading.way_to_leave_out} at every provider, or write the file "
        "without them (plink2 --autosome)."
        if named
        else ""
    )
    return [note] if note else []


def _notes_on_samples(source: RowSource, ending: str) -> list[str]:
    listed = sample_ids(_beside(source.path, ending))
    again = len(listed) - len(set(listed))
    return [f"{again} of the samples have the FID and IID of an earlier one. Find out whose they are."] if again else []


def columns_of_bed(source: RowSource) -> Columns:
    """Read which variants are used, and their alleles."""
    return _chosen(source, _variants(source, ".bim"))[0]


def columns_of_pgen(source: RowSource) -> Columns:
    """Read which variants are used, and their alleles."""
    return _chosen(source, _variants(source, _PGEN_LISTS[0]))[0]


def names_of_variants(source: RowSource) -> frozenset[str]:
    """Return the names of all variants of a .pgen file."""
    return frozenset(each.name for each in _variants(source, _PGEN_LISTS[0]))


def features_of_bed(source: RowSource, dictionary: Dictionary) -> tuple[str, ...]:
    """Name the features of a dictionary that a file has, by name or by place and alleles. Others may be anything."""
    return _features(source, dictionary, ".bim")


def features_of_pgen(source: RowSource, dictionary: Dictionary) -> tuple[str, ...]:
    """Name the features of a dictionary that a file has, by name or by place and alleles. Others may be anything."""
    return _features(source, dictionary, _PGEN_LISTS[0])


_Chosen: TypeAlias = tuple[Columns, Agreement | None]
"""Which variants are used, and how their alleles relate to those of a reference."""
_PGEN_LISTS: Final = ".pvar", ".psam"
_LOOKED_AT: Final = 1000
"""Variants in which dosages are looked for."""


def _offsets(variants: Sequence[Variant]) -> NDArray[np.uintp]:
    """Return where the alleles of each variant begin in a list of all alleles."""
    alleles = np.array([2 + each.counted.count(SEVERAL_ALLELES) for each in variants], dtype=np.uintp)
    return np.concatenate([np.zeros(1, dtype=np.uintp), np.cumsum(alleles, dtype=np.uintp)])


def _listed(source: RowSource, variants: str, samples: str) -> tuple[list[Variant], int]:
    listed = len(sample_ids(_beside(source.path, samples)))
    if not listed:
        raise InvalidDataError(f"The {samples} file lists no sample.", _WRITE_AGAIN)
    return _variants(source, variants), listed


def _variants(source: RowSource, ending: str) -> list[Variant]:
    return read_variants(_beside(source.path, ending))


def _require_two_alleles(used: Sequence[Variant], reading: Reading) -> None:
    several = [each.name for each in used if SEVERAL_ALLELES in each.counted]
    if several:
        raise InvalidDataError(
            f"There are several ALT alleles of {several[0]!r:.60}{_and_more(several[1:])}.",
            f"Leave them out: {reading.way_to_leave_out}. Or drop them: "
            "plink2 --pfile PREFIX --max-alleles 2 --make-pgen --out OTHER",
        )


def _and_more(others: Sequence[str]) -> str:
    return f" and {len(others)} more variants" if others else ""


def _beside(path: Path, ending: str) -> Path:
    """Return the file that belongs to another, by its ending."""
    stem = path.with_suffix("")
    found = beside(stem, ending) or beside(stem, f"{ending}.zst")
    if found is None and "{" in path.name and not path.exists():
        raise InvalidDataError(f"There is no file {path.name}. {SAME_VARIANTS}", JOIN_VARIANTS)
    if found is None:
        raise InvalidDataError(
            f"There is no {stem.name}{ending} beside it.", f"Put the {ending} file into the same folder."
        )
    return found


def _features(source: RowSource, dictionary: Dictionary, ending: str) -> tuple[str, ...]:
    features = {each.name: each for each in dictionary.features}
    variants = named_as_features(_variants(source, ending), features, features, _REMOVE_FEATURE)
    require_any(variants, features)
    there = {each.name for each in variants}
    return tuple(name for name in features if name in there)


def _with_names(variants: Sequence[Variant], reading: Reading) -> Sequence[Variant]:
    """Give variants the names under which the dictionary's features are looked for, if there is a dictionary."""
    if reading.preparation is None:
        return variants
    sought = {each.column: each.feature for each in reading.preparation.mapped if not each.is_located}
    return named_as_features(variants, sought, reading.preparation.columns, reading.way_to_leave_out)


def _are_in_other_files(source: RowSource, lacking: Collection[str]) -> bool:
    """Tell whether another file of the data set has some of the variants that one lacks."""
    others = () if source.within is None else files_of(source.within, partitioned=True)
    lists = {".bed": ".bim", ".pgen": _PGEN_LISTS[0]}
    return any(
        each.name in lacking
        for other in others
        if other != source.path and (ending := lists.get(other.suffix.lower())) is not None
        for each in _with_names(read_variants(_beside(other, ending)), source.reading)
    )


def _named(source: RowSource, variants: Sequence[Variant]) -> Sequence[Variant]:
    """Name variants as the features of the dictionary, if there is one. Refuse a file that lacks all, or a part."""
    reading = source.reading
    variants = _with_names(variants, reading)
    lacking = frozenset(reading.columns or ()).difference(each.name for each in variants)
    if lacking and _are_in_other_files(source, lacking):
        raise InvalidDataError(
            f"It does not have {min(lacking)!r:.60}{_and_more(sorted(lacking)[1:])}. {SAME_VARIANTS}",
            JOIN_VARIANTS,
        )
    if reading.preparation is not None:
        require_any(variants, {each.column: each.feature for each in reading.preparation.mapped})
    return variants


def _reference(path: Path) -> list[Variant]:
    """Read the public list that says which alleles are counted. Errors name it, and not the genotypes."""
    try:
        return read_variants(path)
    except OSError as problem:
        raise InvalidDataError(
            f"The reference {path} cannot be read: {problem.strerror or 'it is damaged'}.",
            "Correct alleles under [reading].",
        ) from None


def _chosen(source: RowSource, variants: Sequence[Variant]) -> _Chosen:
    """Choose variants: those that are declared, or those of the reference, or all. Compare their alleles."""
    reading = source.reading
    reference = None if reading.alleles is None else _reference(reading.alleles)
    if reference is not None and reading.columns is None:
        listed = tuple(dict.fromkeys(each.name for each in reference if each.name not in reading.leave_out))
        reading = replace(reading, columns=listed, leave_out=())
    variants = _named(replace(source, reading=reading), variants)
    chosen = columns_used([each.name for each in variants], reading, _RENAMING)
    used = variants if chosen.places is None else [variants[place] for place in chosen.places]
    _require_two_alleles(used, reading)
    agreement = _agreed_alleles(used, reading, reference)
    counted = [(each.counted, each.other) for each in used]
    if agreement is not None:
        counted = [pair[::-1] if swap else pair for pair, swap in zip(counted, agreement.swapped, strict=True)]
    kinds = (counted_as(*pair, place=each.place) for pair, each in zip(counted, used, strict=True))
    return replace(chosen, kinds=tuple(kinds)), agreement


def _agreed_alleles(used: Sequence[Variant], reading: Reading, reference: Sequence[Variant] | None) -> Agreement | None:
    """Compare alleles and places with those of the reference, if there is one, and of the dictionary.

    The dictionary says which allele is counted. What it leaves out, the reference may say.
    """
    remedy = f"Correct them, or {reading.way_to_leave_out} at every provider."
    whose = "" if reading.alleles is None else f"the reference {reading.alleles.name}"
    if reading.preparation is None:
        return None if reference is None else agree(used, reference, remedy, whose)
    mapped = [(each.column, each.feature) for each in reading.preparation.mapped]
    features = {column: feature for column, feature in mapped if isinstance(feature, Genotype)}
    known = used if reference is None else reference
    if reference is not None:
        counted = {column: feature.allele for column, feature in features.items() if feature.allele}
        agree(used, counting(reference, counted), remedy, whose)
    return agree(used, described(known, features), remedy, "the dictionary")


def _table(
    source: RowSource, chosen: _Chosen, shape: tuple[int, int], bytes_of: Callable[[NDArray[np.intp]], Bytes]
) -> RawTable:
    """Read the variants that are used. ``bytes_of`` reads some of them, by their places in the file."""
    columns, agreement = chosen
    samples, variants = shape
    places = np.arange(variants) if columns.places is None else np.array(columns.places, dtype=np.intp)
    turned = np.zeros(len(places), dtype=np.bool_) if agreement is None else agreement.swapped
    require_room("genotypes", samples * len(places), GENOTYPE, source.room)

    def read() -> Iterator[Bytes]:
        step = max(1, _BLOCK_BYTES // samples) * CELLS_A_BYTE
        for start in range(0, len(places), step):
            part = slice(start, start + step)
            yield swapped(bytes_of(places[part]), turned[part])

    table = Genotypes.of_columns(read(), (samples, len(places)))
    if agreement is not None and source.reading.preparation is None:  # a dictionary states its own fill values
        filled = [source.reading.fill_of(name) is None for name in columns.names or ()]
        table.values[MISSING, filled] = agreement.means[filled]
    return RawTable(table, columns)
