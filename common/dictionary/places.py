"""Where a variant is in the genome, and what its alleles say. Pure."""

import re
from functools import lru_cache
from typing import Final

_NAMES: Final = {"23": "X", "24": "Y", "25": "X", "XY": "X", "PAR1": "X", "PAR2": "X", "26": "MT", "M": "MT"}
"""Other ways to write a chromosome. The regions that X and Y share count as X."""
_NONE: Final = frozenset({"", "0", ".", "NA"})
UNKNOWN_ALLELES: Final = frozenset({"0", "."})
"""How a file writes an allele that none of its samples has."""
SEVERAL_ALLELES: Final = ","
"""How files divide the alleles of a variant that has several beside the reference."""
_COMPLEMENTS: Final = str.maketrans("ACGTacgt", "TGCAtgca")
_BASES: Final = frozenset("ACGTacgt")
MAX_POSITION: Final = 2**31 - 1
_COUNTED: Final = re.compile(r"copies of (.+), not (.+?)(?:, at (.+?)(?::(\d+))?)?")


@lru_cache(maxsize=1024)  # a file has millions of lines and few chromosomes
def chromosome(written: str) -> str:
    """Return the name of a chromosome, which programs write in different ways, or nothing if it is not known."""
    plain = written.strip().upper().removeprefix("CHR")
    plain = plain.lstrip("0") or "0" if plain.isascii() and plain.isdigit() else plain
    return "" if plain in _NONE else _NAMES.get(plain, plain)


def position(written: str) -> int | None:
    """Return a position on a chromosome, or None if it is not known."""
    plain = written.strip()
    at = int(plain) if plain.isascii() and plain.isdigit() and len(plain) <= len(str(MAX_POSITION)) else 0
    return at if 0 < at <= MAX_POSITION else None


def known_allele(written: str) -> str:
    """Return an allele, or nothing if it is not known."""
    return "" if written.strip() in UNKNOWN_ALLELES else written.strip()


def on_other_strand(allele: str) -> str:
    """Return how the other strand writes an allele. One that is not written in bases stays as it is."""
    return allele[::-1].translate(_COMPLEMENTS) if set(allele) <= _BASES else allele


def is_ambiguous(one: str, other: str) -> bool:
    """Tell whether two alleles are each other on the other strand, as A and T are, or C and G."""
    return bool(one) and set(one) <= _BASES and on_other_strand(one).upper() == other.upper()


def counted_as(allele: str, other: str, place: tuple[str, int | None] | None) -> str:
    """Write as the type of a column which allele is counted, and where it is."""
    at = "" if place is None else f", at {place[0]}" + ("" if place[1] is None else f":{place[1]}")
    return f"copies of {allele}, not {other}{at}"


def counted_in(kind: str) -> dict[str, str] | None:
    """Read what ``counted_as`` wrote, as far as it is known. Return None for another type."""
    found = _COUNTED.fullmatch(kind)
    if found is None:
        return None
    alleles = {"allele": known_allele(found[1]), "other_allele": known_allele(found[2])}
    return alleles | {"chromosome": found[3] or "", "position": found[4] or ""}
