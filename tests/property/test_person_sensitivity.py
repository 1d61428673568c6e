"""No person beats what a job for the unit 'person' is priced for, however many rows they have and wherever these stand.

Neighbours are made as the unit says, of files in which persons' rows are mixed, and go through the provider's own code.
"""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from examples import EXAMPLES
from facts import facts
from hypothesis import given, settings
from hypothesis import strategies as st
from row_queries import BOUND, KINDS, contribution, make_query

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Centering, JobSpec
from dpspca.common.privacy.events import ChoiceEvent, GaussianEvent, LaplaceEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import ColumnsQuery, ColumnSums, Count, Covariance, CovarianceProduct
from dpspca.common.queries.views import ViewProduct, ViewQuery
from dpspca.provider.data.checked.persons import with_persons
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard

ADD_REMOVE, REPLACE = PrivacyUnit.PERSON_ADD_REMOVE, PrivacyUnit.PERSON_REPLACE_ONE
ME = 0
Table = list[tuple[int, np.ndarray]]
"""Rows in their order, each with whose it is."""


def price(query: RowQuery, unit: PrivacyUnit, most: int) -> float:
    return query.person_factor(unit, most) * query.lattice_sensitivity(unit, query.extent)


def answer(table: Table, query: RowQuery, most: int) -> np.ndarray:
    """Answer as a provider does, but for the noise."""
    whose, rows = [person for person, _ in table], np.array([row for _, row in table])
    bounded = with_persons(check_rows(rows, least=1), whose).bounded(most)
    return Shard(bounded, BOUND, mean_bound=BOUND, threads=1).evaluate(query).astype(float)


def mixed(rng: np.random.Generator, others: Table, mine: list[np.ndarray]) -> Table:
    """Put rows of mine between those of others, whose order stays."""
    table = [*others]
    for row in mine:
        table.insert(int(rng.integers(len(table) + 1)), (ME, row))
    return table


def extreme(rng: np.random.Generator, query: RowQuery, count: int) -> list[np.ndarray]:
    """Rows that move an answer far: all alike, along the basis, and partly longer than the bound."""
    dimension = query.extent.dimension or 4
    basis = getattr(query, "basis", np.eye(dimension))
    one = basis[:, int(rng.integers(basis.shape[1]))] * rng.choice([-1.0, 1.0])
    unlike = [rng.standard_normal(dimension) for _ in range(count)]
    return [BOUND * float(rng.choice([0.999, 5.0])) * one for _ in range(count)] if rng.random() < 0.7 else unlike


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), most=st.integers(1, 4), centred=st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_person_moves_an_answer_further_than_its_price(kind: str, seed: int, most: int, centred: bool) -> None:
    rng = np.random.default_rng(seed)
    query = make_query(kind, rng, 4)
    if centred and hasattr(query, "center"):
        given = {"given": query.kept} if hasattr(query, "kept") else {}
        query = replace(query, center=rng.standard_normal(4), **given)  # type: ignore[call-arg, arg-type]
    others = [(int(rng.integers(1, 4)), rng.standard_normal(4)) for _ in range(6)]
    sets = [extreme(rng, query, int(rng.integers(1, 2 * most + 1))) for _ in range(4)]
    without = answer(others, query, most)
    answers = [answer(mixed(rng, others, mine), query, most) for mine in sets]
    assert max(np.linalg.norm(each - without) for each in answers) <= price(query, ADD_REMOVE, most)
    assert max(np.linalg.norm(one - other) for one, other in pairwise(answers)) <= price(query, REPLACE, most)


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_every_constant_for_a_person_is_reached(kind: str, most: int) -> None:
    """By as many equal rows as are used, removed or replaced by others that lie across; a count, by a single row."""
    query = make_query(kind, np.random.default_rng(5), 6)
    basis = getattr(query, "basis", np.eye(6))
    if isinstance(query, ViewQuery) and not isinstance(query, ViewProduct):
        # Rows that the view keeps whole, or makes longer than the bound.
        view = query.view
        basis = np.eye(6)[:, view.columns] if not view.axes_matrix.size else scipy.linalg.null_space(view.axes_matrix.T)
    first, second = basis[:, 0], -basis[:, 0] if kind.startswith("sums") else basis[:, -1]
    if kind == "column-sizes":
        first = second = np.full(6, 0.4)  # in every column
    second = second / 64 if kind.startswith(("norms", "column")) else second  # into another bin
    scales = getattr(query, "scales", None)
    first, second = (row if scales is None else row * scales for row in (first, second))
    removed = np.linalg.norm(most * contribution(query, first))
    assert removed >= 0.999 * query.person_factor(ADD_REMOVE, most) * query.sensitivity(ADD_REMOVE)
    fewer = 0 if kind.endswith("product-1") else 1 if kind == "count" else most
    replaced = np.linalg.norm(most * contribution(query, first) - fewer * contribution(query, second))
    assert replaced == pytest.approx(query.person_factor(REPLACE, most) * query.sensitivity(REPLACE), rel=1e-3)


