"""With a span, noise is where a provider may have something to say and nowhere else, and nothing leaves without it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from scipy.stats import chi2

from dpspca.client.matrices import dilation
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError, InvalidAnswerError
from dpspca.common.job import Budget, JobSpec, Schema, Span
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.audit import laplace_as_normal
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.matrix import EntryTotal, MatrixProduct, SpectralProduct, SymmetricProduct
from dpspca.provider.data.checked.preparation import CheckedRows, check_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard, with_span
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder

ENTRY, SPECTRAL = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL
SPAN, COLUMNS = Span(3, 4, 12), 6
DIMENSION = SPAN.of + COLUMNS
TABLE = np.random.default_rng(0).standard_normal((SPAN.rows, COLUMNS))
BASIS = thin_qr(np.random.default_rng(1).standard_normal((DIMENSION, 2)))[0]
SILENT = SPAN.rows_of_others(DIMENSION)


def share(form: Callable[[Any], Any] = np.asarray) -> CheckedRows:
    return check_rows(form(dilation(TABLE, SPAN.start, SPAN.of).toarray()))


def job(unit: PrivacyUnit = ENTRY, method: str = "noisy-power", **options: Any) -> JobSpec:
    return JobSpec(
        schema=Schema(DIMENSION),
        unit=unit,
        budget=Budget(1.0, 1e-6),
        norm_bound=1.0,
        components=1,
        method=method,
        options=options,
    )


def responder(spec: JobSpec, rows: CheckedRows, seed: int = 0, ledger: MemoryLedger | None = None) -> Responder:
    shard = MatrixShard(rows, spec.norm_bound, spec.unit)
    return Responder(catalogue.plan(spec), shard, ledger or MemoryLedger(), repeatable_entropy(seed))


# --- A share with a span ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_a_share_of_these_rows_takes_its_span(form: Callable[[Any], Any]) -> None:
    rows = with_span(share(form), SPAN)
    assert rows.span == SPAN
    assert rows.digest() != share(form).digest()
    assert rows.digest() != replace(rows, span=Span(2, 5, 12)).digest()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "place",
    [(2, 14), (7, 14), (0, 0), (3, 3), (3, 4), (3, 8), (0, 1), (13, 14), (17, 17)],
    ids=lambda place: f"{place[0]}, {place[1]}",
)
def test_an_entry_outside_of_the_span_is_refused(form: Callable[[Any], Any], place: tuple[int, int]) -> None:
    """In another's row; between rows, own ones or not; and between columns."""
    values = dilation(TABLE, SPAN.start, SPAN.of).toarray()
    values[place] = values[place[::-1]] = 1e-300
    with pytest.raises(DpspcaError, match=facts("3 to 6", "6 columns", "dpspca.client.matrices.dilation")):
        with_span(check_rows(form(values)), SPAN)


def test_a_zero_that_a_sparse_share_stores_is_not_an_entry() -> None:
    values = dilation(TABLE, SPAN.start, SPAN.of).tocoo()
    places = tuple(np.r_[where, 0] for where in values.coords)
    made = scipy.sparse.csr_array((np.r_[values.data, 0.0], places), shape=values.shape)
    assert with_span(check_rows(made), SPAN).span == SPAN


@pytest.mark.parametrize(
    ("values", "span", "why"),
    [
        (TABLE, SPAN, ("4 rows", "6 columns")),
        (np.eye(DIMENSION, k=1), SPAN, "(M + M.T) / 2"),
        (np.zeros((12, 12)), SPAN, ("12 columns", "12 rows")),
        (np.zeros((5, 5)), SPAN, ("5 columns", "12 rows")),
    ],
)
def test_an_array_that_is_not_a_share_of_the_table_is_refused(values: Any, span: Span, why: Any) -> None:
    with pytest.raises(DpspcaError, match=facts(why)):
        with_span(check_rows(values), span)


