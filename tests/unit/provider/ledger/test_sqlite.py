"""The ledger in a file: its one writer, the files it refuses, and what it costs."""

import errno
import gc
import json
import os
import random
import re
import shutil
import sqlite3
import stat
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from disks import Connection, Disk, RecordedHeadFile, Shim
from facts import facts, names_facts
from ledgers import EXPIRY, LIMITS, PRICE, SIGNED, SLACK, Place, answer, opening, reserve, respond, standing_at

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError, RefusedError, UnsafeFileError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.storage.sqlite_file import connect
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.database import MIGRATIONS, Database, migrate
from dpspca.provider.ledger.entries import (
    GENESIS,
    DamagedLedgerError,
    Entry,
    Head,
    LedgerDiskError,
    LedgerInUseError,
    Reserved,
    Stored,
    link,
)
from dpspca.provider.ledger.ledger import LedgerError, Opening
from dpspca.provider.ledger.sqlite import SqliteLedger, export, read_ledger_state, verify
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder

SPEC = JobSpec(
    schema=Schema(6),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 6, "rounds": 3},
    method="dps-pca",
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")


@pytest.fixture
def used(place: Place) -> Place:
    """A ledger of one job, answered twice."""
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        for position in range(2):
            respond(ledger, "job", position)
    return place


# --- Restarts ---------------------------------------------------------------------------------------------------------


def test_a_restart_changes_nothing(used: Place) -> None:
    before = list(export(used.path))
    with used.start() as ledger:
        assert ledger.standing("job") == standing_at(2)
        again = ledger.stored("job", 1)
        assert again is not None
        assert (again == answer("job", 1)).all()
        assert not reserve(ledger, "job", 1)
        respond(ledger, "job", 2)
    after = list(export(used.path))
    assert after[: len(before)] == before
    assert [entry["kind"] for entry in after[len(before) :]] == ["started", "reserved", "stored"]


