"""Commands on a stored model. It has been paid for: looking at it costs no privacy."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from dpspca.client import report
from dpspca.client.files import load_model
from dpspca.common.model import Model
from dpspca.common.spec import check
from dpspca.common.tables import to_csv
from dpspca.provider.sources import read_rows

from .flags import EXIT_CODES, AsJson
from .output import PLOTS, Folder, say, tell, to_json, write_file
from .reading import reading

model = typer.Typer(name="model", no_args_is_help=True, help="A stored model: show, draw, apply or convert it.")

Stored = Annotated[Path, typer.Argument(metavar="MODEL", help="A stored model.", show_default=False)]

UNPROTECTED: Final = (
    "Scores are not protected: each is computed from one row and tells about it. Treat them like the rows themselves."
)


@model.command("show", epilog=EXIT_CODES)
def _show(
    stored: Stored,
    *,
    top: Annotated[int, typer.Option(help="How many features of each component to name.")] = report.TOP,
    as_json: AsJson = False,
) -> None:
    """Print what a stored model says, and what was promised about it."""
    check(top > 0, f"--top is {top}, which leaves no feature to name.", "Give 1 or more.")
    with reading(stored, "a model"):
        read = load_model(stored)
        text = to_json(report.to_dict(read, top=top)) if as_json else report.summary(read, top=top)
    if as_json:
        typer.echo(text)
    else:
        say(text)


@model.command("plot", epilog=EXIT_CODES)
def _plot(
    stored: Stored,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the plots.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Draw how much each component explains, and which features make it up."""
    read = _read(stored)
    files = Folder(out, PLOTS).draw(read)
    tell({"files": files}, *files.values(), as_json=as_json)


@model.command("transform", epilog=EXIT_CODES)
def _transform(
    stored: Stored,
    rows: Annotated[Path, typer.Argument(help="Rows: a file ending in .npy, .npz or .csv.", show_default=False)],
    *,
    out: Annotated[Path, typer.Option(help="Where to write the scores: .npy or .csv.")] = Path("scores.npy"),
    by_position: Annotated[
        bool,
        typer.Option(
            "--by-position",
            help="Take the columns in the order in which they stand, whatever they are called. Needed where only one "
            "of the model and the file has names of columns.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Project rows onto the components. The scores tell about the rows: they are not protected.

    Columns are matched to the model's features by name, in whatever order they stand. A column that is missing, left
    over or there twice is refused.
    """
    _check_ending(out, ".npy", ".csv")
    read, table = _read(stored), read_rows(rows, least=1)
    order = None if by_position else _order(read, table.names, rows)
    scores = read.transform(table.matrix if order is None else table.matrix[:, order])
    write_file(out, to_csv([_headings(read), *scores.tolist()]) if out.suffix == ".csv" else _npy(scores))
    facts = {"file": str(out), "rows": scores.shape[0], "components": scores.shape[1], "warning": UNPROTECTED}
    tell(facts, str(out), as_json=as_json)
    typer.echo(UNPROTECTED, err=True)


@model.command("export", epilog=EXIT_CODES)
def _export(
    stored: Stored,
    *,
    out: Annotated[Path, typer.Option(help="Where to write the components: .json or .csv.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write every loading as JSON, with the statement, or as a table: a line a feature.

    In a table, a name that a spreadsheet could take for a formula gets an apostrophe in front: one that begins with
    =, +, -, @, a tab, a line break or an apostrophe. Take one apostrophe off to have it back.
    """
    _check_ending(out, ".json", ".csv")
    read = _read(stored)
    write_file(out, _table(read) if out.suffix == ".csv" else to_json(_facts(read)) + "\n")
    tell({"file": str(out)}, str(out), as_json=as_json)


def _read(stored: Path) -> Model:
    """Read a model to be drawn, applied or converted; say on the way if it is not for release."""
    with reading(stored, "a model"):
        read = load_model(stored)
    if not read.statement.releasable:
        typer.echo(read.statement.headline, err=True)
    return read


def _order(read: Model, names: Sequence[str] | None, rows: Path) -> NDArray[np.intp] | None:
    """Match columns to features by name; where the file alone has none, its order may be any."""
    check(
        names is not None or read.feature_names is None,
        f"{rows} has no names of columns, and the model's features have names: which column is which feature cannot be "
        "told.",
        "Give a .csv with the names in its first line; or --by-position, if the columns stand in the features' order, "
        "which `dpspca model export` writes.",
    )
    return read.order_of(names)


def _check_ending(path: Path, *known: str) -> None:
    check(path.suffix in known, f"{path} ends in neither of {' and '.join(known)}.", "Choose one of these endings.")


def _headings(read: Model) -> list[str]:
    return [f"component {number}" for number in range(1, len(read.components) + 1)]


def _table(read: Model) -> str:
    names = read.feature_names or tuple(f"feature {index}" for index in range(read.components.shape[1]))
    lines = [[name, *loadings] for name, loadings in zip(names, read.components.T.tolist(), strict=True)]
    return to_csv([["feature", *_headings(read)], *lines])


def _facts(read: Model) -> dict[str, Any]:
    optional = {
        name: None if value is None else value.tolist()
        for name, value in {
            "mean": read.mean,
            "explained_variance": read.explained_variance,
            "explained_variance_ratio": read.explained_variance_ratio,
        }.items()
    }
    return {
        "promise": read.statement.headline,  # first, with what stands against it
        "feature_names": read.feature_names,
        "components": read.components.tolist(),
        **optional,
        "explained_variance_std": read.explained_variance_std,
        "statement": read.statement.to_dict(),
    }


def _npy(scores: Any) -> bytes:  # noqa: ANN401  # an array
    content = io.BytesIO()
    np.save(content, scores, allow_pickle=False)
    return content.getvalue()
