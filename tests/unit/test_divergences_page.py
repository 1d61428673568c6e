"""docs/divergences.md agrees with the catalogue about published accounting, and its factors are right."""

import re
from pathlib import Path
from typing import Final

import pytest

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.catalogue import CATALOGUE, Method
from dpspca.common.job import Accounting, Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

TEXT: Final = (Path(__file__).parents[2] / "docs" / "divergences.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(r"^\| `([^`|]+)` \| ([^|]+) \| ([^|]+) \|$", TEXT, flags=re.MULTILINE)


def published_for(entry: Method) -> str:
    """Return the units of a method's published noise in the notation of the page."""
    has = Accounting.PUBLISHED in entry.accounting
    return ", ".join(unit for unit in entry.units if has and unit in entry.published) or "none"


def test_the_page_lists_the_published_units_of_every_method() -> None:
    assert [(name, units) for name, units, _ in ROWS] == [
        (name, published_for(entry)) for name, entry in CATALOGUE.items()
    ]


def test_the_page_cites_each_formula_or_explains_its_absence() -> None:
    for name, _, reason in ROWS:
        if name == "auto":
            assert "not from a paper" in reason
            continue
        (paper,) = re.findall(r"\(([^()]+ \d{4})\)$", CATALOGUE[name].summary)
        assert paper.split()[0] in reason or "not private" in reason


@pytest.mark.parametrize(("name", "times"), [("mod-sulq", 65), ("sulq", 509)])
def test_published_noise_of_the_baselines_has_the_factors_shown(name: str, times: int) -> None:
    assert f"{times} (" in TEXT
    widths = {}
    for accounting in Accounting:
        spec = JobSpec(
            schema=Schema(60),
            unit=PrivacyUnit.ROW_REPLACE_ONE,
            budget=Budget(1.0, 1e-6),
            norm_bound=1.0,
            components=2,
            method=name,
            accounting=accounting,
            explained_variance=False,
        )
        widths[accounting] = max(step.noise_std for step in catalogue.plan(spec))
    assert round(widths[Accounting.PUBLISHED] / widths[Accounting.EXACT]) == times
