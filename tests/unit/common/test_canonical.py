"""A record is read from the one form in which it is written, and from no other bytes."""

import json
from dataclasses import dataclass
from typing import Annotated

import pytest
from facts import facts

from dpspca.common.checks import check
from dpspca.common.decoding import between, read_canonical, written
from dpspca.common.errors import InvalidDataError

FORM = "a-record-1"


@dataclass(frozen=True, slots=True)
class Counted:
    """A record for this test."""

    name: str
    count: Annotated[int, between(0, 9)]
    since: str | None = None
    """A field that a later version added."""

    def check(self) -> None:
        check(self.name != "nobody", "The record names nobody.", "Name somebody.")


def read(content: bytes) -> Counted:
    return read_canonical(Counted, content, FORM, "The record of a test")


def test_what_was_written_is_read() -> None:
    record = Counted("north", 3)
    assert read(written(record, FORM)) == record
    assert written(record, FORM) == b'{"count":3,"format":"a-record-1","name":"north"}'
    later = Counted("north", 3, "then")
    assert read(written(later, FORM)) == later
    assert written(later, FORM) == b'{"count":3,"format":"a-record-1","name":"north","since":"then"}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        written(Counted("north", 3), "a-record-2"),
        written(Counted("north", 10), FORM),
        written(Counted("nobody", 3), FORM),
        b'{"count":3,"format":"a-record-1"}',
        b'{"count":3,"format":"a-record-1","name":"north","more":1}',
        b'{"count":3,"format":"a-record-1","name":"north","since":null}',
    ],
)
def test_what_is_no_such_record_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidDataError, match=facts("record")):
        read(content)


@pytest.mark.parametrize("change", [b" ", b"\n", b"\x00"])
def test_other_bytes_for_the_same_record_are_refused(change: bytes) -> None:
    content = written(Counted("north", 3), FORM)
    spaced = json.dumps(json.loads(content)).encode()
    unsorted = b'{"name":"north","count":3,"format":"a-record-1"}'
    for other in (content + change, spaced, unsorted):
        with pytest.raises(InvalidDataError, match=facts("record")):
            read(other)
