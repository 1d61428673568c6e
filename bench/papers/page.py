"""The generated parts of docs/papers.md: tables and their results, between markers, from summary.json alone.

    <!-- papers: NAME --> ... <!-- end papers -->

Everything between two such lines is written by ``run.py``. The text around is written by hand and has no measured
numbers, which could become outdated.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from claims import CLAIMS

MARKED = re.compile(r"(<!-- papers: ([\w-]+) -->\n).*?(<!-- end papers -->)", flags=re.DOTALL)
MOST_COLUMNS = 7


def write(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the generated parts again."""
    path.write_text(filled(path.read_text(encoding="utf-8"), summary), encoding="utf-8")


def filled(text: str, summary: Mapping[str, Any]) -> str:
    """Fill every marked part for which there is a result."""

    def part(found: re.Match[str]) -> str:
        head, name, end = found.groups()
        return head + generated(name, summary) + end

    return MARKED.sub(part, text)


def generated(name: str, summary: Mapping[str, Any]) -> str:
    """Return what was measured, and which of the paper's statements hold for it."""
    if name == "run":
        return _run(summary)
    result = summary["results"].get(name)
    if result is None:
        return "\nNot measured.\n\n"
    body = _table(result["columns"], result["rows"]) if result["kind"] == "table" else _figure(name, result)
    left_out = "".join(f"- Not in it: {label} ({why}).\n" for label, why in result.get("left_out", {}).items())
    return f"\n{body}\n{_claims(name, result)}{left_out}\n" if left_out or name in CLAIMS else f"\n{body}\n"


def plain(summary: Mapping[str, Any], measured: Iterable[str], out: Path) -> str:
    """Return what was measured, as text for a terminal."""
    parts = [f"{summary['results'][name]['title']}\n{generated(name, summary).strip()}" for name in measured]
    return "\n\n".join([*parts, f"{summary['seconds']} s; figures and numbers are in {out}"])


def _run(summary: Mapping[str, Any]) -> str:
    size = "quick, small sizes" if summary["quick"] else "full"
    return (
        f"\nThis page was made by a {size} run ({summary['machine']}; "
        f"{summary['seconds'] / 60:.0f} minutes, beside other work).\n\n"
    )


def _figure(name: str, result: Mapping[str, Any]) -> str:
    tables = [_panel(panel) for panel in result["panels"]]
    return f"![{result['title']}](papers/{name}.png)\n\n{result['caption']}\n\n" + "\n".join(tables)


def _panel(panel: Mapping[str, Any]) -> str:
    """Return a table of a panel's means at some of its places, including the first and last."""
    xs = sorted({point["x"] for points in panel["curves"].values() for point in points})
    shown = spaced(xs)
    rows = []
    for label, points in panel["curves"].items():
        means = {point["x"]: point["mean"] for point in points}
        rows.append([label, *(f"{means[x]:.3g}" if x in means else "" for x in shown)])
    return f"{panel['title']}; means, by {panel['x']}:\n\n" + _table(["", *(f"{x:g}" for x in shown)], rows)


def spaced(xs: Sequence[float]) -> list[float]:
    """Choose evenly at most as many places as fit a page."""
    if len(xs) <= MOST_COLUMNS:
        return list(xs)
    return [xs[round(place * (len(xs) - 1) / (MOST_COLUMNS - 1))] for place in range(MOST_COLUMNS)]


def _claims(name: str, result: Mapping[str, Any]) -> str:
    checks: Sequence[tuple[str, Callable[[Mapping[str, Any]], tuple[bool | None, str]]]] = CLAIMS.get(name, ())
    lines = []
    for claim, check in checks:
        try:
            holds, found = check(result)
        except (KeyError, IndexError, ValueError):
            holds, found = None, "not measured here"
        word = {True: "Yes", False: "No", None: "Open"}[holds]
        lines.append([claim, word, found])
    return _table(["what the paper says or implies", "here", "what we find"], lines) + "\n" if lines else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"
