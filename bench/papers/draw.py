"""Figures as PNG and their numbers as CSV. They are readable in grey and by colour-blind people, and small."""

import csv
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from methods import Look
from studies import Panel

WIDTH_INCHES = 4.3
HEIGHT_INCHES = 3.9
LEGEND_INCHES = 2.55
LEGEND_LETTERS = 32
LETTERS_AN_INCH = 15
DOTS_PER_INCH = 100
THOUSANDS_FROM = 2000
BESIDE = 0.008
"""Part of a linear axis by which one curve is shifted from the next."""
TWO_DECADES = 2.5
"""An axis of fewer decades is labelled at 1 and 3 of each, a longer one only at powers of ten."""
SETTINGS: Any = {
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 6,
}


def png(result: Mapping[str, Any], panels: Sequence[Panel], looks: Mapping[str, Look], path: Path) -> None:
    """Draw panels side by side, with one legend to their right and the caption below."""
    shared = len({(panel.log_y, panel.y_label) for panel in panels}) == 1
    width = WIDTH_INCHES * len(panels) + LEGEND_INCHES
    caption = textwrap.fill(result["caption"], width=int(width * LETTERS_AN_INCH))
    below = 0.17 * (caption.count("\n") + 1) + 0.12
    height = HEIGHT_INCHES + below
    with mpl.rc_context(SETTINGS):
        figure, axes = plt.subplots(1, len(panels), figsize=(width, height), squeeze=False, sharey=shared)
        for number, (panel, content) in enumerate(zip(panels, result["panels"], strict=True)):
            places = sorted({point["x"] for points in content["curves"].values() for point in points})
            _curves(
                axes[0][number], content["curves"], looks, 0.0 if panel.log_x else BESIDE * (places[-1] - places[0])
            )
            _axes(axes[0][number], panel, places, named=not (shared and number))
        figure.subplots_adjust(
            left=0.68 / width,
            right=1 - LEGEND_INCHES / width,
            top=1 - 0.58 / height,
            bottom=(below + 0.48) / height,
            wspace=0.08 if shared else 0.26,
        )
        _legend(figure, axes[0], width)
        figure.suptitle(result["title"], fontsize=10.5, x=0.12 / width, ha="left")
        figure.text(0.12 / width, 0.08 / height, caption, fontsize=8, va="bottom", ha="left", linespacing=1.25)
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None}, pil_kwargs={"optimize": True})
        plt.close(figure)


def _curves(axis: Any, curves: Mapping[str, Any], looks: Mapping[str, Look], beside: float) -> None:  # noqa: ANN401
    """Draw means with bars from the smallest to the largest; a floor, which has no marker, is a plain line.

    Curves with bars are shifted a little by ``beside``, so that bars at the same place can be distinguished.
    """
    barred = [label for label in curves if looks[label].marker]
    for number, (label, points) in enumerate(curves.items()):
        look = looks[label]
        means = [point["mean"] for point in points]
        shift = beside * (barred.index(label) - (len(barred) - 1) / 2) if label in barred else 0.0
        ends = [
            [max(0.0, point["mean"] - point["least"]) for point in points],
            [max(0.0, point["largest"] - point["mean"]) for point in points],
        ]
        axis.errorbar(
            [point["x"] + shift for point in points],
            means,
            yerr=ends if look.marker else None,
            label=label,
            color=look.colour,
            marker=look.marker or None,
            linestyle=look.line,
            capsize=2,
            elinewidth=0.8,
            zorder=3 + 0.01 * number,
            markeredgecolor=look.colour,
            markeredgewidth=1.4 if look.marker in {"x", "+"} else 0.8,
        )


def _axes(axis: Any, panel: Panel, places: Sequence[float], *, named: bool) -> None:  # noqa: ANN401  # matplotlib's
    axis.set_title(panel.title, fontsize=9, loc="left")
    axis.set_xlabel(panel.x_label)
    if named:
        axis.set_ylabel(panel.y_label)
    if panel.log_x:
        _x_ticks(axis, places)
    if panel.log_y:
        axis.set_yscale("log")
        _log_ticks(axis.yaxis, *axis.get_ylim())
    axis.grid(visible=True, which="major")


def _x_ticks(axis: Any, places: Sequence[float]) -> None:  # noqa: ANN401  # matplotlib's
    """Mark the few places that were measured, in growing steps."""
    axis.set_xscale("log")
    axis.set_xticks(places, labels=[f"{at / 1000:g}k" if at >= THOUSANDS_FROM else f"{at:g}" for at in places])
    axis.set_xticks([], minor=True)


def _log_ticks(axis: Any, low: float, high: float) -> None:  # noqa: ANN401  # matplotlib's
    """Label a logarithmic axis with plain numbers, more of them if it is short."""
    between = (1, 3) if math.log10(high / low) < TWO_DECADES else (1,)
    axis.set_major_locator(LogLocator(10, subs=between))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if 1e-4 < value < 1e6 else f"{value:.0e}"))
    axis.set_minor_formatter(NullFormatter())


def _legend(figure: Any, axes: Any, width: float) -> None:  # noqa: ANN401  # matplotlib's
    """List every curve of every panel once, outside the data, with floors last."""
    named: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    order = sorted(named, key=lambda label: label.startswith("no privacy"))
    figure.legend(
        [named[label] for label in order],
        [textwrap.fill(label, LEGEND_LETTERS) for label in order],
        loc="center left",
        bbox_to_anchor=(1 - (LEGEND_INCHES - 0.1) / width, 0.57),
        fontsize=8,
        frameon=False,
        handlelength=2.6,
        labelspacing=0.7,
    )


def figure_csv(result: Mapping[str, Any], path: Path) -> None:
    """Write every drawn number as CSV, one line for each point."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["panel", "curve", "x", "mean", "least", "largest", "seeds"])
        for panel in result["panels"]:
            for label, points in panel["curves"].items():
                for point in points:
                    numbers = (f"{point[key]:.6g}" for key in ("x", "mean", "least", "largest"))
                    writer.writerow([panel["title"], label, *numbers, point["seeds"]])


def table_csv(result: Mapping[str, Any], path: Path) -> None:
    """Write a table as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(result["columns"])
        writer.writerows(result["rows"])
