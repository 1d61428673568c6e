"""The last release of second moments, where the matrix of all columns was released before: of what, and at which scale.

Noise is the same in all directions of the Frobenius norm, and grows with the squared length of rows. So it is smaller
where rows are shorter, and what was released before shows where they can be:

- without the columns that take no part in the components, if all components are clear, and the others hold hardly any
  part of them;
- with the part along the clear components divided by another number than the rest. This leaves less noise between them
  and the rest, or less in the rest, where weaker components may be.

Each choice has a loss that is to be expected: how much less the components will explain because of noise
(``loss_from``). It follows from released numbers and the plan, so choosing the least costs nothing. The price of the
release is the same.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dpspca.common.algorithms.steps import (
    Columns,
    EntryNoise,
    ReleasedMatrix,
    debiased,
    first_guess,
    is_by_chance,
    leading,
    pruned,
    seen_in,
    sparse_or_dense,
    spread_over,
    with_left_out,
)
from dpspca.common.arrays import FloatArray
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import RowQuery, View
from dpspca.common.results import Decision

from .found import Found, found_in, limited, usual_in
from .scaled_release import (
    LEAST_REST,
    SHORTEST_PART,
    KnownBlock,
    Restored,
    ScaledView,
    Stretch,
    completed,
    without_noise_rows,
)
from .view_steps import SHORT, Reach, ReleasedFacts, ask_covariance, ask_reach

_RATIOS: Final = 2.0 ** np.arange(-3, 4.5, 0.5)
"""By how much more the part along components may be divided than the rest."""
_LEAST: Final = 1e-300
WORTH: Final = 0.8
"""Part of the loss without a choice, below which the choice is made: what is expected of it is rough."""
_SURE: Final = 2.0
"""Standard deviations that are added to what seems to be lost with columns that are left out."""


@dataclass(frozen=True, eq=False, slots=True)
class Aim:
    """What the last release is about: columns, and how many components are divided by how much more than the rest.

    ``loss`` is how much less of the sum of squares the components are expected to explain because of noise.
    """

    columns: Columns
    count: int = 0
    ratio: float = 1.0
    loss: float = math.inf


@dataclass(frozen=True, eq=False, slots=True)
class Spectrum:
    """What a released matrix shows of components: their strength, and the lengths of rows along each of them.

    ``strengths`` are by how much their sums of squares exceed those of other directions. If noise hides one, it counts
    as strong as a component that just shows. ``clear`` is the number of those before the first hidden one.
    """

    strengths: FloatArray
    along: FloatArray
    clear: int

    @classmethod
    def of(cls, released: ReleasedMatrix, components: int, usual: float) -> "Spectrum":
        """Read it off a matrix, or off the block of some columns; ``usual`` is the sum of squares of a usual column."""
        size = len(released.matrix)
        signals = debiased(released.leading(components)[1] - usual, released.off_std, size)
        return cls.among(signals + usual, usual, released.off_std, size)

    @classmethod
    def among(cls, along: FloatArray, usual: float, off_std: float, size: int) -> "Spectrum":
        """Make it of sums of squares along components, and in a usual direction of all ``size``, with this noise."""
        least = off_std * math.sqrt(size)
        hidden = np.flatnonzero(along - usual <= least)
        return cls(np.maximum(along - usual, least), along, int(hidden[0]) if hidden.size else len(along))


def best_scale(spectrum: Spectrum, size: int, total: float, noises: tuple[float, float], columns: Columns) -> Aim:
    """Choose how many components are divided by how much, for a release of ``size`` columns.

    ``total`` is their sum of squares, and ``noises`` are those of what was released before and of one more release of
    these columns, without scaling.
    """
    counts = range(1, spectrum.clear + 1) if size > len(spectrum.strengths) else ()
    aims = [Aim(columns), *(Aim(columns, count, ratio) for count in counts for ratio in _RATIOS.tolist())]
    losses = [loss_from(spectrum, size, noise_at(spectrum, total, noises, aim)) for aim in aims]
    best = int(np.argmin(losses))
    best = best if losses[best] < WORTH * losses[0] else 0
    return replace(aims[best], loss=losses[best])


@dataclass(frozen=True, eq=False, slots=True)
class AxisNoise:
    """The standard deviation of the noise between each component and the rest, and of that in the rest."""

    between: FloatArray
    inside: float

    def joined(self, before: float) -> "AxisNoise":
        """Return the noise of an average, by inverse variance, with a release whose noise is the same everywhere."""
        if not before:
            return AxisNoise(np.zeros_like(self.between), 0.0)
        return AxisNoise(1 / np.hypot(1 / before, 1 / self.between), 1 / math.hypot(1 / before, 1 / self.inside))


def noise_at(spectrum: Spectrum, total: float, noises: tuple[float, float], aim: Aim) -> AxisNoise:
    """Return the noise of both releases joined.

    For sums of squares A and B of the two parts and a ratio t, rows have the squared length A / t^2 + B after scaling.
    Noise in the rest grows in proportion, and between the parts it is t times that.
    """
    before, again = noises
    along = float(spectrum.along[: aim.count].sum())
    rest = max(total - along, LEAST_REST * along)
    inside = again * (along / aim.ratio**2 + rest) / (along + rest)
    between = np.where(np.arange(len(spectrum.along)) < aim.count, aim.ratio * inside, inside)
    return AxisNoise(between, inside).joined(before)


def loss_from(spectrum: Spectrum, size: int, noise: AxisNoise) -> float:
    """Return how much less the components explain because of noise.

    A component of strength l, with noise of variance b^2 / p towards each of p other directions and r^2 / p in these,
    turns by an angle whose squared tangent is b^2 / (y^2 - r^2), where y + (r^2 - b^2) / y = l. For b = r its squared
    sine is b^2 / l^2 (Benaych-Georges & Nadakuditi 2011); the general form follows from the resolvent of the rest,
    which is a semicircle's. Where y is not above r, noise hides the component.
    """
    between, inside = size * np.square(noise.between), size * noise.inside**2
    strengths = spectrum.strengths
    root = np.sqrt(np.maximum(np.square(strengths) - 4 * (inside - between), 0.0))
    clear = np.square((strengths + root) / 2) - inside
    sines = np.where(clear > 0, between / np.maximum(clear + between, _LEAST), 1.0)
    return float(strengths @ sines)


def _best_aim(facts: ReleasedFacts, whole: ReleasedMatrix, ratio: float) -> Aim:
    """Choose columns and scale for a release of ``ratio`` times the budget of what was released before."""
    count, every = facts.components, np.arange(facts.dimension)
    usual, total = usual_in(whole, count), float(np.trace(whole.matrix))
    spectrum = Spectrum.of(whole, count, usual)
    noises = whole.off_std, whole.off_std / math.sqrt(ratio)
    best = best_scale(spectrum, every.size, total, noises, every)
    if spectrum.clear < count:
        return best
    kept = pruned(whole, count, whole.diagonal, first_guess(whole.leading(count)[0]))
    if not count <= kept.size < every.size or is_by_chance(whole, kept, count):
        return best
    inside = Spectrum.of(whole.of(kept), count, usual)
    if inside.clear < count:
        return best
    part = float(whole.diagonal[kept].sum()) / total
    fewer = best_scale(inside, kept.size, part * total, (noises[0], part * noises[1]), kept)
    lost, spared = _beyond(whole, kept, inside)
    fewer = replace(fewer, loss=fewer.loss + lost)
    return fewer if fewer.loss < WORTH * (best.loss + spared) else best


def _beyond(whole: ReleasedMatrix, kept: Columns, spectrum: Spectrum) -> tuple[float, float]:
    """Return how much the components lose without the other columns, and what sampling adds to the loss with them.

    Row j of the matrix times the components is their entry j times their strength, plus noise and sampling error of
    known variance. Its squares exceed that by what is lost. A few standard deviations are added, to be sure.
    """
    others = np.setdiff1d(np.arange(len(whole.matrix)), kept)
    vectors, values = leading(whole.block(kept), len(spectrum.strengths))
    shown = np.square(whole.matrix[np.ix_(others, kept)] @ vectors)
    sampling = whole.diagonal[others][:, None] * np.maximum(values, 0.0) / whole.rows
    chance, weights = whole.off_std**2 + sampling, 1 / spectrum.strengths
    more = float(((shown - chance) @ weights).sum())
    spread = math.sqrt(2 * float((np.square(chance) @ np.square(weights)).sum()))
    return max(more, 0.0) + _SURE * spread, float((sampling @ weights).sum())


@dataclass(frozen=True, eq=False, slots=True)
class LastRelease:
    """The last release and all before it, averaged, in the columns of its aim."""

    matrix: ReleasedMatrix
    aim: Aim


def ask_last(
    facts: ReleasedFacts, whole: ReleasedMatrix, reach: Reach, ratio: float, budget_ratio: float
) -> Generator[RowQuery, Aggregate, LastRelease]:
    """Ask for the last release, and join it with what was released before.

    ``reach`` is where rows of all columns were clipped before. The release has ``ratio`` times the budget of what was
    released before, and ``budget_ratio`` times that of a histogram of norms.
    """
    every = Aim(np.arange(facts.dimension))
    can_choose = reach is not SHORT and float(np.trace(whole.matrix)) > 0
    aim = _best_aim(facts, whole, ratio) if can_choose else every
    known = whole.of(aim.columns)
    if not aim.count:
        view = _unscaled(facts, aim)
        found = yield from ask_reach(facts, view)
        again = yield from ask_covariance(facts, view, reach if known.matrix.size == whole.matrix.size else found)
        return LastRelease(known.joined(again), aim)
    spectrum = Spectrum.of(known, facts.components, usual_in(whole, facts.components))
    scaled = _scaled(facts, known, spectrum, aim)
    clip = yield from scaled.ask_clip(budget_ratio)
    part = float(np.trace(known.matrix) / np.trace(whole.matrix))
    noise = whole.off_std / math.sqrt(ratio)
    entries = scaled.back(clip)[:, -1] * noise * reach.left / reach.length**2
    second = AxisNoise(entries[: facts.components], float(entries[-1]))
    plain = AxisNoise(np.full(facts.components, part * noise), part * noise)
    losses = [loss_from(spectrum, len(known.matrix), each.joined(whole.off_std)) for each in (second, plain)]
    if losses[0] >= WORTH * losses[1]:
        shorter = replace(reach, length=reach.length * math.sqrt(part))
        again = yield from ask_covariance(facts, _unscaled(facts, aim), shorter)
        return LastRelease(known.joined(again), replace(aim, count=0))
    return LastRelease(_restored(facts, known, spectrum, scaled, (yield from scaled.ask(clip))), aim)


def _unscaled(facts: ReleasedFacts, aim: Aim) -> View:
    """Return the view of some columns, with as many axes as planned, which do nothing."""
    return replace(facts.view(aim.columns), axes=np.zeros((aim.columns.size, facts.components)))


def _scaled(facts: ReleasedFacts, known: ReleasedMatrix, spectrum: Spectrum, aim: Aim) -> ScaledView:
    """Divide the two parts such that the mean squared length of rows is 2, and not below the lattice's resolution."""
    along = float(spectrum.along[: aim.count].sum())
    rest = max(float(np.trace(known.matrix)) - along, LEAST_REST * along)
    least = facts.spec.norm_bound / 4 * SHORTEST_PART
    divisor = max(math.sqrt((along / aim.ratio**2 + rest) / 2 / facts.rows), least, least / aim.ratio)
    axes = completed(known.leading(facts.components)[0])
    return ScaledView(facts, aim.columns, axes, Stretch(aim.count, aim.ratio * divisor, divisor))


