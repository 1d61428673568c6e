"""Parts are worked on in order, one behind the one that is made, and nothing that fails is lost."""

from collections.abc import Iterator
from threading import get_ident

import pytest
from facts import facts

from dpspca.provider.data.threads import OneBehind


class WorkError(Exception):
    pass


def test_parts_are_worked_on_in_order_in_another_thread() -> None:
    done: list[tuple[int, bool]] = []
    me = get_ident()
    with OneBehind[int](lambda part: done.append((part, get_ident() == me))) as behind:
        for part in range(20):
            behind.put(part)
            assert len(done) >= part  # all before this one are finished
    assert done == [(part, False) for part in range(20)]


@pytest.mark.parametrize("bad", [0, 3, 4])
def test_what_fails_is_raised(bad: int) -> None:
    done = []

    def work(part: int) -> None:
        if part == bad:
            raise WorkError
        done.append(part)

    def put_all() -> None:
        with OneBehind(work) as behind:
            for part in range(5):
                behind.put(part)

    with pytest.raises(WorkError):
        put_all()
    assert done == list(range(bad))


def test_what_fails_while_parts_are_made_is_raised_after_the_work_under_way() -> None:
    done = []

    def made() -> Iterator[int]:
        yield 1
        raise OSError(5, "the disk")

    def put_all() -> None:
        with OneBehind(done.append) as behind:
            for part in made():
                behind.put(part)

    with pytest.raises(OSError, match=facts("disk")):
        put_all()
    assert done == [1]
