"""The ledger that lasts: one SQLite file, one writer, and a head file that notices when the file goes back in time.

A start replays every entry, so that no balance is believed that the chain does not give. It then holds the ledger
against the head file, and later against what witnesses were told of it; where the ledger lacks what these remember,
it may have forgotten what was spent, and it quarantines itself: nothing is answered until an operator has said what
counts as spent (``release``).

The head file is written, and synced, after every commit that lets something be sent. A crash between the two leaves
it behind by what was never sent, which the next start accepts.
"""

import gc
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np

from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.privacy import Filter, Price
from dpspca.common.storage import files, sqlite_file

from .accounts import QueryRecord
from .database import Connect, Database
from .entries import Closed, Entry, Fact, Founded, Head, LedgerError, Quarantined, Reserved, Started
from .files import UNREADABLE, HeadFile, WriterLock, file_errors, read_head
from .ledger import ANSWER, BaseLedger, Clock, StoredAnswer
from .rules import QUARANTINED, Books

__all__ = ["SqliteLedger", "export", "read_books", "verify"]

HEAD_FILE: Final = "The head file remembers"
WITNESS: Final = "A receipt that was given with an answer tells of"


class HeadStore(Protocol):
    """Where the head is remembered."""

    def read(self) -> Head | None: ...
    def write(self, head: Head) -> None: ...
    def end(self) -> None: ...


OpenHeadStore: TypeAlias = Callable[[Path], HeadStore]


