"""Says that many values of a feature cannot be meant, to the person who holds the rows. Pure.

Such values are no error: each is clipped, is missing, or becomes zeros, by a public rule. But a sentence here follows
from rows. So it is for the person who gave the rows, and must not be stored in a model or a privacy statement, or be
sent.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray

from .dictionary import Dictionary
from .features import UNKNOWN, ZERO, Category, Feature, FeatureKind

MOST_ODD: Final = 0.5
"""If a larger share of values is outside the range, the unit must be wrong, or the range. Levels are alike."""
_FEW: Final = 0.05
"""A smaller share of odd values gives no warning: a public range may be one that nearly all values are in."""
_MOST_LEVELS: Final = 5
_MOST_DESCRIBED: Final = 3
_MOST_NAMED: Final = 8
OUTSIDE_BECOMES: Final[Mapping[str, str]] = {
    FeatureKind.NUMBER: "are clipped to it",
    FeatureKind.GENOTYPE: "count as missing, unless they round to 0 or 2",
}
"""What becomes of values outside the public range, by the kind of the feature."""


def unlikely_values_in(dictionary: Dictionary, raw: Mapping[str, FloatArray]) -> str:
    """Name the features for which many raw values have no level, or lie outside the public range, if there are any."""
    return in_one_warning({each.name: _unlikely_values_in(each, raw[each.name]) for each in dictionary.features})


def in_one_warning(found: Mapping[str, str]) -> str:
    """Describe the first of the features about which there is a sentence, and name some of the others."""
    sentences = {name: sentence for name, sentence in found.items() if sentence}
    names = [f"{name!r:.60}" for name in sentences][_MOST_DESCRIBED:]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    others = [f"The same is true of {', '.join(names[:_MOST_NAMED])}{more}."] if names else []
    return " ".join([*sentences.values()][:_MOST_DESCRIBED] + others)


def unlikely_values_of(feature: Feature, values: int, odd: int) -> str:
    """Say that ``odd`` of the usable values of a feature have no level, or lie outside. Nothing if these are few."""
    if odd <= _FEW * values:
        return ""
    count = f"{odd} of {values} values of {feature.name!r:.60}"
    if isinstance(feature, Category):
        levels = ", ".join(f"{level!r:.40}" for level in feature.levels[:_MOST_LEVELS])
        more = f" and {len(feature.levels) - _MOST_LEVELS} more" if len(feature.levels) > _MOST_LEVELS else ""
        becomes = "zeros" if feature.unknown == ZERO else f"{feature.unknown!r:.40}"
        return f"{count} are not a level and count as {becomes}. The levels are {levels}{more}, in these letters."
    low, high = feature.range
    unit = f" {feature.unit}" if feature.unit else ""
    is_most = odd > MOST_ODD * values
    cause = "They may be in another unit." if is_most else "They may be in another unit, or stand for missing values."
    return f"{count} are outside {low:g} to {high:g}{unit}, and {OUTSIDE_BECOMES[feature.kind]}. {cause}"


def _unlikely_values_in(feature: Feature, raw: FloatArray) -> str:
    values = raw[np.isfinite(raw)]
    low, high = (0.0, np.inf) if isinstance(feature, Category) else feature.range
    assert UNKNOWN < 0
    return unlikely_values_of(feature, len(values), int(np.count_nonzero((values < low) | (values > high))))
