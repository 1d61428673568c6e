"""Reports about a model: a summary in words, the same as plain values, and two plots.

Reports are post-processing: they are computed from the model alone, so they cost no privacy. Every plot shows the
privacy promise, so that it is not lost when the plot is passed on. Plots need matplotlib (the extra ``plots``). They
do not use its global state, so they work in any thread and without a display.
"""

import math
from os import PathLike
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from dpspca.client.decisions import decision_of
from dpspca.client.findings import WITHIN_NOISE, bound_may_be_small, of_model
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check_whole
from dpspca.common.errors import InvalidParameterError, MissingExtraError
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.results import INTERVAL_LEVEL, Model, Origin
from dpspca.common.text import counted, printable

from .readings import best_guess_from, in_words, stability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

Destination: TypeAlias = str | PathLike[str]
Ends: TypeAlias = tuple[FloatArray, FloatArray]

TOP: Final = 6
"""How many features of each component a report names by default."""

LEVEL: Final = INTERVAL_LEVEL
"""The level of confidence intervals."""
LEFT_OUT: Final = (
    "Of each feature that was left out, the loading is at most ",
    f" in size, with {LEVEL:.0%} confidence.",
)
"""What stands before and after a number."""

SHARES: Final = "\n(above each bar: its share of the total)"

_DOTS_PER_INCH: Final = 150
_BAR: Final = "#0072B2"  # the blue of Okabe and Ito's palette
_INK: Final = "#222222"
_FAINT: Final = "#666666"
_DIVERGING: Final = "RdBu_r"  # blue over white to red, distinguishable under every common colour blindness
_WARNING: Final = "#B03A00"
_FOOTER_LETTERS: Final = 88
_MOST_PLACES: Final = 6
_MOST_LETTERS: Final = 28
_MOST_NUMBERED_BARS: Final = 12
_MOST_NUMBERED_ROWS: Final = 40
_MOST_NUMBERED_COLUMNS: Final = 8
_BAR_WIDTH: Final = 0.15  # inches
_LINE_HEIGHT: Final = 0.19  # inches per label


# Words and numbers


def summary(model: Model, *, top: int = TOP) -> str:
    """Return a plain text summary: components, explained variance, and the privacy statement."""
    facts = to_dict(model, top=top)
    support = f"{facts['support_size']} of {facts['features']} features in the support"
    head = f"{counted(len(facts['components']), 'component')}; {support}."
    measure = _measure(model.statement.unit)
    components = [_component_text(component, measure) for component in facts["components"]]
    warning = [] if model.statement.releasable else [model.statement.headline]
    origin = [printable(_origin_text(model.origin))] if model.origin else []
    parts = [*warning, head, *origin, *components, *remarks(facts), model.statement.text]
    return "\n\n".join(parts)


def _origin_text(origin: Origin) -> str:
    """Return in one line how and from whose data a model was made."""
    data_set = f", data set {origin.data_set}" if origin.data_set else ""
    who = f", providers {', '.join(origin.took_part)}" if origin.took_part else ""
    gone = f"; dropped out: {', '.join(each.name for each in origin.dropped_out)}" if origin.dropped_out else ""
    queries = f"{origin.queries} {'query' if origin.queries == 1 else 'queries'} answered"
    return f"Method {origin.method}{data_set}{who}{gone}; {queries}, dpspca {origin.software}."


def remarks(facts: dict[str, Any]) -> list[str]:
    """Return the notes and warnings that a reader of the numbers of ``to_dict`` needs."""
    explained = any(part["explained_variance"] is not None for part in facts["components"])
    noise = ["± is one standard deviation of the noise added for privacy."] if explained else []
    mixed = in_words([each for each in facts["stability"]["neighbours"] if not each["told_apart"]])
    return [*noise, *mixed, *facts["warnings"]]


