"""The picture that ``accuracy.py`` draws: errors of methods against whatever was varied."""

import itertools
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LOOKS: Final = (
    ("#000000", ""),
    ("#0072B2", "o"),
    ("#009E73", "D"),
    ("#D55E00", "s"),
    ("#E69F00", "v"),
    ("#CC79A7", "x"),
)
"""A colour that colour-blind readers can tell from others, and a mark, for the oracle and each method."""
VARIED: Final = ("epsilon (delta = 1e-6)", "number of providers", "norm bound / the usual one")


def methods_of(figures: Mapping[Any, float]) -> list[str]:
    """Name the methods of runs, in their order."""
    return list(dict.fromkeys(run.method for run in figures))


def draw(figures: Mapping[Any, float], path: Path) -> None:
    """Draw the median error of each method: a row of panels for each design, a panel for each list that varies."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # an extra
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415

    names, first = list(dict.fromkeys(run.data for run in figures)), next(iter(figures)).setting
    varied = [place for place in range(3) if len({run.setting[place] for run in figures}) > 1] or [0]
    columns = len(names) if len(varied) == 1 else len(varied)
    sheet = Sheet(figsize=(6.4 * columns, 4.2 * len(names) * len(varied) / columns), layout="constrained")
    FigureCanvasAgg(sheet)
    panels = sheet.subplots(len(names) * len(varied) // columns, columns, squeeze=False).flat
    for axes, (name, place) in zip(panels, itertools.product(names, varied), strict=True):
        others = first[:place] + first[place + 1 :]
        here = {run: error for run, error in figures.items() if run.data == name}
        one_varies = {r: error for r, error in here.items() if r.setting[:place] + r.setting[place + 1 :] == others}
        _draw_panel(axes, one_varies, place)
        axes.set(xscale="log", yscale="log", title=name, xlabel=VARIED[place])
    sheet.savefig(path, dpi=110)


def _draw_panel(axes: Any, figures: Mapping[Any, float], place: int) -> None:  # noqa: ANN401  # of matplotlib
    for method, (colour, marker) in zip(methods_of(figures), LOOKS, strict=False):
        errors: dict[float, list[float]] = {}
        for run, error in figures.items():
            if run.method == method:
                errors.setdefault(run.setting[place], []).append(error)
        places = sorted(errors)
        middle = [statistics.median(errors[each]) for each in places]  # NaN, and so no mark, if one took too long
        axes.plot(places, middle, color=colour, marker=marker, label=method, lw=1.8)
    axes.set_ylabel(r"error $\|\sin\Theta\|_F$")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
