"""Private power iteration with deflation, over rows or a symmetric matrix (Hardt & Roth, STOC 2013).

The paper is "Beyond worst-case analysis in private singular vector computation"; the algorithms are its Figures 2 and
3. Components are found one after the other: start from a random unit vector x, and repeat x <- A x + G, normalised, T
times. One more product gives sigma = x^T (A x + G), and sigma x x^T is subtracted from A (deflation). What is
subtracted is public: the coordinator subtracts it from later products, and providers do not take part. B = sum sigma_i
v_i v_i^T approximates A with rank k.

Privacy. Every product is a release with its share of the budget. For the unit ``entry``, the noise follows the entries
of x, which are public (``SymmetricProduct``). So lower coherence means less noise at the same price, and no job can
fail: exact accounting needs neither a bound C nor a search for one.

Departures from the paper:

- Exact accounting uses the sharp sensitivity. With ``accounting="published"`` (for the unit ``entry``) the noise is the
  paper's: sigma sqrt(C/n) with sigma = (2/epsilon) sqrt(4 T ln(1/delta)), and the job fails if an iterate has an entry
  above sqrt(C/n). Several components share the budget as in Figure 3: epsilon / sqrt(4 k ln(1/delta)) and delta / k
  each. The product that gives sigma counts as one of T + 1.
- ``coherence`` is C, for either accounting. Without it, published accounting tries C = 1, 2, 4, ... as in Remark 4.5.
  Each try has a new start, and epsilon and delta are divided by the largest possible number of tries: the plan is
  fixed beforehand, so it covers the worst case. This reproduces the paper's loss, which exact accounting does not have.
- ``private_rounds`` takes T = 4 ln of a noisy sum of all entries' absolute values, in units of C (Remark 4.5). Entries
  come in symmetric pairs, so the sensitivity is two units instead of one. The plan pays for the largest possible number
  of rounds, 64, and unused rounds are not refunded: if you know a good number of rounds, give it.
- The start is drawn from the job's seed and has norm exactly one; in the paper it has nearly norm one.
- sigma is signed, and its noise is that of one entry of a product. The paper releases the norm of A x with separate
  Laplace noise; for a negative eigenvalue, deflating by a norm would go in the wrong direction. Without explained
  variance the last sigma is not asked. For rows it is never asked, because the closing query of ``dps-pca`` is.
- A provider may leave. Its share of the earlier sigmas is then unknown, so later products are made orthogonal to the
  earlier components. Eigenvalues are left out, because they would be those of different matrices.
- Figure 3 returns A_k, but its analysis is about B_k. The components of a model are orthonormal, each with its own
  eigenvalue, but the v_i are not orthogonal, and after few rounds they are not eigenvectors. So the last step is a
  Rayleigh-Ritz step on their span, which needs only the products A v_i that gave sigma_i, and is free. If these were
  not all asked, the v_i are orthonormalised in order.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields
from typing import Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Accounting, JobSpec, Scalar
from dpspca.common.linalg import thin_qr
from dpspca.common.plan import Plan, PlannedQuery, QuerySeries, Step, price
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.protocol import Aggregate, Algorithm
from dpspca.common.queries import EntryTotal, Extent, RowQuery, RowSparse
from dpspca.common.results import Model, PrivacyStatement, fix_signs

from .steps import (
    RowTotals,
    ask_closing,
    ask_open,
    ask_product,
    check_data,
    closing,
    described,
    given_rounds,
    known_options,
    matrix_model,
    open_rows,
    product_query,
    share_of_products,
    usual_rounds,
)

MOST_PRIVATE_ROUNDS: Final = 64
"""Enough for a sum of nine million units of C."""
TOTAL_SHARE: Final = 0.02


class IncoherenceError(DpspcaError):
    """An iterate has an entry that is larger than the job's coherence allows. The answers so far stay charged."""

    code = "not-incoherent"


