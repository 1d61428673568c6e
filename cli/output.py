"""Where results go: the screen, plainly or with a moving display, and a folder of files.

Results go to standard output and progress to standard error, so that what a program reads is never mixed with it.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from dpspca.client import report
from dpspca.client.findings import WITHIN_NOISE
from dpspca.client.report import remarks, with_noise
from dpspca.common.errors import InvalidParameterError, MissingExtraError
from dpspca.common.model import Model
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.statement import rounded_up

from .priced import MECHANISM
from .tally import Standing

Show: TypeAlias = Callable[[Standing], None]

PLAIN_WIDTH: Final = 100
"""Columns of a table that goes to a file or a pipe, unless COLUMNS says otherwise."""
MOST_WIDTH: Final = 1000
"""Columns beyond which no table is measured."""

PLOTS: Final = ("scree.png", "loadings.png")
NOISE_FITS: Final = (
    "The noise of some questions follows what exactly is asked, at the same price: shown is the most there may be."
)
OF_BLOCKS: Final = (
    "Some questions are about blocks of rows. A row is in one block and pays for the dearest alone, so the shares of "
    "the price add up to more than the whole."
)
ANOTHER_FOLDER: Final = "Choose another folder with --out."


class Folder:
    """A folder that files are written to; made and tried on the spot, so that nobody waits for what cannot be kept."""

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
                raise _unwritable(file, "something else of that name is in the way, or may not be changed")

    def write_plots(self, model: Model) -> tuple[dict[str, str], list[str]]:
        """Draw both plots; give their paths, and why there are none where matplotlib is missing."""
        try:
            return self.draw(model), []
        except MissingExtraError as problem:
            return {}, [str(problem)]

    def draw(self, model: Model) -> dict[str, str]:
        """Draw what there is to draw, and give the paths: a model need not say what its components explain."""
        scree, loadings = PLOTS
        files = {}
        if model.explained_variance is not None:
            files["scree"] = self.write(scree, lambda path: report.scree(model, path))
        return files | {"loadings": self.write(loadings, lambda path: report.loadings(model, path))}

    def write(self, name: str, save: Callable[[Path], object], remedy: str = ANOTHER_FOLDER) -> str:
        """Let ``save`` write a file of that name; return the path."""
        path = self._path / name
        try:
            save(path)
        except OSError as problem:
            raise _unwritable(path, problem.strerror or str(problem), remedy) from None
        return str(path)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that a flag names."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as problem:
        raise InvalidParameterError(
            f"{path} cannot be written: {problem.strerror or problem}.", "Choose another file."
        ) from None


def tell(facts: dict[str, Any], *lines: str, as_json: bool) -> None:
    """Print a result: for programs as one JSON object, for people as lines."""
    if as_json:
        typer.echo(to_json(facts))
    else:
        for line in lines:
            typer.echo(line)


def to_json(facts: dict[str, Any]) -> str:
    """Write one JSON object; a number that JSON does not know is a mistake."""
    return json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)


@contextmanager
def display(
    *, quiet: bool, first: str = "making rows", line: Callable[[Standing], str] | None = None
) -> Iterator[Show]:
    """Show how a job stands: a bar on a terminal, a line an answer elsewhere, nothing where quiet was asked for."""
    written = line or _full
    console = Console(stderr=True)
    if quiet:
        yield lambda _: None
    elif console.is_terminal:
        with _bar(console) as progress:
            task = progress.add_task(first, total=None, facts="")
            yield lambda now: progress.update(
                task, completed=now.done, total=now.total, description=now.name, facts=_brief(now)
            )
    else:
        yield lambda now: typer.echo(written(now), err=True)


@contextmanager
def counting(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many of how many are done: a bar on a terminal, a line for every tenth elsewhere, or nothing."""
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


def say(text: str) -> None:
    """Print text for people: broken between words on a terminal, left as it is elsewhere."""
    Console(highlight=False).print(Text(text), soft_wrap=not sys.stdout.isatty())


