"""Finds the variants of a dictionary in files that name them otherwise: by chromosome, position and alleles.

A name in the file decides. Only features whose name no variant has are looked for by their place, among all variants
that no other feature names. Lists of variants count as public, as column names do.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from dpspca.common.dictionary import UNKNOWN_ALLELES, Feature, Genotype
from dpspca.common.errors import InvalidDataError

from .variants import Variant

Place: TypeAlias = tuple[str, int | None]
_SHOWN: Final = 2
_COMPARE: Final = (
    "Compare names, builds of the genome and alleles. A variant is found by its name, or else by its place and alleles "
    "if the dictionary has them: list its frequencies with `plink2 --freq cols=+pos`."
)


def named_as_features(
    variants: Sequence[Variant], features: Mapping[str, Feature], taken: Collection[str], remedy: str
) -> Sequence[Variant]:
    """Return the variants of a file, with the names of features for those that were found by place and alleles.

    ``features`` are those that are looked for, by the name that their variant gets. Variants whose names are ``taken``
    keep them. Refuse a feature that several variants fit; ``remedy`` says what to do about it.
    """
    names = {each.name for each in variants}
    sought = {name: each for name, each in features.items() if name not in names}
    found: dict[int, str] = {}
    for name, fitting in _fitting(variants, sought, taken).items():
        if len(fitting) > 1:
            listed = " and ".join(_shown(variants[number]) for number in fitting[:_SHOWN])
            raise InvalidDataError(
                f"Several variants have the place and the alleles of {name!r:.60}, such as {listed}.",
                f"Keep one of them in the file, or {remedy}.",
            )
        first = found.setdefault(fitting[0], name)
        if first != name:
            raise InvalidDataError(
                f"The features {first!r:.60} and {name!r:.60} have the same place and alleles.",
                "Keep one of them in the dictionary.",
            )
    renamed = list(variants)
    for number, name in found.items():
        renamed[number] = replace(renamed[number], name=name)
    return renamed


def require_any(variants: Sequence[Variant], features: Mapping[str, Feature]) -> None:
    """Refuse a file that has none of the features of a dictionary. Show how both write variants."""
    if features.keys().isdisjoint(each.name for each in variants):
        sought = " and ".join(_described(name, each) for name, each in list(features.items())[:_SHOWN])
        held = " and ".join(map(_shown, variants[:_SHOWN]))
        raise InvalidDataError(
            f"The file has no variant of the dictionary: it has {held}, and the dictionary has {sought}.", _COMPARE
        )


def _fitting(
    variants: Sequence[Variant], sought: Mapping[str, Feature], taken: Collection[str]
) -> dict[str, list[int]]:
    """Return for each feature that is found which variants of the file fit, by their numbers."""
    by_place: dict[Place, list[tuple[str, frozenset[str]]]] = {}
    for name, each in sought.items():
        if isinstance(each, Genotype) and each.allele and each.other_allele and each.chromosome and each.position:
            alleles = frozenset((each.allele, each.other_allele))
            by_place.setdefault((each.chromosome, each.position), []).append((name, alleles))
    fitting: dict[str, list[int]] = {}
    for number, own in enumerate(variants) if by_place else ():
        for name, alleles in by_place.get(own.place, ()) if own.place is not None else ():
            if own.name not in taken and _has_only(own, alleles):
                fitting.setdefault(name, []).append(number)
    return {name: _with_both(variants, numbers) or numbers for name, numbers in fitting.items()}


def _with_both(variants: Sequence[Variant], numbers: Sequence[int]) -> list[int]:
    """Return those variants of which the file knows both alleles."""
    return [number for number in numbers if not UNKNOWN_ALLELES & {variants[number].counted, variants[number].other}]


def _has_only(own: Variant, alleles: frozenset[str]) -> bool:
    """Tell whether a variant has these two alleles, or the one of them that its file knows."""
    known = [each for each in (own.counted, own.other) if each not in UNKNOWN_ALLELES]
    return bool(known) and len(set(known)) == len(known) and alleles.issuperset(known)


def _shown(variant: Variant) -> str:
    return _written(variant.name, variant.place, (variant.counted, variant.other))


def _described(name: str, feature: Feature) -> str:
    if not isinstance(feature, Genotype):
        return f"{name!r:.60}"
    place = None if feature.chromosome is None else (feature.chromosome, feature.position)
    return _written(name, place, filter(None, (feature.allele, feature.other_allele)))


def _written(name: str, place: Place | None, alleles: Iterable[str]) -> str:
    at = [] if place is None else [":".join(str(each) for each in place if each is not None)]
    known = [*at, "/".join(f"{each:.20}" for each in alleles)]
    return f"{name!r:.60}" + (f" ({', '.join(filter(None, known))})" if any(known) else "")