def test_a_share_whose_rows_are_persons_takes_no_span() -> None:
    with pytest.raises(DpspcaError, match=facts("span", "persons")):
        with_span(replace(share(), persons=np.arange(share().count)), SPAN)


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
def test_whether_a_span_is_refused_does_not_tell_neighbours_apart(unit: PrivacyUnit) -> None:
    """A span is public, and neighbours are shares of its rows: of all of these none is refused."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        change = np.zeros_like(TABLE)
        change[rng.integers(SPAN.rows), rng.integers(COLUMNS)] = 1.0
        if unit is SPECTRAL:
            change = rng.standard_normal(TABLE.shape)
        for table in (TABLE + change, np.zeros_like(TABLE)):
            assert with_span(check_rows(dilation(table, SPAN.start, SPAN.of)), SPAN).span == SPAN


# --- What leaves ------------------------------------------------------------------------------------------------------


def noise_of(spec: JobSpec, query: RowQuery, runs: int, span: Span | None = SPAN) -> Integers:
    rows = share() if span is None else with_span(share(), span)
    exact = MatrixShard(share(), 1.0, spec.unit).evaluate(query)
    return np.stack([responder(spec, rows, seed).respond(0, query) - exact for seed in range(runs)])


@pytest.mark.parametrize(
    ("unit", "query"), [(ENTRY, SymmetricProduct(BASIS)), (SPECTRAL, SpectralProduct(BASIS))], ids=["entry", "spectral"]
)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_is_as_planned_within_the_span_and_zero_outside(unit: PrivacyUnit, query: RowQuery, law: str) -> None:
    """Each of the ten rows by itself. False alarm: ten chi-square tests, both ways, of 1e-8 in all for each case."""
    spec = job(unit, noise=law)
    step = catalogue.plan(spec)[0].fit_to(query, unit)
    drawn = noise_of(spec, query, 100)
    assert not drawn[:, SILENT].any()
    within = drawn[:, ~SILENT]
    if law == "laplace":
        uniforms = np.random.default_rng(3).random(within.shape)
        normal = laplace_as_normal(within, step.noise_std / np.sqrt(2), uniforms)
    else:
        normal = within / step.noise_std
    squares, level = np.square(normal).sum(axis=(0, 2)), 1e-8 / 20
    assert len(squares) == SPAN.rows + COLUMNS
    assert (chi2.ppf(level, 200) < squares).all()
    assert (squares < chi2.isf(level, 200)).all()


def test_noise_within_the_span_is_that_which_would_be_there_without() -> None:
    """Words are drawn for the whole answer: what is done, and for how long, does not change."""
    spec, query = job(), SymmetricProduct(BASIS)
    with_span, without = noise_of(spec, query, 2), noise_of(spec, query, 2, None)
    assert (with_span[:, ~SILENT] == without[:, ~SILENT]).all()
    assert without[:, SILENT].all()


def test_a_total_of_entries_has_its_noise_all_the_same() -> None:
    spec = job(method="power-iteration", private_rounds=True)
    drawn = noise_of(spec, EntryTotal(DIMENSION), 20)
    assert np.count_nonzero(drawn) > 10  # each is zero with a probability far below a hundredth


class Astray(MatrixShard):
    """A share whose answers show in a row that is not its own, as only a bug could bring about."""

    def evaluate(self, query: RowQuery) -> Integers:
        exact = super().evaluate(query)
        if isinstance(query, MatrixProduct):
            exact[0, 0] = 1
        return exact


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
def test_an_answer_that_shows_outside_of_the_span_is_never_stored(unit: PrivacyUnit) -> None:
    spec, ledger = job(unit), MemoryLedger()
    shard = Astray(with_span(share(), SPAN), spec.norm_bound, unit)
    asked = Responder(catalogue.plan(spec), shard, ledger, repeatable_entropy(0))
    query = SymmetricProduct(BASIS) if unit is ENTRY else SpectralProduct(BASIS)
    for _ in range(2):
        with pytest.raises(InvalidAnswerError, match=facts("zero")):
            asked.respond(0, query)
    assert ledger.query_digest(spec.digest(), 0) == query.digest()
    assert ledger.stored(spec.digest(), 0) is None
