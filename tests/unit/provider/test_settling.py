"""Rows that are asked again and again change how they answer, and never what."""

import threading
import time

import numpy as np
import pytest
import scipy.sparse
from patience import PATIENCE

from dpspca.common.arrays import FloatArray
from dpspca.common.queries import CompressedCovariance, Covariance, CovarianceProduct
from dpspca.provider import shard as shards
from dpspca.provider.moments import DenseRows
from dpspca.provider.preparation import check_rows
from dpspca.provider.settling import SettlingMoments
from dpspca.provider.shard import Shard, Strategy

ROWS = np.random.default_rng(1).integers(-1000, 1000, (40, 6)).astype(np.int32)


def basis(columns: int = 2, support: int = 6) -> FloatArray:
    made = np.zeros((6, columns))
    made[:support] = np.random.default_rng(2).integers(-(2**18), 2**18, (support, columns))
    return made


def settled(moments: SettlingMoments) -> SettlingMoments:
    """Wait until the matrix is there."""
    until = time.monotonic() + PATIENCE
    while not moments.settled and time.monotonic() < until:
        time.sleep(0.001)
    assert moments.settled
    return moments


def test_the_matrix_is_made_after_as_many_products_as_it_costs_and_not_before() -> None:
    moments = SettlingMoments(DenseRows(ROWS), patience=3)
    for _ in range(2):
        moments.product(basis())
    assert not moments.settled
    assert not [each for each in threading.enumerate() if each.name == "gram"]
    moments.product(basis())
    settled(moments)


@pytest.mark.parametrize("support", [1, 6])
def test_every_answer_is_the_same_before_and_after(support: int) -> None:
    moments = SettlingMoments(DenseRows(ROWS), patience=1)
    asked = basis(support=support)
    before = [moments.compressed(asked), moments.gram(), moments.trace(), moments.product(asked)]
    settled(moments)
    after = [moments.compressed(asked), moments.gram(), moments.trace(), moments.product(asked)]
    for first, second in zip(before, after, strict=True):
        assert (np.asarray(first) == np.asarray(second)).all()


def test_only_dense_rows_of_moderate_width_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(rows: object) -> type:
        shard = Shard(check_rows(rows), 1.0, strategy=Strategy.SETTLE)
        return type(shard._moments(None))

    assert kind(ROWS.astype(float)) is SettlingMoments
    assert kind(scipy.sparse.csr_array(ROWS.astype(float))) is not SettlingMoments
    monkeypatch.setattr(shards, "MAX_SETTLED_DIMENSION", 5)
    assert kind(ROWS.astype(float)) is not SettlingMoments


def test_threads_that_ask_at_once_about_other_centres_get_their_own_answers() -> None:
    """A shard serves several jobs, each with a centre of its own; it keeps the last one ready."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((200, 6)) / 4
    centres = [None, *rng.standard_normal((3, 6)) / 10]
    vectors = np.eye(6)[:, :2]
    questions = [CovarianceProduct(vectors, centre) for centre in centres]
    questions += [CompressedCovariance(vectors, centre) for centre in centres] + [Covariance(6)]  # type: ignore[list-item]
    expected = [Shard(check_rows(rows), 1.0).evaluate(question) for question in questions]
    shard = Shard(check_rows(rows), 1.0, strategy=Strategy.SETTLE, threads=1)
    wrong: list[int] = []

    def ask(number: int) -> None:
        answers = [shard.evaluate(questions[number]) for _ in range(20)]
        wrong.extend(number for answer in answers if not (answer == expected[number]).all())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
