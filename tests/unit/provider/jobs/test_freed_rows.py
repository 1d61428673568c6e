"""What takes long to free is freed by a thread, and not while anybody waits for an answer."""

import threading
from time import monotonic

import pytest
from timeouts import TIMEOUT

from dpspca.provider.data import free_in_thread
from dpspca.provider.jobs.last_prepared import LastPrepared


class Witness:
    """Notes which thread frees it."""

    freed_by: str = ""

    def __del__(self) -> None:
        Witness.freed_by = threading.current_thread().name


class Prepared:
    def __init__(self) -> None:
        self.made: Witness | None = Witness()

    def forget(self) -> list[object]:
        gone, self.made = self.made, None
        return [gone]


def freed_by() -> str:
    deadline = monotonic() + TIMEOUT
    while not Witness.freed_by and monotonic() < deadline:
        threading.Event().wait(0.001)
    return Witness.freed_by


@pytest.mark.parametrize("is_over", [False, True])
def test_t22_rows_are_freed_by_a_thread_that_nobody_waits_for(*, is_over: bool) -> None:
    last, prepared, other = LastPrepared(1), Prepared(), Prepared()
    Witness.freed_by = ""
    last.used(prepared)
    last.done(prepared, is_over=is_over)
    assert (prepared.made is None) == is_over
    last.used(other)
    assert freed_by().startswith("freeing")
    assert prepared.made is None


def test_t22_an_open_job_is_freed_by_that_thread() -> None:
    Witness.freed_by = ""
    free_in_thread([Witness()])
    assert freed_by().startswith("freeing")