@pytest.mark.parametrize(
    ("query", "ratio"),
    [(ColumnSums(2), 2.0), (Covariance(2), math.sqrt(2)), (CovarianceProduct(np.eye(2)), math.sqrt(2))],
)
def test_removing_a_person_s_row_moves_more_than_a_unit_of_rows_declares(query: RowQuery, ratio: float) -> None:
    """Why such a unit is refused where persons are known: the row that leaves lets the next one in."""
    opposite = isinstance(query, ColumnSums)
    first, second = np.array([BOUND, 0.0]), np.array([-BOUND, 0.0] if opposite else [0.0, BOUND])
    rows = [(ME, first), (ME, second), (1, np.zeros(2))]
    moved = np.linalg.norm(answer(rows, query, 1) - answer(rows[1:], query, 1))
    declared = query.lattice_sensitivity(PrivacyUnit.ROW_ADD_REMOVE, query.extent)
    assert moved == pytest.approx(ratio * declared, rel=1e-6)
    assert moved <= price(query, REPLACE, 1)


# --- Whole jobs -------------------------------------------------------------------------------------------------------


def jobs() -> list[tuple[str, JobSpec]]:
    """Every example over rows, for both units of persons and one row of each or several; pairs are of rows alone."""
    return [
        (f"{method}, {name}, {unit}, {most}", replace(spec, unit=unit, rows_per_person=most))
        for method, examples in EXAMPLES.items()
        for name, spec in examples.jobs.items()
        if spec.unit.is_row and not spec.unit.is_person and spec.centering is not Centering.PAIRS
        for unit in (ADD_REMOVE, REPLACE)
        for most in (1, 3)
    ]


def is_planned(spec: JobSpec) -> bool:
    """Whether the method has a price for that unit: not all know what many rows of a person do, or one who leaves."""
    match spec.method:
        case "streaming-power":
            return False
        case "range-projection":
            return spec.unit is REPLACE and spec.rows_per_person == 1
        case "output-perturbation" | "ppca":
            return spec.rows_per_person == 1
        case _:
            return True


JOBS = [(name, spec) for name, spec in jobs() if is_planned(spec)]


def test_every_other_job_with_persons_is_refused() -> None:
    others = [spec for _, spec in jobs() if not is_planned(spec)]
    assert others
    for spec in others:
        with pytest.raises(InvalidParameterError):
            catalogue.plan(spec)


def bounded(rows: np.ndarray, whose: list[int], spec: JobSpec) -> Shard:
    found = with_persons(check_rows(rows), whose).bounded(spec.rows_per_person)
    return Shard(found, spec.norm_bound, mean_bound=spec.mean_bound, threads=1)


def neighbours(spec: JobSpec) -> tuple[Shard, Shard]:
    """Give two data sets that differ in a person who moves most answers as far as anybody can."""
    rng, most, d = np.random.default_rng(3), spec.rows_per_person, spec.schema.dimension
    others = rng.standard_normal((40, d))
    mine = np.tile(spec.norm_bound * np.eye(d)[0], (most, 1))
    center = 0.0 if spec.public_mean is None else np.array(spec.public_mean)
    whose = [*range(1, 41), *[ME] * most]
    first = bounded(np.vstack([others, mine]) + center, whose, spec)
    if spec.unit is ADD_REMOVE:
        return first, bounded(others + center, whose[:40], spec)
    instead = spec.norm_bound * np.eye(d)[1:2]  # one row, in the first place: all others move, and there are fewer
    return first, bounded(np.vstack([instead, others]) + center, [ME, *whose[:40]], spec)


