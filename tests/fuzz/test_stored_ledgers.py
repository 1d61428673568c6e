"""Any damage to a ledger's files is reported as a clear error."""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import pytest
from damage import DEEP, VALUES, altered, damaged, damaged_pages, require_reason, written
from hypothesis import given
from hypothesis import strategies as st
from ledgers import LIMITS, Place, opening, quick_folder, respond

from dpspca.provider.ledger.entries import GENESIS, Entry, Head, LedgerError, Named, link
from dpspca.provider.ledger.files import COPY_BYTES, HeadFile, read_head
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.rules import LedgerState
from dpspca.provider.ledger.sqlite import export, read_ledger_state, verify


@cache
def told() -> tuple[dict[str, Any], ...]:
    """Return the entries of a ledger with most kinds of entries."""
    ledger = MemoryLedger(lambda: 5.0)
    for job in ("job", "other"):
        ledger.open(opening(job), LIMITS)
        respond(ledger, job, 0)
    ledger.name_rows(Named("cohort", ["a" * 64, "b" * 64], "c" * 32))
    ledger.close("job", "done")
    return tuple(json.loads(entry.content) for entry in ledger.entries)


def chained(lines: Sequence[str]) -> list[Entry]:
    """Chain lines as a ledger does. Anyone who can write the file can do this."""
    made: list[Entry] = []
    for line in lines:
        made.append(Entry.read(line, link(made[-1].hash if made else GENESIS, line)))
    return made


@given(st.data())
def test_t36_a_damaged_entry_is_refused_with_a_reason(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(told()) - 1))
    whole = chained([written(entry) for entry in told()])
    spoilt = data.draw(damaged(whole[place].content.encode())).decode("utf-8", "replace")

    def read() -> LedgerState:
        return LedgerState.replay([*whole[:place], Entry.read(spoilt, whole[place].hash), *whole[place + 1 :]])

    require_reason(read, LedgerError)


@given(st.data())
def test_t36_an_invalid_entry_in_a_valid_chain_is_refused_with_a_reason(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(told()) - 1))
    changed = [*told()[:place], data.draw(altered(told()[place])), *told()[place + 1 :]]
    require_reason(lambda: LedgerState.replay(chained([written(each) for each in changed])), LedgerError)


@cache
def shut_ledger() -> tuple[bytes, bytes]:
    """Return the bytes of a closed ledger and of its head file."""
    with quick_folder() as folder:
        place = Place(folder / "kept" / "ledger.db", folder / "second" / "head")
        with place.start() as ledger:
            ledger.open(opening(), LIMITS)
            respond(ledger, "job", 0)
        return place.path.read_bytes(), place.head.read_bytes()


@given(st.data())
def test_t36_a_damaged_ledger_file_is_used_or_refused_with_a_reason(data: st.DataObject) -> None:
    content, head = shut_ledger()
    with quick_folder() as folder:
        place = Place(folder / "kept" / "ledger.db", folder / "second" / "head")
        place.restore({place.path: data.draw(damaged_pages(content) | damaged(content))})
        place.head.parent.mkdir(mode=0o700)
        place.head.touch(0o600)
        place.head.write_bytes(data.draw(damaged(head) | st.just(head)))
        for read in (
            lambda: verify(place.path, place.head),
            lambda: read_ledger_state(place.path),
            lambda: list(export(place.path)),
            lambda: use(place),
        ):
            require_reason(read)


@pytest.mark.parametrize("word", [b"CREATE", b"KEY"])
def test_t36_a_ledger_with_tables_not_defined_in_text_is_refused(word: bytes) -> None:
    """SQLite's own message would quote it."""
    content, head = shut_ledger()
    with quick_folder() as folder:
        place = Place(folder / "kept" / "ledger.db", folder / "second" / "head")
        place.restore({place.path: content.replace(word, word[:-1] + b"\x80")})
        place.head.parent.mkdir(mode=0o700)
        place.head.touch(0o600)
        place.head.write_bytes(head)
        assert verify(place.path, place.head)
        require_reason(lambda: use(place), LedgerError)


def use(place: Place) -> None:
    """Do everything that a daemon does."""
    with place.start() as ledger:
        ledger.standing("job")
        ledger.stored("job", 0)
        ledger.open(opening("next"), LIMITS)
        respond(ledger, "next", 0)
        ledger.expire(2.0**40)


def test_t36_an_endlessly_nested_entry_is_refused_with_a_reason() -> None:
    require_reason(lambda: Entry.read(DEEP, GENESIS), LedgerError)


def summed(value: Any) -> bytes:
    """Return a copy in the head file with any content and a correct checksum."""
    text = written(value).encode()
    return text + b" " + sha256(text).hexdigest().encode() + b"\n"


HEADS = altered({"turn": 3, "ledger": "one", "entries": 9, "hash": "0" * 64}) | VALUES


@st.composite
def head_files(draw: st.DrawFn) -> bytes:
    """Return two copies with any content and correct checksums."""
    return b"".join(summed(value).ljust(COPY_BYTES) for value in draw(st.lists(HEADS, max_size=2)))


@given(st.binary(max_size=1100) | head_files())
def test_t36_a_damaged_head_file_gives_a_head_or_is_unreadable(content: bytes) -> None:
    with quick_folder() as folder:
        path = folder / "head"
        path.touch(0o600)
        path.write_bytes(content)
        found = read_head(path)
        assert found is None or (isinstance(found.ledger, str) and isinstance(found.entries, int))
        second = HeadFile(path)
        try:
            second.write(Head("one", 3, "0" * 64))
            assert second.read() == Head("one", 3, "0" * 64)
        finally:
            second.end()
