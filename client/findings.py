"""Warnings about a job or its result. They are computed from the job and its model alone, so they cost no privacy.

This module is the only place with their wording. The command line prints them, the privacy statement and its JSON
contain them (``with_warnings``), and Python code gets each sentence once as a ``DpspcaWarning`` (``issue``).
"""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from dpspca.common.job import PRIVATE_BOUND, Centering, JobSpec, reason_in_words, rows_used
from dpspca.common.plan import Plan, Step
from dpspca.common.queries import CompressedCovariance, Covariance, CovarianceProduct, CovarianceTriangle
from dpspca.common.results import LARGE_DELTA, Model, PrivacyStatement, ReleasePath
from dpspca.common.warn import warn

from .decisions import HIDDEN, NONE_CLEAR, decision_of, not_seen, weights_of

WITHIN_NOISE: Final = "within the noise"
UNCENTRED: Final = (
    "The rows are not centred. Unless every column is around zero, component 1 shows the mean of the columns, and not "
    "how rows differ. Use a dictionary with public centres, or set centering."
)
PAIRED: Final = (
    "Differences of pairs of rows are used instead of the rows, so no mean is needed. There are half as many of them, "
    "and offsets between providers cancel. Scores of rows are not centred."
)

_FULL: Final = 0.9
"""Most rows were probably clipped if their mean squared length is above this share of the squared norm bound."""

_KEPT: Final = 0.9
"""The part of a component's variance below which clipping took much of it."""

_CLEARLY: Final = 4.0
"""Standard deviations of their noise by which two variances have to differ for that. Ten components differ by so much
by chance once in 3,000 models."""

_LOOSE: Final = 1000
"""Times the length of the rows from which a norm bound costs precision: they are rounded to a 131072th of it."""


# Warnings about a job, before its price is spent


def of_job(plan: Plan) -> list[str]:
    """List automatic choices, the rows used of a person, rarely intended settings, and conditions of the price."""
    used = rows_used(plan.spec.unit, plan.spec.rows_per_person)
    spec = plan.spec
    return [*_chosen(spec), *[used] * bool(used), *_uncentred(spec), *_rarely_intended(spec), *plan.caveats]


def _chosen(spec: JobSpec) -> list[str]:
    """Say how rows are centred and why, if that was chosen automatically."""
    words = reason_in_words(spec.centering, spec.centering_reason, spec.unit)
    return [f"Centring, chosen from public facts: {words}."] if words else []


def _rarely_intended(spec: JobSpec) -> list[str]:
    delta, columns = spec.budget.delta, spec.schema.dimension
    no_limit = f"A sparsity of {columns} limits nothing: all {columns} columns may be in the support."
    large = (
        f"A delta of {delta:g} is large: with that probability the promise may not hold at all. Keep it far below "
        "1 / (number of rows)."
    )
    applies = {
        no_limit: spec.options.get("sparsity") == columns and spec.options.get("loop") != "improved",
        large: delta > LARGE_DELTA,
        PAIRED: spec.centering is Centering.PAIRS,
    }
    return [sentence for sentence, holds in applies.items() if holds]


# Warnings about a model


def _uncentred(spec: JobSpec) -> list[str]:
    """Return a warning if rows were neither prepared around public centres nor centred."""
    is_raw = spec.unit.is_row and spec.centering is Centering.NONE and spec.dictionary is None
    return [UNCENTRED] if is_raw else []


def of_model(model: Model) -> list[str]:
    """Return warnings for a reader who relies on the numbers of a model."""
    number = "a variance" if model.statement.unit.is_row else "an eigenvalue"
    itself = "The component itself was found from answers with less noise."
    too, more = ("", f" {itself}") if _asked_apart(model) and not _maybe_noise(model) else (" and its component", "")
    applies = {
        f"{WITHIN_NOISE.capitalize()}: with this many components, noise alone can be as large. Such {number}{too} may "
        f"be nothing but noise.{more}": bool(model.within_noise.any()),
        "Most rows were probably clipped: the norm bound may be too small. The mean squared length of a row, noise "
        f"included, is above {_FULL:.0%} of the squared norm bound.": bound_may_be_small(model),
        f"The norm bound is probably more than {_LOOSE} times as long as the rows. Rows are rounded to multiples of a "
        "small part of it, so short rows lose precision. Give a smaller bound from public knowledge, or let auto find "
        'one (norm_bound = "private").': bound_is_loose(model),
        HIDDEN: model.decision is not None and model.decision.hidden,
        _maybe_noise(model): True,
        _mean_noise(model): True,
        _much_clipped(model): True,
    }
    return [sentence for sentence, holds in applies.items() if holds and sentence]


