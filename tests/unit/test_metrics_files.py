"""The dashboard and the alert rules in deploy/ use metrics that exist, with their labels, and leave none out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpspca.common.metrics import Family
from dpspca.provider import metrics as of_provider
from dpspca.server import metrics as of_coordinator

FOLDER = Path(__file__).parents[2] / "deploy" / "metrics"
ALERTS = sorted(FOLDER.glob("*alerts.yaml"))
DAEMONS = {"coordinator": of_coordinator.FAMILIES, "provider": of_provider.FAMILIES}
FAMILIES: tuple[Family, ...] = tuple(dict.fromkeys((*of_coordinator.FAMILIES, *of_provider.FAMILIES)))
SERIES = {name: family for family in FAMILIES for name in family.series}
ADDED = {"instance", "job", "le"}
"""Labels that Prometheus adds, or that a histogram has."""


def expressions() -> Iterator[str]:
    dashboard: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"] + " " + target["legendFormat"]
    for path in ALERTS:
        yield from alerts_on(path)


def alerts_on(path: Path) -> list[str]:
    return re.findall(r"expr: (.*)", path.read_text(encoding="utf-8"))


def test_every_metric_drawn_or_alerted_on_exists_and_each_is_used() -> None:
    named = [name for text in expressions() for name in re.findall(r"\bdpspca_\w+", text)]
    assert set(named) <= SERIES.keys()
    assert {SERIES[name].name for name in named} == {family.name for family in FAMILIES}


@pytest.mark.parametrize("daemon", DAEMONS)
def test_an_alert_notices_that_no_numbers_of_a_daemon_come(daemon: str) -> None:
    """A comparison of a metric is silent if its daemon is dead, and an absence where there is no such daemon is not.

    So each daemon has a file of its own, with rules that hold without numbers, and about its own numbers only.
    """
    rules = alerts_on(FOLDER / f"{daemon}-alerts.yaml")
    always = {family.name for family in DAEMONS[daemon] if family.kind == "gauge" and not family.labels}
    absent = {name for rule in rules for name in re.findall(r"\babsent\((\w+)\)", rule)}
    assert absent
    assert absent <= always
    assert any(f'up{{job="dpspca-{daemon}"}} == 0' in rule for rule in rules)
    own = {series for family in DAEMONS[daemon] for series in family.series}
    assert {name for rule in rules for name in re.findall(r"\bdpspca_\w+", rule)} <= own


def test_labels_that_are_used_exist() -> None:
    for text in expressions():
        known = ADDED.union(*(SERIES[name].labels for name in re.findall(r"\bdpspca_\w+", text)))
        used = re.findall(r"\{\{(\w+)\}\}", text) + re.findall(r"[{,](\w+)=\"", text)
        used += [label for group in re.findall(r"by \(([^)]*)\)", text) for label in re.split(r",\s*", group)]
        assert set(used) <= known, text


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch(r"dpspca_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.help.endswith(".")
    severities = [each for path in ALERTS for each in re.findall(r"severity: (\w+)", path.read_text(encoding="utf-8"))]
    assert set(severities) == {"critical", "warning", "info"}


def test_no_label_names_a_party_or_a_job() -> None:
    """Numbers must not tell who asked what."""
    labels = {label for family in FAMILIES for label in family.labels}
    assert labels == {"role", "state", "method", "direction", "by", "code", "data_set"}
