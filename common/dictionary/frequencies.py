"""Reads public allele frequencies in the form of PLINK 2: an .afreq file. Pure: text in, features out."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened

from .places import chromosome, known_allele, position

_NEEDED: Final = ("ID", "ALT", "ALT_FREQS")
_FORM: Final = (
    "Give a file as `plink2 --freq cols=+pos` writes it: a line that begins with #CHROM, and one line for each variant."
)
_NO_NAME: Final = "."
_BY_PLACE: Final = ("CHROM", "POS", "REF", "ALT")
"""What names a variant without an ID, as in a list of variants beside genotypes."""
_HALF: Final = 0.5


def parse_frequencies(text: str, least: float = 0.0) -> dict[str, dict[str, Any]]:
    """Return a genotype feature for each variant whose rarer allele has at least the frequency ``least``.

    Variants that nobody or everybody carries, or of which nobody has a genotype, are left out, because they show no
    difference between persons.
    """
    check(0 <= least < _HALF, f"least_frequency is {least:g}.", "Give a number from 0 to below 0.5.")
    features: dict[str, dict[str, Any]] = {}
    for number, row in _rows(text):
        written_name, allele, written = (row[key] for key in _NEEDED)
        name = _named(number, row) if written_name == _NO_NAME else written_name
        frequency = _frequency(number, written)
        check(
            name not in features,
            f"Line {number}: the variant {shortened(name)} occurs twice.",
            "Name variants so that all differ, for example by position and alleles: --set-all-var-ids '@:#:$r:$a'.",
        )
        if 0 < frequency < 1 and min(frequency, 1 - frequency) >= least:
            features[name] = {"kind": "genotype", "allele": allele, "frequency": frequency} | _stated(row)
    check(
        bool(features),
        f"No variant has two alleles that are as frequent as least_frequency ({least}).",
        "Lower least_frequency, or give another file.",
    )
    return features


def _named(number: int, row: Mapping[str, str]) -> str:
    """Return the name of a variant without an ID: its place and alleles."""
    check(
        all(key in row for key in _BY_PLACE),
        f"Line {number}: the variant has no ID, and the file has no column {_few(row, _BY_PLACE)} to name it by.",
        "Write the file with `plink2 --freq cols=+pos`.",
    )
    return ":".join(row[key] for key in _BY_PLACE)


def _few(row: Collection[str], needed: Sequence[str]) -> str:
    """List the columns that are needed and not there."""
    return ", ".join(key for key in needed if key not in row)


def _stated(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the other allele and the place of a variant, as far as a line states them."""
    place: dict[str, Any] = {"chromosome": chromosome(row.get("CHROM", "")), "position": position(row.get("POS", ""))}
    stated = {"other_allele": known_allele(row.get("REF", ""))} | (place if place["chromosome"] else {})
    return {key: value for key, value in stated.items() if value}


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the numbered lines under the heading, by the names of its columns."""
    heading: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("##"):
            continue
        cells = line.removeprefix("#").split()
        if heading is None:
            heading = cells
            if not set(_NEEDED) <= set(heading):
                raise InvalidParameterError(f"Line {number} names no column {_few(heading, _NEEDED)}.", _FORM)
            continue
        check(len(cells) == len(heading), f"Line {number} has {len(cells)} cells under {len(heading)} names.", _FORM)
        yield number, dict(zip(heading, cells, strict=True))
    if heading is None:
        raise InvalidParameterError("The file is empty.", _FORM)


def _frequency(number: int, written: str) -> float:
    check(
        "," not in written,
        f"Line {number}: a variant has several alleles.",
        "Split such variants first: bcftools norm --multiallelics -any.",
    )
    try:
        frequency = float(written)
    except ValueError:
        frequency = -1.0
    is_known = 0 <= frequency <= 1 or math.isnan(frequency)  # nobody has a genotype
    check(is_known, f"Line {number}: the frequency is {shortened(written)}.", "Give a number from 0 to 1.")
    return frequency