def to_dict(model: Model, *, top: int = TOP) -> dict[str, Any]:
    """Return every number of the summary as plain values, ready for JSON."""
    check_whole("the number of features to name", top, least=1, most=2**31)
    statement, intervals = model.statement, model.intervals(LEVEL)
    components = [_component(model, index, top, intervals) for index in range(len(model.components))]
    return {
        "promise": statement.headline,  # first; it also says if the model is not for release
        "features": model.components.shape[1],
        "support_size": len(model.support),
        "support": model.support.tolist(),
        "decision": model.decision and model.decision.to_dict() | {"text": decision_of(model)},
        "blind": model.blind,
        "norm_bound_may_be_small": bound_may_be_small(model),
        "interval_level": LEVEL,
        "components": components,
        "price": {
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "mu": statement.mu,
            "exact_epsilon": statement.exact_epsilon,
            "answers": statement.answers,
            "providers": statement.parties,
            "guess_at_most": best_guess_from(statement),
        },
        "scores": model.scores and model.scores.to_dict(),
        "origin": model.origin and model.origin.to_dict(),
        "stability": stability(model, components),
        "scales": None if model.scales is None else model.scales.tolist(),
        "weights": None
        if model.weights is None
        else [{"part_of_rows": rows, "part": part} for rows, part in model.weights.tolist()],
        "warnings": list(dict.fromkeys([*of_model(model), *statement.warnings])),
        "statement": statement.to_dict(),
    }


def _component(model: Model, index: int, top: int, intervals: dict[str, Ends]) -> dict[str, Any]:
    loadings = model.components[index]
    return {
        "number": index + 1,
        "explained_variance": _entry(model.explained_variance, index),
        "explained_variance_std": model.explained_variance_std,
        "explained_variance_interval": _ends(intervals.get("explained_variance"), index),
        "explained_variance_ratio": _entry(model.explained_variance_ratio, index),
        "within_noise": bool(model.within_noise[index]),
        "support_size": int(np.count_nonzero(loadings)),
        "left_out_at_most": _left_out_at_most(model, index, intervals.get("loadings")),
        "top_features": [
            _feature(model, int(place))
            | {
                "loading": float(loadings[place]),
                "loading_std": None if model.loading_std is None else float(model.loading_std[index, place]),
                "loading_interval": _ends(intervals.get("loadings"), (index, int(place))),
            }
            for place in _top(loadings, top)
        ],
    }


def _left_out_at_most(model: Model, index: int, ends: Ends | None) -> float | None:
    """Return how large a loading the columns outside the support may have, by their widest interval, if it is known."""
    left_out = ~model.components.any(axis=0)
    if ends is None or not left_out.any():
        return None
    most = float(max(np.abs(end[index, left_out]).max() for end in ends))
    return most if most < 1 else None  # no loading is above 1, so this says nothing


def _entry(values: FloatArray | None, index: int) -> float | None:
    return None if values is None else float(values[index])


def _ends(ends: Ends | None, place: int | tuple[int, int]) -> list[float] | None:
    return None if ends is None else [float(end[place]) for end in ends]


def _top(loadings: FloatArray, top: int) -> Any:  # noqa: ANN401  # indices
    """Return the features with the largest absolute loadings; ties in order of index, and none with a zero loading."""
    order = np.argsort(-np.abs(loadings), kind="stable")
    return order[: min(top, np.count_nonzero(loadings))]


def _feature(model: Model, index: int) -> dict[str, Any]:
    return {"index": index, "name": model.name_of(index)}


def _measure(unit: PrivacyUnit) -> str:
    """Return the name of a component's number: a variance for rows, an eigenvalue for a symmetric matrix."""
    return "variance" if unit.is_row else "eigenvalue"


def _component_text(component: dict[str, Any], measure: str) -> str:
    lines = [f"  {feature['loading']:+.3f}  {feature['name']}" for feature in component["top_features"]]
    left_out = component["support_size"] - len(lines)
    more = [f"  and {counted(left_out, 'feature')} with smaller loadings"] if left_out else []
    most = component["left_out_at_most"]
    hidden = [] if most is None else [f"  {in_left_out(most)}"]
    return "\n".join([f"Component {component['number']}{_explained_text(component, measure)}", *lines, *more, *hidden])


def in_left_out(most: float) -> str:
    """Say what is known about the features that do not take part."""
    return f"{most:.3f}".join(LEFT_OUT)


def _explained_text(component: dict[str, Any], measure: str) -> str:
    variance, ratio, noise = (component[f"explained_variance{part}"] for part in ("", "_ratio", "_std"))
    if variance is None:
        return ""
    share = "" if ratio is None else f", {ratio:.1%} of the total"
    share = f", {WITHIN_NOISE}" if component["within_noise"] else share
    return f": {measure} {with_noise(variance, noise)}{share}"