def _restored(
    facts: ReleasedFacts, known: ReleasedMatrix, spectrum: Spectrum, scaled: ScaledView, second: Restored
) -> ReleasedMatrix:
    """Join a scaled release with what was released before, entry by entry in its axes.

    The axes are eigenvectors of what was released before, so there an eigenvalue l is l + a along its axis, because of
    noise. The rows themselves have l - a there, and the second release shows where the rest is, beside the axis. It is
    calibrated with l - a, which says nothing new. So this counts as much as the entries beside it, and its noise is
    that of the first release.
    """
    axes, count, size = scaled.axes, scaled.stretch.count, len(known.matrix)
    before = axes.T @ known.matrix @ axes
    along = 2 * spectrum.along[:count] - np.diagonal(before)[:count]
    rest = max(float(np.trace(before) - along.sum()), LEAST_REST * float(along.sum()))
    first = Restored(before, np.full_like(axes, known.off_std), known.parties)
    second = second.calibrated(along, rest)
    places = np.arange(count)
    second.stds[places, places] = second.stds[places, -1]
    both = first.joined(second)
    both.stds[places, places] = known.off_std
    noise, matrix = EntryNoise(size, both.stds, axes), axes @ both.matrix @ axes.T
    inside = noise.squares(leading(matrix, facts.components)[0])[2]
    return ReleasedMatrix((matrix + matrix.T) / 2, math.sqrt(inside), known.rows, both.parties, noise)


