"""Says what in a dictionary is allowed but rarely meant. Pure: it looks at nothing but the dictionary."""

import math
from collections.abc import Iterator
from typing import Final

from .dictionary import Dictionary
from .features import Category, Genotype
from .places import is_ambiguous

_ROUNDED: Final = 0.02
"""How far published shares that were rounded may be from 1 together."""


def remarks(dictionary: Dictionary) -> list[str]:
    """Return a sentence for everything that the author of a dictionary should check again."""
    return [*_odd_shares(dictionary), *_shared_concepts(dictionary), *_doubtful_variants(dictionary)]


def _odd_shares(dictionary: Dictionary) -> Iterator[str]:
    for each in dictionary.features:
        total = math.fsum(each.shares) if isinstance(each, Category) else 1.0
        if total > 1 + _ROUNDED:
            yield (
                f"The feature {each.name!r:.60}: its shares add up to {total:.6g}, and those of all levels are 1. "
                "Correct shares, or leave it out for equal ones."
            )


def _shared_concepts(dictionary: Dictionary) -> Iterator[str]:
    known: dict[str, list[str]] = {}
    for each in dictionary.features:
        if not isinstance(each, Genotype) and each.concept is not None:
            known.setdefault(each.concept, []).append(f"{each.name!r:.60}")
    for concept, names in known.items():
        if len(names) > 1:
            yield (
                f"The features {', '.join(names)} have the same concept, {concept!r:.60}. In triplets, they all have "
                "the same numbers. Correct concept, or keep one of them."
            )


def _doubtful_variants(dictionary: Dictionary) -> Iterator[str]:
    """Name variants of which a provider's file may be another one, or count another allele, without being refused."""
    variants = [each for each in dictionary.features if isinstance(each, Genotype)]
    either = [each.name for each in variants if is_ambiguous(each.allele, each.other_allele or "")]
    no_strand = [each.name for each in variants if not each.allele or not each.other_allele]
    no_place = [each.name for each in variants if each.position is None]
    if either:
        yield (
            f"{_counted(either)} the alleles A and T, or C and G. No file shows on which strand it counts them, so a "
            "file on the other strand may pass. Leave them out, or compare frequencies with `dpspca data check`."
        )
    if no_strand:
        yield (
            f"{_counted(no_strand)} not both alleles, so a file on the other strand is not noticed. Give allele and "
            "other_allele: ALT and REF of an .afreq file."
        )
    if no_place:
        yield (
            f"{_counted(no_place)} no position, so a file of another build of the genome is not noticed. Give "
            "chromosome and position. An .afreq file has them if it was written with `plink2 --freq cols=+pos`."
        )


def _counted(names: list[str]) -> str:
    return (
        f"The genotype {names[0]!r:.60} has"
        if len(names) == 1
        else f"{len(names)} genotypes, such as {names[0]!r:.60}, have"
    )
