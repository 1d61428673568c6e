"""What a method decided, in words: how it spent the budget, which components it left out, and how providers counted."""

from collections.abc import Collection
from typing import Final

from dpspca.common.results import Decision, Model, ReleasePath

HIDDEN: Final = (
    "Noise hid how long the rows are, and the job gives no bound. So all rows were clipped to one length, and "
    "variances are given as if that length were one. To get the true scale, give a norm_bound from public knowledge."
)
NONE_CLEAR: Final = (
    "No component stood out from the noise of the last release, so what the model has may be nothing but noise."
)

_MOST_PROVIDERS: Final = 10
"""Providers whose weights are listed."""


def decision_of(model: Model, warnings: Collection[str] = ()) -> str:
    """Return in words how the method decided to spend the budget; nothing if it does not decide.

    What is among its ``warnings`` is not repeated.
    """
    decided, every = model.decision, model.components.shape[1]
    if decided is None:
        return ""
    taking_part = (
        "All columns take part." if decided.columns == every else f"{_columns(decided.columns)} of {every} take part."
    )
    count = decided.asked or len(model.components)
    sentences = [
        *(_path_taken(decided, every), taking_part, not_seen(decided, count), _left_out(decided, model)),
        HIDDEN if decided.hidden else "",
        _may_be_longer(decided),
    ]
    return " ".join(sentence for sentence in sentences if sentence and sentence not in warnings)


def _may_be_longer(decided: Decision) -> str:
    """Say if clipping may make explained variances too small."""
    if decided.clipped is None or decided.longer is None or decided.longer < 1:
        return ""
    return (
        f"For explained variances, scores longer than {decided.clipped:.3g} count as that long. The noisy "
        f"counts suggest that at most about {decided.longer:.0f} rows are longer. If there are such rows, variances "
        "are larger than stated."
    )


def _left_out(decided: Decision, model: Model) -> str:
    if decided.asked is None:
        return ""
    because = "" if decided.useful else ", because it needs at least one"
    if decided.clear is None:  # a model of earlier software
        why = f"{decided.useful} stood out from the noise and explain more than an average column"
    else:
        why = (
            f"{decided.clear} stood out from the noise of the last release, and {decided.useful} of these "
            f"{'explains' if decided.useful == 1 else 'explain'} more than an average column"
        )
    return f"Of {decided.asked} components, {why}. The model has {len(model.components)}{because}."


def not_seen(decided: Decision, components: int) -> str:
    """Say how many components are visible in no release but their own."""
    if decided.visible is None or decided.visible >= components:
        return ""
    shown = "No component" if not decided.visible else f"Only {decided.visible} of {components} components"
    missed = (
        "so columns that take part may have been missed"
        if decided.path in {ReleasePath.SPARSE, ReleasePath.WIDE}
        else "so the others may be nothing but noise"
        if decided.visible
        else "so they may be nothing but noise"
    )
    where = "the largest matrix that was released" if decided.last is None else "all releases together"
    return f"{shown} stood out from the noise of {where}, {missed}."


def _path_taken(decided: Decision, every: int) -> str:
    match decided.path:
        case ReleasePath.WHOLE:
            few = "With so few columns or so many components, no budget was spent on a search for columns."
            if decided.last is None:
                return f"The covariance matrix of all {every} columns was released once, for most of the budget. {few}"
            return f"{few} The covariance matrix of all {every} columns was released. {_last_release(decided, every)}"
        case ReleasePath.WIDE | ReleasePath.PRODUCTS:
            return (
                f"The covariance matrix of all {every} columns was not released: it is too large. {_wide_path(decided)}"
            )
        case ReleasePath.SPARSE:
            return f"{_sparse_path(decided, every)} So most of the budget was spent on these columns."
        case ReleasePath.DENSE:
            path = f"{_dense_path(decided, every)} So the whole covariance matrix was released several times"
            if decided.last is None:
                return f"{path}, and the releases were averaged."
            return f"{path}. {_last_release(decided, every)}"


def _last_release(decided: Decision, every: int) -> str:
    """Say what the last release was about, and at which scale."""
    number, clear = decided.last or 0, decided.scaled or 0
    what = "it was released again" if number == every else f"that of the {_columns(number)} that stood out was released"
    along = "the component that was" if clear == 1 else f"the {clear} components that were"
    scale = (
        f" For this, the part of each row along {along} clear was divided by another number than the rest, so that "
        "noise harms the components least."
        if clear
        else ""
    )
    return f"Then {what}.{scale} All releases were averaged."


def _sparse_path(decided: Decision, every: int) -> str:
    number = _columns(decided.outstanding or 0)
    if decided.visible == 0:
        return f"{number} of {every} stood out from noise, but the matrix of all columns showed no component."
    return (
        f"{number} of {every} stood out from noise and held {_percent(decided.held)} of the variance that the "
        "components of all columns showed."
    )


def _dense_path(decided: Decision, every: int) -> str:
    if not decided.outstanding:
        return f"None of {every} columns stood out from noise."
    number = _columns(decided.outstanding)
    if decided.held is None:
        return f"{number} of {every} stood out from noise, which shows no sparse structure."
    return (
        f"{number} of {every} stood out from noise, but held only {_percent(decided.held)} of the variance that the "
        "components of all columns showed."
    )


def _wide_path(decided: Decision) -> str:
    number = _columns(decided.outstanding or 0)
    if decided.path is ReleasePath.WIDE:
        return (
            f"So the budget was spent on {number} with large variances or with signs that agree, and on columns that "
            "correlate with these."
        )
    return (
        f"The {number} with large variances or with signs that agree, and others that stood out, held only "
        f"{_percent(decided.held)} of the variance that a product of all columns showed. So most of the budget was "
        "spent on products of all columns with the components."
    )


def weights_of(model: Model) -> str:
    """Return in words how much each provider counted; nothing if every row counted the same."""
    if model.weights is None:
        return ""
    shown = [f"{part:.1%} ({rows:.1%} of the rows)" for rows, part in model.weights[:_MOST_PROVIDERS].tolist()]
    more = len(model.weights) - len(shown)
    listed = ", ".join(shown) + (f", and {more} more with fewer rows" if more else "")
    return (
        "providers with more rows counted for more than their part of the rows, because every provider's noise has "
        f"the same size. In the last sum that shows components they counted for {listed}. If providers differ in more "
        "than their size, components and variances describe a population that is mixed in these proportions. With "
        'weights = "equal" every row counts the same.'
    )


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _percent(part: float | None) -> str:
    return f"{part or 0.0:.0%}"
