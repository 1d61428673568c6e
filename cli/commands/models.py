"""The `dpspca model` commands. A stored model has been paid for, so looking at it costs no privacy."""

import io
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from dpspca.cli.arguments import EXIT_CODES, AsJson
from dpspca.cli.render import PLOTS, VEGA_LITE, Folder, print_output, print_text, to_json, write_file
from dpspca.client import report
from dpspca.client.described_jobs import load_dictionary
from dpspca.client.files import load_model
from dpspca.client.html_report import page
from dpspca.client.input_files import reading
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.dictionary import Preparation
from dpspca.common.model import Model
from dpspca.common.storage import ProviderConfig, Reading, read_config
from dpspca.common.text import to_csv
from dpspca.provider.data import Genotypes, read_rows

model = typer.Typer(name="model", no_args_is_help=True, help="Show, plot, report, apply or export a stored model.")

Stored = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)]


class PlotFormat(StrEnum):
    """How plots are written."""

    PNG = "png"
    VEGA_LITE = "vega-lite"


SCORES_WARNING: Final = (
    "Scores are not private: each is computed from one row and reveals something about it. Treat them like the rows."
)


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
    read = _read(stored)
    as_png = form is PlotFormat.PNG
    files = Folder(out, PLOTS).draw(read) if as_png else Folder(out, VEGA_LITE).write_vega_lite(read)
    print_output({"files": files}, *files.values(), as_json=as_json)


