"""DPS-PCA: the truncated noisy power loop of Ge, Wang, Wang & Liu (AISTATS 2018), Algorithm 1.

Each round sends the basis Q, receives K = A Q + noise, and keeps V = thin QR of K, cut to its ``sparsity`` rows of
largest norm and made orthonormal again.

Where it departs from the paper (``start="published"`` with published accounting is the paper's own):

- The start is dense and is first cut after the first product. A random start cut to ``sparsity`` rows usually misses
  the support, and a power loop never finds a row of the support from a basis that is zero there.
- Noise is calibrated by exact Gaussian accounting with the sharp sensitivity of A Q, not by T-fold basic composition.
- Every provider draws noise of its own; the paper's listing draws one matrix outside the loop over providers.
- The number of rounds follows from the budget unless it is given.
- One more answer at the end, V^T A V and the rest of the trace, turns the basis to the principal axes and says what
  they explain.
"""

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError
from dpspca.common.linalg import largest_rows, thin_qr
from dpspca.common.model import Model, fix_signs
from dpspca.common.plan import Intent, Step, price
from dpspca.common.privacy.accountant import usable_mu
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, Algorithm
from dpspca.common.queries import ColumnSums, CompressedCovariance, Count, CovarianceProduct
from dpspca.common.question import Extent, RowQuery, RowSparse
from dpspca.common.spec import Centering, JobSpec, Scalar, check, check_whole, choice
from dpspca.common.statement import PrivacyStatement

COUNT_SHARE: Final = 0.01
MEAN_SHARE: Final = 0.10
VARIANCE_SHARE: Final = 0.05


class PartiesChangedError(DpspcaError):
    """Two answers that belong together are not of the same providers."""

    code = "parties-changed"


class Start(StrEnum):
    """The basis that the first round multiplies."""

    DENSE = "dense"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Options:
    """What only this algorithm knows. ``rounds=None`` lets the budget decide."""

    sparsity: int
    rounds: int | None = None
    start: Start = Start.DENSE

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given: Mapping[str, Scalar] = spec.options
        unknown = sorted(set(given) - {field.name for field in fields(cls)})
        check(not unknown, f"dps-pca has no options {', '.join(unknown)}.", "It has: sparsity, rounds, start.")
        check(
            "sparsity" in given, "sparsity is not set.", "Say how many features may take part, all components together."
        )
        sparsity, rounds = given["sparsity"], given.get("rounds")
        name = "sparsity (which cannot be below the number of components)"
        kept = min(check_whole(name, sparsity, least=spec.components, most=2**31), spec.schema.dimension)
        if rounds is not None:
            rounds = check_whole("the number of rounds", rounds, least=1, most=1000)
        start = choice(Start, "the start", given.get("start", Start.DENSE))
        return cls(kept, rounds, start)


def plan(spec: JobSpec) -> tuple[Step, ...]:
    """List every question this job will ask, its noise and its price."""
    options = Options.of(spec)
    shares = _shares(spec)
    return price(
        spec,
        [
            *_opening(spec, shares),
            *_rounds(spec, options, shares),
            *_closing(spec, options, shares),
        ],
    )


def run(spec: JobSpec) -> Algorithm:
    """Ask for the mean if it is wanted, turn the power loop, ask what was explained."""
    options = Options.of(spec)
    rows = (yield Count()) if _needs_count(spec) else None
    center = yield from _center(spec, rows)
    basis = _start(spec, options)
    parties = 1
    for _ in range(rounds_of(spec)):
        product = yield CovarianceProduct(basis, center)
        parties = product.parties
        basis = _orthonormal(product.values, options.sparsity)
    statement = PrivacyStatement.of(spec, plan(spec), parties=parties)
    if not spec.explained_variance:
        return Model(fix_signs(basis.dense().T), statement, mean=center, feature_names=spec.schema.names)
    compressed = yield CompressedCovariance(basis, center)
    plain = Model(basis.dense().T, statement, mean=center, feature_names=spec.schema.names)
    return _explained(plain, compressed, rows)


def rounds_of(spec: JobSpec) -> int:
    """Choose the number of rounds from the budget alone, never from the data.

    A further round shrinks what the start left behind, by the ratio of the eigenvalues, and divides the budget by one
    more. ``bench/rounds.py`` shows the trade: at small budgets five rounds are near the best, larger ones afford
    more. Data whose leading eigenvalues hardly stand out need more rounds than this; then set them.
    """
    given = Options.of(spec).rounds
    if given is not None:
        return given
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta)
    return round(min(40, max(5, 7 * math.sqrt(mu))))


