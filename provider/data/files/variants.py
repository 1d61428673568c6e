"""Lists of variants and samples as PLINK writes them, and the alleles that a public reference declares.

All providers must count the same allele of each variant. Files disagree about which that is, because some programs put
the rarer allele first. So a dictionary says it, or the steward declares a reference that all providers share. Alleles
in another order are swapped; alleles that differ, or that are on the other strand, are refused by the name of the
variant. So is a variant at another place.

Lists of variants count as public, as column names do.
"""

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import (
    SEVERAL_ALLELES,
    UNKNOWN_ALLELES,
    Genotype,
    chromosome,
    counted_as,
    is_ambiguous,
    on_other_strand,
    position,
)
from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.tables import import_extra

NO_AUTOSOME: Final = frozenset({"X", "Y", "MT"})
_NAMED: Final = 8
_VARIANT_LISTS: Final = (".bim", ".pvar", ".pvar.zst")
_BIM: Final = ("#CHROM", "ID", "CM", "POS", "ALT", "REF")
_SHORT_BIM: Final = ("#CHROM", "ID", "POS", "ALT", "REF")
_FAM: Final = ("#FID", "IID")
_FRQ: Final = ["CHR", "SNP"]
"""How the head of a .frq file of PLINK 1.9 begins."""
_TWO_ALLELES: Final = "Write it without such variants: plink2 --max-alleles 2."
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant: its name, the allele that is counted, and the other one."""

    name: str
    counted: str
    other: str
    mean: float | None = None
    """The mean count that a reference states."""
    place: tuple[str, int | None] | None = None
    """The chromosome, and the position on it, if the file says where the variant is."""


def read_variants(path: Path) -> list[Variant]:
    """Read a .bim, .pvar or .afreq file, which may be packed as .gz or .zst."""
    with _lines(path) as lines:
        heads, cells = _headed(lines, {len(_SHORT_BIM): _SHORT_BIM}, _BIM)
        places = _Places(path, heads)
        at, place = places.optional("#CHROM"), places.optional("POS")
        name, counted, other = places.of("ID"), places.of("ALT"), places.of("REF")
        frequency = places.optional("ALT_FREQS")
        found = []
        for number, row in cells:
            if len(row) < len(heads) or (heads is _SHORT_BIM and len(row) != len(heads)):
                few = "few" if len(row) < len(heads) else "many"
                raise InvalidDataError(
                    f"{path.name}, line {number} has too {few} cells.", "Write the file again, whole."
                )
            if row[: len(_FRQ)] == _FRQ:
                raise InvalidDataError(
                    f"{path.name} is a list of frequencies of PLINK 1.9, where the rarer allele comes first.",
                    "Write a list with PLINK 2, and name OTHER.afreq: plink2 --bfile PREFIX --freq --out OTHER",
                )
            named = row[name]
            if named == ".":
                where = [row[each] for each in (at, place) if each is not None]
                named = ":".join([*where, row[other], row[counted]])
            mean = None if frequency is None else _mean(path, number, row[frequency])
            located = None if at is None else _place(row[at], "" if place is None else row[place])
            found.append(Variant(named, row[counted], row[other], mean, located))
    if not found:
        raise InvalidDataError(f"{path.name} lists no variant.", "Write the file again, whole.")
    return found


def outline_of_variants(path: Path) -> list[tuple[str, str]] | None:
    """Read the names of all variants, and the alleles and the place of each. Return None for another kind of file."""
    if not path.name.lower().endswith(_VARIANT_LISTS):
        return None
    return [(each.name, counted_as(each.counted, each.other, each.place)) for each in read_variants(path)]


def read_samples(path: Path, column: str = "IID") -> list[bytes]:
    """Read the persons of all samples of a .fam or .psam file: their names (IID) or their families (FID)."""
    samples = _samples(path, column)
    if column == "IID":
        _require_names_of_one_family(path, samples)
        names = [name for _, _, name in samples]
    else:  # a family of 0 is none, and such a sample stands for itself
        names = [f"{family} {name}" if family == "0" else family for _, family, name in samples]
    return [name.encode("utf-8", "surrogateescape") for name in names]


def sample_ids(path: Path) -> list[tuple[str, str]]:
    """Read the family (0 if there is none) and the name of all samples of a .fam or .psam file."""
    return [(family, name) for _, family, name in _samples(path, "IID")]


def _samples(path: Path, column: str) -> list[tuple[int, str, str]]:
    """Read the line, the family (0 if there is none) and the name of all samples. The column has to be there."""
    with _lines(path) as lines:
        heads, cells = _headed(lines, {}, _FAM)
        places = _Places(path, heads)
        places.of(column)
        family, name = places.optional("FID"), places.of("IID")
        found = []
        for number, row in cells:
            if row[: len(_FAM)] == ["FID", "IID"]:
                raise InvalidDataError(f"{path.name}, line {number} holds names, not a sample.", "Remove that line.")
            if len(row) <= max(name, family or 0):
                raise InvalidDataError(f"{path.name}, line {number} has too few cells.", "Write the file again, whole.")
            found.append((number, "0" if family is None else row[family], row[name]))
    return found


def _require_names_of_one_family(path: Path, samples: Sequence[tuple[int, str, str]]) -> None:
    """Refuse a name that several families have: PLINK takes its samples for several persons, and IID for one.

    Either may be right, and neither is safe to guess. One person in place of two would make the rows of one depend on
    the other, and two in place of one would count a person twice.
    """
    first: dict[str, tuple[int, str]] = {}
    for number, family, name in samples:
        before, known = first.setdefault(name, (number, family))
        if known != family:
            raise InvalidDataError(
                f"{path.name}, lines {before} and {number} have the same IID in different families (FID).",
                "Say whose they are in a persons file. For a person for each FID and IID: "
                f"awk '!/^#/ {{print $1, $2}}' {path.name} > persons.txt; for one for each IID, "
                f"awk '!/^#/ {{print $2}}' {path.name} > persons.txt",
            )


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[str]]:
    """Open a file of lines, behind a byte order mark. Bytes that are not text are kept, and match no name."""
    if path.suffix.lower() == ".zst":
        with path.open("rb") as file, import_extra("pyarrow").CompressedInputStream(file, "zstd") as packed:
            yield iter(packed.read().decode("utf-8-sig", "surrogateescape").splitlines())
        return
    if path.suffix.lower() == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as text:
            yield text
        return
    with path.open("rb") as file:
        if file.read(len(_GZIP)) == _GZIP:
            raise InvalidDataError(f"{path.name} is packed with gzip.", "Unpack it: gunzip FILE.")
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as text:
        yield text


def _headed(
    lines: Iterator[str], by_cells: Mapping[int, Sequence[str]], usual: Sequence[str]
) -> tuple[Sequence[str], Iterator[tuple[int, list[str]]]]:
    """Read the names of the columns, from the file's head or by their number. Also return all other lines."""
    numbered = ((number, line.split()) for number, line in enumerate(lines, start=1) if line.strip())
    first: tuple[int, list[str]] | None = next((each for each in numbered if not each[1][0].startswith("##")), None)
    if first is not None and first[1][0].startswith("#"):
        return first[1], numbered
    cells = 0 if first is None else len(first[1])
    return by_cells.get(cells, usual), _again(first, numbered)