def test_files_and_folders_are_this_users_alone(used: Place) -> None:
    with used.start():
        for folder in (used.path.parent, used.head.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            for path in folder.iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("which", ["path", "head"])
def test_a_folder_in_which_others_can_write_is_refused(used: Place, which: str) -> None:
    getattr(used, which).parent.chmod(0o770)
    with pytest.raises(UnsafeFileError, match=facts(f"`chmod 700 {getattr(used, which).parent}`")):
        used.start()


def test_a_ledger_that_others_can_read_is_refused(used: Place) -> None:
    used.path.chmod(0o644)
    with pytest.raises(LedgerError, match=facts(f"`chmod 600 {used.path}`")):
        used.start()


def test_exported_entries_form_the_chain(used: Place) -> None:
    entries = list(export(used.path))
    assert [entry["kind"] for entry in entries][:3] == ["founded", "started", "opened"]
    assert [entry["number"] for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[2]["signature_hash"] == "5" * 64
    rows = used.tamper("SELECT content FROM entries ORDER BY number")
    previous = GENESIS
    for entry, (content,) in zip(entries, rows, strict=True):
        previous = link(previous, content)
        assert entry["hash"] == previous


def test_readers_see_the_ledger_while_its_daemon_writes_it(used: Place) -> None:
    with used.start() as ledger:
        reading = export(used.path)
        first = next(reading)
        ledger.open(opening("other"), LIMITS)
        respond(ledger, "other", 0)
        assert first["kind"] == "founded"
        assert "other" not in {entry.get("job") for entry in reading}
        assert read_ledger_state(used.path).data_sets["cohort"].spent.units == 3 * PRICE
        assert [each.position for each in read_ledger_state(used.path).outbox()] == [0, 1, 0]
        assert verify(used.path, used.head) == []


def test_reading_never_creates_a_ledger(place: Place) -> None:
    place.path.parent.mkdir()
    for read in (read_ledger_state, lambda path: list(export(path))):
        with pytest.raises(LedgerError, match=facts(place.path, "`dpspca ledger end-quarantine --help`")):
            read(place.path)
    assert "no ledger at" in verify(place.path)[0]
    assert not place.path.exists()


def responder(ledger: SqliteLedger, job: str, *, rows: Any = None) -> Responder:
    data = check_rows(np.random.default_rng(7).standard_normal((40, 6)))
    return Responder(catalogue.plan(SPEC), rows or Shard(data, SPEC.norm_bound), ledger, system_entropy, job=job)


def priced(job: str) -> Opening:
    events = catalogue.plan(SPEC).events
    price = {"units": cost_units(events), "slack_units": slack_units(events)}
    return opening(job, spec_epsilon=SPEC.budget.epsilon, spec_delta=SPEC.budget.delta, **price)


def test_t05_a_restarted_provider_sends_the_same_bytes_and_continues(place: Place) -> None:
    queries = [CovarianceProduct(np.eye(6)[:, :2])] * 3
    sent = []
    for position in range(3):
        with place.start() as ledger:
            ledger.open(priced("job"), LIMITS)
            asked = responder(ledger, "job")
            assert [asked.respond(at, queries[at]).tobytes() for at in range(position)] == sent
            sent.append(asked.respond(position, queries[position]).tobytes())
    state = read_ledger_state(place.path)
    assert [each.query for each in state.outbox()] == [step.name for step in catalogue.plan(SPEC)]
    assert state.jobs["job"].account.reserved.units == 0
    assert state.jobs["job"].account.spent.units == priced("job").units


def test_a_lost_answer_is_made_after_a_restart_or_stays_paid_for(place: Place) -> None:
    class Broken:
        def check(self, job: JobSpec) -> None:
            pass

        def evaluate(self, query: RowQuery) -> Integers:
            raise MemoryError

    planned = CovarianceProduct(np.eye(6)[:, :2])
    with place.start() as ledger:
        ledger.open(priced("job"), LIMITS)
        with pytest.raises(MemoryError):
            responder(ledger, "job", rows=Broken()).respond(0, planned)
        ledger.open(replace(priced("other"), data_set="elsewhere"), LIMITS)
        with pytest.raises(MemoryError):
            responder(ledger, "other", rows=Broken()).respond(0, planned)
    with place.start() as ledger:
        answers = {responder(ledger, "job").respond(0, planned).tobytes() for _ in range(2)}
        paid = ledger.standing("job")
        for job in ("job", "other"):
            ledger.close(job, "aborted")
    assert len(answers) == 1
    assert paid is not None
    accounts = read_ledger_state(place.path).data_sets
    gone = {name: (account.spent.units, account.reserved.units) for name, account in accounts.items()}
    assert gone == dict.fromkeys(("cohort", "elsewhere"), (paid.spent.units, 0))


def test_a_job_that_was_not_opened_is_refused(place: Place) -> None:
    with place.start() as ledger, pytest.raises(RefusedError, match=facts("Job job")):
        responder(ledger, "job").respond(0, CovarianceProduct(np.eye(6)[:, :2]))


# --- One writer -------------------------------------------------------------------------------------------------------


def test_t13_a_second_writer_gets_an_error_that_names_the_first(used: Place) -> None:
    with used.start() as first:
        with pytest.raises(LedgerInUseError, match=facts(f"process {os.getpid()}", first.instance)):
            used.start()
        respond(first, "job", 2)
    used.start().shut()


def test_t13_a_copy_of_the_ledger_with_the_same_head_file_is_refused(used: Place, tmp_path: Path) -> None:
    shutil.copytree(used.path.parent, tmp_path / "copy")
    with used.start(), pytest.raises(LedgerInUseError, match=facts(used.head)):
        SqliteLedger(tmp_path / "copy" / "ledger.sqlite", used.head)


def test_t13_a_second_writer_past_the_locks_is_found_before_reserving(used: Place) -> None:
    """The lock file was deleted and the head file copied, so two daemons have one ledger. Only the later continues."""
    with used.start() as first:
        used.path.with_name("ledger.sqlite.lock").unlink()
        shutil.copytree(used.head.parent, used.head.parent.with_name("third"))
        with SqliteLedger(used.path, used.head.parent.with_name("third") / "head") as second:
            for attempted in (
                lambda: first.open(opening("other"), LIMITS) or reserve(first, "other", 0),
                lambda: reserve(first, "job", 2),
                lambda: first.close("job", "done"),
                lambda: first.expire(EXPIRY),
            ):
                with pytest.raises(LedgerInUseError):
                    attempted()
            respond(second, "job", 2)
    assert read_ledger_state(used.path).data_sets["cohort"].spent.units == 3 * PRICE


def test_t11_two_daemons_past_the_locks_never_overspend(used: Place) -> None:
    """Both admit jobs as fast as they can, and only one of them finds the ledger as it left it."""
    with used.start() as first:
        used.path.with_name("ledger.sqlite.lock").unlink()
        shutil.copytree(used.head.parent, used.head.parent.with_name("third"))
        with SqliteLedger(used.path, used.head.parent.with_name("third") / "head") as second:

            def spend(ledger: SqliteLedger, name: str) -> None:
                for number in range(6):
                    try:
                        ledger.open(opening(f"{name} {number}", units=2 * PRICE, slack_units=2 * SLACK), LIMITS)
                        reserve(ledger, f"{name} {number}", 0)
                    except DpspcaError:
                        continue

            threads = [threading.Thread(target=spend, args=each) for each in ((first, "first"), (second, "second"))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    account = read_ledger_state(used.path).data_sets["cohort"]
    assert account.spent.units + account.reserved.units == 9 * PRICE


# --- What it refuses to start on --------------------------------------------------------------------------------------


class Careless:
    """A connection that ignores how the ledger sets it to sync."""

    def __init__(self, path: Path, pragma: str) -> None:
        self._connection = connect(path)
        self._connection.execute(f"PRAGMA {pragma}")
        self._pragma = pragma.partition(" ")[0]

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Iterable[tuple[Any, ...]]:
        if sql.startswith(f"PRAGMA {self._pragma} ="):
            sql = f"PRAGMA {self._pragma}"
        return self._connection.execute(sql, parameters)

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize(
    "pragma", ["synchronous = OFF", "synchronous = NORMAL", "synchronous = FULL", "journal_mode = MEMORY"]
)
def test_t14_a_database_that_does_not_sync_is_refused(place: Place, pragma: str) -> None:
    with pytest.raises(LedgerError, match=facts("SQLite", "synchronous", "journal")):
        place.start(connect=lambda path: Careless(path, pragma))
    with place.start() as ledger:
        assert ledger.head().entries == 2


NO_LEDGERS: list[tuple[Callable[[Place], Any], type[LedgerError]]] = [
    (lambda place: place.path.write_text("a list of names\n" * 100), DamagedLedgerError),
    (lambda place: place.tamper("CREATE TABLE theirs (x)"), LedgerError),
    (lambda place: place.tamper("PRAGMA application_id = 7"), LedgerError),
]


@pytest.mark.parametrize(("make", "kind"), NO_LEDGERS, ids=["text", "another database", "another application"])
def test_a_file_that_is_not_a_ledger_is_refused_and_unchanged(
    place: Place, make: Callable[[Place], Any], kind: type[LedgerError]
) -> None:
    place.restore({place.path: b""})
    make(place)
    before = place.path.read_bytes()
    with pytest.raises(kind, match=facts(place.path)):
        place.start()
    assert place.path.read_bytes() == before


def test_entries_before_one_that_cannot_be_read_are_still_read(used: Place) -> None:
    """Entries are parsed many at a time."""
    with Database.readable(used.path) as database:
        whole = list(database.entries())
    used.tamper("DROP TRIGGER entries_are_never_changed", "UPDATE entries SET content = '{' WHERE number = 3")
    read = []
    with Database.readable(used.path) as database, pytest.raises(DamagedLedgerError):
        read.extend(database.entries())
    assert read == whole[:2]


@pytest.mark.parametrize("version", [len(MIGRATIONS) + 1, 1000, 0, -1])
def test_an_unknown_version_is_refused_and_unchanged(used: Place, version: int) -> None:
    used.tamper(f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerError, match=facts(used.path, *([version, len(MIGRATIONS)] if version > 0 else []))):
        used.start()
    used.tamper(f"PRAGMA user_version = {len(MIGRATIONS)}")
    used.start().shut()


NEXT_VERSION = (*MIGRATIONS, ("CREATE TABLE witnesses (receipt TEXT)", "CREATE TABLE more (x)"))


def test_a_migration_keeps_every_entry_and_raises_the_version(used: Place) -> None:
    before = list(export(used.path))
    connection = connect(used.path)
    migrate(connection, NEXT_VERSION)
    assert connection.execute("SELECT count(*) FROM witnesses").fetchall() == [(0,)]
    rows = connection.execute("SELECT content, hash FROM entries ORDER BY number")
    assert [Entry.read(*row).to_dict() for row in rows] == before
    connection.close()
    with pytest.raises(LedgerError, match=facts(len(MIGRATIONS) + 1, len(MIGRATIONS))):
        used.start()


def test_a_migration_that_fails_leaves_the_old_version(used: Place) -> None:
    connection = connect(used.path)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*NEXT_VERSION, ("CREATE TABLE more (x)",)))
    connection.close()
    with used.start() as ledger:
        assert ledger.standing("job") == standing_at(2)
    assert used.tables() == ["answers", "earlier_hashes", "entries"]


def test_new_and_migrated_files_have_the_same_tables(place: Place) -> None:
    place.restore({place.path: b""})
    connection = connect(place.path)
    migrate(connection)
    connection.close()
    tables = place.tables()
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
    assert place.tables() == tables == ["answers", "earlier_hashes", "entries"]


def test_triggers_stop_changing_removing_or_skipping_entries(used: Place) -> None:
    for statement in (
        "UPDATE entries SET content = ''",
        "DELETE FROM entries WHERE number = 5",
        "INSERT INTO entries VALUES (1000, '', '')",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=facts("entries")):
            used.tamper(statement)


def test_an_entry_changed_without_triggers_is_found_at_the_next_start(used: Place) -> None:
    used.tamper(
        "DROP TRIGGER entries_are_never_changed",
        "UPDATE entries SET content = replace(content, 'query 0', 'query 9')",
    )
    with pytest.raises(DamagedLedgerError, match=facts("entry 4")):
        used.start()
    assert names_facts(verify(used.path, used.head)[0], "entry 4")


def test_any_damaged_page_is_a_ledger_error(used: Place) -> None:
    """For every damaged page, the ledger starts with every balance right or reports the damage."""
    whole, head = used.path.read_bytes(), used.head.read_bytes()
    refused = 0
    for start in range(0, len(whole), 4096):
        used.restore({used.path: whole[:start] + random.Random(start).randbytes(4096) + whole[start + 4096 :]})
        used.head.write_bytes(head)
        try:
            with used.start() as ledger:
                assert ledger._state.data_sets["cohort"].spent.units == 2 * PRICE
                for position in range(2):
                    served(ledger, position)
        except LedgerError as problem:
            if not re.search("damaged|no ledger|cannot be (used|read|written)|chain breaks", problem.what):
                raise
            refused += 1
    assert refused >= 2


def served(ledger: SqliteLedger, position: int) -> None:
    """Require the answer that was sent or a refusal, and never another answer."""
    try:
        again = ledger.stored("job", position)
    except LedgerError as problem:
        if "is damaged" not in problem.what:
            raise
        return
    assert again is None or (again == answer("job", position)).all()


@pytest.mark.parametrize("change", ["zeroblob(length(content))", "substr(content, 1, 8)", "content || content"])
def test_a_stored_answer_that_was_changed_is_never_sent(used: Place, change: str) -> None:
    used.tamper(f"UPDATE answers SET content = {change} WHERE position = 1")  # noqa: S608  # the changes above
    assert names_facts(verify(used.path, used.head)[0], "query 2", "job job")
    with used.start() as ledger:
        assert ledger.stored("job", 0) is not None
        with pytest.raises(DamagedLedgerError, match=facts("`dpspca ledger verify`")):
            ledger.stored("job", 1)


def test_a_stored_answer_that_was_removed_is_never_replaced(used: Place) -> None:
    used.tamper("DELETE FROM answers")
    with used.start() as ledger:
        assert ledger.stored("job", 1) is None
        with pytest.raises(RefusedError, match=facts("Query 2")):
            ledger.store("job", 1, answer("job", 1))


def test_verify_lists_missing_and_extra_answers(used: Place) -> None:
    used.tamper("UPDATE answers SET position = 7 WHERE position = 1")
    assert verify(used.path, used.head) == [
        "Query 8 of job job has a stored answer but no entry.",
        "The answer to query 2 of job job is missing.",
    ]


def test_an_unwritable_folder_is_a_ledger_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UnsafeFileError, match=facts(tmp_path / "file" / "kept", os.strerror(errno.ENOTDIR))):
        Place(tmp_path / "file" / "kept" / "ledger.sqlite", tmp_path / "head" / "head").start()


