"""A ledger that went back in time is found, goes into quarantine, and continues as its operator decides."""

import errno
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from facts import facts
from ledgers import (
    BUDGET,
    LIMITS,
    PRICE,
    SIGNED,
    SLACK,
    YEAR,
    Place,
    answer,
    opening,
    reserve,
    respond,
)

from dpspca.common.errors import BudgetExceededError, RefusedError
from dpspca.common.privacy.costs import Price
from dpspca.provider.ledger.database import Database
from dpspca.provider.ledger.entries import Head, LedgerDiskError, NotQuarantinedError
from dpspca.provider.ledger.files import COPY_BYTES, UNREADABLE, HeadFile
from dpspca.provider.ledger.ledger import QuarantinedError
from dpspca.provider.ledger.sqlite import SqliteLedger, export, missing_entries, verify


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")


def why(ledger: SqliteLedger, remembered: Head | None) -> str | None:
    """Tell what such a head file says of a ledger."""
    return missing_entries(ledger._state, remembered, lambda _: True)


@pytest.fixture
def used(place: Place) -> Place:
    """A ledger of one job, answered twice."""
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        for position in range(2):
            respond(ledger, "job", position)
    return place


def steps(ledger: SqliteLedger) -> Iterator[None]:
    """Run a job one commit at a time. It has no commit before its first query."""
    ledger.open(opening(), LIMITS)
    for position in range(2):
        assert reserve(ledger, "job", position)
        yield
        ledger.store("job", position, answer("job", position))
        yield
    ledger.close("job", "aborted")
    yield


def backups(place: Place) -> list[dict[Path, bytes]]:
    """Make a backup after every commit. The first is of a ledger without jobs."""
    with place.start() as ledger:
        made = [place.snapshot()]
        made += [place.snapshot() for _ in steps(ledger)]
    return made


def test_t12_every_older_backup_is_found(place: Place) -> None:
    """The exception is a backup that lacks only the last reservation, because nothing was sent for it yet."""
    *older, last = backups(place)
    for backup in older:
        place.restore(backup)
        assert "it went back" in verify(place.path, place.head)[0]
        with place.start() as ledger:
            assert ledger.quarantine is not None
            assert "it went back" in ledger.quarantine
            for refused in (
                lambda: ledger.open(opening("other"), LIMITS),
                lambda: ledger.open(opening(), LIMITS),
                lambda: reserve(ledger, "job", 0),
                lambda: ledger.close("job", "done"),
            ):
                with pytest.raises(QuarantinedError):
                    refused()
        assert verify(place.path, place.head)[0].startswith("Quarantined")
    place.restore(last)
    with place.start() as ledger:
        assert ledger.quarantine is None


def test_t12_a_quarantine_survives_restarts_until_it_is_ended(place: Place) -> None:
    place.restore(backups(place)[1])
    for _ in range(3):
        with place.start() as ledger:
            assert ledger.quarantine is not None
    assert [entry["kind"] for entry in export(place.path)].count("quarantined") == 1


def test_t12_restoring_the_newer_ledger_ends_the_quarantine(place: Place) -> None:
    made = backups(place)
    place.restore(made[2])
    place.start().shut()
    place.restore(made[-1])
    with place.start() as ledger:
        assert ledger.quarantine is None


def test_t12_the_end_of_a_quarantine_is_recorded_and_counts_everything(place: Place) -> None:
    place.restore(backups(place)[2])
    with place.start() as ledger:
        ledger.end_quarantine("restored after a disk failure, ticket 12", {"cohort": BUDGET})
        assert ledger.quarantine is None
        with pytest.raises(BudgetExceededError):
            ledger.open(opening("new", units=1, slack_units=0, issued_at=SIGNED + YEAR), LIMITS)
    ended = list(export(place.path))[-1]
    assert ended["reason"] == "restored after a disk failure, ticket 12"
    assert ended["counted"]["cohort"] == [BUDGET.whole.units - 3 * PRICE, BUDGET.whole.slack_units - 3 * SLACK]
    assert verify(place.path, place.head) == []
    with place.start() as ledger:
        assert ledger.quarantine is None
        assert ledger._state.data_sets["cohort"].spent.units == BUDGET.whole.units