def _much_clipped(model: Model) -> str:
    """Return a sentence if clipping took a clear part of the variance of rows from which components were found."""
    decided, explained, std = model.decision, model.explained_variance, model.explained_variance_std
    has_intervals = model.loading_std is not None
    if decided is None or not decided.values or explained is None or not std or not has_intervals:
        return ""
    kept = np.array(decided.values[: len(explained)])
    noise = math.hypot(std, decided.noise_std or 0.0)
    lost = (explained - kept > _CLEARLY * noise) & (kept < _KEPT * explained)
    if not lost.any():
        return ""
    worst = int(np.argmax(np.where(lost, explained - kept, -np.inf)))
    return (
        f"Component {worst + 1} explains {explained[worst]:.3g}, but only {kept[worst]:.3g} of the clipped rows from "
        "which components were found. Confidence intervals of loadings are about the clipped rows, and so may not hold "
        "for whole ones."
    )


def _mean_noise(model: Model) -> str:
    """Return a sentence if a component may show nothing but the noise of the mean that was subtracted."""
    decided = model.decision
    if decided is None or not decided.values or decided.mean_noise is None or min(decided.values) > decided.mean_noise:
        return ""
    return (
        "The mean that was subtracted has noise of its own, which looks like a variance of "
        f"{decided.mean_noise:.3g} in one direction. A component of no more variance may show nothing but this. Use "
        "more rows, a larger epsilon, or differences of pairs (centering = pairs)."
    )


def _maybe_noise(model: Model) -> str:
    """Return a sentence if some components did not stand out in the last release that could show them."""
    decided = model.decision
    if decided is None:
        return ""
    if decided.path in {ReleasePath.SPARSE, ReleasePath.WIDE}:  # their last release is about fewer columns
        return NONE_CLEAR if decided.clear == 0 else ""
    return not_seen(decided, len(model.components))


def _asked_apart(model: Model) -> bool:
    return model.decision is not None and model.decision.asked_apart(model.explained_variance_std)


def bound_may_be_small(model: Model) -> bool:
    """Whether the mean squared length of the clipped rows, estimated from releases, nearly reaches its bound.

    Each explained variance ratio is a variance divided by that mean, so the mean follows from released numbers and
    costs nothing. Where noise drowns even the first variance, the answer is False.
    """
    variances, ratios, bound = model.explained_variance, model.explained_variance_ratio, model.statement.norm_bound
    if variances is None or ratios is None or ratios[0] <= 0 or model.within_noise[0]:
        return False
    return bool(variances[0] > _FULL * bound**2 * ratios[0])


def bound_is_loose(model: Model) -> bool:
    """Whether the mean squared length of the rows, estimated from releases, is far below the squared norm bound."""
    variances, ratios, bound = model.explained_variance, model.explained_variance_ratio, model.statement.norm_bound
    if not model.statement.unit.is_row or variances is None or ratios is None or bound == PRIVATE_BOUND:
        return False
    return bool(0 < variances[0] <= (bound / _LOOSE) ** 2 * ratios[0])


# Warnings that need both


