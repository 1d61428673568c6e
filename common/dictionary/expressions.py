"""Which SQL may compute a feature: expressions that can only look at their own row. Pure.

Each row must be prepared by itself, or one person would change the rows of others. Databases differ in how an
expression can look at other rows: by a query within it, a window, a variable, or a function that runs a query. So words
are not forbidden one by one: an expression consists of parts that are known to be harmless in every database, and calls
functions of a list. An accident is what this prevents: a steward who wants to can write a query anyway.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dpspca.common.names import shortened

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--|/\*)
    |(?P<text>'(?:[^'\\]|'')*')
    |(?P<name>"(?:[^"\\]|"")*"|`[^`\\]*`)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>\|\||::|<=|>=|<>|!=|==|[-+*/%=<>(),.])""",
    re.VERBOSE,
)
"""A text without backslashes ends at the same place in every database."""
FUNCTIONS: Final = frozenset({
    "abs", "acos", "age", "asin", "atan", "atan2", "btrim", "cast", "cbrt", "ceil", "ceiling", "char_length",
    "character_length", "coalesce", "concat", "cos", "cot", "date", "date_diff", "date_part", "date_sub", "datediff",
    "day", "dayofyear", "degrees", "div", "exp", "extract", "floor", "greatest", "hour", "if", "ifnull", "iif",
    "instr", "isnan", "isnull", "julian", "julianday", "least", "left", "length", "ln", "log", "log10", "log2",
    "lower", "ltrim", "make_date", "minute", "mod", "month", "nullif", "nvl", "pi", "position", "pow", "power",
    "radians", "replace", "right", "round", "rtrim", "safe_cast", "sign", "sin", "split_part", "sqrt", "strftime",
    "strpos", "strptime", "substr", "substring", "tan", "timestampdiff", "to_date", "to_days", "to_number", "trim",
    "trunc", "truncate", "try_cast", "upper", "year",
})  # fmt: skip
"""Functions that give the same for the same arguments, whatever else is in the database."""
_TYPES: Final = frozenset({
    "char", "character", "decimal", "double", "float", "number", "numeric", "nvarchar", "varchar", "varying",
})  # fmt: skip
_BEFORE_PARENTHESES: Final = frozenset({
    "and", "between", "case", "else", "in", "like", "is", "not", "or", "then", "when",
})  # fmt: skip
_WITH_FROM: Final = frozenset({"extract", "substring", "trim"})
_NOT_OF_A_ROW: Final = frozenset({
    "all", "any", "array", "current_date", "current_time", "current_timestamp", "distinct", "except", "exists",
    "filter", "group", "having", "intersect", "into", "lateral", "limit", "localtime", "localtimestamp", "match",
    "offset", "order", "over", "qualify", "returning", "row", "rownum", "select", "some", "sysdate", "table",
    "union", "unnest", "values", "window", "with", "within",
})  # fmt: skip
"""Bare words that begin a query or a window, or change from one reading to the next. A column of that name can be put
into quotes."""
_OPERANDS: Final = frozenset(("text", "name", "number", "word"))


class _Part(NamedTuple):
    kind: str
    text: str
    is_apart: bool
    """Whether space precedes it."""


def fault_of_expression(expression: str) -> str | None:
    """Say what in an expression may look at other rows, or is not known to be harmless. None if there is nothing."""
    parts, calls = list[_Part](), list[str]()
    for part in _parts(expression):
        before = parts[-1] if parts else _Part("start", "", is_apart=True)
        fault = _fault(part, before, parts[-2] if parts[1:] else None, calls)
        if fault is not None:
            return fault
        parts.append(part)
    return None if not calls and parts else "leaves a parenthesis open" if calls else "is empty"


def _parts(expression: str) -> Iterator[_Part]:
    """Divide an expression. What is no known part is one by itself."""
    at, is_apart = 0, True
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        kind = "unknown" if found is None else str(found.lastgroup)
        text = expression[at] if found is None else found.group()
        at += len(text)
        if kind != "space":
            yield _Part(kind, text.lower() if kind == "word" else text, is_apart)
        is_apart = kind == "space"


def _fault(part: _Part, before: _Part, second: _Part | None, calls: list[str]) -> str | None:
    """Say what is wrong with a part. ``calls`` has the name of each function whose parenthesis is open."""
    follows_operand = before.kind in _OPERANDS or before.text == ")"
    wrong = {
        f"has {part.text!r}": part.kind in {"unknown", "comment"},
        f"has {shortened(before.text)} just before a quotation mark": (
            part.kind in {"text", "name"} and before.kind in _OPERANDS and not part.is_apart
        ),
        "has '*' in place of a column": part.text == "*" and not follows_operand,
        "has 'in' without a list in parentheses": (
            before == _Part("word", "in", before.is_apart) and part.text != "(" and "position" not in calls[-1:]
        ),
        f"has the word {part.text!r}": part.kind == "word" and _is_of_a_query(part.text, calls),
        "closes a parenthesis that it did not open": part.text == ")" and not calls,
        f"calls {shortened(before.text)}, which is not in the list of functions that look at one row": (
            part.text == "(" and not _may_be_called(before, second)
        ),
    }
    if part.text == "(":
        calls.append(before.text if before.kind == "word" else "")
    elif part.text == ")" and calls:
        calls.pop()
    return next((fault for fault, holds in wrong.items() if holds), None)


def _is_of_a_query(word: str, calls: list[str]) -> bool:
    return word in _NOT_OF_A_ROW or (word == "from" and not _WITH_FROM.intersection(calls[-1:]))


def _may_be_called(before: _Part, second: _Part | None) -> bool:
    if before.kind != "word":
        return before.kind != "name"
    is_known = before.text in FUNCTIONS | _TYPES | _BEFORE_PARENTHESES
    return is_known and (second is None or second.text != ".")  # functions of another schema may be anything