def test_t12_an_operator_may_count_less_and_leave_the_rest_usable(place: Place) -> None:
    place.restore(backups(place)[2])
    with place.start() as ledger:
        ledger.end_quarantine("the lost answers are in the coordinator's journal", {}, {"cohort": Price(2 * PRICE, 0)})
        rest = opening("new", units=BUDGET.whole.units - 5 * PRICE, slack_units=0, issued_at=SIGNED + YEAR)
        with pytest.raises(BudgetExceededError):
            ledger.open(replace(rest, units=rest.units + 1), LIMITS)
        assert ledger.open(rest, LIMITS) is None
        with pytest.raises(RefusedError, match=facts("300 seconds")):
            ledger.open(opening("lost"), LIMITS)
    place.start().shut()


def test_t12_a_new_ledger_in_place_of_a_lost_one_is_found(used: Place) -> None:
    shutil.rmtree(used.path.parent)
    with used.start() as ledger:
        assert ledger.quarantine == why(ledger, Head("a" * 32, 1, "b" * 64))
        assert ledger.quarantine is not None
        ledger.end_quarantine("the disk is gone", {"cohort": BUDGET})
        with pytest.raises(BudgetExceededError):
            ledger.open(opening("new", units=1, slack_units=0, issued_at=SIGNED + YEAR), LIMITS)
    with used.start() as ledger:
        assert ledger.quarantine is None


def test_t12_a_ledger_that_diverged_after_a_backup_is_found(used: Place, tmp_path: Path) -> None:
    backup = used.snapshot()
    shutil.copytree(used.head.parent, tmp_path / "elsewhere")
    with used.start() as ledger:
        respond(ledger, "job", 2)
    used.restore(backup)
    with SqliteLedger(used.path, tmp_path / "elsewhere" / "head") as fork:
        for number in range(9):
            fork.open(opening(f"job {number}", data_set=f"set {number}"), LIMITS)
            respond(fork, f"job {number}", 0)
    with used.start() as ledger:
        assert ledger.quarantine is not None
        assert "another entry" in ledger.quarantine


def test_t12_a_missing_or_unreadable_head_file_is_found(used: Place) -> None:
    used.head.write_bytes(b"x" * 2 * COPY_BYTES)
    with used.start() as ledger:
        assert ledger.quarantine == why(ledger, UNREADABLE)
        ledger.end_quarantine("the file was overwritten, the ledger was not touched", {}, {"cohort": Price(0, 0)})
    used.start().shut()
    used.head.unlink()
    with used.start() as ledger:
        assert ledger.quarantine == why(ledger, None)


def test_without_a_quarantine_there_is_none_to_end(used: Place) -> None:
    with used.start() as ledger, pytest.raises(NotQuarantinedError):
        ledger.end_quarantine("just in case", {"cohort": BUDGET})


def test_after_a_power_cut_the_last_whole_head_counts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "head"
    heads = [Head("one", number, f"{number:064}") for number in range(1, 6)]
    file = HeadFile(path)
    assert file.read() is None
    for head in heads:
        file.write(head)
    file.end()
    whole = path.read_bytes()
    assert len(whole) == 2 * COPY_BYTES
    for start in range(COPY_BYTES, COPY_BYTES + 100):
        path.write_bytes(whole[:start] + bytes([whole[start] ^ 1]) + whole[start + 1 :])
        torn = HeadFile(path)
        assert torn.read() == heads[-2]
        torn.write(heads[-1])
        assert torn.read() == heads[-1]
        torn.end()


class Failing(HeadFile):
    """A head file whose disk can fail and recover."""

    broken = False

    def write(self, head: Head) -> None:
        if self.broken:
            raise OSError(errno.EIO, "broken")
        super().write(head)


def test_an_answer_is_not_sent_before_the_head_file_has_it(used: Place) -> None:
    made: list[Failing] = []

    def remember(path: Path) -> Failing:
        made.append(Failing(path))
        return made[0]

    with used.start(open_head_store=remember) as ledger:
        made[0].broken = True
        with pytest.raises(LedgerDiskError):
            respond(ledger, "job", 2)
        with pytest.raises(LedgerDiskError):
            ledger.stored("job", 2)
        made[0].broken = False
        again = ledger.stored("job", 2)
        assert again is not None
        assert (again == answer("job", 2)).all()
        assert made[0].read() == ledger.head()


def test_a_quarantine_is_found_without_reading_the_whole_ledger(place: Place) -> None:
    made = backups(place)
    assert quarantined(place) is None
    place.restore(made[2])
    for _ in range(2):  # a start is recorded after the quarantine
        place.start().shut()
        assert "it went back" in str(quarantined(place))


def quarantined(place: Place) -> str | None:
    with Database.readable(place.path) as database:
        return database.quarantine()
