"""Patterns for ``pytest.raises``: the facts that a message has to name, in any order and whatever its sentences are."""

import errno
import os
import re
from enum import Enum
from typing import Final

PROSE: Final = re.compile(r"(?<![\w/'-])[a-z]+ [a-z]+ [a-z]+(?![\w-])")
"""Three words in a row. A command is written within backticks, as in a message."""
_OF_THE_SYSTEM: Final = frozenset(map(os.strerror, errno.errorcode))


def facts(*named: object) -> str:
    """Return a pattern for a text that names each of these, as a whole word or number where it is one.

    A fact is what a reworded message still names: a value, a limit, a choice, a name, a key, an option, a file, a line
    or a command. What is wrong is not a fact. The class of the error, and so its code, says that. A tuple is several. A
    member of an enumeration is a value, whatever its words.
    """
    each = [fact for some in named for fact in (some if isinstance(some, tuple) else (some,))]
    assert each, "a text without facts says nothing"
    for fact in each:
        is_value = isinstance(fact, Enum) or str(fact) in _OF_THE_SYSTEM
        assert is_value or not is_prose(str(fact)), f"a part of a sentence is no fact: {fact}"
    return "(?s)" + "".join(f"(?=.*{_whole(str(fact))})" for fact in each)


def names_facts(text: str, *named: object) -> bool:
    """Tell whether a text names each of these facts."""
    return re.search(facts(*named), text) is not None


def is_prose(text: str) -> bool:
    """Tell whether a text has a part of a sentence, outside of commands."""
    return PROSE.search(re.sub(r"`[^`]*`?", "", text)) is not None


def a_line_names(text: str, *named: object) -> bool:
    """Tell whether one line of a text names all of these facts."""
    return any(names_facts(line, *named) for line in text.splitlines())


def _whole(fact: str) -> str:
    before = r"(?<![\w.])" if re.match(r"\d", fact) else r"(?<!\w)" if re.match(r"\w", fact) else ""
    after = r"(?!\w|\.\d)" if re.search(r"\d$", fact) else r"(?!\w)" if re.search(r"\w$", fact) else ""
    return before + re.escape(fact) + after
