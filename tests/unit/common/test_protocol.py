"""Driving a method: every query is carried once, every answer goes back, errors pass."""

from typing import Any

import numpy as np
import pytest

from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.plan import Plan, price
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, Algorithm, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import ColumnSums, Count
from dpspca.common.results import Model, PrivacyStatement

SPEC = JobSpec(
    schema=Schema(2),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=1.0,
    components=1,
    method="dps-pca",
)
STATEMENT = PrivacyStatement.of(Plan(SPEC, price(SPEC, [])), parties=1)


def two_queries(heard: list[float], closed: list[bool]) -> Algorithm:
    try:
        first = yield Count()
        second = yield ColumnSums(2)
        heard += [*first.values, *second.values]
        return Model(np.eye(2)[:1], STATEMENT)
    finally:
        closed.append(True)


def test_queries_go_out_in_order_and_answers_come_back() -> None:
    asked: list[RowQuery] = []
    heard: list[float] = []

    def ask(query: RowQuery) -> Aggregate:
        asked.append(query)
        return Aggregate(np.array([float(len(asked))]), 0.0, 1)

    model = drive(two_queries(heard, []), ask)
    assert [query.kind for query in asked] == ["count", "column-sums"]
    assert heard == [1.0, 2.0]
    assert model.components.tolist() == [[1.0, 0.0]]


def test_an_error_while_asking_closes_the_algorithm_and_passes_on() -> None:
    closed: list[bool] = []

    def ask(_: RowQuery) -> Any:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        drive(two_queries([], closed), ask)
    assert closed == [True]


def test_an_algorithm_without_queries_just_ends() -> None:
    def silent() -> Algorithm:
        return Model(np.eye(2)[:1], STATEMENT)
        yield Count()

    assert drive(silent(), lambda _: pytest.fail("nothing was to be asked")).support.tolist() == [0]
