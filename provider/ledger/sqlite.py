"""The durable ledger: one SQLite file, one writer, and a head file that notices when the file goes back in time.

A start replays every entry, so that every balance follows from the chain. It then compares the ledger with the head
file, and later with receipts that others kept. If the ledger lacks entries that these show, it may have forgotten what
was spent. Then it goes into quarantine, and answers nothing until an operator states what counts as spent.

The head file is written and synced after every commit that allows something to be sent. If a crash comes between the
two, the head file only lacks what was never sent, and the next start accepts that.
"""

import gc
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np

from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.privacy import Filter, Price
from dpspca.common.storage import files, sqlite_file

from .accounts import QueryRecord
from .database import Connect, Database
from .entries import (
    Closed,
    DamagedLedgerError,
    Entry,
    Fact,
    Founded,
    Head,
    Keyed,
    LedgerDiskError,
    LedgerError,
    Quarantined,
    Reserved,
    Started,
)
from .files import UNREADABLE, HeadFile, WriterLock, file_errors, make_row_key, read_head, read_row_key, row_key_path
from .ledger import ANSWER, BaseLedger, Clock, StoredAnswer
from .past_jobs import PastJob, past_job
from .row_key import KEY_BYTES, RowKey
from .rules import QUARANTINED, LedgerState

__all__ = ["SqliteLedger", "export", "read_ledger_state", "verify"]

HEAD_FILE: Final = "The head file shows"
RECEIPT: Final = "A receipt that was sent with an answer shows"


class HeadStore(Protocol):
    """The place apart from the ledger where its head is kept."""

    def read(self) -> Head | None: ...
    def write(self, head: Head) -> None: ...
    def end(self) -> None: ...


OpenHeadStore: TypeAlias = Callable[[Path], HeadStore]


