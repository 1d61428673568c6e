"""How a model looks in a notebook: a short fragment of HTML. ``dpspca report`` writes the whole report."""

from typing import TYPE_CHECKING, Final

import numpy as np

from dpspca.common.markup import Markup, element, joined, number, table

if TYPE_CHECKING:
    from .model import Model

MOST_COMPONENTS: Final = 10
MOST_FEATURES: Final = 5


def fragment(model: "Model") -> Markup:
    """Return the promise, or that there is none, and then a table of the components with their largest loadings."""
    count, columns = model.components.shape
    promise = model.statement.headline
    size = f"{count} components over {columns} features, {len(model.support)} in the support"
    shown = min(count, MOST_COMPONENTS)
    caption = size if shown == count else f"{size}; the first {shown} components"
    rows = [[str(index + 1), _explained(model, index), _largest(model, index)] for index in range(shown)]
    return element(
        "div",
        element("p", promise if model.statement.releasable else element("strong", promise)),
        table(
            caption,
            ["Component", "Explains" if model.statement.unit.is_row else "Eigenvalue", "Largest loadings"],
            rows,
        ),
    )


def _explained(model: "Model", index: int) -> Markup:
    if model.explained_variance is None:
        return joined(["not known"])
    value, noise = float(model.explained_variance[index]), model.explained_variance_std
    return joined([number(value, f"{value:.4g}"), *([" ± ", number(noise, f"{noise:.2g}")] if noise else [])])


def _largest(model: "Model", index: int) -> Markup:
    """Return the features with the largest loadings in size, none of them zero."""
    loadings = model.components[index]
    order = np.argsort(-np.abs(loadings), kind="stable")[: min(MOST_FEATURES, np.count_nonzero(loadings))]
    more = np.count_nonzero(loadings) - len(order)
    named = [
        joined([model.name_of(int(place)), " ", number(float(loadings[place]), f"{loadings[place]:+.3f}")])
        for place in order
    ]
    return joined([part for each in named for part in (", ", each)][1:] + ([f" and {more} more"] if more else []))