class SqliteLedger(BaseLedger):
    """A ledger in a file. Whoever constructs it is its one writer, until ``shut``."""

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
        # Enough that nobody outside who is told the hash of the chain can try out what else is in it.
        self.instance = token_hex(16)
        with ExitStack() as cleanup:
            for folder in (path.parent, head_path.parent):
                files.make_private_folder(folder)
            hold = WriterLock(path.with_name(f"{path.name}.lock"), self.instance)
            cleanup.callback(hold.end)
            with file_errors(head_path):
                self._head_store = open_head_store(head_path)
                cleanup.callback(self._head_store.end)
                remembered = self._head_store.read()
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
        """Let go of the files once what is being written is there; the ledger stays as it is."""
        with self._lock:
            self._cleanup.close()

    @property
    def quarantine(self) -> str | None:
        """Why nothing is answered, if so."""
        return self._books.quarantine

    def release(self, reason: str, budgets: Mapping[str, Filter], counted: Mapping[str, Price] | None = None) -> None:
        """End a quarantine, as an operator decided; the decision is an entry like any other.

        ``counted`` says what of a data set was spent beyond what these books show. Of a data
        set of ``budgets`` that is not in it everything counts as spent; one in neither stays refused until a later
        release names it. Jobs signed before now are refused: their answers may be in the part that is lost.
        """
        with self._lock:
            released = self._books.to_release(reason, budgets, counted or {})
            self._record(replace(released, ledger=token_hex(16)))

    def attested_head(self) -> Head | None:
        with self._lock:
            return self._covered

    def check_head(self, seen: Head) -> str | None:
        with self._lock:
            reason = missing_entries(self._books, seen, self._database.hash_at, WITNESS)
            if reason is None or self._books.is_decided(seen):
                return None
            self._record(Quarantined.over(reason, seen))
            return reason

    def _start(self, remembered: Head | None) -> None:
        with _no_garbage_collection():
            for entry in self._database.entries():
                self._books.append(entry)
        self._require_findable()
        kept = {job for job, _ in self._database.answers()}  # refuses what is no answer of any query
        reason = missing_entries(self._books, remembered, self._database.hash_at)
        self._record(
            None if self._books.head.entries else Founded(token_hex(16)),
            Quarantined.over(reason, remembered) if reason and not self.quarantine else None,
            Started(self.instance),
        )
        # A crash, or an earlier version, may have left answers of jobs that are over.
        self._drop_those([job for job in self._books.ended if job in kept])

    def _record(self, *facts: Fact | None, answer: StoredAnswer | None = None) -> bool:
        changed = super()._record(*facts, answer=answer)
        # Nothing leaves on the strength of a reservation alone: it is remembered with its answer, for one sync less.
        if changed and not any(isinstance(fact, Reserved) for fact in facts):
            self._cover()
        return changed

    def _cover(self) -> None:
        """Have the head file remember everything; in quarantine it keeps what it saw, as evidence."""
        head = self._books.head
        if self.quarantine is None and self._covered != head:
            try:
                self._head_store.write(head)
            except OSError as problem:
                raise LedgerError(
                    "The provider cannot write its head file, so nothing was answered.",
                    "The provider's operator must check that disk.",
                ) from problem
            self._covered = head

    def _write(self, entries: Sequence[Entry], answer: StoredAnswer | None) -> None:
        self._database.write(self._books.head, entries, answer)

    def _fetch(self, job: str, position: int, query: QueryRecord) -> Integers | None:
        self._cover()
        told = query.answer
        content = np.empty(told.bytes if told else 0, dtype=np.uint8)
        filled, piece = 0, None
        try:
            for piece in self._database.pieces(job, position):
                content[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                filled += len(piece)
        except (sqlite3.Error, ValueError) as problem:
            raise _answer_lost() from problem
        if told is None or piece is None:
            return None
        if sha256(content.data).hexdigest() != told.sha256:
            raise _answer_lost()
        content.setflags(write=False)
        return content.view(ANSWER).reshape(told.shape)

    def _drop(self) -> None:
        self._drop_those(self._books.ended)

    def _drop_those(self, ended: list[str]) -> None:
        """Drop the answers of jobs, and leave jobs to their entries; a ledger in quarantine stays as it was found."""
        if self.quarantine is not None:
            return
        if ended:
            self._database.drop(self._books.head, ended)
        self._books.trim()
        self._database.make_room()

    def _find_end(self, job: str, entries: int) -> str | None:
        """Find among the entries how a job ended. What was opened, and is neither open nor closed, was quarantined."""
        facts = self._database.of_job(job, entries)
        if not facts:
            return None
        return facts[-1].state if isinstance(facts[-1], Closed) else QUARANTINED

    def _require_findable(self) -> None:
        """Refuse a file whose index lacks a job: that job could be admitted again, and answered with fresh noise."""
        if self._database.openings() != len(self._books.jobs):
            raise LedgerError("The ledger is damaged: its index lacks some jobs.", "Restore a backup.")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Let nobody look for garbage in cycles: reading makes none, and looking takes a quarter as long as reading."""
    looking = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looking:
            gc.enable()


def missing_entries(
    books: Books, remembered: Head | None, hash_at: Callable[[int], str | None], who: str = HEAD_FILE
) -> str | None:
    """Say what a head file, or somebody else, remembers that a ledger lacks; None if it lacks nothing."""
    head = books.head
    if remembered is None:
        return "The head file remembers nothing of this ledger." if books.has_jobs else None
    if remembered == UNREADABLE:
        return "The head file cannot be read."
    if remembered.ledger not in books.names:
        return f"{who} another ledger than this one."
    if remembered.entries > head.entries:
        return f"{who} {remembered.entries} entries, the ledger has {head.entries}: it went back."
    if hash_at(remembered.entries) != remembered.hash:
        return f"{who} another entry {remembered.entries} than the ledger has."
    return None


def _answer_lost() -> LedgerError:
    return LedgerError(
        "The stored answer is damaged.", "Sign a new job. The provider's operator can run `dpspca ledger verify`."
    )


# --- Reading beside a daemon that writes ------------------------------------------------------------------------------


def read_books(path: Path) -> Books:
    """Work out all balances, and what left, from the entries as they are now."""
    with Database.readable(path) as database:
        return Books.replay(database.entries())


def export(path: Path) -> Iterator[dict[str, Any]]:
    """Give every entry with its hash, in order."""
    with Database.readable(path) as database:
        for entry in database.entries():
            yield entry.to_dict()


def verify(path: Path, head_path: Path | None = None) -> list[str]:
    """Say in words all that is wrong with a ledger; nothing if it is as it was written."""
    remembered = read_head(head_path) if head_path else None
    try:
        with file_errors(path), Database.readable(path) as database:
            return list(_problems(database, remembered, beside=head_path is not None))
    except DpspcaError as problem:
        return [str(problem)]


def _problems(database: Database, remembered: Head | None, *, beside: bool) -> Iterator[str]:
    yield from database.damages()
    books = Books.replay(database.entries())
    if books.quarantine:
        yield f"Quarantined: {books.quarantine}"
    elif beside and (found := missing_entries(books, remembered, database.hash_at)):
        yield found
    yield from _answer_problems(database, books)


def _answer_problems(database: Database, books: Books) -> Iterator[str]:
    kept = set(database.answers())
    for job, position in sorted(kept):
        query = books.query(job, position)
        digest = sha256()
        for piece in database.pieces(job, position):
            digest.update(piece)
        if query is None or query.answer is None:
            yield f"Query {position + 1} of job {job} has a kept answer and no entry."
        elif digest.hexdigest() != query.answer.sha256:
            yield f"The kept answer to query {position + 1} of job {job} is not the one that was stored."
    for name, found in books.jobs.items():
        for position, asked in enumerate(found.queries):
            if found.state is None and asked.answer and (name, position) not in kept:
                yield f"The answer to query {position + 1} of job {name} is not kept."
