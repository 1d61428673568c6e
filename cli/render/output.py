"""Print results and progress, and write files into a folder.

Results go to standard output and progress to standard error, so that a program that reads results sees no progress.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from dpspca.client.connection import JobProgress
from dpspca.client.findings import WITHIN_NOISE
from dpspca.client.plan_facts import MECHANISM
from dpspca.client.reports import Plots, remarks, with_noise
from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError, MissingExtraError
from dpspca.common.privacy import PrivacyUnit, format_up
from dpspca.common.results import Model
from dpspca.common.text import printable

Show: TypeAlias = Callable[[JobProgress], None]

PLAIN_WIDTH: Final = 100
"""Characters per line of a table that goes to a file or a pipe, unless COLUMNS says otherwise."""
MAX_WIDTH: Final = 1000
"""The widest that a table is measured, in characters."""

PLOTS: Final = ("scree.png", "loadings.png", "biplot.png", "scores.png")
VEGA_LITE: Final = ("scree.json", "loadings.json", "biplot.json", "scores.json")
NOISE_FITS_NOTE: Final = (
    "The noise of some queries depends on the content of the query, at the same price. The table shows its largest "
    "value."
)
BLOCKS_NOTE: Final = (
    "Some queries are about blocks of rows. A row is in one block, and only the most expensive block counts, so the "
    "shares of the price add up to more than the whole."
)
UNKNOWN: Final = "not known"
_SECONDS_BETWEEN_LINES: Final = 10.0
ANOTHER_FOLDER: Final = "Choose another folder with --out."


class Folder:
    """A folder for files. It is created and tested at once, so that no command waits for a result it cannot store."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as problem:
            raise _unwritable(path, problem.strerror or str(problem)) from None
        for file in (path / name for name in names):
            if file.exists() and not (file.is_file() and os.access(file, os.W_OK)):
                raise _unwritable(file, "it exists and is not a file that may be changed")

    def write_plots(self, model: Model) -> tuple[dict[str, str], list[str]]:
        """Draw the plots. Return their paths, and why there are none if matplotlib is missing."""
        try:
            return self.draw(model), []
        except MissingExtraError as problem:
            return {}, [str(problem)]

    def draw(self, model: Model) -> dict[str, str]:
        """Draw the plots that the model has, and return their paths."""
        plots = Plots(model)
        return {name: self.write(f"{name}.png", getattr(plots, name)) for name in plots.names}

    def write_vega_lite(self, model: Model) -> dict[str, str]:
        """Write the plots that the model has as Vega-Lite, and return their paths."""
        plots = Plots(model)
        return {name: self.write(f"{name}.json", partial(_write_json, plots.vega_lite(name))) for name in plots.names}

    def write(self, name: str, save: Callable[[Path], object], remedy: str = ANOTHER_FOLDER) -> str:
        """Let ``save`` write a file of that name, and return its path."""
        path = self._path / name
        try:
            save(path)
        except OSError as problem:
            raise _unwritable(path, problem.strerror or str(problem), remedy) from None
        return str(path)


def _write_json(facts: dict[str, Any], path: Path) -> None:
    path.write_text(to_json(facts) + "\n", encoding="utf-8")


def require_new(path: Path, *, replace: bool) -> None:
    """Refuse a file that exists, unless it may be replaced, or whose folder does not."""
    check(replace or not path.exists(), f"{path} already exists.", "Choose another file, or overwrite it with --force.")
    check(path.parent.is_dir(), f"{path.parent} is not a folder.", "Choose another file.")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, or raise an error that names it."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as problem:
        raise InvalidParameterError(
            f"{path} cannot be written: {problem.strerror or problem}.", "Choose another file."
        ) from None


def print_output(facts: dict[str, Any], *lines: str, as_json: bool) -> None:
    """Print a result, either the facts as one JSON object or the lines."""
    if as_json:
        typer.echo(to_json(facts))
    else:
        for line in lines:
            typer.echo(line)


