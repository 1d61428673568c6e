"""Private mechanisms that answer with a subspace: eigenvectors with noise, and draws from the exponential mechanism.

S is the provider's own X^T X, exact in integers, in units of C^2: the sum of x x^T over rows with ||x|| <= 1. Each
mechanism keeps what its event says, for the unit of its query: in real arithmetic and with ideal random numbers by
the theorem at its function, for an epsilon that is smaller by ``dither.ROUNDING_SHARE``; and as computed, because
integer noise hides every rounding error before anything leaves (``dpspca.common.privacy.dither``). Trusted: this
process, its source of random words, and the error bounds of its linear-algebra library. What is released is the
projection on the leading eigenvectors of that noisy square, rounded to the public lattice: post-processing.
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
"""What is used of epsilon. Eigenvalues are off by up to 2^-15 (``privacy.smooth``), so an exponent may be larger than
it should by a part of about 1e-4; that, and all other rounding, is paid for by the rest (``privacy.dither``)."""
BURN_IN: Final = 50
"""Sweeps over all axes before a Markov chain's state is taken for a draw; nobody has shown that it is enough."""


def release_subspace(
    query: SubspaceQuery, event: Event | None, gram: Integers, rows: int, words: WordSource
) -> Integers:
    """Answer a query about leading eigenvectors, given X^T X and the number of rows, at the price of the event.

    On one thread of the linear-algebra library, so that equal words give equal bits however many there are.
    """
    square = gram.astype(np.float64) * 2.0 ** (-2 * ROW_BITS)
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
    """Draw a frame whose columns span the subspace; they need not be orthonormal."""
    match query, event:
        case PerturbedSubspace(), ApproximateEvent() | PureEvent():
            return perturbed(query, event, square, words)
        case DrawnSubspace(), PureEvent(epsilon=epsilon):
            return drawn(exponent(query, epsilon) * square, query.columns, words)
        case WalkedSubspace(), PureEvent(epsilon=epsilon):
            return walked(exponent(query, epsilon) * square, query.columns, words)
        case _:
            raise InvalidQueryError(f"No mechanism answers '{query.kind}' at such a price.", "Report this as a bug.")


# --- Output perturbation ----------------------------------------------------------------------------------------------


def perturbed(
    query: PerturbedSubspace, event: ApproximateEvent | PureEvent, square: FloatArray, words: WordSource
) -> FloatArray:
    """Turn the leading eigenvectors at random, and add noise that follows a smooth bound.

    (epsilon, delta)- or epsilon-private, by ``privacy.smooth``: neighbours' turned frames can be paired so that each
    pair is no further apart than the nearest frames of the two spaces, for a turned frame is as likely as any other
    turn of it. Noise of the same law in every direction would do without the turn; Cauchy noise needs it. In L1 a
    frame of D entries is at most sqrt(D) further away than in L2.
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
    """Give the constants for what rounding leaves of the event; a paper's own are for all of it, and keep to less.

    The plan has checked the published Gaussian ones for ``dither.mechanism_event``; the Cauchy ones cost a third of
    epsilon.
    """
    if isinstance(event, ApproximateEvent):
        left = mechanism_event(event)
        if query.published:
            return smooth.published_gaussian_constants(entries, event.epsilon, event.delta)
        return smooth.gaussian_constants(entries, left.epsilon, left.delta)
    if not query.published:
        return smooth.student_constants(entries, event.epsilon * ROUNDING)
    found = smooth.published_cauchy_constants(entries, event.epsilon)
    return Constants(found.alpha / math.sqrt(entries), found.beta)  # a sensitivity in L1 is sqrt(D) times that in L2


def _noise(
    query: PerturbedSubspace, event: ApproximateEvent | PureEvent, entries: int, words: WordSource
) -> FloatArray:
    if isinstance(event, ApproximateEvent):
        return normals(entries, words)
    return cauchys(entries, words) if query.published else student_vector(entries, words)


# --- The exponential mechanism ----------------------------------------------------------------------------------------


def exponent(query: SubspaceQuery, epsilon: float) -> float:
    """Give the largest c for which a frame V of density proportional to exp(c tr(V^T S V)) is epsilon-private.

    Adding a row x multiplies the unnormalised density at V by exp(c ||V^T x||^2), which lies in [1, e^c], and so the
    constant that normalises it by a mean of that, in [1, e^c] as well: the density itself changes by a factor in
    [e^-c, e^c]. So c = epsilon, for the score rises with every row. Replacing x by y multiplies by
    exp(c (||V^T x||^2 - ||V^T y||^2)) in [e^-c, e^c], constant and density both, so that 2c = epsilon: here nothing
    better is true of all S, as a density that is concentrated where V contains y has a constant near e^-c, and V that
    contain x and not y are then more likely by e^2c.

    The same holds for V within any fixed subspace, in which rows are not longer than they were.
    """
    return epsilon / query.step * ROUNDING


def drawn(weight: FloatArray, columns: int, words: WordSource) -> FloatArray:
    """Draw axis after axis, each by the exponential mechanism within what the axes before it leave of the space.

    ``weight`` is c S, c being the exponent for all of epsilon. Each draw takes an equal share of it, exactly sampled,
    and so costs an equal share of epsilon; a draw that knows the ones before it composes with them, to epsilon in all.
    The last axis of a space is certain, and no draw.
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
    """Make the reflection of which the first column is the axis, or its opposite; the others span what is left."""
    away = axis.copy()
    away[0] += math.copysign(1.0, axis[0])  # never close to zero
    reflection: FloatArray = np.eye(len(axis)) - np.outer(away, away) * (2 / (away @ away))
    return reflection


def walked(weight: FloatArray, columns: int, words: WordSource) -> FloatArray:
    """Let a Markov chain over frames go ``BURN_IN`` sweeps from a random start, and take where it is.

    Hoff (2009), as Chaudhuri, Sarwate & Sinha (2012) use it: given all other axes, an axis has a Bingham distribution
    in what they leave of the space. That conditional draw is exact here, where theirs is a chain of its own; so a
    single axis is exact as well. Of more axes the chain's law TENDS to density exp(tr(V^T weight V)), of which alone
    the price is true: there is no guarantee for the law after any number of sweeps, nor for the time.
    """
    state = random_frame(len(weight), columns, words)
    for _ in range(BURN_IN if columns > 1 else 1):
        for place in range(columns):
            others = np.delete(state, place, axis=1)
            beside = np.linalg.qr(others, mode="complete")[0][:, columns - 1 :] if columns > 1 else np.eye(len(weight))
            state[:, place] = beside @ draw_axis(beside.T @ weight @ beside, words, hurry=columns > 1)
    return thin_qr(state)[0]
