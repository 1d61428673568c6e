"""Numbers about a running program, and the text in which Prometheus reads them. Pure: it uses no clock and no socket.

Each family is declared once, with its labels, so that dashboards and alerts can be checked against it. The number of
series is bounded: a label's value that would be one too many counts as ``other``. Nothing here comes from a row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_SERIES: Final = 200
"""Series of one family."""
OTHER: Final = "other"
SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
"""Upper ends of the buckets of times."""


class MetricKind(StrEnum):
    """The kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, what it counts, and its labels."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which its numbers are read."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


CERTIFICATE: Final = Family("dpspca_certificate_days", MetricKind.GAUGE, "Days until the certificate expires.")
REVOCATIONS: Final = Family("dpspca_revocation_list_days", MetricKind.GAUGE, "Days until the revocation list expires.")
"""Both daemons have these."""

Values = tuple[str, ...]


class Metrics:
    """The numbers of some families."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = {each.name: each for each in families}
        self._numbers: dict[str, dict[Values, float]] = {name: {} for name in self._families}
        self._times: dict[str, dict[Values, list[float]]] = {name: {} for name in self._families}

    def count(self, name: str, *values: str, by: float = 1.0) -> None:
        """Add to a counter."""
        numbers = self._numbers[self._known(name, MetricKind.COUNTER)]
        key = self._key(name, values, numbers)
        numbers[key] = numbers.get(key, 0.0) + by

    def replace(self, name: str, numbers: Mapping[Values, float]) -> None:
        """Set all numbers of a gauge, or of a counter that is kept elsewhere."""
        family, kept = self._families[name], dict[Values, float]()
        for values, number in numbers.items():
            key = self._key(name, values, kept)
            kept[key] = kept.get(key, 0.0) + number
        self._numbers[family.name] = kept

    def observe(self, name: str, seconds: float, *values: str) -> None:
        """Add a time to a histogram."""
        times = self._times[self._known(name, MetricKind.HISTOGRAM)]
        key = self._key(name, values, times)
        held = times.setdefault(key, [0.0] * (len(SECONDS) + 2))
        for place, most in enumerate(SECONDS):
            held[place] += seconds <= most
        held[-2] += 1
        held[-1] += seconds

    def text(self) -> str:
        """Return all numbers as Prometheus reads them."""
        return "".join(f"{line}\n" for family in self._families.values() for line in self._lines(family))

    def _lines(self, family: Family) -> Iterable[str]:
        yield f"# HELP {family.name} {family.help}"
        yield f"# TYPE {family.name} {family.kind}"
        for values, number in sorted(self._numbers[family.name].items()):
            yield f"{family.name}{_labels(family.labels, values)} {number:.17g}"
        for values, held in sorted(self._times[family.name].items()):
            ends = [*map(str, SECONDS), "+Inf"]
            for end, number in zip(ends, [*held[: len(SECONDS)], held[-2]], strict=True):
                labels = _labels((*family.labels, "le"), (*values, end))
                yield f"{family.name}_bucket{labels} {number:.17g}"
            yield f"{family.name}_sum{_labels(family.labels, values)} {held[-1]:.17g}"
            yield f"{family.name}_count{_labels(family.labels, values)} {held[-2]:.17g}"

    def _known(self, name: str, kind: MetricKind) -> str:
        assert self._families[name].kind is kind
        return name

    def _key(self, name: str, values: Values, known: Mapping[Values, object]) -> Values:
        """Return the values of the labels, or ``other`` if there are too many series already."""
        assert len(values) == len(self._families[name].labels)
        return values if values in known or len(known) < MOST_SERIES else (OTHER,) * len(values)


def _labels(names: tuple[str, ...], values: Values) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