def end_with_last(
    facts: ReleasedFacts, whole: ReleasedMatrix, reach: Reach, ratios: tuple[float, float], decided: Decision
) -> Generator[RowQuery, Aggregate, Found]:
    """Ask for the last release, and find components in it and in what was released before.

    ``ratios`` are how many times the budget of all before, and of a histogram of norms, it has.
    """
    last = yield from ask_last(facts, whole, reach, *ratios)
    columns, count = last.aim.columns, facts.components
    if columns.size == facts.dimension:
        components, _ = sparse_or_dense(last.matrix, count, facts.sparsity)
        found = found_in(last.matrix, components, decided)
    else:
        found = _on_columns(facts, whole, last, decided)
    taking_part = int(np.count_nonzero(found.components.any(axis=1)))
    decision = replace(decided, columns=taking_part, visible=found.shown, scaled=last.aim.count, last=int(columns.size))
    return replace(found, decision=decision, longest=reach.longest)


def _on_columns(facts: ReleasedFacts, whole: ReleasedMatrix, last: LastRelease, decided: Decision) -> Found:
    """Find components in the release of some columns, without those that noise explains."""
    columns, size = last.aim.columns, facts.dimension
    vectors, values = last.matrix.leading(facts.components)
    known = KnownBlock.of(columns, whole.of(columns), facts.components)
    noise = np.sqrt(last.matrix.noise_beside(vectors))
    kept = without_noise_rows(facts, known, vectors, values, noise, whole.diagonal[columns])
    kept = limited(kept, values, facts.sparsity)
    found = found_in(last.matrix, kept, decided, usual_in(whole, facts.components))
    components, stds = spread_over(size, columns, kept), spread_over(size, columns, found.loading_std)
    outside = seen_in(whole, components, found.explained).outside(columns)
    return replace(
        found,
        components=components,
        loading_std=with_left_out(stds, outside),
        total=float(max(whole.diagonal.sum(), found.explained.sum())),
    )
