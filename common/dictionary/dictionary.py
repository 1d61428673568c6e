"""The shared dictionary: what all parties of a study agree on about the features of its rows. Pure.

Its canonical form has every key written out, and features in the order of their names. So two files have one digest if,
and only if, they mean the same, whatever their order, comments and omitted defaults are.

Preparation is a public function of a row by itself, and is applied before a row is bounded. So two neighbouring tables
stay neighbours, and everything that holds for rows of bounded length holds for prepared rows.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated, Any, Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, unknown
from dpspca.common.decoding import Source, decode, faults_of, one_of, parse_json
from dpspca.common.errors import DpspcaError, InvalidInputError
from dpspca.common.job import MAX_DIMENSION, PRIVATE, PRIVATE_BOUND, Centering, JobSpec, Schema

from . import values
from .features import Feature, parse_feature

FORMAT: Final = "dpspca-dictionary-1"
_NAME: Final = "The dictionary"
_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The features that parties agreed on, by name and in the order of the file."""

    features: tuple[Feature, ...]
    title: str = ""

    def __post_init__(self) -> None:
        check(bool(self.features), "The dictionary has no features.", "Add a table [features.NAME].")
        counts = Counter(each.name for each in self.features)
        twice = [name for name, count in counts.items() if count > 1]
        check(
            not twice, f"These names are used for several features: {_few(twice)}.", "Give each feature its own name."
        )
        check(
            sum(len(each.columns) for each in self.features) <= MAX_DIMENSION,
            f"The features have more than {MAX_DIMENSION} columns.",
            "List fewer features, or levels of categories.",
        )

    @classmethod
    def parse(cls, raw: object) -> Self:
        """Check the content of a dictionary's file, or raise an error that lists everything that is wrong with it."""
        wrong = list(faults_of(lambda: decode(_Written, raw, Source(_NAME))))
        tables = raw.get("features") if isinstance(raw, dict) else None
        good = list[Feature]()
        for name, each in tables.items() if isinstance(tables, dict) else ():
            try:
                good.append(parse_feature(values.plain_name("A feature's name", name), each))
            except DpspcaError as problem:
                wrong += problem.faults if isinstance(problem, InvalidInputError) else [problem]
        if wrong:
            raise InvalidInputError(wrong)
        return cls(tuple(good), raw.get("title", "") if isinstance(raw, dict) else "")

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a dictionary in JSON, in canonical form or any other."""
        return cls.parse(parse_json(text, _NAME))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, with all defaults."""
        return {"format": FORMAT, "title": self.title, "features": {each.name: _plain(each) for each in self.features}}

    def to_json(self) -> str:
        """Write the canonical form, from which the digest is computed."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)

    def digest(self) -> str:
        """Name the content of this dictionary."""
        return sha256(self.to_json().encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(each.name for each in self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of prepared rows."""
        return tuple(column for each in self.features for column in each.columns)

    def norm_bound(self) -> float:
        """Return the bound on the length of a row that follows from how the features are scaled.

        Each number and category counts with the most that it can be, so nothing is clipped because of them. Genotypes
        that are scaled by frequency count with less (``Genotype.bound``). The sum is rounded once, so that its order
        makes no difference.
        """
        return math.sqrt(math.fsum(each.bound * each.bound for each in self.features))

    def subset(self, names: Iterable[str]) -> Self:
        """Return the dictionary of some features, in the given order."""
        chosen = tuple(names)
        known = {each.name: each for each in self.features}
        for name in chosen:
            if name not in known:
                raise unknown("feature", name, self.names, where=" of the dictionary")
        return type(self)(tuple(known[name] for name in chosen), self.title)

    def with_columns(self, columns: Sequence[str]) -> Self:
        """Return the dictionary of the features that have these columns, in their order.

        Refuse columns that no feature has, and a category without some of its levels.
        """
        chosen = self.subset(dict.fromkeys(values.feature_of(column) for column in columns))
        pairs = enumerate(zip_longest(chosen.columns, columns), 1)
        place = next((number for number, (right, given) in pairs if right != given), 0)
        check(
            not place,
            f"From column {place} on, the columns are not those of whole features, one feature after the other.",
            "Name features, and take the columns that follow from them.",
        )
        return chosen

    def job(
        self,
        features: Iterable[str] | None = None,
        *,
        norm_bound: float | str | None = None,
        **others: Any,  # noqa: ANN401  # the other fields of a job
    ) -> JobSpec:
        """Return a job about some features in the given order, or about all.

        Left out, the norm bound follows from the features, and so does
        ``mean_bound`` of a private mean. ``others`` are the other arguments of a ``JobSpec``.
        """
        chosen = self if features is None else self.subset(features)
        follows = chosen.norm_bound()
        if others.get("centering") == Centering.PRIVATE:
            others = {"mean_bound": follows} | others
        bound: Any = PRIVATE_BOUND if norm_bound == PRIVATE else follows if norm_bound is None else norm_bound
        return JobSpec(schema=Schema.of(chosen.columns), norm_bound=bound, dictionary=self.digest(), **others)

    def encode(self, raw: Mapping[str, FloatArray]) -> FloatArray:
        """Prepare rows. ``raw`` has an array for each feature; see ``features.py`` for raw values."""
        rows = len(next(iter(raw.values())))
        prepared = np.empty((rows, len(self.columns)))
        end = 0
        for each in self.features:
            start, end = end, end + len(each.columns)
            prepared[:, start:end] = each.encode(raw[each.name])
        return prepared


@dataclass(frozen=True, slots=True)
class _Written:
    """The content of a file. Each feature's table is read by its kind."""

    format: Annotated[str, one_of(FORMAT)]
    features: dict[str, Any]
    title: str = ""


def faults(raw: object) -> Sequence[DpspcaError]:
    """Return everything that is wrong with a dictionary."""
    return faults_of(lambda: Dictionary.parse(raw))


def differences(one: Dictionary, other: Dictionary) -> list[tuple[str, str, Any, Any]]:
    """List how two dictionaries differ: the feature, the key, and both values. None stands for a feature not there."""
    found: list[tuple[str, str, Any, Any]] = []
    if one.title != other.title:
        found.append(("", "title", one.title, other.title))
    ours, theirs = one.to_dict()["features"], other.to_dict()["features"]
    for name in sorted(ours.keys() | theirs.keys()):
        mine, its = ours.get(name), theirs.get(name)
        if mine is None or its is None:
            found.append((name, "feature", mine and mine["kind"], its and its["kind"]))
            continue
        keys = sorted(mine.keys() | its.keys())
        found += [(name, key, mine.get(key), its.get(key)) for key in keys if mine.get(key) != its.get(key)]
    return found


def _plain(feature: Feature) -> dict[str, Any]:
    own = {each.name: getattr(feature, each.name) for each in fields(feature) if each.name != "name"}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in own.items() if value is not None}
    return {"kind": str(feature.kind)} | plain


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"{name!r:.60}" for name in names[:_MOST_NAMED]) + more
