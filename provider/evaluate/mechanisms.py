"""Private mechanisms that answer with a subspace: eigenvectors with noise, and draws from the exponential mechanism.

S is the provider's own X^T X, exact in integers, in units of C^2: the sum of x x^T over rows with ||x|| <= 1. Each
mechanism keeps the promise of its event, for the unit of its query. In real arithmetic with ideal random numbers, the
theorem at its function proves this for an epsilon that is smaller by ``dither.ROUNDING_SHARE``. As computed, it holds
because integer noise hides every rounding error before anything leaves (``dpspca.common.privacy.dither``). Trusted:
this process, its source of random words, and the error bounds of its linear-algebra library. The answer is the
projection on the leading eigenvectors of that noisy square, rounded to the public lattice. This is post-processing.
"""

import math
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidQueryError
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy import (
    ROUNDING_SHARE,
    ROW_BITS,
    ApproximateEvent,
    Constants,
    Event,
    PureEvent,
    WordSource,
    cauchys,
    mechanism_event,
    noisy_projection,
    normals,
    random_frame,
    random_orthogonal,
    smooth,
    student_vector,
)
from dpspca.common.queries import PROJECTION_BITS, DrawnSubspace, PerturbedSubspace, SubspaceQuery, WalkedSubspace

from .bingham import draw_axis
from .one_thread import one_thread

ROUNDING: Final = 1 - ROUNDING_SHARE
"""The share of epsilon that is used. Eigenvalues are off by up to 2^-15 (``privacy.smooth``), so an exponent may be too
large by about 1e-4 of it. The rest of epsilon pays for this and for all other rounding (``privacy.dither``)."""
BURN_IN: Final = 50
"""Sweeps over all axes before a Markov chain's state counts as a draw. It is not proven that this is enough."""


def release_subspace(
    query: SubspaceQuery, event: Event | None, gram: FloatArray, rows: int, words: WordSource
) -> Integers:
    """Answer a query about leading eigenvectors, given X^T X and the number of rows, at the price of the event.

    The linear-algebra library uses one thread, so that equal words give equal bits on machines with any number.
    """
    square = gram * 2.0 ** (-2 * ROW_BITS)
    if not isinstance(event, ApproximateEvent | PureEvent):
        raise InvalidQueryError(f"No mechanism answers '{query.kind}' at such a price.", "Report this as a bug.")
    with one_thread:
        noisy = noisy_projection(_subspace(query, event, square, words), event.epsilon, words)
        basis = np.linalg.eigh(noisy.astype(np.float64))[1][:, -query.columns :]
        projection: Integers = np.rint(basis @ basis.T * 2.0**PROJECTION_BITS).astype(np.int64)
    return projection * rows if query.weighted else projection


def _subspace(
    query: SubspaceQuery, event: ApproximateEvent | PureEvent, square: FloatArray, words: WordSource
) -> FloatArray:
    """Draw a frame whose columns span the subspace. They need not be orthonormal."""
    match query, event:
        case PerturbedSubspace(), ApproximateEvent() | PureEvent():
            return perturb_frame(query, event, square, words)
        case DrawnSubspace(), PureEvent(epsilon=epsilon):
            return draw_frame(exponent(query, epsilon) * square, query.columns, words)
        case WalkedSubspace(), PureEvent(epsilon=epsilon):
            return walk_frame(exponent(query, epsilon) * square, query.columns, words)
        case _:
            raise InvalidQueryError(
                f"No mechanism answers '{query.kind}' with the event {type(event).__name__}.", "Report this as a bug."
            )


# --- Output perturbation ----------------------------------------------------------------------------------------------


def perturb_frame(
    query: PerturbedSubspace, event: ApproximateEvent | PureEvent, square: FloatArray, words: WordSource
) -> FloatArray:
    """Rotate the leading eigenvectors at random, and add noise whose scale is a smooth bound on their sensitivity.

    (epsilon, delta)- or epsilon-private, by ``privacy.smooth``. A rotated frame is as likely as any other rotation of
    it, so neighbours' rotated frames can be paired such that each pair is no further apart than the nearest frames of
    the two spaces. Noise with the same law in every direction would not need the rotation, but Cauchy noise does. The
    L1 distance of frames with D entries is at most sqrt(D) times their L2 distance.
    """
    dimension, columns = query.dimension, query.columns
    entries = dimension * columns
    angles = min(columns, dimension - columns)
    values, vectors = np.linalg.eigh(square)
    gap = float(values[-columns] - values[-columns - 1]) if angles else 0.0
    constants = _constants(query, event, entries)
    scale = smooth.smooth_bound(gap, query.step, angles, constants.beta) / constants.alpha
    turned = vectors[:, -columns:] @ random_orthogonal(columns, words)
    noise = scale * _noise(query, event, entries, words)
    return turned + noise.reshape(dimension, columns)