@dataclass(frozen=True, slots=True)
class PowerIterationOptions:
    """The options of this method. ``rounds=None`` means by the budget; ``coherence`` is the paper's C."""

    rounds: int | None = field(
        default=None, metadata=described("Number of rounds for each component. Default: by the budget.")
    )
    coherence: float | None = field(
        default=None,
        metadata=described(
            "The paper's C, for the unit entry: from 1 (all entries of an iterate have equal size) to the number of "
            "columns (an iterate has a single entry). Noise grows with its square root. An iterate that exceeds it "
            "ends the job, and the answers so far stay charged. A random start has about 2 ln(columns), so smaller "
            "values mostly fail; 4 ln(columns) leaves room if no column stands out. Default: the noise follows each "
            "iterate, and no job fails; with published accounting, 1, 2, 4, ... are tried."
        ),
    )
    private_rounds: bool = field(
        default=False,
        metadata=described(
            "Choose the number of rounds from a noisy sum of the matrix's entries. The job pays for 64 rounds."
        ),
    )

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Read and check the spec's options."""
        given = known_options(spec, [each.name for each in fields(cls)])
        made = cls(
            given_rounds(spec),
            _coherence(spec, given.get("coherence")),
            _switch("private_rounds", given.get("private_rounds", False)),
        )
        _check_together(spec, made)
        return made


def steps_of(spec: JobSpec) -> tuple[Step, ...]:
    """List all queries that a job may ask, with their noise and prices."""
    check_data(spec, spec.components)
    last = closing(spec, spec.schema.dimension) if spec.unit.is_row else []
    published = _published if spec.unit is PrivacyUnit.ENTRY else None
    return price(spec, [*open_rows(spec), *_total(spec), _products(spec), *last], published)


def run(plan: Plan) -> Algorithm:
    """Find one component after the other; each is subtracted from A before the next."""
    spec = plan.spec
    opened = yield from ask_open(spec)
    options = PowerIterationOptions.of(spec)
    rounds = (yield from _private_rounds(spec)) if options.private_rounds else rounds_of(spec)
    loop = _Loop(spec, opened, rounds)
    for _ in range(spec.components):
        yield from loop.find_another()
    statement = PrivacyStatement.of(plan, parties=loop.parties)
    if not spec.unit.is_row and spec.explained_variance and len(set(loop.counted)) == 1:
        return matrix_model(spec, statement, *_ritz(loop))
    basis, _ = thin_qr(np.stack(loop.vectors, axis=1))
    if not spec.unit.is_row:  # eigenvalues were not asked for, or are not of one matrix: a provider left in between
        return Model(fix_signs(basis.T), statement, feature_names=spec.schema.names)
    model = Model(basis.T, statement, mean=opened.center, feature_names=spec.schema.names)
    return (yield from ask_closing(spec, RowSparse.of(basis), opened, model))


def rounds_of(spec: JobSpec) -> int:
    """Return the number of rounds of a component; with ``private_rounds``, the largest possible number."""
    options = PowerIterationOptions.of(spec)
    if options.private_rounds:
        return MOST_PRIVATE_ROUNDS
    return usual_rounds(spec) if options.rounds is None else options.rounds


def tries_of(spec: JobSpec) -> int:
    """Return how many coherence bounds a component may try: the powers of two from 1 to at least the dimension."""
    return math.ceil(math.log2(spec.schema.dimension)) + 1 if _searches(spec) else 1


def _searches(spec: JobSpec) -> bool:
    return spec.accounting is Accounting.PUBLISHED and PowerIterationOptions.of(spec).coherence is None