def test_a_read_only_disk_is_a_ledger_error_and_spends_nothing(used: Place) -> None:
    disk = Disk(refuse=read_only)
    shim = Shim("only reads", disk)
    with pytest.raises(LedgerDiskError):
        used.start(connect=lambda path: Connection(path, shim))
    assert read_ledger_state(used.path).data_sets["cohort"].spent.units == 2 * PRICE


def read_only(_tried: int, _step: object) -> None:
    raise apsw.ReadOnlyError("read-only")


# --- What it costs ----------------------------------------------------------------------------------------------------


class Counting:
    """A connection that counts statements."""

    def __init__(self, path: Path, statements: list[str]) -> None:
        self._connection, self._statements = connect(path), statements

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Iterable[tuple[Any, ...]]:
        self._statements.append(sql)
        return self._connection.execute(sql, parameters)

    def close(self) -> None:
        self._connection.close()


def test_an_answer_takes_few_statements_at_any_ledger_length(place: Place) -> None:
    statements: list[str] = []
    counts = set()
    with place.start(connect=lambda path: Counting(path, statements)) as ledger:
        for number in range(30):
            ledger.open(opening(f"job {number}", data_set=f"set {number}"), LIMITS)
            statements.clear()
            respond(ledger, f"job {number}", 0, entries=5000)
            counts.add(len(statements))
    assert counts == {10}  # begin, look, write two, commit; and once more, with the answer


