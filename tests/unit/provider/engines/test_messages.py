"""Messages between a provider and workers hold no object of Python, and what is broken is refused."""

import numpy as np
import pytest
from facts import facts
from row_queries import KINDS, make_query

from dpspca.common.errors import DpspcaError, InvalidQueryError
from dpspca.common.queries.rows import CovarianceTriangle
from dpspca.provider.engines.messages import (
    PartTask,
    Task,
    Work,
    WorkerReply,
    announced,
    read_arrays,
    read_query,
    read_reply,
    read_task,
    version_of,
    write,
    written,
)

TASK = Task(
    version="9.9", work=Work.SUM, source="/rows", reading={"missing": 0.1}, parts=(PartTask("/rows/a.npy", 3, 5, "ab"),)
)


@pytest.mark.parametrize("kind", ["scores-in-groups", *(kind for kind in KINDS if kind not in {"count", "triangle"})])
def test_a_query_is_read_as_it_was_sent(kind: str) -> None:
    query = make_query(kind, np.random.default_rng(0), 6)
    _, content = read_task(write(TASK, bytes(query.content())))
    assert read_query(announced(query), content) == query


def test_other_queries_are_refused() -> None:
    with pytest.raises(InvalidQueryError, match=facts("'covariance-triangle'")):
        read_query(announced(CovarianceTriangle(3)), memoryview(b""))


def test_tasks_and_replies_are_read_as_they_were_written() -> None:
    assert read_task(write(TASK, b"abc")) == (TASK, memoryview(b"abc"))
    reply = WorkerReply(version="9.9", files=("/rows/a.npy",))
    assert read_reply(write(reply)) == (reply, memoryview(b""))
    assert version_of(write(reply)) == "9.9"


def test_arrays_are_read_as_they_were_written() -> None:
    arrays = [
        np.arange(6).reshape(2, 3) - 2**62,
        np.zeros((0, 4), dtype=np.int64),
        np.array([2**64 - 1], dtype=np.uint64),
    ]
    found = read_arrays(memoryview(written(arrays)))
    assert [each.shape for each in found] == [(2, 3), (0, 4), (1,)]
    assert all((one.view(np.int64) == other).all() for one, other in zip(arrays, found, strict=True))


@pytest.mark.parametrize(
    "broken",
    [b"", b"x" * 40, write(TASK)[:30], write(TASK).replace(b'"sum"', b'"run"'), b"dpspca engine 1\n" + bytes(8)],
)
def test_broken_messages_are_refused(broken: bytes) -> None:
    with pytest.raises(DpspcaError):
        read_task(broken)


def test_arrays_that_were_cut_are_refused() -> None:
    with pytest.raises(DpspcaError, match=facts("7 numbers")):
        read_arrays(memoryview(written([np.arange(6)])[:-8]))