class _Loop:
    """The components found so far, and the generators that find the next one."""

    def __init__(self, spec: JobSpec, opened: RowTotals, rounds: int) -> None:
        self._spec = spec
        self._opened = opened
        self._rounds = rounds
        self._generator = np.random.Generator(np.random.Philox(key=spec.seed))
        self.vectors: list[FloatArray] = []
        self.products: list[FloatArray] = []
        self.values: list[float] = []
        self.counted: list[int] = []
        """For each eigenvalue, the number of providers that it sums over."""
        self.noise_std = 0.0
        self.parties = 1

    def find_another(self) -> Generator[RowQuery, Aggregate, None]:
        """Find a component and, if needed, its eigenvalue."""
        for largest in _bounds(self._spec):
            found = yield from self._iterate(largest)
            if found is not None:
                break
        else:
            raise IncoherenceError(
                "An iterate has an entry above the bound that follows from the job's coherence.",
                "Submit a job with a larger coherence, or with exact accounting and without coherence.",
            )
        if len(self.vectors) < _eigenvalues(self._spec):
            answer = yield from self._ask(found, _bound_for_last(largest, found))
            self.values.append(float(found @ self._deflated(answer, found)))
            self.counted.append(answer.parties)
            self.products.append(answer.values[:, 0])
            self.noise_std = max(self.noise_std, answer.noise_std)
        self.vectors.append(found)

    def _iterate(self, largest: float | None) -> Generator[RowQuery, Aggregate, FloatArray | None]:
        """Run the loop for one component. Return None if an iterate exceeds the bound; that is public."""
        vector = _normalised(self._generator.standard_normal(self._spec.schema.dimension))
        for _ in range(self._rounds):
            if not _within(vector, largest):
                return None
            answer = yield from self._ask(vector, largest)
            vector = _normalised(self._deflated(answer, vector))
        return vector

    def _ask(self, vector: FloatArray, largest: float | None) -> Generator[RowQuery, Aggregate, Aggregate]:
        """Ask for A x."""
        answer = yield from ask_product(self._spec, vector[:, None], self._opened, largest)
        self.parties = answer.parties
        return answer

    def _deflated(self, answer: Aggregate, vector: FloatArray) -> FloatArray:
        """Subtract the parts of the earlier components from A x. The noise does not change.

        If a provider has left, its share of the earlier eigenvalues is unknown. Subtracting the old values would leave
        these components in the product with the opposite sign, and they would be found again. So the product is then
        made orthogonal to them.
        """
        product = answer.values[:, 0].copy()
        for value, parties, known in zip(self.values, self.counted, self.vectors, strict=True):
            part = value * (known @ vector) if parties == answer.parties else known @ product
            product -= part * known
        return product