def test_admitting_a_job_reads_no_stored_answers(place: Place) -> None:
    statements: list[str] = []
    with place.start(connect=lambda path: Counting(path, statements)) as ledger:
        for number in range(3):
            statements.clear()
            ledger.expire(EXPIRY - 1)
            ledger.open(opening(f"job {number}", data_set=f"set {number}"), LIMITS)
            assert not [each for each in statements if "answers" in each]
            respond(ledger, f"job {number}", 0)


def test_answers_from_before_a_restart_are_deleted_when_the_job_ends(used: Place) -> None:
    with used.start() as ledger:
        ledger.expire(EXPIRY - 1)
        assert ledger.stored("job", 0) is not None
        ledger.expire(EXPIRY)
    with closing(sqlite3.connect(used.path)) as connection:
        assert list(connection.execute("SELECT count(*) FROM answers")) == [(0,)]


def test_a_small_answer_costs_two_synced_commits_and_a_synced_head(place: Place) -> None:
    disk = Disk()
    shim = Shim("counts syncs", disk)
    with place.start(
        connect=lambda path: Connection(path, shim), open_head_store=lambda path: RecordedHeadFile(path, disk)
    ) as ledger:
        ledger.open(opening(), LIMITS)
        before = len(disk.steps)
        respond(ledger, "job", 0, entries=5000)
        synced = [step.name for step in disk.steps[before:] if step.kind == "sync"]
    assert synced == ["ledger.sqlite-wal", "ledger.sqlite-wal", "head"]


