"""Remarks and advice for a steward about the features of a data set."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dpspca.common.dictionary import OUTSIDE_BECOMES
from dpspca.provider.data import DataSetFacts, FeatureFacts

_NAMED: Final = 8


def feature_remarks(facts: DataSetFacts) -> Iterator[str]:
    """Return remarks about unusual features, the most urgent first."""
    if facts.absent:
        yield (
            f"This data set does not have {_names(facts.absent)}. Jobs that use such a feature are refused here before "
            "anything is spent."
        )
    if facts.undecoded:
        yield (
            f"In {_names(facts.undecoded)}, some cells are not in the encoding in which the file is read. By default, "
            "that is UTF-8. Such cells are no level. Save the file as UTF-8, or declare its encoding under [reading], "
            'as in encoding = "cp1252".'
        )
    for each in facts.features:
        yield from _about_unit(each)
    yield from _about_codes(facts.features)
    for found, holds in _SENTENCES.items():
        if odd := [each.name for each in facts.features if holds(each)]:
            yield found.format(_names(odd))


def _about_unit(feature: FeatureFacts) -> Iterator[str]:
    name, count, suspected, allowed = f"{feature.name!r:.60}", feature.values, feature.suspicion, _range(feature)
    outside = feature.below + feature.above
    if feature.unknown:
        numbers, texts = map("{:g}".format, feature.unknown_numbers), map("{!r}".format, feature.unknown_texts)
        named = ", ".join([*numbers, *texts][:_NAMED])
        such_as = f", such as {named}" if named else ""
        yield (
            f"{feature.unknown} of {count} values of {name} are not a level{such_as}. If they are codes of levels, "
            "declare levels for it under [dictionaries], in columns. If they stand for missing values, declare "
            "missing_codes there."
        )
    if outside:
        yield f"{outside} of {count} values of {name} are outside {allowed}, and {OUTSIDE_BECOMES[feature.kind]}."
    if suspected is not None:
        shift = f", offset = {suspected.offset:.9g}" if suspected.offset else ""
        yield (
            f"{name} may be in another unit ({suspected.name}): its values lie between {feature.least:.6g} and "
            f"{feature.most:.6g}, and the dictionary says {allowed}. If so, declare "
            f"factor = {suspected.factor:.9g}{shift} for it under [dictionaries], in columns."
        )


def _about_codes(features: Sequence[FeatureFacts]) -> Iterator[str]:
    for each in features:
        if each.codes and not each.is_wrong:
            listed = ", ".join(f"{code:g}" for code in each.codes)
            yield (
                f"{each.name!r:.60} has values that often stand for missing values: {listed}. If they do, declare "
                f"missing_codes = [{listed}] for it under [dictionaries], in columns."
            )


_SENTENCES: Final[dict[str, Callable[[FeatureFacts], bool]]] = {
    "No value of {} can be used.": lambda each: each.is_wrong and not each.values,
    "In {}, all usable values are equal.": lambda each: each.is_constant,
    "The allele that the dictionary counts is about as frequent here as its other one should be, in {}. The file may "
    "count the other allele, or be on the other strand: leave these variants out at every provider, or find out.": (
        lambda each: each.looks_swapped
    ),
    "In {}, some values are not numbers, and their rows count as zeros.": lambda each: each.unusable > 0,
}


def _range(feature: FeatureFacts) -> str:
    low, high = feature.range or (0.0, 0.0)
    return f"{low:g} to {high:g} {feature.unit}".strip()


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"{name!r:.60}" for name in names[:_NAMED]) + more