def _ritz(loop: _Loop) -> tuple[FloatArray, FloatArray, float]:
    """Diagonalise the symmetric part of Q^T A Q, where V = Q R and A V was released. Largest absolute values first.

    The noise is multiplied by R^-1, which is large if the v_i are far from orthogonal.
    """
    basis, triangle = thin_qr(np.stack(loop.vectors, axis=1))
    inverse = np.linalg.inv(triangle)
    square = basis.T @ np.stack(loop.products, axis=1) @ inverse
    values, axes = np.linalg.eigh((square + square.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")
    return (basis @ axes[:, order]).T, values[order], loop.noise_std * float(np.linalg.norm(inverse, 2))


def _private_rounds(spec: JobSpec) -> Generator[RowQuery, Aggregate, int]:
    """Return T = 4 ln sigma_1, with the noisy sum of all entries' absolute values as the bound on sigma_1."""
    total = yield EntryTotal(spec.schema.dimension)
    changes = max(math.e, float(total.values[0]) / spec.norm_bound)
    return min(MOST_PRIVATE_ROUNDS, math.ceil(4 * math.log(changes)))


def _total(spec: JobSpec) -> list[PlannedQuery]:
    if not PowerIterationOptions.of(spec).private_rounds:
        return []
    return [PlannedQuery("sum of all entries", EntryTotal, Extent(spec.schema.dimension), TOTAL_SHARE)]


def _products(spec: JobSpec) -> QuerySeries:
    """Plan as many products as may be asked. All have the same query and extent."""
    options, dimension = PowerIterationOptions.of(spec), spec.schema.dimension
    most = spec.components * rounds_of(spec) * tries_of(spec) + _eigenvalues(spec)
    query = product_query(spec, capped=options.coherence is not None or _searches(spec))
    share = share_of_products(spec) - (TOTAL_SHARE if options.private_rounds else 0.0)
    planned = PlannedQuery("product", query, Extent(dimension, 1, dimension), share, most)
    return QuerySeries(planned, most, _namer(spec, most), _advice(spec))


def _namer(spec: JobSpec, most: int) -> Callable[[int], str]:
    rounds = rounds_of(spec)

    def named(number: int) -> str:
        component, turn = divmod(number - 1, rounds + 1)
        what = "eigenvalue" if turn == rounds else f"round {turn + 1} of {rounds}"
        return f"component {component + 1}, {what}"

    if _searches(spec) or PowerIterationOptions.of(spec).private_rounds:
        return lambda number: f"product {number} of at most {most}"
    return named


def _advice(spec: JobSpec) -> str:
    """Return advice on how to lower the number of queries."""
    tries = tries_of(spec)
    search = f", or set coherence, so that not {tries} bounds on it are tried for each" if tries > 1 else ""
    rounds = "set rounds in place of private_rounds" if PowerIterationOptions.of(spec).private_rounds else "rounds"
    return f"components ({spec.components}) or {rounds} ({rounds_of(spec)} for each){search}"


def _eigenvalues(spec: JobSpec) -> int:
    """Return the number of eigenvalues that are asked. That of the last component is not needed for deflation."""
    return spec.components - (spec.unit.is_row or not spec.explained_variance)


def _published(spec: JobSpec, _intent: PlannedQuery) -> float:
    """Return the noise of Figures 2 and 3 for vectors whose largest entry is 1. Queries with smaller ones scale it."""
    epsilon, delta, components = spec.budget.epsilon, spec.budget.delta, spec.components
    if components > 1:
        epsilon, delta = epsilon / math.sqrt(4 * components * math.log(1 / delta)), delta / components
    tries = tries_of(spec)
    rounds = rounds_of(spec) + (_eigenvalues(spec) > 0)
    return 2 * tries / epsilon * math.sqrt(4 * rounds * math.log(tries / delta))


def _bounds(spec: JobSpec) -> list[float | None]:
    """List the bounds sqrt(C/n) on a vector's entries to try in turn. None means that the noise fits every vector."""
    options, dimension = PowerIterationOptions.of(spec), spec.schema.dimension
    if _searches(spec):
        return [min(1.0, math.sqrt(2.0**power / dimension)) for power in range(tries_of(spec))]
    return [None if options.coherence is None else min(1.0, math.sqrt(options.coherence / dimension))]


def _within(vector: FloatArray, largest: float | None) -> bool:
    return largest is None or float(np.abs(vector).max()) <= largest


def _bound_for_last(largest: float | None, vector: FloatArray) -> float | None:
    """Return the bound for the last product, large enough for its vector, so that the job cannot fail here."""
    return None if largest is None else min(1.0, max(largest, float(np.abs(vector).max())))


def _normalised(vector: FloatArray) -> FloatArray:
    """Scale to a unit vector. For a zero vector, which noise makes very unlikely, return the first axis."""
    length = float(np.linalg.norm(vector))
    return vector / length if length else np.eye(len(vector), 1)[:, 0]


def _coherence(spec: JobSpec, given: Scalar) -> float | None:
    if given is None:
        return None
    within = isinstance(given, int | float) and not isinstance(given, bool) and 1 <= given <= spec.schema.dimension
    check(within, f"coherence is {given!r}.", "Give a number between 1 and the number of columns, or leave it out.")
    return float(given)


def _switch(name: str, given: Scalar) -> bool:
    check(isinstance(given, bool), f"{name} is {given!r}.", "Give true or false.")
    return bool(given)


def _check_together(spec: JobSpec, options: PowerIterationOptions) -> None:
    """Refuse options that contradict each other or do not fit the job's unit."""
    published, entries = spec.accounting is Accounting.PUBLISHED, spec.unit is PrivacyUnit.ENTRY
    for name, given in (
        ("coherence", options.coherence is not None),
        ("private_rounds", options.private_rounds),
    ):
        check(
            entries or not given,
            f"{name} is only for the unit {PrivacyUnit.ENTRY}, but the unit is {spec.unit}.",
            f"Leave {name} out.",
        )
    check(
        not (options.private_rounds and (published or options.rounds is not None)),
        "private_rounds cannot be combined with a number of rounds, nor with published accounting.",
        "Leave private_rounds out.",
    )
