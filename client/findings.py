"""What whoever reads a result has to be warned of: worked out from the job and its model alone, so it costs nothing.

The wording stands here once. The command line prints it, the statement and its JSON carry it (``with_warnings``), and
in Python each sentence comes once as a warning of our class (``issue``).
"""

import inspect
import math
import warnings
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaWarning
from dpspca.common.model import Model
from dpspca.common.plan import Step
from dpspca.common.queries import CompressedCovariance, Covariance, CovarianceProduct, CovarianceTriangle
from dpspca.common.spec import JobSpec
from dpspca.common.statement import LARGE_DELTA, PrivacyStatement

WITHIN_NOISE: Final = "within the noise"

_NOISE_LIMIT: Final = 3
"""Standard deviations of its noise that a variance has to reach before anything is said to be explained."""

_FULL: Final = 0.9
"""Share of the squared norm bound above which rows of the mean squared length have hardly any room left."""

_PACKAGE: Final = "dpspca."


# Of a job, before it is paid for


def of_job(spec: JobSpec) -> list[str]:
    """Say what is allowed in a job and seldom meant, and what its price rests on."""
    rests_on = sorted({step.question.caveat for step in catalogue.plan(spec) if step.question.caveat})
    return _seldom_meant(spec) + rests_on


def _seldom_meant(spec: JobSpec) -> list[str]:
    delta, columns = spec.budget.delta, spec.schema.dimension
    no_limit = f"A sparsity of {columns} is no limit: of {columns} columns, all may take part."
    large = (
        f"A delta of {delta:g} is large: with that probability the promise may not hold at all. Keep it far below one "
        "over the rows."
    )
    holds = {no_limit: spec.options.get("sparsity") == columns, large: delta > LARGE_DELTA}
    return [sentence for sentence, meant in holds.items() if meant]


# Of a model


def of_model(model: Model) -> list[str]:
    """Say what has to be known before the numbers of a model are believed."""
    number = "a variance" if model.statement.unit.is_row else "an eigenvalue"
    said = {
        f"{WITHIN_NOISE.capitalize()}: less than noise alone may give the largest of so many components. Such {number}"
        ", and the component with it, may be nothing but noise.": bool(within_noise(model).any()),
        "Most rows were probably shortened: the norm bound may be too small. The mean squared length of a row, noise "
        f"included, is above {_FULL:.0%} of the squared bound.": bound_may_be_small(model),
    }
    return [sentence for sentence, holds in said.items() if holds]


def within_noise(model: Model) -> Any:  # noqa: ANN401  # an array of truth values
    """Tell which components explain too little to be told from the noise; where nothing was asked, none is marked.

    Variances are eigenvalues of a k x k matrix. Noise alone gives the largest of them about sqrt(2k) standard
    deviations (the edge of Wigner's semicircle), which is why the limit grows with k. For one component it is three.
    """
    count = len(model.components)
    if model.explained_variance is None:
        return np.zeros(count, dtype=bool)
    limit = _NOISE_LIMIT + math.sqrt(2 * count) - math.sqrt(2)
    # Eigenvalues of a symmetric matrix may lie below zero; then their size counts.
    return np.abs(model.explained_variance) < limit * (model.explained_variance_std or 0.0)


def bound_may_be_small(model: Model) -> bool:
    """Compare the mean squared length of the shortened rows, as far as the noise lets it be known, with its bound.

    Each share is a variance over that total. It costs nothing: all of it was released.
    """
    variances, ratios, bound = model.explained_variance, model.explained_variance_ratio, model.statement.norm_bound
    if variances is None or ratios is None or ratios[0] <= 0 or within_noise(model)[0]:
        return False
    return bool(variances[0] > _FULL * bound**2 * ratios[0])


# Of both


def of_result(spec: JobSpec, model: Model) -> list[str]:
    """Say of a job's model whether there were enough rows for the budget, as far as released numbers tell.

    Noise of standard deviation s on each of r by c numbers stretches a vector by about s (sqrt(r) + sqrt(c)) (Davidson
    & Szarek 2001). If that is more than the largest variance found, the directions were chosen by noise, even where the
    variance along them, which is asked for once more and with less noise, is known well. So they were where not even
    the largest variance stands out from its own noise.
    """
    noise, found = noise_of_directions(spec, model), model.explained_variance
    if noise is None or found is None or (found[0] >= noise and not within_noise(model)[0]):
        return []
    said = (
        "There are too few rows for this budget. Noise alone moves the answers that the components were found from by "
        f"as much as a variance of {noise:.3g} would, and the largest variance found is {found[0]:.3g}: the components "
        "may be nothing but noise. Take more rows, a larger epsilon, or fewer columns."
    )
    return [said]


def noise_of_directions(spec: JobSpec, model: Model) -> float | None:
    """Say what variance noise alone would look like in the answers that components are found from, if that is known.

    The number of rows is not needed: the noise of what was explained is known over the same number of rows.
    """
    plan = catalogue.plan(spec)
    finding = next((step for step in reversed(plan) if step.question in _STRETCH), None)
    told = next((step for step in reversed(plan) if step.question is CompressedCovariance), finding)
    if finding is None or told is None or not model.explained_variance_std:
        return None
    widest = math.sqrt(2) if told.question is CovarianceTriangle else 1.0  # ``released.model_of`` says the widest
    one = model.explained_variance_std / widest * _width(finding) / _width(told)
    return one * _stretch(spec, finding) * max(1, finding.extent.blocks)  # a block has a part of the rows


def _width(step: Step) -> float:
    return step.noise_std * step.question.unit_value(1.0)


def _stretch(spec: JobSpec, step: Step) -> float:
    """Say by what noise of width one stretches a vector; of a sparse basis only its rows take part."""
    sparsity, rows = spec.options.get("sparsity"), step.extent.dimension
    if step.question is CovarianceProduct:
        taking_part = min(rows, sparsity) if isinstance(sparsity, int) else rows
        return math.sqrt(taking_part) + math.sqrt(step.extent.columns)
    return _STRETCH[step.question] * math.sqrt(rows)


_STRETCH: Final[dict[type, float]] = {
    CovarianceProduct: 1.0,
    Covariance: 1.25 * math.sqrt(2),  # both halves are averaged: width 1/sqrt(2), times 2 sqrt(d)
    CovarianceTriangle: 1.25 * 2.0,
}
"""Questions that components are found from; of whole matrices, what a variance is held against, over sqrt(d).

What is told of these are eigenvalues of the noisy matrix itself. Where noise stretches by e, the largest of them is e
without any rows, and e + e/4 where the rows' own largest is e (Benaych-Georges & Nadakuditi 2011).
"""


def with_warnings(spec: JobSpec, model: Model) -> Model:
    """Have the model's statement carry all that its reader has to be warned of; its caveat it carries already."""
    said = (*_seldom_meant(spec), *of_model(model), *of_result(spec, model))
    return replace(model, statement=replace(model.statement, warnings=said))


def issue(statement: PrivacyStatement) -> None:
    """Give each sentence once as a warning of Python's, which points to the line that called this package."""
    for sentence in ([statement.caveat] if statement.caveat else []) + list(statement.warnings):
        warnings.warn(sentence, DpspcaWarning, stacklevel=_outside())


def _outside() -> int:
    """Count the frames up to whoever called this package, from ``issue`` on."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return max(1, level)
