"""A receipt finds a ledger that went back together with its head file, and ending one quarantine settles that."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from ledgers import LIMITS, SIGNED, YEAR, Place, answer, opening, reserve, respond

from dpspca.common.privacy.costs import Price
from dpspca.provider.ledger.entries import Entry, Head, Quarantined, QuarantineEnded
from dpspca.provider.ledger.ledger import QuarantinedError
from dpspca.provider.ledger.sqlite import SqliteLedger, export, read_ledger_state, verify

NEW = {"issued_at": SIGNED + YEAR, "expires_at": SIGNED + 2 * YEAR}
NOTHING = {"cohort": Price(0, 0)}
TELLS = "A receipt that was sent with an answer shows"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")


@dataclass(frozen=True)
class Backup:
    """A copy of a ledger and its head file at one moment."""

    place: Place
    files: dict[Path, bytes]
    head: bytes

    @classmethod
    def of(cls, place: Place) -> "Backup":
        return cls(place, place.snapshot(), place.head.read_bytes())

    def restore(self) -> None:
        self.place.restore(self.files)
        self.place.head.write_bytes(self.head)


def told_by(ledger: SqliteLedger) -> Head:
    """Return the head that is sent with an answer."""
    head = ledger.attested_head()
    assert head is not None
    return head


@dataclass(frozen=True)
class Lost:
    """A ledger restored together with its head file, and the heads that were sent before and since the backup."""

    place: Place
    before: list[Head]
    since: list[Head]


@pytest.fixture
def lost(place: Place) -> Lost:
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        respond(ledger, "job", 0)
        before = [told_by(ledger)]
        respond(ledger, "job", 1)
        before.append(told_by(ledger))
    backup = Backup.of(place)
    since = []
    with place.start() as ledger:
        ledger.open(opening("other"), LIMITS)
        for position in range(3):
            respond(ledger, "other", position)
            since.append(told_by(ledger))
    backup.restore()
    assert verify(place.path, place.head) == []  # the head file alone is deceived
    return Lost(place, before, since)


def quarantines(place: Place) -> int:
    return [entry["kind"] for entry in export(place.path)].count("quarantined")


def test_t12_a_receipt_finds_a_ledger_restored_with_its_head_file(lost: Lost) -> None:
    with lost.place.start() as ledger:
        assert ledger.quarantine is None
        ledger.check_head(lost.since[0])
        assert ledger.quarantine is not None
        for refused in (
            lambda: ledger.open(opening("new", **NEW), LIMITS),
            lambda: reserve(ledger, "other", 0),
            lambda: ledger.query_digest("job", 0),
            lambda: ledger.stored("job", 0),
            lambda: ledger.close("other", "done"),
        ):
            with pytest.raises(QuarantinedError):
                refused()
    assert verify(lost.place.path, lost.place.head)[0].startswith(f"Quarantined: {TELLS}")


def test_t12_the_reason_says_how_far_the_ledger_went_back(lost: Lost) -> None:
    with lost.place.start() as ledger:
        reason = ledger.check_head(lost.since[-1])
        assert reason == ledger.quarantine
        told, left = lost.since[-1].entries, ledger.head().entries - 1
        assert reason == f"{TELLS} {told} entries, but the ledger has {left}: it went back."


def test_t12_older_receipts_change_nothing(lost: Lost) -> None:
    with lost.place.start() as ledger:
        entries = ledger.head().entries
        for head in lost.before:
            assert ledger.check_head(head) is None
        assert (ledger.quarantine, ledger.head().entries) == (None, entries)
        respond(ledger, "job", 2)


def test_t12_a_diverged_copy_is_found_whichever_is_longer(lost: Lost) -> None:
    with lost.place.start() as ledger:
        for number in range(3):
            ledger.open(opening(f"job {number}", data_set=f"set {number}"), LIMITS)
            for position in range(3):
                respond(ledger, f"job {number}", position)
        assert ledger.head().entries > lost.since[-1].entries
        assert "another entry" in str(ledger.check_head(lost.since[-1]))


def test_t12_a_receipt_finds_a_new_ledger_in_place_of_a_lost_one(lost: Lost) -> None:
    shutil.rmtree(lost.place.path.parent)
    lost.place.head.unlink()
    with lost.place.start() as ledger:
        assert ledger.quarantine is None
        assert ledger.check_head(lost.before[0]) == f"{TELLS} another ledger than this one."
        with pytest.raises(QuarantinedError):
            ledger.open(opening("new", **NEW), LIMITS)


def test_t12_a_quarantine_by_receipt_survives_restarts_recorded_once(lost: Lost) -> None:
    for _ in range(3):
        with lost.place.start() as ledger:
            ledger.check_head(lost.since[-1])
            assert ledger.quarantine is not None
    assert quarantines(lost.place) == 1


def test_t12_ending_a_quarantine_settles_lost_entries_but_no_later_ones(lost: Lost) -> None:
    with lost.place.start() as ledger:
        ledger.check_head(lost.since[1])
        ledger.end_quarantine("counted by hand", {}, NOTHING)
    for _ in range(2):
        with lost.place.start() as ledger:
            for head in (*lost.before, *lost.since[:2]):
                assert ledger.check_head(head) is None
            assert ledger.quarantine is None
    with lost.place.start() as ledger:
        ledger.open(opening("new", **NEW), LIMITS)
        respond(ledger, "new", 0)
        assert ledger.check_head(lost.since[2]) is not None


def test_t12_a_second_rollback_after_a_quarantine_is_found(lost: Lost) -> None:
    """Fewer entries are lost than were settled before, but they are not mistaken for those."""
    place = lost.place
    with place.start() as ledger:
        ledger.check_head(Head(lost.since[0].ledger, 1000, "0" * 64))
        ledger.end_quarantine("counted by hand", {}, NOTHING)
    backup = Backup.of(place)
    with place.start() as ledger:
        ledger.open(opening("new", **NEW), LIMITS)
        respond(ledger, "new", 0)
        newest = told_by(ledger)
    backup.restore()
    with place.start() as ledger:
        assert newest.entries < 1000
        assert "it went back" in str(ledger.check_head(newest))


def test_t12_a_lost_end_of_a_quarantine_is_found(lost: Lost) -> None:
    before = Backup.of(lost.place)
    with lost.place.start() as ledger:
        ledger.check_head(lost.since[-1])
        ledger.end_quarantine("counted by hand", {}, NOTHING)
        ledger.open(opening("new", **NEW), LIMITS)
        respond(ledger, "new", 0)
        newest = told_by(ledger)
    before.restore()
    with lost.place.start() as ledger:
        assert ledger.check_head(newest) == f"{TELLS} another ledger than this one."


def test_t12_a_receipt_does_not_repeat_an_ended_quarantine(
    place: Place,
) -> None:
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        backup = place.snapshot()
        respond(ledger, "job", 0)
        newest = told_by(ledger)
    place.restore(backup)
    with place.start() as ledger:
        assert "head file" in str(ledger.quarantine)
        ledger.end_quarantine("counted by hand", {}, NOTHING)
        assert ledger.check_head(newest) is None
        assert ledger.quarantine is None


def test_t12_a_receipt_with_more_entries_is_recorded_in_quarantine(lost: Lost) -> None:
    lost.place.head.unlink()
    with lost.place.start() as ledger:
        assert "head file" in str(ledger.quarantine)
        assert "went back" in str(ledger.check_head(lost.since[-1]))
        ledger.end_quarantine("counted by hand", {}, NOTHING)
        assert ledger.check_head(lost.since[-1]) is None


def test_t12_the_head_file_has_the_new_name_after_a_quarantine(lost: Lost) -> None:
    names = [lost.before[0].ledger]
    for number in (1, 2):
        with lost.place.start() as ledger:
            ledger.check_head(Head("elsewhere", number, "0" * 64))
            ledger.end_quarantine("counted by hand", {}, NOTHING)
            names.append(ledger.head().ledger)
        assert verify(lost.place.path, lost.place.head) == []
        lost.place.start().shut()
        assert read_ledger_state(lost.place.path).head.ledger == names[-1]
    assert len(set(names)) == 3


def test_receipts_never_show_what_a_power_cut_could_undo(place: Place) -> None:
    """A receipt leaves out a reservation that is not in the head file yet, because a crash may undo it."""
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        opened = told_by(ledger)
        assert reserve(ledger, "job", 0)
        assert told_by(ledger) == opened
        ledger.store("job", 0, answer("job", 0))
        assert told_by(ledger) == ledger.head()


@pytest.mark.parametrize("fact", [Quarantined("why"), QuarantineEnded("why", {"cohort": [1, 2]})])
def test_older_quarantines_and_their_ends_can_be_read(fact: Quarantined | QuarantineEnded) -> None:
    """Older software wrote no head into a quarantine, and no new name into its end."""
    written = Entry.following(Head("x", 1, "0" * 64), 7, fact).to_dict()
    old = {name: value for name, value in written.items() if name in {"number", "at", "kind", "reason", "counted"}}
    assert len(written) > len(old) + 1
    assert Entry.read(json.dumps(old), "").fact == fact


def test_a_ledger_from_before_receipts_is_migrated(place: Place) -> None:
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        respond(ledger, "job", 0)
    place.tamper("DROP INDEX entries_of_jobs", "DROP INDEX decisions_of_jobs", "PRAGMA user_version = 1")
    with place.start() as ledger:
        respond(ledger, "job", 1)
    assert place.tamper("PRAGMA user_version") == [(7,)]
