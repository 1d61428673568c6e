"""The `dpspca model` commands. A stored model has been paid for, so looking at it costs no privacy."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpspca.cli.arguments import EXIT_CODES, AsJson, Force
from dpspca.cli.render import PLOTS, VEGA_LITE, Folder, print_output, print_text, require_new, to_json, write_file
from dpspca.client.files import load_model, reading
from dpspca.client.html_report import page
from dpspca.client.reports import report
from dpspca.common.checks import check

from .model_files import Stored, check_ending, export, project, read_model

model = typer.Typer(name="model", no_args_is_help=True, help="Show, plot, report, apply or export a stored model.")


class PlotFormat(StrEnum):
    """How plots are written."""

    PNG = "png"
    VEGA_LITE = "vega-lite"


@model.command("show", epilog=EXIT_CODES)
def _show(
    stored: Stored,
    *,
    top: Annotated[int, typer.Option(help="How many features of each component to name, at least 1.")] = report.TOP,
    as_json: AsJson = False,
) -> None:
    """Print a stored model and its privacy statement."""
    _check_top(top)
    with reading(stored, "a model"):
        read = load_model(stored)
        text = to_json(report.to_dict(read, top=top)) if as_json else report.summary(read, top=top)
    if as_json:
        typer.echo(text)
    else:
        print_text(text)


@model.command("plot", epilog=EXIT_CODES)
def _plot(
    stored: Stored,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the plots.")] = Path(),
    form: Annotated[
        PlotFormat,
        typer.Option("--format", help="png: pictures, with matplotlib. vega-lite: JSON that other programs draw."),
    ] = PlotFormat.PNG,
    as_json: AsJson = False,
) -> None:
    """Plot what each component explains, the loadings, and the features in the first two components.

    No plot shows a row's scores.
    """
    read = read_model(stored)
    as_png = form is PlotFormat.PNG
    files = Folder(out, PLOTS).draw(read) if as_png else Folder(out, VEGA_LITE).write_vega_lite(read)
    print_output({"files": files}, *files.values(), as_json=as_json)


def write_report(
    stored: Stored,
    *,
    top: Annotated[int, typer.Option(help="How many features of each component to name, at least 1.")] = report.TOP,
    out: Annotated[Path, typer.Option(help="File to write the report to: .html.")] = Path("report.html"),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a report of a stored model: one HTML file without scripts that loads nothing else.

    Every number in it is also in `dpspca model show --json` with the same --top.
    """
    _check_top(top)
    check_ending(out, ".html", ".htm")
    require_new(out, replace=force)
    read = read_model(stored)
    with reading(stored, "a model"):
        text = page(read, top=top)
    write_file(out, text)
    print_output({"file": str(out)}, str(out), as_json=as_json)


@model.command("rotate", epilog=EXIT_CODES)
def _rotate(
    stored: Stored,
    *,
    out: Annotated[Path, typer.Option(help="File to write the rotated model to.", show_default=False)],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rotate the components by varimax, so that each has few large loadings. Together they explain as much as before.

    This costs no privacy budget, because it is computed from the model alone.
    """
    require_new(out, replace=force)
    turned = read_model(stored).varimax()
    write_file(out, turned.to_bytes())
    print_output({"file": str(out)} | report.to_dict(turned), str(out), as_json=as_json)


model.command("project", epilog=EXIT_CODES)(project)
model.command("export", epilog=EXIT_CODES)(export)


def _check_top(top: int) -> None:
    check(top > 0, f"--top is {top}; it must be at least 1.", "Give 1 or more.")
