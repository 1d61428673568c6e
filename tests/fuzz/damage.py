"""Damage to a stored file: to its bytes, or to the values in it."""

import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st
from messages import EDGES, spoiled

from dpspca.common.errors import DpspcaError

PAGE: Final = 4096
ANY_TEXT: Final = st.text(st.characters(exclude_categories=[]), max_size=12)
"""Including lone surrogates, which JSON can hold."""
SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([*EDGES, -1, -(2**63), 2**63, 2**64, 10**400]),
    st.floats(),
    ANY_TEXT,
    st.sampled_from(["done", "cohort", "0" * 64, "2026-01-01T00:00:00+00:00"]),
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(ANY_TEXT, deeper, max_size=3),
    max_leaves=6,
)
DEEP: Final = "[" * 100_000
"""Nested more deeply than any reader accepts."""


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """Change one part of a value: replace it, remove it, or add to it."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 4)) == 0:
        return draw(VALUES)
    if isinstance(value, list):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(altered(value[place])), *value[place + 1 :]]
    key = draw(st.sampled_from(sorted(value)))
    match draw(st.sampled_from(["change", "change", "change", "leave out", "add"])):
        case "leave out":
            return {name: each for name, each in value.items() if name != key}
        case "add":
            return value | {draw(ANY_TEXT): draw(VALUES)}
        case _:
            return value | {key: draw(altered(value[key]))}


def written(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Damage bytes at one or two positions."""
    return spoiled(content) | spoiled(content).flatmap(spoiled)


@st.composite
def damaged_pages(draw: st.DrawFn, content: bytes) -> bytes:
    """Damage pages near their beginning, where the page header is."""
    pages = st.integers(0, len(content) // PAGE - 1)
    made = bytearray(content)
    for page, at, value in draw(
        st.lists(st.tuples(pages, st.integers(0, 120), st.integers(0, 255)), min_size=1, max_size=6)
    ):
        made[page * PAGE + at] = value
    return bytes(made)


def require_reason(read: Callable[[], object], kind: type[DpspcaError] = DpspcaError) -> None:
    """Require that a read succeeds, or fails with an error of this package."""
    words: tuple[str, ...] = ("read", "")
    try:
        read()
    except kind as problem:
        words = problem.what, problem.remedy
    assert words[0]