@model.command("report", epilog=EXIT_CODES)
def _report(
    stored: Stored,
    *,
    top: Annotated[int, typer.Option(help="How many features of each component to name, at least 1.")] = report.TOP,
    out: Annotated[Path, typer.Option(help="File to write the report to: .html.")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a report of a stored model for readers: one HTML file, without scripts, that loads nothing.

    Every number in it is also in `dpspca model show --json` with the same --top.
    """
    _check_top(top)
    _check_ending(out, ".html", ".htm")
    read = _read(stored)
    with reading(stored, "a model"):
        text = page(read, top=top)
    write_file(out, text)
    print_output({"file": str(out)}, str(out), as_json=as_json)


@model.command("transform", epilog=EXIT_CODES)
def _transform(  # noqa: PLR0913  # a command's flags are its parameters
    stored: Stored,
    rows: Annotated[
        Path,
        typer.Argument(
            help="File or folder of rows: text, Parquet, AnnData, SQLite, numpy and others.", show_default=False
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="File to write the scores to: .npy or .csv.")] = Path("scores.npy"),
    by_position: Annotated[
        bool,
        typer.Option(
            "--by-position",
            help="Match columns to features by position and ignore their names. Needed if only the model or only the "
            "file has column names.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="A provider's settings that declare how to read the rows.", show_default=False),
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(help="The data set of these settings whose reading and dictionary to use.", show_default=False),
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(help="The dictionary of the model's job, if the model does not hold it.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Project rows onto the components. The scores reveal something about the rows: they are not private.

    Columns are matched to the model's features by name, in any order. The file is refused if a column is missing,
    unknown or there twice.

    If the model's job had a dictionary, rows are prepared by it first. Columns of the file are then features in the
    dictionary's units, or the settings map them to features.
    """
    _check_ending(out, ".npy", ".csv")
    read, reading_as = _read(stored), _declared(config, data_set)
    if dictionary is not None:
        read = read.with_dictionary(load_dictionary(dictionary))
    if read.statement.dictionary:
        scores = _scores_of_raw(read, rows, reading_as)
    else:
        table = read_rows(rows, reading_as, least=1)
        order = None if by_position else _columns_in_model_order(read, table.names, rows)
        scores = _scores(read, table.matrix, order)
    write_file(out, to_csv([_headings(read), *scores.tolist()]) if out.suffix == ".csv" else _npy_bytes(scores))
    facts = {"file": str(out), "rows": scores.shape[0], "components": scores.shape[1], "warning": SCORES_WARNING}
    print_output(facts, str(out), as_json=as_json)
    typer.echo(SCORES_WARNING, err=True)


@model.command("rotate", epilog=EXIT_CODES)
def _rotate(
    stored: Stored,
    *,
    out: Annotated[Path, typer.Option(help="File to write the turned model to.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Turn the components by varimax, so that each has few large loadings. They explain together what they explained.

    This costs no privacy, because it is computed from the model alone.
    """
    turned = _read(stored).varimax()
    write_file(out, turned.to_bytes())
    print_output({"file": str(out)} | report.to_dict(turned), str(out), as_json=as_json)


@model.command("export", epilog=EXIT_CODES)
def _export(
    stored: Stored,
    *,
    out: Annotated[Path, typer.Option(help="File to write the components to: .json or .csv.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write all loadings as JSON, with the privacy statement, or as a table with one line per feature.

    In a table, an apostrophe is put before every name that a spreadsheet could take for a formula: a name that begins
    with =, +, -, @, a tab, a line break or an apostrophe. Remove one apostrophe to get the name back.
    """
    _check_ending(out, ".json", ".csv")
    read = _read(stored)
    write_file(out, _table(read) if out.suffix == ".csv" else to_json(_loadings_facts(read)) + "\n")
    print_output({"file": str(out)}, str(out), as_json=as_json)


def _read(stored: Path) -> Model:
    """Read a model to plot, apply or export. Warn if it must not be released."""
    with reading(stored, "a model"):
        read = load_model(stored)
    if not read.statement.releasable:
        typer.echo(read.statement.headline, err=True)
    return read


def _check_top(top: int) -> None:
    check(top > 0, f"--top is {top}; it must be at least 1.", "Give 1 or more.")


def _declared(config: Path | None, data_set: str | None) -> Reading:
    """Return what a provider's settings declare about the files of a data set."""
    check((config is None) == (data_set is None), "--config and --data-set go together.", "Give both or neither.")
    if config is None or data_set is None:
        return Reading()
    settings = read_config(ProviderConfig, config)
    settings.require_name(data_set)
    return settings.reading_of(data_set)


def _scores_of_raw(read: Model, rows: Path, reading_as: Reading) -> FloatArray:
    """Prepare the rows of a file by the model's dictionary, and project them.

    With settings, the columns are mapped as they say, and the dictionary must be the model's.
    """
    if reading_as.preparation is None:
        check(
            read.dictionary is not None,
            f"Rows have to be prepared by the dictionary {read.statement.dictionary:.12}, which the model lacks.",
            "Give --dictionary FILE, or --config and --data-set of a provider that has it.",
        )
        assert read.dictionary is not None
        reading_as = Reading().prepared(Preparation.parse(read.dictionary, None, None))
    else:
        held = reading_as.preparation.dictionary.digest()
        check(
            held == read.statement.dictionary,
            f"The model's job names the dictionary {read.statement.dictionary}, and the settings hold {held}.",
            "Use the settings with the dictionary of the job.",
        )
    table = read_rows(rows, reading_as, least=1)
    held_names = table.names or ()
    absent = [name for name in read.feature_names or () if name not in held_names]
    check(not absent, f"The data set does not have {', '.join(absent[:8])}.", "Use rows that have all features.")
    return read.transform(table.with_columns(read.feature_names).matrix, by_position=True, prepared=True)


def _columns_in_model_order(read: Model, names: Sequence[str] | None, rows: Path) -> NDArray[np.intp] | None:
    """Match columns to features by name. Refuse if only the model has names: the file's columns may have any order."""
    check(
        names is not None or read.feature_names is None,
        f"{rows} has no column names, but the model's features have names, so columns cannot be matched to features.",
        "Give a file with names, such as .csv or .parquet. Or give --by-position if the columns are in the order of "
        "the features, which `dpspca model export` shows.",
    )
    return read.order_of(names)


def _scores(read: Model, matrix: Any, order: NDArray[np.intp] | None) -> NDArray[np.float64]:  # noqa: ANN401  # of any form
    """Project rows. Genotypes are widened some at a time."""
    if isinstance(matrix, Genotypes):
        chosen = matrix if order is None else matrix.select(order)
        return np.concatenate([read.transform(block.toarray()) for block in chosen.blocks()])
    return read.transform(matrix if order is None else matrix[:, order])


def _check_ending(path: Path, *known: str) -> None:
    check(path.suffix in known, f"{path} ends in neither {' nor '.join(known)}.", f"Use {' or '.join(known)}.")


def _headings(read: Model) -> list[str]:
    return [f"component {number}" for number in range(1, len(read.components) + 1)]


def _table(read: Model) -> str:
    names = read.feature_names or tuple(f"feature {index}" for index in range(read.components.shape[1]))
    lines = [[name, *loadings] for name, loadings in zip(names, read.components.T.tolist(), strict=True)]
    return to_csv([["feature", *_headings(read)], *lines])


def _loadings_facts(read: Model) -> dict[str, Any]:
    optional = {
        name: None if value is None else value.tolist()
        for name, value in {
            "mean": read.mean,
            "explained_variance": read.explained_variance,
            "explained_variance_ratio": read.explained_variance_ratio,
        }.items()
    }
    return {
        "promise": read.statement.headline,  # first, because it also says if the model must not be released
        "feature_names": read.feature_names,
        "components": read.components.tolist(),
        **optional,
        "explained_variance_std": read.explained_variance_std,
        "statement": read.statement.to_dict(),
    }


def _npy_bytes(scores: Any) -> bytes:  # noqa: ANN401  # an array
    content = io.BytesIO()
    np.save(content, scores, allow_pickle=False)
    return content.getvalue()