class SqliteLedger(BaseLedger):
    """A ledger in a file. The process that constructs it is its one writer until ``shut``."""

    def __init__(
        self,
        path: Path,
        head_path: Path,
        *,
        clock: Clock = time.time,
        connect: Connect = sqlite_file.connect,
        open_head_store: OpenHeadStore = HeadFile,
    ) -> None:
        super().__init__(clock, self._find_end)
        # Long enough that the hash of the chain does not allow anybody to guess the rest of the entry.
        self.instance = token_hex(16)
        self._key: RowKey | None = None
        self._passing_key = RowKey(token_bytes(KEY_BYTES))
        with ExitStack() as cleanup:
            for folder in (path.parent, head_path.parent):
                files.make_private_folder(folder)
            hold = WriterLock(path.with_name(f"{path.name}.lock"), self.instance)
            cleanup.callback(hold.end)
            with file_errors(head_path):
                self._head_store = open_head_store(head_path)
                cleanup.callback(self._head_store.end)
                remembered = self._head_store.read()
            self._path = path
            self._database = Database.writable(path, connect)
            cleanup.callback(self._database.close)
            self._covered: Head | None = None
            self._start(remembered)
            self._cleanup = cleanup.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()

    def shut(self) -> None:
        """Finish the write in progress and close the files. No job is closed."""
        with self._lock:
            self._cleanup.close()

    def end_quarantine(
        self, reason: str, budgets: Mapping[str, Filter], counted: Mapping[str, Price] | None = None
    ) -> None:
        """End a quarantine as an operator decided. The decision is an entry like any other.

        ``counted`` states what was spent on a data set beyond what the ledger shows. One in ``budgets`` but not in
        ``counted`` counts as wholly spent. One in neither stays refused until it is named later. Jobs signed before now
        are refused, because their answers may be in the entries that are lost.
        """
        with self._lock:
            self._record(replace(self._state.to_end_quarantine(reason, budgets, counted or {}), ledger=token_hex(16)))

    def key_names(self) -> None:
        """Replace everything that identifies rows by names under a key. This happens once, before any job.

        A new ledger gets a key. Of a ledger that an earlier version wrote, every entry is rewritten, in one
        transaction: after a crash the file has all old entries or all new ones, and the next call goes on. A ledger in
        quarantine stays as it is, as evidence.
        """
        with self._lock:
            if self._state.keyed is not None or self.quarantine is not None:
                return
            self._key = self._key or make_row_key(self._path)
            if self._state.rows:
                self._rewrite(self._key)
            else:
                self._record(Keyed(self._key.check))

    def _rewrite(self, key: RowKey) -> None:
        state = LedgerState(self._find_end)

        def changed(entries: Iterable[Entry]) -> Iterator[tuple[Entry, str | None]]:
            """Hide rows in each entry, and check that the entries are still a ledger."""
            for old in entries:
                new = old.after(state.head, key.hide(old.fact))
                state.append(new)
                yield new, key.hide_hash(old.hash)
            (last,) = state.draft(int(self._clock()), [Keyed(key.check, state.head.entries)])
            state.append(last)
            yield last, None

        self._database.rewrite(self._state.head, changed)
        self._state = state
        self._state.trim()
        self._cover()
        self._database.empty_log()

    def _row_key(self) -> RowKey:
        """Return the key. In quarantine nothing is answered, and no row needs a name that lasts."""
        if self._key is not None and self._state.keyed is not None:
            return self._key
        if self.quarantine is None:
            raise LedgerError("The ledger has no key for the names of rows yet.", "Start the provider again.")
        return self._passing_key

    def attested_head(self) -> Head | None:
        with self._lock:
            return self._covered

    def check_head(self, seen: Head) -> str | None:
        with self._lock:
            reason = missing_entries(self._state, seen, has_entry(self._database, self._state, self._key), RECEIPT)
            if reason is None or self._state.is_decided(seen):
                return None
            self._record(Quarantined.over(reason, seen))
            return reason

    def _start(self, remembered: Head | None) -> None:
        with _no_garbage_collection():
            for entry in self._database.entries():
                self._state.append(entry)
        self._require_findable()
        self._key = read_row_key(self._path)
        require_row_key(self._path, self._state, self._key)
        stored = {job for job, _ in self._database.answers()}  # raises if an answer belongs to no query
        reason = missing_entries(self._state, remembered, has_entry(self._database, self._state, self._key))
        self._record(
            None if self._state.head.entries else Founded(token_hex(16)),
            Quarantined.over(reason, remembered) if reason and not self.quarantine else None,
            Started(self.instance),
        )
        # A crash or an earlier version may have left answers of jobs that are over.
        self._drop_those([job for job in self._state.ended if job in stored])
        if self._state.rewritten:  # a crash may have come before this
            self._database.empty_log()

    def _record(self, *facts: Fact | None, answer: StoredAnswer | None = None) -> bool:
        changed = super()._record(*facts, answer=answer)
        # Nothing is sent because of a reservation alone: the head file is written with its answer, which saves a sync.
        if changed and not any(isinstance(fact, Reserved) for fact in facts):
            self._cover()
        return changed

    def _cover(self) -> None:
        """Write the head to the head file. In quarantine the head file stays as it is, as evidence."""
        head = self._state.head
        if self.quarantine is None and self._covered != head:
            try:
                self._head_store.write(head)
            except OSError as problem:
                raise LedgerDiskError(
                    "The provider cannot write its head file, so nothing was answered.",
                    "The provider's operator must check that disk.",
                ) from problem
            self._covered = head

    def _write(self, entries: Sequence[Entry], answer: StoredAnswer | None) -> None:
        self._database.write(self._state.head, entries, answer)

    def _fetch(self, job: str, position: int, query: QueryRecord) -> Integers | None:
        self._cover()
        answer = query.answer
        content = np.empty(answer.bytes if answer else 0, dtype=np.uint8)
        filled, piece = 0, None
        try:
            for piece in self._database.pieces(job, position):
                content[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                filled += len(piece)
        except (sqlite3.Error, ValueError) as problem:
            raise _answer_lost() from problem
        if answer is None or piece is None:
            return None
        if sha256(content.data).hexdigest() != answer.sha256:
            raise _answer_lost()
        content.setflags(write=False)
        return content.view(ANSWER).reshape(answer.shape)

    def _drop(self) -> None:
        self._drop_those(self._state.ended)

    def _drop_those(self, ended: list[str]) -> None:
        """Delete the answers of these jobs, and trim jobs that are over. A ledger in quarantine stays as it was."""
        if self.quarantine is not None:
            return
        if ended:
            self._database.drop(self._state.head, ended)
        self._state.trim()
        self._database.make_room()

    def _find_end(self, job: str, entries: int) -> str | None:
        """Find in the entries how a job ended. An opened job that is neither open nor closed was quarantined."""
        facts = self._database.of_job(job, entries)
        if not facts:
            return None
        return facts[-1].state if isinstance(facts[-1], Closed) else QUARANTINED

    def all_decisions(self, job: str) -> tuple[Entry, ...]:
        with self._lock:
            return self._database.decisions(job, self._state.head.entries)

    def _forgotten_job(self, job: str) -> PastJob | None:
        return past_job(self._database.entries_of(job, self._state.head.entries), QUARANTINED)

    def _require_findable(self) -> None:
        """Refuse a file whose index lacks a job, which could be answered again with fresh noise, or a decision."""
        found = self._database.openings(), self._database.decision_count()
        if found != (len(self._state.jobs), self._state.decided):
            raise DamagedLedgerError("The ledger is damaged: its index lacks some entries.", "Restore a backup.")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause the cyclic garbage collector. Reading makes no cycles, and collecting adds a quarter to its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


HasEntry: TypeAlias = Callable[[Head], bool]
"""Tells whether a ledger has the entry at a head, also if it was rewritten since."""


def has_entry(database: Database, state: LedgerState, key: RowKey | None) -> HasEntry:
    """Return a function that says whether a ledger's file has an entry."""

    def has(head: Head) -> bool:
        if database.hash_at(head.entries) == head.hash:
            return True
        if key is None or head.entries > state.rewritten:
            return False
        return key.was_hidden(head.hash, database.hidden_hash(head.entries))

    return has


def require_row_key(ledger: Path, state: LedgerState, key: RowKey | None) -> None:
    """Refuse a ledger without its key for the names of rows. With another key, all rows would have a new budget."""
    if state.keyed is None or (key is not None and key.check == state.keyed.check):
        return
    path = row_key_path(ledger)
    raise DamagedLedgerError(
        f"The ledger's key for the names of rows is missing: {path}."
        if key is None
        else f"{path} is not the key for the names of rows in this ledger.",
        "Restore it from a backup of the ledger's folder. Without it, nobody can tell which rows have a budget. If no "
        "copy is left, handle the ledger as lost: see docs/ledger.md.",
    )


def missing_entries(state: LedgerState, remembered: Head | None, has: HasEntry, who: str = HEAD_FILE) -> str | None:
    """Describe what a ledger lacks, as a head file or a receipt shows. Return None if it lacks nothing."""
    head = state.head
    if remembered is None:
        return "The head file is empty, but the ledger has jobs." if state.has_jobs else None
    if remembered == UNREADABLE:
        return "The head file cannot be read."
    if remembered.ledger not in state.names:
        return f"{who} another ledger than this one."
    if remembered.entries > head.entries:
        return f"{who} {remembered.entries} entries, but the ledger has {head.entries}: it went back."
    if not has(remembered):
        return f"{who} another entry {remembered.entries} than the ledger has."
    return None


def _answer_lost() -> LedgerError:
    return DamagedLedgerError(
        "The stored answer is damaged.", "Sign a new job. The provider's operator can run `dpspca ledger verify`."
    )


# --- Reading beside a daemon that writes ------------------------------------------------------------------------------


def read_ledger_state(path: Path) -> LedgerState:
    """Compute all balances, and what left, from the entries as they are now."""
    with Database.readable(path) as database:
        return LedgerState.replay(database.entries())


def export(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every entry with its hash, in order."""
    with Database.readable(path) as database:
        for entry in database.entries():
            yield entry.to_dict()


def verify(path: Path, head_path: Path | None = None) -> list[str]:
    """List in words everything that is wrong with a ledger."""
    remembered = read_head(head_path) if head_path else None
    try:
        with file_errors(path), Database.readable(path) as database:
            return list(_problems(path, database, remembered, beside=head_path is not None))
    except DpspcaError as problem:
        return [str(problem)]


def _problems(path: Path, database: Database, remembered: Head | None, *, beside: bool) -> Iterator[str]:
    yield from database.damages()
    key = read_row_key(path)
    state = LedgerState.replay(database.entries())
    if state.quarantine:
        yield f"Quarantined: {state.quarantine}"
    elif beside and (found := missing_entries(state, remembered, has_entry(database, state, key))):
        yield found
    try:
        require_row_key(path, state, key)
    except LedgerError as problem:
        yield problem.what
    yield from _answer_problems(database, state)


def _answer_problems(database: Database, state: LedgerState) -> Iterator[str]:
    kept = set(database.answers())
    for job, position in sorted(kept):
        query = state.query(job, position)
        digest = sha256()
        for piece in database.pieces(job, position):
            digest.update(piece)
        if query is None or query.answer is None:
            yield f"Query {position + 1} of job {job} has a stored answer but no entry."
        elif digest.hexdigest() != query.answer.sha256:
            yield f"The answer to query {position + 1} of job {job} is not the one that was stored."
    for name, found in state.jobs.items():
        for position, asked in enumerate(found.queries):
            if found.state is None and asked.answer and (name, position) not in kept:
                yield f"The answer to query {position + 1} of job {name} is missing."