@pytest.mark.slow
def test_an_answer_of_80_megabytes_is_stored_and_read_without_copies(place: Place) -> None:
    made = np.arange(10**7).reshape(-1, 5)
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        assert reserve(ledger, "job", 0)
        tracemalloc.start()
        ledger.store("job", 0, made)
        assert tracemalloc.get_traced_memory()[1] < 8e6
        again = ledger.stored("job", 0)
        assert tracemalloc.get_traced_memory()[1] < made.nbytes + 8e6
        tracemalloc.stop()
        assert np.array_equal(made, np.asarray(again))


@pytest.mark.nightly
def test_a_start_takes_at_most_five_times_parsing_and_hashing_the_lines(
    place: Place,
) -> None:
    """Some four and a half times. Both are timed in turns, so that a machine that slows down slows both."""
    with place.start() as ledger:
        ledger._database.write(ledger.head(), long_story(ledger.head()), None)
        lines = [entry.content for entry in ledger._database.entries()]
    assert len(lines) > 100_000
    ratios = []
    for _ in range(5):
        begun = time.process_time()
        for line in lines:
            json.loads(line)
            sha256(line.encode()).hexdigest()
        parsed = time.process_time()
        with place.start() as ledger:
            ratios.append((time.process_time() - parsed) / (parsed - begun))
    assert statistics.median(ratios) < 5


def long_story(head: Head) -> Iterator[Entry]:
    for number in range(1000):
        job = f"{number:064}"
        facts: list[Any] = [opening(job, units=50, slack_units=50)]
        for position in range(50):
            facts.append(Reserved(job, position, "product", "d" * 64, 1, 1))
            facts.append(Stored(job, position, [1000, 5], 40_000, "a" * 64))
        for fact in facts:
            entry = Entry.following(head, SIGNED, fact)
            yield entry
            head = Head(head.ledger, entry.number, entry.hash)


@pytest.mark.parametrize("collecting", [True, False])
def test_a_start_leaves_garbage_collection_as_it_was(place: Place, *, collecting: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with place.start():
            assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()
