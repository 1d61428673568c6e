"""Remarks and advice for a steward about the features of a data set."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dpspca.common.dictionary import OUTSIDE_BECOMES
from dpspca.provider.data import DataSetFacts, FeatureFacts

_NAMED: Final = 8
_DESCRIBED: Final = 3
_MANY: Final = 0.25
"""If a larger share of the variants looks swapped, the file as a whole must be meant."""


def feature_remarks(facts: DataSetFacts) -> Iterator[str]:
    """Return remarks about unusual features, the most urgent first."""
    if facts.absent:
        yield about_absent(facts.absent)
    if facts.undecoded:
        yield (
            f"In {_names(facts.undecoded)}, some cells are not in the encoding in which the file is read. By default, "
            "that is UTF-8. Such cells are no level. Save the file as UTF-8, or declare its encoding under [reading], "
            'as in encoding = "cp1252".'
        )
    if facts.broken_rows:
        lines = "1 line has" if facts.broken_rows == 1 else f"{facts.broken_rows} lines have"
        yield (
            f"{lines} too few or too many cells, or a quote without an end. Such lines count as zeros, and counts of "
            "features do not include them."
        )
    yield from _first_few(facts.features, _about_levels)
    yield from _about_range(facts.features)
    yield from _first_few(facts.features, _about_unit)
    yield from _about_codes(facts.features)
    for found, holds in _SENTENCES.items():
        if odd := [each.name for each in facts.features if holds(each)]:
            yield found.format(_names(odd))
    swapped = sum(each.looks_swapped for each in facts.features)
    if swapped > _MANY * len(facts.features):
        yield (
            f"These are {swapped} of {len(facts.features)} features. So many differ if the labels A1 and A2 of the "
            "whole file are exchanged: find out how it was written."
        )


def about_absent(features: Sequence[str]) -> str:
    """Say which features a data set does not have."""
    return (
        f"This data set does not have {_names(features)}. Jobs that use such a feature are refused here before "
        "anything is spent."
    )


def _first_few(features: Sequence[FeatureFacts], describe: Callable[[FeatureFacts], str]) -> Iterator[str]:
    """Describe the first features about which there is something to say, and name the others."""
    described = {each.name: sentence for each in features if (sentence := describe(each))}
    yield from [*described.values()][:_DESCRIBED]
    others = [*described][_DESCRIBED:]
    if others:
        yield f"The same is true of {_names(others)}. --json describes each."


def _about_levels(feature: FeatureFacts) -> str:
    if not feature.unknown:
        return ""
    numbers, texts = map("{:g}".format, feature.unknown_numbers), map("{!r}".format, feature.unknown_texts)
    named = ", ".join([*numbers, *texts][:_NAMED])
    such_as = f", such as {named}" if named else ""
    return (
        f"{feature.unknown} of {feature.values} values of {feature.name!r:.60} are not a level{such_as}. If they are "
        "codes of levels, declare levels for it under [dictionaries], in columns. If they stand for missing values, "
        "declare missing_codes there."
    )


def _about_range(features: Sequence[FeatureFacts]) -> Iterator[str]:
    """Name the features with values outside their range, those of one range together."""
    alike: dict[str, list[str]] = {}
    for each in features:
        if outside := each.below + each.above:
            what = f"are outside {_range(each)}, and {OUTSIDE_BECOMES[each.kind]}."
            alike.setdefault(what, []).append(f"{outside} of {each.values} values of {each.name!r:.60}")
    for what, counts in alike.items():
        yield f"{_few(counts)} {what}"


def _about_unit(feature: FeatureFacts) -> str:
    suspected = feature.suspicion
    if suspected is None:
        return ""
    shift = f", offset = {suspected.offset:.9g}" if suspected.offset else ""
    return (
        f"{feature.name!r:.60} may be in another unit ({suspected.name}): its values lie between {feature.least:.6g} "
        f"and {feature.most:.6g}, and the dictionary says {_range(feature)}. If so, declare "
        f"factor = {suspected.factor:.9g}{shift} for it under [dictionaries], in columns.{_of_presence(feature)}"
    )


def _of_presence(feature: FeatureFacts) -> str:
    """Say what else a range from 0 to 1 may mean: a concept for which a list gives no range."""
    if feature.range != (0.0, 1.0) or feature.unit:
        return ""
    return (
        " Or a list of concepts gives it no range, so that it means yes or no: add low and high there, for all parties."
    )


def _about_codes(features: Sequence[FeatureFacts]) -> Iterator[str]:
    """Name the features with values that look like codes, those with the same codes together."""
    alike: dict[str, list[str]] = {}
    for each in features:
        if each.codes and not each.is_wrong:
            alike.setdefault(", ".join(f"{code:g}" for code in each.codes), []).append(each.name)
    for listed, names in alike.items():
        yield (
            f"In {_names(names)}, there are values that often stand for missing values: {listed}. If they do, declare "
            f"missing_codes = [{listed}] under [dictionaries], in columns."
        )


THOUSANDS: Final = (
    "In {0}, three digits follow each decimal mark. If the mark divides thousands, all values are a thousandth of what "
    "they should be: write numbers without marks between thousands."
)
_SENTENCES: Final[dict[str, Callable[[FeatureFacts], bool]]] = {
    "No value of {} can be used.": lambda each: each.is_wrong and not each.values,
    THOUSANDS: lambda each: each.has_thousands,
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
    return _few([f"{name!r:.60}" for name in names])


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more