def _again(
    first: tuple[int, list[str]] | None, others: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    if first is not None:
        yield first
    yield from others


class _Places:
    """Finds columns by their names in the head of a file."""

    def __init__(self, path: Path, heads: Sequence[str]) -> None:
        self._path = path
        self._heads = [head.lstrip("#") for head in heads]

    def optional(self, name: str) -> int | None:
        plain = name.lstrip("#")
        return self._heads.index(plain) if plain in self._heads else None

    def of(self, name: str) -> int:
        place = self.optional(name)
        if place is None:
            raise InvalidDataError(f"{self._path.name} has no column {name}.", "Write it again with plink2.")
        return place


def _place(written: str, at: str) -> tuple[str, int | None] | None:
    """Return where a variant is, or None if that is not known."""
    known = chromosome(written)
    return (known, position(at)) if known else None


def _mean(path: Path, number: int, cell: str) -> float | None:
    """Turn a frequency into a mean count. A reference may lack it for some variants."""
    try:
        frequency = float(cell)
    except ValueError:
        return None
    if not 0 <= frequency <= 1:
        if frequency != frequency:  # noqa: PLR0124  # NaN
            return None
        raise InvalidDataError(f"{path.name}, line {number}: a frequency is not between 0 and 1.", "Correct it.")
    return 2 * frequency


# --- Which allele is counted ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the alleles of some variants relate to those of a reference."""

    swapped: NDArray[np.bool_]
    """Whether the reference counts the other allele."""
    means: FloatArray
    """The mean counts that the reference states, or NaN."""


def agree(
    variants: Sequence[Variant], reference: Sequence[Variant], remedy: str, whose: str = "the reference"
) -> Agreement:
    """Compare alleles with those of a reference. Refuse variants that it lacks, or whose alleles differ.

    ``remedy`` says what to do about those, and ``whose`` what the reference is.
    """
    declared = {each.name: each for each in reference}
    counts = Counter(each.name for each in reference)
    _refuse(f"{_sentence(whose)} has several variants of one name",
            [each.name for each in variants if counts[each.name] > 1], "Name each otherwise there.")  # fmt: skip
    _refuse(f"{_sentence(whose)} lacks", [each.name for each in variants if each.name not in declared], remedy)
    pairs = [(each, declared[each.name]) for each in variants]
    _refuse(f"{_sentence(whose)} has several ALT alleles",
            [own.name for own, known in pairs if SEVERAL_ALLELES in known.counted], _TWO_ALLELES)  # fmt: skip
    _refuse(f"At another place than in {whose}, as in another build of the genome",
            [own.name for own, known in pairs if _is_elsewhere(own.place, known.place)], remedy)  # fmt: skip
    orders = [_is_swapped(own, known) for own, known in pairs]
    _refuse(f"On the other strand than in {whose} (A for T, C for G)",
            _where(pairs, orders, is_strand=True), remedy)  # fmt: skip
    _refuse(f"Alleles that differ from those of {whose} in capital and small letters alone",
            [own.name for (own, known), order in zip(pairs, orders, strict=True)
             if order is None and _is_swapped(_in_capitals(own), _in_capitals(known)) is not None], remedy)  # fmt: skip
    _refuse(f"Other alleles than in {whose}, or in an order that cannot be told (A and T, C and G)",
            _where(pairs, orders, is_strand=False), remedy)  # fmt: skip
    means = [np.nan if known.mean is None else known.mean for _, known in pairs]
    return Agreement(np.array(orders, dtype=np.bool_), np.array(means))


def described(variants: Sequence[Variant], features: Mapping[str, Genotype]) -> list[Variant]:
    """Return variants as a dictionary describes them, by the name of the variant. It may leave out some facts."""

    def stated(own: Variant) -> Variant:
        feature = features.get(own.name)
        if feature is None:
            return own
        place = None if feature.chromosome is None else (feature.chromosome, feature.position)
        return replace(own, other=feature.other_allele or own.other, place=place)

    return list(map(stated, counting(variants, {name: each.allele for name, each in features.items() if each.allele})))


def counting(variants: Sequence[Variant], counted: Mapping[str, str]) -> list[Variant]:
    """Return variants with these alleles as the counted ones, by the name of the variant. Others stay as they are."""

    def turned(own: Variant) -> Variant:
        allele = counted.get(own.name, own.counted)
        if allele == own.counted:
            return own
        if allele == own.other:
            return replace(own, counted=own.other, other=own.counted, mean=None if own.mean is None else 2 - own.mean)
        return replace(own, counted=allele, mean=None)  # which no variant with these two alleles agrees with

    return [turned(each) for each in variants]


def _is_elsewhere(own: tuple[str, int | None] | None, known: tuple[str, int | None] | None) -> bool:
    """Tell whether both say where a variant is, and not the same. A list of frequencies may have no positions."""
    if own is None or known is None:
        return False
    return own[0] != known[0] or (None not in {own[1], known[1]} and own[1] != known[1])


def _is_swapped(own: Variant, known: Variant) -> bool | None:
    """Tell whether the alleles are those of the reference in the other order, or None if they are other ones."""
    if _fits(own.counted, known.counted) and _fits(own.other, known.other):
        return False if own.counted not in UNKNOWN_ALLELES or own.other not in UNKNOWN_ALLELES else None
    is_other_way = _fits(own.counted, known.other) and _fits(own.other, known.counted)
    return True if is_other_way and not is_ambiguous(known.counted, known.other) else None


def _fits(own: str, known: str) -> bool:
    return own == known or own in UNKNOWN_ALLELES


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _in_capitals(variant: Variant) -> Variant:
    return replace(variant, counted=variant.counted.upper(), other=variant.other.upper())


def _where(pairs: Sequence[tuple[Variant, Variant]], orders: Sequence[bool | None], *, is_strand: bool) -> list[str]:
    """Name the variants that do not agree and are, or are not, on the other strand."""
    return [
        own.name
        for (own, known), order in zip(pairs, orders, strict=True)
        if order is None and _is_on_other_strand(own, known) == is_strand
    ]


def _is_on_other_strand(own: Variant, known: Variant) -> bool:
    if is_ambiguous(known.counted, known.other):
        return False
    counted, other = map(on_other_strand, (own.counted, own.other))
    return _is_swapped(replace(own, counted=counted, other=other), known) is not None


def _refuse(what: str, names: Sequence[Any], remedy: str) -> None:
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise InvalidDataError(f"{what}: {', '.join(f'{name!r:.60}' for name in names[:_NAMED])}{more}.", remedy)
