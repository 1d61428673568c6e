"""Patterns for ``pytest.raises``: the facts that a message has to name, in any order and whatever its sentences are."""

import re


def facts(*named: object) -> str:
    """Return a pattern for a text that names each of these, as a whole word or number where it is one.

    A fact is what a reworded message still names: a value, a limit, a choice, a name, a key, an option, a file, a line
    or a command. What is wrong is not a fact. The class of the error, and so its code, says that. A tuple is several.
    """
    each = [fact for some in named for fact in (some if isinstance(some, tuple) else (some,))]
    assert each, "a text without facts says nothing"
    return "(?s)" + "".join(f"(?=.*{_whole(str(fact))})" for fact in each)


def _whole(fact: str) -> str:
    before = r"(?<![\w.])" if re.match(r"\d", fact) else r"(?<!\w)" if re.match(r"\w", fact) else ""
    after = r"(?!\w|\.\d)" if re.search(r"\d$", fact) else r"(?!\w)" if re.search(r"\w$", fact) else ""
    return before + re.escape(fact) + after