@pytest.mark.parametrize(("name", "spec"), JOBS, ids=[name for name, _ in JOBS])
def test_no_planned_answer_moves_further_than_its_price(name: str, spec: JobSpec) -> None:
    """Step by step, over the queries that the method asks itself; what is exact and public moves not at all."""
    plan, (first, second) = catalogue.plan(spec), neighbours(spec)
    assert not any(step.extent.blocks for step in plan)
    asked: list[RowQuery] = []

    def ask(query: RowQuery) -> Aggregate:
        step = plan[len(asked)].fit_to(query, spec.unit)
        asked.append(query)
        if query.is_private:
            return Aggregate(np.full(step.shape, 0.5), parties=1, noise_std=0.0)
        given = [side.evaluate(query).astype(float).reshape(step.shape) for side in (first, second)]
        moved = given[0] - given[1]
        match step.event:
            case GaussianEvent(sensitivity=sensitivity):
                assert np.linalg.norm(moved) <= sensitivity, step.name
            case LaplaceEvent(sensitivity=sensitivity):
                assert np.abs(moved).sum() <= sensitivity, step.name
            case _:
                assert not moved.any(), step.name
        return Aggregate(given[0] * query.unit_value(spec.norm_bound), parties=1, noise_std=1.0)

    if any(step.query.is_private and not isinstance(step.event, ChoiceEvent) for step in plan):
        assert spec.rows_per_person == 1, name
        return
    drive(catalogue.run(catalogue.plan(spec)), ask)
    assert len(asked) == len(plan)


def test_units_of_persons_have_plans_for_all_row_methods_without_blocks() -> None:
    having = {spec.method for _, spec in JOBS}
    assert having == {name for name in EXAMPLES if name != "streaming-power"}
    assert {spec.method for _, spec in JOBS if spec.rows_per_person > 1} == {
        *("auto", "dps-pca", "analyze-gauss", "mod-sulq", "sulq", "noisy-power", "power-iteration")
    }


@pytest.mark.parametrize("unit", [ADD_REMOVE, REPLACE])
def test_blocks_of_rows_have_no_price_for_persons(unit: PrivacyUnit) -> None:
    spec = next(iter(EXAMPLES["streaming-power"].jobs.values()))
    with pytest.raises(InvalidParameterError, match=facts("row-replace-one", unit)):
        catalogue.plan(replace(spec, unit=unit))


def test_moving_a_person_s_row_changes_every_block() -> None:
    """Why there is none, even for one row of each: blocks compose in parallel only if nobody moves two of them."""
    others = [(person, np.eye(4)[person % 2] * BOUND) for person in range(1, 8)]
    mine = (ME, np.eye(4)[0] * BOUND)
    asked = [CovarianceProduct(np.eye(4)[:, :2], None, block, 8) for block in range(1, 9)]
    first, last = ([answer(table, each, 1) for each in asked] for table in ([mine, *others], [*others, mine]))
    moved = [np.linalg.norm(one - other) for one, other in zip(first, last, strict=True)]
    assert np.count_nonzero(moved) == 8
    assert math.hypot(*moved) > 2.8 * asked[0].lattice_sensitivity(PrivacyUnit.ROW_REPLACE_ONE, asked[0].extent)


@pytest.mark.parametrize(("most", "charged"), [(1, False), (2, True)])
def test_the_number_of_rows_is_charged_where_a_person_may_have_fewer(most: int, charged: bool) -> None:
    spec = next(spec for name, spec in jobs() if spec.explained_variance and spec.unit is REPLACE)
    (count,) = [step for step in catalogue.plan(replace(spec, rows_per_person=most)) if step.query is Count]
    assert (count.event is not None) == charged
    private = replace(spec, rows_per_person=most, centering=Centering.PRIVATE, mean_bound=9.0)
    assert (catalogue.plan(private)[0].event is not None) == charged


def test_which_rows_of_a_person_are_used_depends_only_on_that_person() -> None:
    rng = np.random.default_rng(0)
    others = [(int(person), rng.standard_normal(3)) for person in rng.integers(1, 5, 12)]
    kept = answer([*others], ColumnSums(3), 2)
    for count in (1, 2, 7):
        mine = [np.zeros(3)] * count
        assert (answer(mixed(rng, others, mine), ColumnSums(3), 2) == kept).all()


def test_a_query_with_a_center_is_one_of_those_tried() -> None:
    assert isinstance(make_query("covariance", np.random.default_rng(0), 4), ColumnsQuery)