def _constants(query: PerturbedSubspace, event: ApproximateEvent | PureEvent, entries: int) -> Constants:
    """Return the constants for the part of the event that rounding leaves. A paper's own are for the whole event.

    The published ones still need no more than that part: the plan has checked the Gaussian ones for
    ``dither.mechanism_event``, and the Cauchy ones cost a third of epsilon.
    """
    if isinstance(event, ApproximateEvent):
        left = mechanism_event(event)
        if query.published:
            return smooth.published_gaussian_constants(entries, event.epsilon, event.delta)
        return smooth.gaussian_constants(entries, left.epsilon, left.delta)
    if not query.published:
        return smooth.student_constants(entries, event.epsilon * ROUNDING)
    found = smooth.published_cauchy_constants(entries, event.epsilon)
    return Constants(found.alpha / math.sqrt(entries), found.beta)  # an L1 sensitivity is sqrt(D) times the L2 one


def _noise(
    query: PerturbedSubspace, event: ApproximateEvent | PureEvent, entries: int, words: WordSource
) -> FloatArray:
    if isinstance(event, ApproximateEvent):
        return normals(entries, words)
    return cauchys(entries, words) if query.published else student_vector(entries, words)


# --- The exponential mechanism ----------------------------------------------------------------------------------------


def exponent(query: SubspaceQuery, epsilon: float) -> float:
    """Return the largest c for which a frame V with density proportional to exp(c tr(V^T S V)) is epsilon-private.

    Adding a row x multiplies the unnormalised density at V by exp(c ||V^T x||^2), which lies in [1, e^c]. The
    normalising constant is multiplied by a mean of this, which also lies in [1, e^c]. So the density changes by a
    factor in [e^-c, e^c], and c = epsilon: the score can only rise with a row. Replacing x by y multiplies both the
    density and the constant by factors exp(c (||V^T x||^2 - ||V^T y||^2)) in [e^-c, e^c], so 2c = epsilon. This cannot
    be improved for all S: if the density is concentrated where V contains y, the constant is near e^-c, and frames that
    contain x but not y become more likely by e^2c.

    The same holds for V within any fixed subspace, because rows are not longer there.
    """
    return epsilon / query.step * ROUNDING


def draw_frame(weight: FloatArray, columns: int, words: WordSource) -> FloatArray:
    """Draw one axis after another, each by the exponential mechanism in the complement of the earlier axes.

    ``weight`` is c S, where c is the exponent for the whole epsilon. Each draw is exact, uses an equal share of c, and
    so costs an equal share of epsilon. A draw may depend on the earlier ones, so they compose adaptively to epsilon in
    all. The last axis of a space is determined, and needs no draw.
    """
    dimension = len(weight)
    if columns == dimension:
        return np.eye(dimension)
    basis, left = np.eye(dimension), weight / columns
    for place in range(columns):
        mirror = _mirror(draw_axis(left[place:, place:], words))
        basis[:, place:] = basis[:, place:] @ mirror
        left[place:, place:] = mirror @ left[place:, place:] @ mirror
    return thin_qr(basis[:, :columns])[0]


def _mirror(axis: FloatArray) -> FloatArray:
    """Return a reflection whose first column is the axis or its opposite. The others span its complement."""
    away = axis.copy()
    away[0] += math.copysign(1.0, axis[0])  # never close to zero
    reflection: FloatArray = np.eye(len(axis)) - np.outer(away, away) * (2 / (away @ away))
    return reflection


def walk_frame(weight: FloatArray, columns: int, words: WordSource) -> FloatArray:
    """Run a Markov chain over frames for ``BURN_IN`` sweeps from a random start, and return its state.

    Hoff (2009), as Chaudhuri, Sarwate & Sinha (2012) use it: given all other axes, an axis has a Bingham distribution
    in their complement. That conditional draw is exact here, whereas theirs is a Markov chain itself. So a single axis
    is exact, too. With more axes, the chain's law CONVERGES to density exp(tr(V^T weight V)), and the price is proved
    for that limit alone. There is no guarantee for the law after any number of sweeps, nor for the time.
    """
    state = random_frame(len(weight), columns, words)
    for _ in range(BURN_IN if columns > 1 else 1):
        for place in range(columns):
            others = np.delete(state, place, axis=1)
            beside = np.linalg.qr(others, mode="complete")[0][:, columns - 1 :] if columns > 1 else np.eye(len(weight))
            state[:, place] = beside @ draw_axis(beside.T @ weight @ beside, words, hurry=columns > 1)
    return thin_qr(state)[0]
