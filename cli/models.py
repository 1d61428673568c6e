"""Commands on a stored model. It has been paid for: looking at it costs no privacy."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from dpspca.client import report
from dpspca.client.files import load_model
from dpspca.common.model import Model
from dpspca.common.spec import check
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
    as_json: AsJson = False,
) -> None:
    """Project rows onto the components. The scores tell about the rows: they are not protected."""
    _check_ending(out, ".npy", ".csv")
    read, table = _read(stored), read_rows(rows, least=1)
    read.check_columns(table.names)
    scores = read.transform(table.matrix)
    write_file(out, _csv(_headings(read), scores.tolist()) if out.suffix == ".csv" else _npy(scores))
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
    """Write every loading as JSON, with the statement, or as a table: a line a feature."""
    _check_ending(out, ".json", ".csv")
    read = _read(stored)
    write_file(out, _table(read) if out.suffix == ".csv" else to_json(_facts(read)) + "\n")
    tell({"file": str(out)}, str(out), as_json=as_json)


def _read(stored: Path) -> Model:
    with reading(stored, "a model"):
        return load_model(stored)


def _check_ending(path: Path, *known: str) -> None:
    check(path.suffix in known, f"{path} ends in neither of {' and '.join(known)}.", "Choose one of these endings.")


def _headings(read: Model) -> list[str]:
    return [f"component {number}" for number in range(1, len(read.components) + 1)]


def _table(read: Model) -> str:
    names = read.feature_names or tuple(f"feature {index}" for index in range(read.components.shape[1]))
    lines = [[name, *loadings] for name, loadings in zip(names, read.components.T.tolist(), strict=True)]
    return _csv(["feature", *_headings(read)], lines)


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
        "feature_names": read.feature_names,
        "components": read.components.tolist(),
        **optional,
        "explained_variance_std": read.explained_variance_std,
        "statement": read.statement.to_dict(),
    }


def _csv(headings: list[str], lines: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([headings, *lines])
    return text.getvalue()


def _npy(scores: Any) -> bytes:  # noqa: ANN401  # an array
    content = io.BytesIO()
    np.save(content, scores, allow_pickle=False)
    return content.getvalue()