def rounded(value: float, noise: float | None) -> str:
    """Format a number to two significant digits of its standard deviation, as ``with_noise`` does."""
    return with_noise(value, noise).partition(" ±")[0]


def with_noise(value: float, noise: float | None) -> str:
    """Format a number and its standard deviation, both to two significant digits of the standard deviation."""
    if not noise:
        return f"{value:.4g}"
    places = 1 - math.floor(math.log10(noise))
    if 0 <= places <= _MOST_PLACES:
        return f"{value:.{places}f} ± {noise:.{places}f}"
    return f"{value:.4g} ± {noise:.2g}"


# Plots


def scree(model: Model, path: Destination | None = None) -> "Figure":
    """Draw the explained variance of each component, with the noise of each number. Write a PNG if a path is given."""
    variances = model.explained_variance
    if variances is None:
        raise InvalidParameterError(
            "This model has no explained variances to plot.", "Run the job with explained_variance=True."
        )
    count = len(variances)
    canvas, axes = new_canvas(width=min(12.0, max(5.6, 1.8 + 0.55 * count)), height=4.2)
    noise = 2 * (model.explained_variance_std or 0.0)
    _draw_bars(axes, variances, noise)
    ratios = model.explained_variance_ratio if count <= _MOST_NUMBERED_BARS else None
    if ratios is not None:
        _write_ratios(axes, variances + noise, ratios, model.within_noise)
    shares = "" if ratios is None or model.within_noise.all() else SHARES
    of_rows = model.statement.unit.is_row
    axes.set_ylabel(f"{'explained variance' if of_rows else 'eigenvalue'}{shares}", fontsize=10, color=_INK)
    shown = _thinned(count, 24)
    axes.set_xticks(shown + 1, _numbered(model, shown))
    return _finish(canvas, axes, "How much each component explains" if of_rows else "Eigenvalues", model, path)


def loadings(model: Model, path: Destination | None = None) -> "Figure":
    """Draw the components as a heat map of the features in the support. Write a PNG if a path is given."""
    support = model.support
    if not len(support):
        raise InvalidParameterError("The largest loading of this model is 0.", "Plot a model that was fitted.")
    values = model.components[:, support].T
    rows, columns = values.shape
    names = [_label(model, int(index)) for index in support]
    height = min(13.0, max(3.4, 1.7 + _LINE_HEIGHT * rows))
    width = min(12.0, max(5.6, 2.6 + 0.08 * max(map(len, names)) + 0.62 * columns))
    canvas, axes = new_canvas(width=width, height=height)
    limit = float(np.abs(values).max())
    lines = 0.8 if rows <= _MOST_NUMBERED_ROWS else 0.0
    mesh = axes.pcolormesh(values, cmap=_DIVERGING, vmin=-limit, vmax=limit, edgecolors="white", linewidth=lines)
    axes.invert_yaxis()
    _label_rows(axes, names, room=int((height - 1.7) / _LINE_HEIGHT) + 1)
    shown = _thinned(columns, int((width - 2) / 0.3))
    axes.set_xticks(shown + 0.5, _numbered(model, shown))
    axes.set_ylabel("feature" if model.feature_names else "feature (index)", fontsize=10, color=_INK)
    if rows <= _MOST_NUMBERED_ROWS and columns <= _MOST_NUMBERED_COLUMNS:
        _write_values(axes, values, limit)
    bar = canvas.figure.colorbar(mesh, ax=axes, pad=0.02, aspect=(height - 1.2) / _BAR_WIDTH)
    bar.set_label("loading", fontsize=10, color=_INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=_FAINT)
    return _finish(canvas, axes, "Which features make up each component", model, path)


