"""Metrics are written as Prometheus reads them, and no caller can make their number grow without end."""

import re

import pytest

from dpspca.common.metrics import MOST_SERIES, SECONDS, Family, MetricKind, Metrics

COUNT = Family("a_total", MetricKind.COUNTER, "Things.", ("kind",))
LEVEL = Family("b", MetricKind.GAUGE, "A level.")
TIMES = Family("c_seconds", MetricKind.HISTOGRAM, "Times.", ("method",))
LINE = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\[\\"n])*",?)+\})? [-+0-9.eE]+')


def test_counters_gauges_and_times_are_written() -> None:
    metrics = Metrics([COUNT, LEVEL, TIMES])
    metrics.count("a_total", "x")
    metrics.count("a_total", "x", by=2)
    metrics.replace("b", {(): 7.5})
    for seconds in (0.02, 3.0, 1e6):
        metrics.observe("c_seconds", seconds, "Get")
    lines = metrics.text().splitlines()
    assert 'a_total{kind="x"} 3' in lines
    assert "b 7.5" in lines
    assert lines[:2] == ["# HELP a_total Things.", "# TYPE a_total counter"]
    buckets = [float(line.split()[1]) for line in lines if line.startswith("c_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1], len(buckets)) == (0.0, 3.0, len(SECONDS) + 1)
    assert 'c_seconds_count{method="Get"} 3' in lines
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))


def test_t35_series_are_bounded_and_what_is_beyond_counts_as_other() -> None:
    metrics = Metrics([COUNT, LEVEL, TIMES])
    for number in range(10 * MOST_SERIES):
        metrics.count("a_total", str(number))
        metrics.observe("c_seconds", 1.0, str(number))
    metrics.replace("b", {(): 1.0})
    lines = [line for line in metrics.text().splitlines() if line.startswith("a_total")]
    assert len(lines) == MOST_SERIES + 1
    (other,) = [line for line in lines if 'kind="other"' in line]
    assert float(other.split()[1]) == 9 * MOST_SERIES
    assert metrics.text().count("c_seconds_count{") == MOST_SERIES + 1


@pytest.mark.parametrize("value", ['"} 1\nevil 2', "\\", "a\nb", 'x="y"'])
def test_values_of_labels_cannot_write_lines(value: str) -> None:
    metrics = Metrics([COUNT])
    metrics.count("a_total", value)
    lines = metrics.text().splitlines()
    assert len(lines) == 3
    assert LINE.fullmatch(lines[2])
