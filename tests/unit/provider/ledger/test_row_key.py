"""A ledger holds names of rows under a key. They tell nothing without it, and equal rows have equal names."""

import json
import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from facts import facts
from ledgers import LIMITS, Place, opening, respond

from dpspca.common.errors import UnsafeFileError
from dpspca.provider.ledger.entries import DamagedLedgerError, Keyed, LedgerError, Named
from dpspca.provider.ledger.files import row_key_path
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.row_key import KEY_BYTES, RowKey
from dpspca.provider.ledger.sqlite import SqliteLedger, export, verify

DIGEST, PRINT = sha256(b"all rows").hexdigest(), sha256(b"their content").hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")


def used(ledger: SqliteLedger, job: str = "job", data_set: str = "cohort") -> None:
    """Answer a query as this version does: with names of rows."""
    rows = Named(data_set, [ledger.name_of(PRINT)], "b" * 32)
    ledger.open(opening(job, data_digest=ledger.name_of(DIGEST), data_set=data_set, blind="a" * 32), LIMITS, rows)
    respond(ledger, job, 0)


def used_by_an_earlier_version(place: Place) -> None:
    """Write a ledger with two jobs whose entries have the digest and fingerprint themselves."""
    with place.start() as ledger:
        for job in ("done", "open"):
            ledger.open(opening(job, data_digest=DIGEST, blind="a" * 32), LIMITS, Named("cohort", [PRINT], "b" * 32))
            respond(ledger, job, 0)
        ledger.close("done", "done")


def written(place: Place) -> bytes:
    """Everything that is on the disk, but the key."""
    files = [each for each in place.path.parent.iterdir() if each != row_key_path(place.path)]
    return b"".join(each.read_bytes() for each in (*files, place.head))


def spent(ledger: SqliteLedger) -> list[tuple[int, int]]:
    accounts = ledger._state.data_sets["cohort"]
    return [accounts.spent.pair, accounts.reserved.pair]


def test_names_differ_from_key_to_key_and_from_what_they_are_about() -> None:
    one, other = RowKey(b"1" * KEY_BYTES), RowKey(b"2" * KEY_BYTES)
    made = [one.name_of(DIGEST), one.name_of(PRINT), other.name_of(DIGEST), one.hide_hash(DIGEST), one.check, DIGEST]
    assert len(set(made)) == len(made)
    assert one.names_of([DIGEST, PRINT]) == {one.name_of(DIGEST), one.name_of(PRINT)}
    assert one.name_of(DIGEST) == RowKey.from_text(one.to_text()).name_of(DIGEST)
    assert "1" * KEY_BYTES not in repr(one)
    assert one.secret.hex() not in repr(one)


@pytest.mark.parametrize("content", [b"", b"31" * 31, b"31" * 33, b"zz" * 32, b"\xff" * 64])
def test_a_damaged_key_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedLedgerError):
        RowKey.from_text(content)


def test_t45_a_guess_of_rows_matches_nothing_in_a_ledger_or_its_export(place: Place) -> None:
    with place.start() as ledger:
        ledger.key_names()
        used(ledger)
    for secret in (DIGEST, PRINT):
        assert secret.encode() not in written(place)
    lines = [json.dumps(line) for line in export(place.path)]
    key = row_key_path(place.path).read_bytes().strip().decode()
    assert not any(secret in line for line in lines for secret in (DIGEST, PRINT, key))


def test_the_same_rows_have_the_same_name_after_a_restart(place: Place) -> None:
    with place.start() as ledger:
        ledger.key_names()
        used(ledger)
    with place.start() as ledger:
        ledger.key_names()
        assert ledger.data_set_of_rows([ledger.name_of(PRINT)]) == "cohort"
        assert ledger.data_set_of_rows([ledger.name_of(DIGEST)]) == "cohort"
        assert ledger.data_set_of_rows([PRINT, DIGEST]) is None
        entries = ledger.head().entries
        ledger.key_names()
        assert ledger.head().entries == entries