def new_canvas(*, width: float, height: float) -> "tuple[FigureCanvasAgg, Axes]":
    """Return a new figure. Do not use pyplot, which keeps every figure and sets a backend for the whole program."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # belongs to an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as missing:
        raise MissingExtraError(
            "Plots need matplotlib, which is not installed.", "Install it with: pip install matplotlib"
        ) from missing
    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained", facecolor="white")
    return FigureCanvasAgg(figure), figure.add_subplot()


def _finish(canvas: "FigureCanvasAgg", axes: "Axes", title: str, model: Model, path: Destination | None) -> "Figure":
    """Finish a plot whose horizontal axis has the components."""
    label = f"component{f' (*: {WITHIN_NOISE})' if model.within_noise.any() else ''}"
    return finish(canvas, axes, title, model, path, label)


def finish(  # noqa: PLR0913, PLR0917  # a plot, and what to write on it
    canvas: "FigureCanvasAgg", axes: "Axes", title: str, model: Model, path: Destination | None, label: str
) -> "Figure":
    """Add the title, the label of the horizontal axis and the footer that all plots have. Write the file, if any."""
    axes.set_title(title, loc="left", fontsize=12, color=_INK, pad=10)
    axes.tick_params(length=0, labelsize=8, labelcolor=_INK)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel(label, fontsize=10, color=_INK)
    colour = _FAINT if model.statement.releasable else _WARNING
    canvas.figure.supxlabel(_footer(model), x=0.01, ha="left", fontsize=7.5, color=colour)
    if path is not None:
        canvas.figure.savefig(path, format="png")
    return canvas.figure


def _footer(model: Model) -> str:
    """Return the headline of the privacy statement, wrapped to the width of the narrowest plot."""
    return fill(model.statement.headline, _FOOTER_LETTERS)


def _draw_bars(axes: "Axes", variances: FloatArray, noise: float) -> None:
    """Draw bars from zero, so that their lengths are comparable, and leave room above them for the legend."""
    count = len(variances)
    numbers = np.arange(1, count + 1)
    axes.bar(numbers, variances, width=0.62, color=_BAR)
    if noise:
        label = "±2 standard deviations of the privacy noise"
        axes.errorbar(numbers, variances, yerr=noise, fmt="none", ecolor=_INK, capsize=4, elinewidth=1.2, label=label)
        axes.legend(loc="upper right", framealpha=1, edgecolor="none", fontsize=8, labelcolor=_FAINT)
    bottom, top = min(0.0, float(variances.min()) - noise), float(variances.max()) + noise
    axes.set_ylim(bottom, top + 0.22 * (top - bottom) or 1.0)
    middle, reach = (count + 1) / 2, max(count, 3) / 2 + 0.2
    axes.set_xlim(middle - reach, middle + reach)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def _numbered(model: Model, shown: Any) -> list[str]:  # noqa: ANN401  # indices
    """Return the numbers of components as tick labels, with a star if the component may be noise."""
    starred = model.within_noise
    return [f"{index + 1}{'*' if starred[index] else ''}" for index in shown]


def _write_ratios(axes: "Axes", tops: FloatArray, ratios: FloatArray, is_noise: Any) -> None:  # noqa: ANN401  # a mask
    for number, (top, ratio, noise) in enumerate(zip(tops, ratios, is_noise, strict=True), start=1):
        axes.annotate(
            WITHIN_NOISE.replace(" ", "\n", 1) if noise else f"{ratio:.1%}",
            (number, float(top)),
            (0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=_INK,
        )


def _write_values(axes: "Axes", values: FloatArray, limit: float) -> None:
    """Write every loading into its cell. "0" is exactly zero, "0.00" is rounded to it."""
    for (row, column), entry in np.ndenumerate(values):
        value = float(entry)
        colour = "white" if abs(value) > 0.6 * limit else _INK
        axes.text(
            column + 0.5,
            row + 0.5,
            f"{round(value, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}") if value else "0",
            ha="center",
            va="center",
            fontsize=7,
            color=colour,
        )


def _label_rows(axes: "Axes", names: list[str], room: int) -> None:
    shown = _thinned(len(names), room)
    axes.set_yticks(shown + 0.5, [names[index] for index in shown])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # print a dollar sign in a name as it is


def _thinned(count: int, room: int) -> Any:  # noqa: ANN401  # indices
    """Return evenly spaced indices, starting with the first, at most ``room`` of them."""
    return np.arange(0, count, max(1, math.ceil(count / max(1, room))))


def _label(model: Model, index: int) -> str:
    """Return a feature's name or index, shortened to fit an axis label."""
    name = str(index) if model.feature_names is None else model.name_of(index)
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