_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(facts: dict[str, Any]) -> str:
    """Return one JSON object as text. Raise ValueError if a number is not finite.

    Names are untrusted: what could control a terminal, and halves of characters, which no file can hold, are escaped.
    """
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@contextmanager
def display(
    *, quiet: bool, first: str = "making rows", line: Callable[[JobProgress], str] | None = None
) -> Iterator[Show]:
    """Show the progress of a job: a bar on a terminal, a line for each answer elsewhere, nothing if ``quiet``."""
    to_line = line or _progress_line
    console = Console(stderr=True)
    if quiet:
        yield lambda _: None
    elif console.is_terminal:
        with _bar(console) as progress:
            task = progress.add_task(first, total=None, facts="")
            yield lambda now: progress.update(
                task, completed=now.done, total=now.total, description=now.name, facts=_bar_text(now)
            )
    else:
        yield lambda now: typer.echo(to_line(now), err=True)


@contextmanager
def show_count(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many are done: a bar on a terminal, a line for every tenth elsewhere, nothing if ``quiet``."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _done, _of: None
    elif console.is_terminal:
        with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, of: progress.update(task, completed=done, total=of)
    else:
        yield (
            lambda done, of: (
                typer.echo(f"{what} {done} of {of}", err=True) if 10 * done // of > 10 * (done - 1) // of else None
            )
        )


@contextmanager
def show_rows(what: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show how many rows were read. The total is unknown. On a terminal, or in a line every ten seconds."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _rows: None
    elif console.is_terminal:
        columns = TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda rows: progress.update(task, completed=rows)
    else:
        yield _Occasionally(what)


class _Occasionally:
    """Prints a number every ten seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._next = what, monotonic() + _SECONDS_BETWEEN_LINES

    def __call__(self, number: int) -> None:
        if monotonic() >= self._next:
            typer.echo(f"{self._what}: {number:,}", err=True)
            self._next = monotonic() + _SECONDS_BETWEEN_LINES


def print_text(text: str) -> None:
    """Print text for people. On a terminal, lines are broken between words."""
    Console(highlight=False).print(Text(text), soft_wrap=not sys.stdout.isatty())


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. Its cells may hold untrusted text, which cannot control the terminal."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _print(table)


def print_components(model: dict[str, Any]) -> None:
    """Print the components as a table. If they must not be released, say so first."""
    if not model["statement"]["releasable"]:
        print_text(model["statement"]["headline"])
    table = Table("component", "explained variance", "of the total", "feature and loading", show_lines=True)
    for component in model["components"]:
        # A grid keeps each loading beside its feature, also where a name takes several lines.
        loadings = Table.grid(Column(ratio=1), Column(justify="right", no_wrap=True), padding=(0, 1), expand=True)
        for feature in component["top_features"]:
            loadings.add_row(Text(feature["name"]), f"{feature['loading']:+.3f}")
        table.add_row(str(component["number"]), *_explained_variance(component), loadings)
    _print(table, *remarks(model))


def _explained_variance(component: dict[str, Any]) -> tuple[str, str]:
    """Return a component's explained variance and its share of the total, as far as they are known."""
    variance, ratio = component["explained_variance"], component["explained_variance_ratio"]
    share = UNKNOWN if ratio is None else f"{ratio:.1%}"
    explained = UNKNOWN if variance is None else with_noise(variance, component["explained_variance_std"])
    return explained, WITHIN_NOISE if component["within_noise"] else share


def print_plan(plan: dict[str, Any]) -> None:
    """Print a plan as a table, followed by notes and the total."""
    table = Table("", "query", Column("kind", no_wrap=True))
    total = plan["total"]
    mu = "mu" if total["mu_is_exact"] else "mu at most"
    for heading in ("numbers", "noise", mu, "of the price"):
        table.add_column(heading, justify="right")
    for number, query in enumerate(plan["queries"], start=1):
        table.add_row(
            str(number),
            query["name"],
            query["kind"],
            f"{query['numbers']:,}",
            f"{query['noise']} {query['noise_std']:.4g}" if query["noise_std"] else query["noise"],
            format_up(query["mu"], 4),
            f"{query['share']:.1%}",
        )
    _print(table, *_notes(plan), _total_line(total), *plan["remarks"])


def _notes(plan: dict[str, Any]) -> Iterator[str]:
    """Yield notes on how to read a plan's table."""
    asked, rows = plan["queries"], PrivacyUnit(plan["job"]["unit"]).is_row
    one = "the most that one row can add to an answer" if rows else "the bound on the matrix's change"
    yield (
        f"noise: the standard deviation of each provider's noise, where 1 is {one}. The answer to a query without "
        "noise is public under this privacy unit."
    )
    if any(query["noise_fits"] and query["noise_std"] for query in asked):
        yield NOISE_FITS_NOTE
    for query in asked:
        if query["noise"] == MECHANISM:
            yield f"{MECHANISM} of the query '{query['name']}', which is private by itself: {query['mechanism']}"
        if query["or_kind"]:
            yield (
                f"'{query['name']}': depending on earlier answers, a {query['or_kind']} is asked instead, at the same "
                "price."
            )
    if any(query["block"] for query in asked):
        yield BLOCKS_NOTE


def _total_line(total: dict[str, Any]) -> str:
    """Return a line about a plan's price. Noise that is not Gaussian has no exact mu, but is no worse than some mu."""
    epsilon = f"epsilon = {format_up(total['epsilon'])} at delta = {format_up(total['delta'])} for each provider's data"
    budget = f"the budget is epsilon = {format_up(total['budget_epsilon'])}."
    mu = format_up(total["mu"])
    if total["mu_is_exact"]:
        return f"Total: mu = {mu}, that is {epsilon}; {budget}"
    return f"Total: {epsilon}; {budget} Not all noise is Gaussian: together with other jobs, it counts as mu = {mu}."


def _bar(console: Console) -> Progress:
    """Return a progress bar that fits into eighty columns."""
    return Progress(
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeElapsedColumn(),
        console=console,
    )


def _bar_text(now: JobProgress) -> str:
    return (
        f"{now.answers} answers, {decimal(now.bytes_moved)}, ε {format_up(now.epsilon, 3)} of {format_up(now.budget)}"
    )


def _progress_line(now: JobProgress) -> str:
    """Return a line that says how many answered the latest query, and what all answers so far have cost."""
    return f"{now.done} of {now.total}  {now.name}: {now.answers} answers; {totals_so_far(now)}"


def totals_so_far(now: JobProgress) -> str:
    """Return the bytes transferred, epsilon spent and time taken by all answers so far."""
    spent = f"epsilon {format_up(now.epsilon, 3)} of {format_up(now.budget)} spent"
    return f"so far {decimal(now.bytes_moved)} transferred, {spent}, {now.seconds:.1f} s"


def _print(table: Table, *notes: str) -> None:
    """Print a table, or a list of its cells if the table is too wide to be readable."""
    width_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if width_known else PLAIN_WIDTH, highlight=False)
    for column in table.columns:
        column.overflow = "fold"  # break a word rather than cut it off
    if console.measure(table, options=console.options.update(max_width=MAX_WIDTH)).minimum < console.width:
        console.print(table)
    else:
        _print_list(console, table)
    for note in notes:
        print_text(note)


def _print_list(console: Console, table: Table) -> None:
    headings = [str(column.header) for column in table.columns]
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for heading, cell in zip(headings, row, strict=True):
            console.print(Text.assemble(f"{heading}: " if heading else "", *_in_line(cell)))
        console.print()


def _in_line(cell: RenderableType) -> list[str | Text]:
    """Return the text of a cell. If it has several lines, they begin below the heading."""
    text = cell if isinstance(cell, Text) else Text(str(cell))
    return ["\n" if "\n" in text.plain else "", text]


def _unwritable(path: Path, why: str, remedy: str = ANOTHER_FOLDER) -> InvalidParameterError:
    return InvalidParameterError(f"{path} cannot be written: {why}.", remedy)
