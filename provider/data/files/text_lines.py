"""Lines of text, as far as one line may be long."""

from collections.abc import Iterator
from typing import Final, TextIO

LONGEST_LINE: Final = 2**24
"""In characters. Of the rows that a provider protects, a longer one cannot be used."""


def whole_lines(text: TextIO, longest: int = LONGEST_LINE) -> Iterator[str]:
    """Yield each line, and an empty one in place of a line that is too long.

    Otherwise one row could take all memory, and whether there is an answer would depend on it.
    """
    is_long = has_cut_end = False
    while part := text.readline(longest):
        if has_cut_end and part == "\n":  # the second half of the end before
            has_cut_end = False
        elif len(part) < longest or part.endswith(("\r", "\n")):
            yield "" if is_long else part
            is_long, has_cut_end = False, len(part) == longest and part.endswith("\r")
        else:
            is_long, has_cut_end = True, False
    if is_long:
        yield ""
