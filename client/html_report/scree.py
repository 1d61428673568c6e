"""The scree plot of a report as inline SVG: a bar for each component, with the confidence interval of its number."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dpspca.common.markup import Markup, element

from .style import BAR, FAINT, INK, LINE, WHITE

_HEIGHT: Final = 260
_TOP: Final = 20
_BOTTOM: Final = 42
_LEFT: Final = 70
_WIDEST: Final = 640
_WIDEST_STEP: Final = 64.0
_NARROWEST_LABEL: Final = 26.0
_TICKS: Final = 5
_ROOM_FOR_WHITE: Final = 5.0


def scree(components: Sequence[dict[str, Any]], measure: str) -> Markup:
    """Draw the explained variances, or eigenvalues, of all components. The table beside it has the numbers."""
    ends = [_reach(component) for component in components]
    low, high = min(0.0, *(end[0] for end in ends)), max(0.0, *(end[1] for end in ends))
    high = high if high > low else 1.0
    step = min(_WIDEST_STEP, (_WIDEST - _LEFT) / len(components))
    width = max(_LEFT + step * len(components) + 10, 260)

    def height_of(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    every = math.ceil(_NARROWEST_LABEL / step)
    drawn = [*_axis(low, high, width, height_of)]
    for place, (component, (least, most)) in enumerate(zip(components, ends, strict=True)):
        middle = _LEFT + step * (place + 0.5)
        drawn.append(_bar(middle, step, height_of(component["explained_variance"]), height_of(0.0)))
        if component["explained_variance_interval"]:
            drawn.append(_whisker(middle, min(6.0, step / 4), height_of(least), height_of(most)))
        if place % every == 0:
            star = "*" if component["within_noise"] else ""
            drawn.append(_text(f"{component['number']}{star}", middle, _HEIGHT - _BOTTOM + 18, anchor="middle"))
    drawn.append(_text("component", _LEFT, _HEIGHT - 6, anchor="start", fill=FAINT))
    count = len(components)
    return element(
        "svg",
        element(
            "title",
            f"Bar chart: {measure} of {'the component' if count == 1 else f'{count} components'}",
            id="scree-title",
        ),
        element("desc", "The table below this chart has the same numbers.", id="scree-description"),
        *drawn,
        role="img",
        aria_labelledby="scree-title scree-description",
        viewBox=f"0 0 {width:.0f} {_HEIGHT}",
        width=f"{width:.0f}",
        height=_HEIGHT,
    )


def _reach(component: dict[str, Any]) -> tuple[float, float]:
    """Return the least and the largest value that is drawn of a component."""
    value, ends = component["explained_variance"], component["explained_variance_interval"]
    return (min(value, ends[0]), max(value, ends[1])) if ends else (value, value)


def _axis(low: float, high: float, width: float, height_of: Callable[[float], float]) -> Iterator[Markup]:
    for tick in ticks(low, high):
        yield _line(_LEFT, height_of(tick), width, height_of(tick), stroke=LINE if tick else INK)
        yield _text(f"{tick:.6g}".replace("-", "\N{MINUS SIGN}"), _LEFT - 8, height_of(tick) + 4, anchor="end")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers from ``low`` to ``high``, about five of them."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _bar(middle: float, step: float, end: float, zero: float) -> Markup:
    return element(
        "rect",
        x=f"{middle - 0.3 * step:.1f}",
        y=f"{min(end, zero):.1f}",
        width=f"{0.6 * step:.1f}",
        height=f"{abs(end - zero):.1f}",
        fill=BAR,
    )


def _whisker(middle: float, half: float, least: float, most: float) -> Markup:
    """Draw an interval in black, and on white where there is room, so that it shows within the bar too."""
    ends = f"M{middle - half:.1f} {most:.1f}h{2 * half:.1f}M{middle - half:.1f} {least:.1f}h{2 * half:.1f}"
    path = f"{ends}M{middle:.1f} {most:.1f}V{least:.1f}"
    room = half >= _ROOM_FOR_WHITE
    behind = [element("path", d=path, stroke=WHITE, stroke_width=4, fill="none")] if room else []
    return element("g", *behind, element("path", d=path, stroke=INK, stroke_width=1.5, fill="none"))


def _line(x1: float, y1: float, x2: float, y2: float, *, stroke: str) -> Markup:
    return element("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", stroke=stroke, stroke_width=1, fill="none")


def _text(text: str, x: float, y: float, *, anchor: str, fill: str = INK) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, font_size=12, fill=fill)