def of_result(plan: Plan, model: Model) -> list[str]:
    """Return a warning if the released numbers show that there were too few rows for the budget.

    Noise of standard deviation s on each entry of an r x c matrix stretches a vector by about s (sqrt(r) + sqrt(c))
    (Davidson & Szarek 2001). If that exceeds the largest variance found, noise chose the directions. This holds even
    where the variance along them is known well, because that comes from a separate query with less noise. Noise also
    chose them if not even the largest variance stands out from its own noise.
    """
    noise, found = noise_of_directions(plan, model), _largest(model)
    if noise is None or found is None or (found >= noise and (_asked_apart(model) or not model.within_noise[0])):
        return []
    warning = (
        "There are too few rows for this budget. In the answers from which the components were computed, noise alone "
        f"looks like a variance of {noise:.3g}, and the largest variance found is {found:.3g}. So the components "
        "may be nothing but noise. Use more rows, a larger epsilon, or fewer columns."
    )
    return [warning]


def _largest(model: Model) -> float | None:
    """Return the largest variance where components were found; None if it is not known."""
    if model.decision is not None and model.decision.values:
        return max(model.decision.values)
    return None if model.explained_variance is None else float(model.explained_variance[0])


def noise_of_directions(plan: Plan, model: Model) -> float | None:
    """Return the variance that noise alone looks like in the answers that components are found from; None if unknown.

    The number of rows is not needed, because the noise of the explained variance is known for the same number of rows.
    """
    if columns := model.columns_read_off:
        # The noise of a variance is sqrt(2) that of an entry off the diagonal, as everywhere in a released matrix.
        decided = model.decision.noise_std if model.decision else None
        std = (model.explained_variance_std or 0.0) if decided is None else decided
        return _STRETCH[Covariance] * std * math.sqrt(columns) or None
    finding = next((step for step in reversed(plan) if step.query in _STRETCH), None)
    explaining = next((step for step in reversed(plan) if step.query is CompressedCovariance), finding)
    if finding is None or explaining is None or not model.explained_variance_std:
        return None
    widest = math.sqrt(2) if explaining.query is CovarianceTriangle else 1.0  # ``released.model_of`` states the widest
    one = model.explained_variance_std / widest * _noise_std(finding) / _noise_std(explaining)
    return (
        one * _stretch(plan.spec, finding, model) * max(1, finding.extent.blocks)
    )  # a block holds only a part of the rows


def _noise_std(step: Step) -> float:
    return step.noise_std * step.query.unit_value(1.0)


def _stretch(spec: JobSpec, step: Step, model: Model) -> float:
    """Return by how much noise of standard deviation 1 stretches a vector. A sparse basis counts by its sparsity."""
    sparsity = spec.options.get("sparsity")
    if step.query is CovarianceProduct:
        about = step.extent.nonzero_rows
        nonzero_rows = min(about, sparsity) if isinstance(sparsity, int) else about
        return math.sqrt(nonzero_rows) + math.sqrt(step.extent.columns)
    columns = step.extent.dimension if sparsity is None else len(model.support)
    return _STRETCH[step.query] * math.sqrt(columns)


_STRETCH: Final[dict[type, float]] = {
    CovarianceProduct: 1.0,
    Covariance: 1.25 * math.sqrt(2),  # both halves are averaged: standard deviation 1/sqrt(2), times 2 sqrt(d)
    CovarianceTriangle: 1.25 * 2.0,
}
"""Queries that components are found from. For a whole matrix: the limit that a variance is compared with, over sqrt(d).

The variances of a whole matrix are eigenvalues of the noisy matrix itself. If the noise has a largest eigenvalue of e,
the noisy matrix has e without any rows, and e + e/4 where the rows' own largest is e (Benaych-Georges & Nadakuditi
2011).
"""


def with_warnings(plan: Plan, model: Model) -> Model:
    """Return the model with all warnings in its privacy statement, which contains the caveat already."""
    all_warnings = (*_rarely_intended(plan.spec), *_uncentred(plan.spec), *of_model(model), *of_result(plan, model))
    decided = decision_of(model, all_warnings)
    statement = replace(model.statement, warnings=all_warnings, decision=decided, weights=weights_of(model))
    return replace(model, statement=statement)


def issue(statement: PrivacyStatement) -> None:
    """Issue the caveat and each warning as a ``DpspcaWarning`` that points to the line that called this package."""
    for sentence in ([statement.caveat] if statement.caveat else []) + list(statement.warnings):
        warn(sentence)