def test_every_ledger_has_a_key_of_its_own_that_only_its_owner_reads(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other" / "ledger.sqlite", tmp_path / "third" / "head")
    names = set()
    for each in (place, other):
        with each.start() as ledger:
            ledger.key_names()
            names.add(ledger.name_of(DIGEST))
        assert stat.S_IMODE(row_key_path(each.path).stat().st_mode) == 0o600
    names |= {MemoryLedger().name_of(DIGEST), MemoryLedger().name_of(DIGEST)}
    assert len(names) == 4


def test_nothing_is_named_before_there_is_a_key(place: Place) -> None:
    with place.start() as ledger, pytest.raises(LedgerError):
        ledger.name_of(DIGEST)


# --- A key that is lost -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["missing", "other", "damaged", "shared"])
def test_t45_a_ledger_without_its_key_is_refused_and_gives_no_new_budget(place: Place, change: str) -> None:
    with place.start() as ledger:
        ledger.key_names()
        used(ledger)
    path = row_key_path(place.path)
    content = path.read_bytes()
    if change == "missing":
        path.unlink()
    elif change == "shared":
        path.chmod(0o644)
    else:
        path.write_bytes(RowKey(os.urandom(KEY_BYTES)).to_text() if change == "other" else b"half")
    before = {each: content for each, content in place.snapshot().items() if each == place.path}
    with pytest.raises(DamagedLedgerError if change != "shared" else UnsafeFileError) as caught:
        place.start()
    assert caught.value.remedy
    assert {each: each.read_bytes() for each in before} == before
    assert path.exists() == (change != "missing")  # no new key is made
    if change != "shared":
        path.touch(0o600)
        path.write_bytes(content)
    path.chmod(0o600)
    with place.start() as ledger:
        ledger.key_names()
        assert ledger.data_set_of_rows([ledger.name_of(PRINT)]) == "cohort"
        assert ledger.quarantine is None


def test_verify_says_that_the_key_is_missing(place: Place) -> None:
    with place.start() as ledger:
        ledger.key_names()
    assert verify(place.path, place.head) == []
    row_key_path(place.path).unlink()
    (found,) = verify(place.path, place.head)
    assert "key" in found


# --- A ledger of an earlier version -----------------------------------------------------------------------------------


def test_an_earlier_ledger_keeps_its_balances_jobs_and_answers(place: Place) -> None:
    used_by_an_earlier_version(place)
    with place.start() as ledger:
        before, balances = ledger.head(), spent(ledger)
        answer = ledger.stored("open", 0)
        ledger.key_names()
        assert spent(ledger) == balances
        assert ledger.open_jobs() == ("open",)
        kept = ledger.stored("open", 0)
        assert answer is not None
        assert kept is not None
        assert kept.tobytes() == answer.tobytes()
        assert (ledger.head().ledger, ledger.head().entries) == (before.ledger, before.entries + 1)
        past_job = ledger.past_job("done")
        assert past_job is not None
        assert past_job.state == "done"
        again = opening("open", data_digest=ledger.name_of(DIGEST))
        standing = ledger.open(again, LIMITS)
        assert standing is not None
        assert standing.reached == 1
        respond(ledger, "open", 1)
    assert verify(place.path, place.head) == []


def test_an_earlier_ledger_knows_its_rows_under_their_names(place: Place) -> None:
    used_by_an_earlier_version(place)
    with place.start() as ledger:
        ledger.key_names()
        for identifier in (DIGEST, PRINT):
            assert ledger.data_set_of_rows([ledger.name_of(identifier)]) == "cohort"


def test_t45_nothing_of_an_earlier_ledger_s_hashes_stays_on_the_disk(place: Place) -> None:
    """Not in free pages, not in the log, and no hash of the old chain, which shows whether a guess is right."""
    used_by_an_earlier_version(place)
    old = [str(line["hash"]) for line in export(place.path)]
    assert DIGEST.encode() in written(place)
    with place.start() as ledger:
        before = len(old) + 1  # the start is an entry, too
        ledger.key_names()
        log = place.path.with_name(f"{place.path.name}-wal")
        inside = place.path.read_bytes() + log.read_bytes()
        assert ledger.head().entries == before + 1
    for content in (inside, place.path.read_bytes()):
        for secret in (DIGEST, PRINT, "a" * 32, "b" * 32, *old[2:]):
            assert secret.encode() not in content


def test_heads_from_before_are_still_compared(place: Place) -> None:
    """Receipts of them are with the coordinator and other providers."""
    used_by_an_earlier_version(place)
    with place.start() as ledger:
        before = ledger.head()
        ledger.key_names()
        assert ledger.check_head(before) is None
        other = "0" if before.hash[0] != "0" else "1"
        assert ledger.check_head(type(before)(before.ledger, before.entries, other + before.hash[1:])) is not None
        assert ledger.quarantine is not None


def test_a_ledger_in_quarantine_stays_as_it_is(place: Place) -> None:
    used_by_an_earlier_version(place)
    place.head.write_bytes(b"")
    with place.start() as ledger:
        assert ledger.quarantine is not None
        entries = ledger.head().entries
        ledger.key_names()
        assert ledger.head().entries == entries
        assert ledger.data_set_of_rows([ledger.name_of(DIGEST)]) is None  # and nothing is answered
        ledger.end_quarantine("known", {}, {})
        ledger.key_names()
        assert ledger.data_set_of_rows([ledger.name_of(DIGEST)]) == "cohort"
    with place.start() as ledger:
        assert ledger.quarantine is None


def test_a_second_rewriting_does_not_follow(place: Place) -> None:
    used_by_an_earlier_version(place)
    with place.start() as ledger:
        ledger.key_names()
        state = ledger._state
        (again,) = state.draft(5, [Keyed("c" * 64, state.head.entries)])
        with pytest.raises(DamagedLedgerError, match=facts("Entry 13")):
            state.append(again)
