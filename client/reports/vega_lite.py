"""Plots as Vega-Lite specifications: JSON that other programs draw, with the numbers in it and nothing to load.

Names of features come from files, and stand only among the data. No field name, title or expression is made of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.results import Model, ScoreMap

from . import report
from .biplot import arrows, reach_of, shares
from .score_plot import ACROSS, COLOURS, NO_LEVEL, TITLE, UP, contours_of, middles, scores_of

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
"""The name of the form. No program has to load it."""
SIDE: Final = 360
_BAR: Final = "#0072B2"
_INK: Final = "#222222"

Spec = dict[str, Any]


def scree(model: Model) -> Spec:
    """Return bars of what each component explains, with confidence intervals if the noise is known."""
    facts = report.to_dict(model)["components"]
    if facts[0]["explained_variance"] is None:
        raise InvalidParameterError(
            "This model has no explained variances to plot.", "Run the job with explained_variance=True."
        )
    values = [
        {
            "component": each["number"],
            "value": each["explained_variance"],
            "share": each["explained_variance_ratio"],
            "within_noise": each["within_noise"],
        }
        | (
            {"low": each["explained_variance_interval"][0], "high": each["explained_variance_interval"][1]}
            if each["explained_variance_interval"]
            else {}
        )
        for each in facts
    ]
    of_rows = model.statement.unit.is_row
    across = {"field": "component", "type": "ordinal", "title": "component", "axis": {"labelAngle": 0}}
    up = {"field": "value", "type": "quantitative", "title": "explained variance" if of_rows else "eigenvalue"}
    colour = {"condition": {"test": "datum.within_noise", "value": "#bbbbbb"}, "value": _BAR}
    layers: list[Spec] = [{"mark": "bar", "encoding": {"x": across, "y": up, "color": colour}}]
    if "low" in values[0]:
        ends = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
        layers.append({"mark": {"type": "rule", "color": _INK}, "encoding": {"x": across, **ends}})
    title = "How much each component explains" if of_rows else "Eigenvalues"
    return _whole(model, title, values, {"layer": layers})


def loadings(model: Model) -> Spec:
    """Return a heat map of the loadings of the features in the support."""
    support = [int(index) for index in model.support]
    values = [
        {"feature": model.name_of(index), "place": index, "component": number + 1, "loading": float(row[index])}
        for number, row in enumerate(model.components)
        for index in support
    ]
    limit = float(np.abs(model.components).max()) or 1.0
    encoding = {
        "x": {"field": "component", "type": "ordinal", "axis": {"labelAngle": 0}},
        "y": {"field": "feature", "type": "nominal", "sort": {"field": "place"}, "title": "feature"},
        "color": {
            "field": "loading",
            "type": "quantitative",
            "scale": {"scheme": "redblue", "domain": [-limit, limit], "reverse": True},
        },
    }
    return _whole(model, "Which features make up each component", values, {"mark": "rect", "encoding": encoding})


def biplot(model: Model) -> Spec:
    """Return the loadings on the first two components as lines with names, over private counts of scores, if any."""
    drawn = arrows(model)
    values = [{"feature": name, "x": across, "y": up, "zero": 0.0} for name, across, up in drawn]
    scale = {"domain": [-reach_of(drawn), reach_of(drawn)]}
    across = {"field": "x", "type": "quantitative", "title": "loading on component 1", "scale": scale}
    up = {"field": "y", "type": "quantitative", "title": "loading on component 2", "scale": scale}
    from_zero = {"x2": {"field": "zero"}, "y2": {"field": "zero"}}
    layers: list[Spec] = [
        {"mark": {"type": "rule", "color": _BAR}, "encoding": {"x": across, "y": up, **from_zero}},
        {"mark": {"type": "text", "dy": -6}, "encoding": {"x": across, "y": up, "text": {"field": "feature"}}},
    ]
    if found := shares(model):
        layers.insert(0, _cells(*found))
    size = {"width": SIDE, "height": SIDE}
    return _whole(model, "Features in the first two components", values, {**size, "layer": layers})


def _cells(along: Any, across: Any, counts: Any) -> Spec:  # noqa: ANN401  # arrays
    """Return a layer of its own data: cells in which rows show above the noise."""
    half = float(along[1] - along[0]) / 2
    values = [
        {"left": x - half, "right": x + half, "low": y - half, "high": y + half, "rows": float(counts[i, j])}
        for i, x in enumerate(map(float, along))
        for j, y in enumerate(map(float, across))
        if counts[i, j] > 0
    ]
    encoding = {
        "x": {"field": "left", "type": "quantitative"},
        "x2": {"field": "right"},
        "y": {"field": "low", "type": "quantitative"},
        "y2": {"field": "high"},
        "color": {"field": "rows", "type": "quantitative", "scale": {"scheme": "greys"}, "title": "rows in a cell"},
    }
    return {"data": {"values": values}, "mark": {"type": "rect", "opacity": 0.5}, "encoding": encoding}


def scores(model: Model) -> Spec:
    """Return a circle for each cell in which rows show above the noise: the larger the more rows, by group if any."""
    counted = scores_of(model)
    values = [
        {"group": group, "component_1": float(x), "component_2": float(y), "rows": float(counts[i, j])}
        for group, counts, lowest in _clear(counted)
        for i, x in enumerate(middles(counted)[0])
        for j, y in enumerate(middles(counted)[1])
        if counts[i, j] >= lowest
    ]
    along, across = ([float(edges[0]), float(edges[-1])] for edges in counted.edges())
    encoding: Spec = {
        "x": {"field": "component_1", "type": "quantitative", "title": ACROSS, "scale": {"domain": along}},
        "y": {"field": "component_2", "type": "quantitative", "title": UP, "scale": {"domain": across}},
        "size": {"field": "rows", "type": "quantitative", "title": "rows in a cell, smoothed"},
    }
    if counted.groups:
        encoding["color"] = {"field": "group", "type": "nominal", "scale": {"range": [*COLOURS]}}
    drawn = {"width": SIDE, "height": SIDE, "mark": {"type": "circle", "opacity": 0.6}, "encoding": encoding}
    return _whole(model, TITLE, values, drawn)


def _clear(counted: ScoreMap) -> Iterator[tuple[str, FloatArray, float]]:
    """Yield the smoothed counts of each group that shows, or of all rows, and from where on they are shown."""
    for each in counted.groups or (counted,):
        if found := contours_of(each, is_group=bool(counted.groups)):
            yield each.group or (NO_LEVEL if counted.groups else "all"), found[0], float(found[1][0])


def _whole(model: Model, title: str, values: list[Spec], drawn: Mapping[str, Any]) -> Spec:
    """Return a specification with the privacy promise below its title, so that it is not lost."""
    colour = "#666666" if model.statement.releasable else "#B03A00"
    heading = {"text": title, "anchor": "start", "subtitle": model.statement.headline, "subtitleColor": colour}
    return {"$schema": SCHEMA, "title": heading, "data": {"values": values}, **drawn}
