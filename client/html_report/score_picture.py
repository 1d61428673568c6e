"""The picture of scores in a report, as inline SVG: contours of private counts of rows in the cells of a plane."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.client.reports import score_plot
from dpspca.common.arrays import FloatArray
from dpspca.common.markup import Markup, element, joined, number
from dpspca.common.results import ScoreMap

from .style import BAR, INK, LINE

_SIDE: Final = 384
_LEFT: Final = 70
_TOP: Final = 10
_BOTTOM: Final = 46
_LEGEND: Final = 20
_DASHES: Final = ("none", "6 3", "2 2")


def score_picture(scores: dict[str, Any]) -> Markup:
    """Draw how many rows have which scores on the first two components: the deeper the colour, the more.

    Of groups there are outlines, each in its own colour and line, whose names are below the plane. What noise alone may
    have made is not drawn.
    """
    counted = ScoreMap.from_dict(scores)
    drawn = [*_axes(counted)]
    lines = _groups(counted) if counted.groups else _everybody(counted)
    if not lines:
        drawn.append(_text(score_plot.EMPTY, _LEFT + _SIDE / 2, _TOP + _SIDE / 2, anchor="middle"))
    height = _TOP + _SIDE + _BOTTOM + _LEGEND * (len(lines) if counted.groups else 0)
    width = _LEFT + _SIDE + 10
    return element(
        "svg",
        element("title", "Contours of the scores on components 1 and 2", id="scores-title"),
        element("desc", "The counts of all cells are in the JSON of the model.", id="scores-description"),
        *drawn,
        *lines,
        role="img",
        aria_labelledby="scores-title scores-description",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
    )


def caption_of(scores: dict[str, Any]) -> Markup:
    """Say what the picture shows, and how much noise is in it."""
    counted = ScoreMap.from_dict(scores)
    noise = number(counted.noise_std, f"{counted.noise_std:.3g}")
    each = counted.groups[0].noise_std if counted.groups else None
    of_groups = [] if each is None else [", of a cell of one group ", number(each, f"{each:.3g}")]
    text = (
        "How many rows have which scores on the first two components, smoothed. No row's own scores are shown. The "
        "standard deviation of the noise of a cell, before it is smoothed, is "
    )
    return joined([text, noise, *of_groups, "."])


def _everybody(counted: ScoreMap) -> list[Markup]:
    """Fill each level over those below it, so that they add up to a deeper colour, and draw contours."""
    found = score_plot.contours_of(counted)
    if found is None:
        return []
    counts, levels = found
    colour = {"fill": BAR, "fill_opacity": f"{1.5 / len(levels):.2f}"}
    filled = [element("path", d=_filled(counts >= level), **colour) for level in levels[:-1]]
    outlines = "".join(_outline(counts, level) for level in levels[:-1])
    return [*filled, element("path", d=outlines, stroke=INK, stroke_width=0.5, fill="none")]


def _groups(counted: ScoreMap) -> list[Markup]:
    """Draw the outlines of each group that shows, and its name."""
    shown: list[Markup] = []
    for place, each in enumerate(counted.groups):
        if found := score_plot.contours_of(each, is_group=True):
            counts, levels = found
            outlines = "".join(_outline(counts, level) for level in levels[:-1])
            height = _TOP + _SIDE + _BOTTOM + _LEGEND * len(shown)
            shown.append(_group(outlines, each.group or score_plot.NO_LEVEL, place, height))
    return shown


def _group(outlines: str, name: str, place: int, height: float) -> Markup:
    line: dict[str, object] = {
        "stroke": score_plot.COLOURS[place % len(score_plot.COLOURS)],
        "stroke_dasharray": _DASHES[place // len(score_plot.COLOURS) % len(_DASHES)],
        "stroke_width": 1.5,
        "fill": "none",
    }
    key = element("path", d=f"M{_LEFT} {height + 8}h24", **line)
    return element("g", element("path", d=outlines, **line), key, _text(name, _LEFT + 32, height + 12))


def _cell(counts: NDArray[Any]) -> float:
    return _SIDE / len(counts)


def _filled(inside: NDArray[np.bool_]) -> str:
    """Return a path around runs of cells, of which one column of the table is one row of the picture."""
    side, parts = _cell(inside), []
    for row, line in enumerate(inside.T[::-1]):
        edges = np.flatnonzero(np.diff(np.r_[False, line, False]))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            width = side * (stop - start)
            parts.append(f"M{_LEFT + side * start:g} {_TOP + side * row:g}h{width:g}v{side:g}h{-width:g}z")
    return "".join(parts)


def _outline(counts: FloatArray, level: float) -> str:
    """Return a path where the counts pass a level, as lines through triangles between three middles of cells.

    Beyond the edges of the plane the counts are zero, so that every line closes.
    """
    side = _cell(counts)
    places = np.r_[0.0, side * (np.arange(len(counts)) + 0.5), float(_SIDE)]
    x, y = np.meshgrid(_LEFT + places, _TOP + _SIDE - places, indexing="ij")
    corners = np.stack([x, y, np.pad(counts, 1)], axis=-1)
    first, second, third, fourth = corners[:-1, :-1], corners[1:, :-1], corners[1:, 1:], corners[:-1, 1:]
    triangles = np.stack([np.stack([first, second, third], 2), np.stack([first, third, fourth], 2)], 2)
    found = [_crossing(triangle, level) for triangle in triangles.reshape(-1, 3, 3) if _is_between(triangle, level)]
    return "".join(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" for (x1, y1), (x2, y2) in found)


def _is_between(triangle: FloatArray, level: float) -> bool:
    return bool(triangle[:, 2].min() < level <= triangle[:, 2].max())


def _crossing(triangle: FloatArray, level: float) -> list[tuple[float, float]]:
    """Return the two points of a triangle's sides at which the counts pass a level."""
    points = []
    for start, end in zip(triangle, np.roll(triangle, -1, axis=0), strict=True):
        if (start[2] < level) != (end[2] < level):
            x, y, _ = start + (level - start[2]) / (end[2] - start[2]) * (end - start)
            points.append((float(x), float(y)))
    return points


def _axes(counted: ScoreMap) -> Iterator[Markup]:
    """Draw the plane with its middle, where scores are zero, and the scores at its edges."""
    reach, middle, low = counted.reach, _SIDE / 2, _TOP + _SIDE
    yield element("rect", x=_LEFT, y=_TOP, width=_SIDE, height=_SIDE, fill="none", stroke=LINE)
    yield element("path", d=f"M{_LEFT + middle:g} {_TOP}v{_SIDE}M{_LEFT} {_TOP + middle:g}h{_SIDE}", stroke=LINE)
    for place, share in ((0.0, -1.0), (middle, 0.0), (float(_SIDE), 1.0)):
        yield _text(_score(share, reach, 0), _LEFT + place, low + 16, anchor="middle")
        yield _text(_score(share, reach, 1), _LEFT - 6, low - place + 4, anchor="end")
    yield _text(score_plot.ACROSS, _LEFT + middle, low + 34, anchor="middle")
    yield element(
        "text",
        score_plot.UP,
        transform=f"translate(14 {_TOP + middle:g}) rotate(-90)",
        text_anchor="middle",
        font_size=12,
        fill=INK,
    )


def _score(share: float, reach: FloatArray, component: int) -> str:
    return f"{share * float(reach[component]):.3g}".replace("-", "\N{MINUS SIGN}")


def _text(text: str, x: float, y: float, *, anchor: str = "start") -> Markup:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, font_size=12, fill=INK)
