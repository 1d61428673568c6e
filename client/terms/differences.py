"""Where the terms of several providers differ: who states what."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from dpspca.common.job import Conditions, Terms

_OTHERS = ("dimension", "columns_digest", "dictionary_digest", "refused")


@dataclass(frozen=True, slots=True)
class Difference:
    """A rule that providers state differently: each value, with the providers that state it."""

    rule: str
    stated: tuple[tuple[Any, tuple[str, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"rule": self.rule, "stated": [{"value": value, "providers": [*who]} for value, who in self.stated]}


def differences(terms: Sequence[Terms]) -> list[Difference]:
    """Return the rules in which providers of one data set differ. What is left of budgets always may."""
    values = {each.party.name: _values(each) for each in terms}
    found = []
    for rule in [*_OTHERS, *(each.name for each in fields(Conditions))]:
        by_value: dict[str, list[str]] = {}
        for provider, stated in values.items():
            by_value.setdefault(json.dumps(stated[rule], sort_keys=True), []).append(provider)
        if len(by_value) > 1:
            found.append(Difference(rule, tuple((json.loads(text), tuple(who)) for text, who in by_value.items())))
    return found


def _values(terms: Terms) -> dict[str, Any]:
    return asdict(terms.conditions) | {name: getattr(terms, name) for name in _OTHERS}