def _shares(spec: JobSpec) -> dict[str, float]:
    """Divide mu squared; what is not asked for is left to the rounds."""
    count = _needs_count(spec) and spec.unit == PrivacyUnit.ROW_ADD_REMOVE
    shares = {
        "count": COUNT_SHARE if count else 0.0,
        "mean": MEAN_SHARE if spec.centering is Centering.PRIVATE else 0.0,
        "explained variance": VARIANCE_SHARE if spec.explained_variance else 0.0,
    }
    return shares | {"rounds": 1 - sum(shares.values())}


def _needs_count(spec: JobSpec) -> bool:
    return spec.explained_variance or spec.centering is Centering.PRIVATE


def _opening(spec: JobSpec, shares: dict[str, float]) -> list[Intent]:
    intents = []
    if _needs_count(spec):
        intents.append(Intent("count", Count, Extent(0), shares["count"]))
    if spec.centering is Centering.PRIVATE:
        intents.append(Intent("mean", ColumnSums, Extent(spec.schema.dimension), shares["mean"]))
    return intents


def _rounds(spec: JobSpec, options: Options, shares: dict[str, float]) -> list[Intent]:
    rounds = rounds_of(spec)
    first = spec.schema.dimension if options.start is Start.DENSE else options.sparsity
    return [
        Intent(
            f"round {number} of {rounds}",
            CovarianceProduct,
            Extent(spec.schema.dimension, spec.components, first if number == 1 else options.sparsity),
            shares["rounds"],
            rounds,
        )
        for number in range(1, rounds + 1)
    ]


def _closing(spec: JobSpec, options: Options, shares: dict[str, float]) -> list[Intent]:
    extent = Extent(spec.schema.dimension, spec.components, options.sparsity)
    name = "explained variance"
    return [Intent(name, CompressedCovariance, extent, shares[name])] if spec.explained_variance else []


def _center(spec: JobSpec, rows: Aggregate | None) -> Generator[RowQuery, Aggregate, FloatArray | None]:
    if spec.centering is Centering.PUBLIC:
        return np.array(spec.public_mean)
    if spec.centering is Centering.NONE or rows is None:
        return None
    sums = yield ColumnSums(spec.schema.dimension)
    if sums.parties != rows.parties:
        raise PartiesChangedError(
            "A provider left between the count of the rows and their sums, so their mean is not known.",
            "Submit a new job.",
        )
    return sums.values / _at_least_one(rows)


def _start(spec: JobSpec, options: Options) -> RowSparse:
    """Draw the start from the spec's seed: public, and the same for whoever replays the job."""
    generator = np.random.Generator(np.random.Philox(key=spec.seed))
    dense = generator.standard_normal((spec.schema.dimension, spec.components))
    if options.start is Start.DENSE:
        return RowSparse.of(thin_qr(dense)[0])
    return _truncated(dense, options.sparsity)


def _orthonormal(product: FloatArray, sparsity: int) -> RowSparse:
    """Take one step of the power loop: orthonormalise, then keep the largest rows of the result."""
    direction, _ = thin_qr(product)
    return RowSparse.of(direction) if sparsity >= len(direction) else _truncated(direction, sparsity)


def _truncated(matrix: FloatArray, sparsity: int) -> RowSparse:
    """Orthonormalise what is left of a matrix when only its largest rows are kept.

    The factorisation sees the kept rows alone, so that rounding cannot make the others other than zero.
    """
    kept = largest_rows(matrix, sparsity)
    return RowSparse(len(matrix), kept, thin_qr(matrix[kept])[0]).without_zeros()


def _explained(model: Model, compressed: Aggregate, rows: Aggregate | None) -> Model:
    """Turn the basis to the axes of V^T A V. All of it is computed from what was already released.

    What the axes explain is left out where a provider left after the rows were counted: a sum over fewer rows than
    the count says would look like a smaller variance.
    """
    columns = len(model.components)
    square = compressed.values[:-1].reshape(columns, columns)
    values, axes = np.linalg.eigh((square + square.T) / 2)
    order = np.argsort(values)[::-1]
    model = replace(model, components=fix_signs(axes[:, order].T @ model.components))
    if rows is None or rows.parties != compressed.parties:
        return model
    count = _at_least_one(rows)
    explained = np.maximum(values[order], 0.0)
    # Where noise swamps the rest of the trace, the parts must still not exceed the whole.
    total = max(explained.sum(), values.sum() + compressed.values[-1])
    return replace(
        model,
        explained_variance=explained / count,
        explained_variance_ratio=explained / total if total > 0 else explained,
        explained_variance_std=compressed.noise_std / count,
    )


def _at_least_one(rows: Aggregate | None) -> float:
    """Divide by a count that noise may have driven to nothing."""
    return max(float(rows.values[0]), 1.0) if rows else 1.0