def printable(text: str) -> str:
    """Show what a stranger said: on one line, and unable to steer a terminal."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of what strangers may have said."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _print(table)


def print_components(model: dict[str, Any]) -> None:
    """Print the components as a table; if they are not for release, say so first."""
    if not model["statement"]["releasable"]:
        say(model["statement"]["headline"])
    table = Table("component", "explained variance", "of the total", "feature", "loading", show_lines=True)
    for component in model["components"]:
        features = component["top_features"]
        table.add_row(
            str(component["number"]),
            *_explained(component),
            Text("\n".join(feature["name"] for feature in features)),
            "\n".join(f"{feature['loading']:+.3f}" for feature in features),
        )
    _print(table, *remarks(model))


def _explained(component: dict[str, Any]) -> tuple[str, str]:
    """Say what a component explains, and its share; neither need be known."""
    variance, ratio = component["explained_variance"], component["explained_variance_ratio"]
    share = "not told" if ratio is None else f"{ratio:.1%}"
    told = "not told" if variance is None else with_noise(variance, component["explained_variance_std"])
    return told, WITHIN_NOISE if component["within_noise"] else share


def print_plan(plan: dict[str, Any]) -> None:
    """Print a plan as a table, and its total."""
    table = Table("", "question", Column("kind", no_wrap=True))
    total = plan["total"]
    mu = "mu" if total["mu_is_exact"] else "mu at most"
    for heading in ("numbers", "noise", mu, "of the price"):
        table.add_column(heading, justify="right")
    for number, question in enumerate(plan["questions"], start=1):
        table.add_row(
            str(number),
            question["name"],
            question["kind"],
            f"{question['numbers']:,}",
            f"{question['noise']} {question['noise_std']:.4g}" if question["noise_std"] else question["noise"],
            rounded_up(question["mu"], 4),
            f"{question['share']:.1%}",
        )
    _print(table, *_notes(plan), _total(total), *plan["remarks"])


def _notes(plan: dict[str, Any]) -> Iterator[str]:
    """Say how a plan's table is read."""
    asked, rows = plan["questions"], PrivacyUnit(plan["job"]["unit"]).is_row
    one = "the most that one row can add to an answer" if rows else "the bound on the matrix's change"
    yield (
        f"noise: standard deviation of each provider's, where 1 is {one}. A question without noise asks for what the "
        "privacy unit leaves public."
    )
    if any(question["noise_fits"] and question["noise_std"] for question in asked):
        yield NOISE_FITS
    for question in asked:
        if question["noise"] == MECHANISM:
            yield f"{MECHANISM} of the question '{question['name']}', private by itself: {question['mechanism']}"
    if any(question["block"] for question in asked):
        yield OF_BLOCKS


def _total(total: dict[str, Any]) -> str:
    """Say what a plan costs. Noise that is not Gaussian has no exact mu: one that it is no worse than stands for it."""
    epsilon = (
        f"epsilon = {rounded_up(total['epsilon'])} at delta = {rounded_up(total['delta'])} for each provider's data"
    )
    budget = f"the budget is epsilon = {rounded_up(total['budget_epsilon'])}."
    mu = rounded_up(total["mu"])
    if total["mu_is_exact"]:
        return f"Total: mu = {mu}, that is {epsilon}; {budget}"
    return f"Total: {epsilon}; {budget} Not all noise is Gaussian: added up with other jobs, it counts as mu = {mu}."


def _bar(console: Console) -> Progress:
    """Make a display that fits into eighty columns."""
    return Progress(
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeElapsedColumn(),
        console=console,
    )


def _brief(now: Standing) -> str:
    return (
        f"{now.answers} answers, {decimal(now.bytes_moved)}, ε {rounded_up(now.epsilon, 3)} of {rounded_up(now.budget)}"
    )


def _full(now: Standing) -> str:
    """Say who answered, and what all answers so far have moved, cost and taken."""
    return f"{now.done} of {now.total}  {now.name}: {now.answers} answers; {so_far(now)}"


def so_far(now: Standing) -> str:
    """Say what all answers so far have moved, cost and taken."""
    spent = f"epsilon {rounded_up(now.epsilon, 3)} of {rounded_up(now.budget)} spent"
    return f"so far {decimal(now.bytes_moved)} moved, {spent}, {now.seconds:.1f} s"


def _print(table: Table, *notes: str) -> None:
    """Print a table, or, where that is too wide to stay readable, a list of what is in it."""
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if told else PLAIN_WIDTH, highlight=False)
    for column in table.columns:
        column.overflow = "fold"  # break a word rather than leave part of it out
    if console.measure(table, options=console.options.update(max_width=MOST_WIDTH)).minimum < console.width:
        console.print(table)
    else:
        _print_list(console, table)
    for note in notes:
        say(note)


def _print_list(console: Console, table: Table) -> None:
    headings = [str(column.header) for column in table.columns]
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for heading, cell in zip(headings, row, strict=True):
            console.print(Text.assemble(f"{heading}: " if heading else "", *_in_line(cell)))
        console.print()


def _in_line(cell: RenderableType) -> list[str | Text]:
    """Give what stands in a cell; several lines begin under the heading."""
    text = cell if isinstance(cell, Text) else Text(str(cell))
    return ["\n" if "\n" in text.plain else "", text]


def _unwritable(path: Path, why: str, remedy: str = ANOTHER_FOLDER) -> InvalidParameterError:
    return InvalidParameterError(f"{path} cannot be written: {why}.", remedy)
