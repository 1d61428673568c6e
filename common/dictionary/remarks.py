"""Says what in a dictionary is allowed but rarely meant. Pure: it looks at nothing but the dictionary."""

import math
from collections.abc import Iterator
from typing import Final

from .dictionary import Dictionary
from .features import Category, Genotype

_ROUNDED: Final = 0.02
"""How far published shares that were rounded may be from 1 together."""


def remarks(dictionary: Dictionary) -> list[str]:
    """Return a sentence for everything that the author of a dictionary should check again."""
    return [*_odd_shares(dictionary), *_shared_concepts(dictionary)]


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
