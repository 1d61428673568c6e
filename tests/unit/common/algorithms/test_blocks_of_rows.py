"""Blocks of a given number of rows: each row in one block or in none, by its position alone, at an unchanged price."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from facts import facts, names_facts

from dpspca.client.audit.answers import audit
from dpspca.client.connection.job_checks import VALIDITY, validity_of
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.streaming_power import rows_of
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.lattice import MAX_ROWS
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CompressedCovariance, Count, CovarianceProduct
from dpspca.common.trust.signing import MAX_JOB_LIFE
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard

ROWS = np.random.default_rng(0).standard_normal((60, 6)) * np.r_[5, 4, 1, 1, 1, 1]


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(6),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(8.0, 1e-4),
        "norm_bound": 12.0,
        "components": 2,
        "method": "streaming-power",
        "options": {"rounds": 3, "block_rows": 10},
    }
    return JobSpec(**good | changes)


# --- Privacy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("block_rows", "blocks"), [(1, 3), (7, 3), (10, 6), (20, 3), (60, 1)])
def test_a_changed_row_moves_the_answer_of_its_own_block_and_no_other(block_rows: int, blocks: int) -> None:
    """What parallel composition rests on, of every row there is: which block that is follows from its position."""
    basis, limit = thin_qr(np.random.default_rng(1).standard_normal((6, 2)))[0], block_rows * blocks

    def answers(table: FloatArray) -> list[bytes]:
        shard = Shard(check_rows(table).first(limit), 12.0)
        asked = [CovarianceProduct(basis, None, block, blocks) for block in range(1, blocks + 1)]
        return [shard.evaluate(query).tobytes() for query in asked]

    before = answers(ROWS)
    for row in range(len(ROWS)):
        changed = ROWS.copy()
        changed[row] = -2 * ROWS[row][::-1]
        moved = [one != other for one, other in zip(before, answers(changed), strict=True)]
        assert moved == [row // block_rows == block for block in range(blocks)]


def test_rows_after_the_last_block_have_no_part_in_any_answer() -> None:
    """Neither do they exist for the count, nor for what is explained: a job says how many rows it is about."""
    basis = np.eye(6)[:, :2]
    few, many = (Shard(check_rows(table).first(30), 12.0) for table in (ROWS[:30], ROWS))
    for query in (Count(), CompressedCovariance(basis), CovarianceProduct(basis, None, 3, 3)):
        assert (few.evaluate(query) == many.evaluate(query)).all()
    assert many.evaluate(Count()).tolist() == [30]
    models = [simulate([table], spec(), noise_seed=1).to_bytes() for table in (ROWS[:30], ROWS)]
    assert models[0] == models[1]


def test_the_plan_and_every_price_are_those_without_it() -> None:
    assert catalogue.plan(spec()).steps == catalogue.plan(spec(options={"rounds": 3})).steps


def test_a_query_needs_the_rows_up_to_its_block_or_none_without_noise() -> None:
    shard = Shard(check_rows(ROWS).first(30), 12.0)
    assert [shard.reach(step) for step in catalogue.plan(spec())] == [0, 10, 20, 30, 30]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rows_per_person": 2}, ("rows_per_person", 2, "streaming-power")),
        ({"unit": "person-replace-one"}, ("row-replace-one", "person-replace-one")),
    ],
)
def test_a_person_who_could_be_in_several_blocks_has_no_price(changes: dict[str, Any], named: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts(named)):
        catalogue.plan(spec(**changes))


def test_an_audit_with_its_canary_in_the_last_block_passes() -> None:
    """False alarm: one in a million."""
    job = spec(budget=Budget(20.0, 1e-2), options={"rounds": 2, "block_rows": 9})
    found = audit(job, runs=30)
    assert found.passed
    apart = [each.name for each in found.findings if names_facts(each.name, "distance")]
    assert any("'round 2 of 2'" in name for name in apart)
    assert not any("'round 1 of 2'" in name for name in apart)
    with pytest.raises(InvalidParameterError, match=facts(MAX_ROWS, "block_rows")):
        audit(spec(options={"rounds": 2, "block_rows": MAX_ROWS // 2}), runs=2)


# --- Options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_rows", [0, -1, 1.5, "ten", True, MAX_ROWS + 1])
def test_an_invalid_number_of_rows_is_refused_by_name(block_rows: Any) -> None:
    with pytest.raises(DpspcaError, match=facts("block_rows")):
        catalogue.plan(spec(options={"rounds": 1, "block_rows": block_rows}))


def test_more_rows_than_sums_have_room_for_are_refused_with_both_ways_out() -> None:
    assert rows_of(spec(options={"rounds": 2, "block_rows": MAX_ROWS // 2})) == MAX_ROWS
    with pytest.raises(InvalidParameterError, match=facts(3, MAX_ROWS // 2, "rounds", "block_rows")):
        catalogue.plan(spec(options={"rounds": 3, "block_rows": MAX_ROWS // 2}))


def test_the_mean_is_refused_because_it_comes_before_the_rows() -> None:
    with pytest.raises(InvalidParameterError, match=facts("block_rows", "private")):
        catalogue.plan(spec(centering=Centering.PRIVATE, mean_bound=9.0))
    catalogue.plan(spec(centering=Centering.PUBLIC, public_mean=(0.5,) * 6))


def test_other_algorithms_are_about_all_rows_and_know_no_blocks_of_a_size() -> None:
    assert catalogue.rows_of(spec()) == 30
    assert catalogue.rows_of(spec(options={"rounds": 3})) is None
    for name in catalogue.CATALOGUE.keys() - {"streaming-power"}:
        assert catalogue.rows_of(spec(method=name)) is None
    with pytest.raises(InvalidParameterError, match=facts("block_rows")):
        catalogue.plan(spec(method="noisy-power"))


def test_too_few_rows_for_a_job_are_refused_with_the_shard() -> None:
    with pytest.raises(InvalidDataError, match=facts("Shard 2 of 2", 30)):
        simulate([ROWS[:31], ROWS[31:]], spec())


# --- What it finds ----------------------------------------------------------------------------------------------------


def test_with_blocks_that_are_all_rows_the_model_is_the_one_without_them() -> None:
    job, plain = spec(options={"rounds": 3, "block_rows": 20}), spec(options={"rounds": 3})
    rows = check_rows(ROWS)
    for block in (1, 2, 3):
        query = CovarianceProduct(np.eye(6)[:, :2], None, block, 3)
        answers = [Shard(rows.first(catalogue.rows_of(each)), 12.0).evaluate(query) for each in (job, plain)]
        assert (answers[0] == answers[1]).all()


def test_a_job_is_signed_for_all_the_time_that_it_gives_for_answers() -> None:
    """Else one whose rows arrive over days would run out while it waits for them."""
    assert validity_of(catalogue.plan(spec(answer_seconds=600))) == VALIDITY
    assert validity_of(catalogue.plan(spec(answer_seconds=20_000))).total_seconds() == 7 * 20_000
    assert (
        validity_of(catalogue.plan(replace(spec(), answer_seconds=86_400, options={"rounds": 9}))).total_seconds()
        == MAX_JOB_LIFE
    )


def test_a_job_that_would_run_out_while_it_waits_for_its_rows_is_not_signed() -> None:
    """It would die when some of it is spent. What is told to be enough is enough, and a second more is not."""
    options = {"rounds": 9, "block_rows": 2}
    waits = len(catalogue.plan(spec(options=options))) + 2
    with pytest.raises(InvalidParameterError, match=facts("answer_seconds", MAX_JOB_LIFE // waits)):
        validity_of(catalogue.plan(spec(options=options, answer_seconds=MAX_JOB_LIFE // waits + 1)))
    assert (
        validity_of(catalogue.plan(spec(options=options, answer_seconds=MAX_JOB_LIFE // waits))).total_seconds()
        <= MAX_JOB_LIFE
    )
