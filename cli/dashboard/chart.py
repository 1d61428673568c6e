"""A small chart of what was spent over time, as SVG without script or style. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from dpspca.common.markup import Markup, element

WIDTH, HEIGHT, EDGE = 600, 120, 10
NARROW: Final = 1.0
"""Seconds: all points within this time are drawn as one step."""


class Point(NamedTuple):
    """The share of a budget that was spent at a time."""

    at: str
    share: float


def spending(name: str, points: Sequence[Point]) -> Markup:
    """Draw what was spent of a budget as steps. The share is of the whole budget, which is the full height."""
    if not points:
        return Markup("")
    times = [datetime.fromisoformat(each.at).timestamp() for each in points]
    first, span = times[0], max(times[-1] - times[0], NARROW)
    corners = [(float(EDGE), float(HEIGHT - EDGE))]
    for at, point in zip(times, points, strict=True):
        x = EDGE + (WIDTH - 2 * EDGE) * (at - first) / span
        y = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * min(point.share, 1.0)
        corners += [(x, corners[-1][1]), (x, y)]
    corners.append((float(WIDTH - EDGE), corners[-1][1]))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    share = f"{100 * points[-1].share:.3g} %"
    title = f"Spent of the budget of {name}, from {points[0].at} to {points[-1].at}: {share}"
    lines = [
        element("title", title),
        element("line", x1=EDGE, x2=WIDTH - EDGE, y1=HEIGHT - EDGE, y2=HEIGHT - EDGE, class_="axis"),
        element("line", x1=EDGE, x2=WIDTH - EDGE, y1=EDGE, y2=EDGE, class_="limit"),
        element("polyline", points=path, class_="spent"),
    ]
    return element("svg", *lines, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title)
