"""The commands about shared dictionaries: `dpspca dictionary init` and `dpspca dictionary check`."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AsJson, Force
from dpspca.cli.render import print_output, print_table, require_new, to_json, write_file
from dpspca.common.checks import check
from dpspca.common.dictionary import (
    Category,
    Dictionary,
    Feature,
    differences,
    draft,
    draft_of_panel,
    has_values_as_names,
    may_be_value,
    remarks,
)
from dpspca.common.storage import (
    Reading,
    dictionary_faults,
    read_data_settings,
    read_dictionary,
    read_frequencies,
)
from dpspca.common.text import counted, printable
from dpspca.provider.data import outline_of, outline_of_variants

CHECK_FAILED: Final = 1
_FREQUENCIES: Final = (".afreq", ".afreq.gz", ".afreq.zst")
_MOST_SHOWN: Final = 40
"""The most features, or differences, that a table shows. JSON has all."""

dictionary = typer.Typer(
    name="dictionary", no_args_is_help=True, help="Draft and check a shared dictionary of features. It is public."
)


@dictionary.command("init", epilog=EXIT_CODES)
def _init(  # noqa: PLR0913  # a command's flags are its parameters
    source: Annotated[
        Path,
        typer.Argument(
            help="File, folder or pattern of rows with column names, or a list of variants.", show_default=False
        ),
    ],
    *,
    config: Annotated[
        Path | None, typer.Option(help="A provider's settings that declare how to read the rows.", show_default=False)
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(help="The data set of these settings whose table under 'reading' to use.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the draft to: .toml. If left out: it is printed.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draft a dictionary from the names and types of columns. No row is read.

    A list of variants (.bim, .pvar) is drafted with alleles and places, and a list of public frequencies (.afreq) is
    named in the draft.

    Replace each "?" in it by what is publicly known. `dpspca dictionary check` refuses the draft until then.
    """
    check(config is not None or data_set is None, "--data-set needs --config.", "Add --config FILE.")
    text, found = _drafted(source, None if config is None else _reading(config, data_set), out)
    if out is None:
        print_output({"text": text}, text.removesuffix("\n"), as_json=as_json)
        return
    require_new(out, replace=force)
    write_file(out, text)
    print_output({"file": str(out), "text": text}, f"{out}: {found}", as_json=as_json)


def _drafted(source: Path, declared: Reading | None, out: Path | None) -> tuple[str, str]:
    """Draft a dictionary. Also say how much it describes. A file that it names is found from its own folder."""
    if source.name.lower().endswith(_FREQUENCIES):
        variants = len(read_frequencies(source))
        named = os.path.relpath(source, Path() if out is None else out.parent)
        return draft_of_panel(Path(named).as_posix()), counted(variants, "variant")
    variants_of = outline_of_variants(source)
    columns = variants_of or (outline_of(source) if declared is None else outline_of(source, declared))
    if variants_of is None and (declared is None or declared.names is None):
        _require_names([name for name, kind in columns if kind is None])  # files that state types state names, too
    return draft(columns), counted(len(columns), "column" if variants_of is None else "variant")


def _require_names(names: Sequence[str]) -> None:
    """Refuse names that are values: a draft is public, and the first line of the file may be a row."""
    check(
        not has_values_as_names(names),
        "Some names of columns are numbers, so the first line may be a row, which a dictionary would make public.",
        "If it is a row, list the names of columns as names under [reading] in a provider's settings, and use "
        "--config. If these are names, rename those columns.",
    )
    alike = sum(map(may_be_value, names))
    if alike:
        typer.echo(
            f"Warning: {alike} of {len(names)} names of columns look like values, or like a comment. If the first line "
            "of the file is a row, it is now in this draft. Then delete the draft, and list names under [reading].",
            err=True,
        )


@dictionary.command("check", epilog=CHECK_CODES)
def _check(
    file: Annotated[Path, typer.Argument(help="A dictionary: TOML or JSON.", show_default=False)],
    other: Annotated[
        Path | None, typer.Argument(help="Another dictionary to compare it with.", show_default=False)
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check a dictionary and print its digest. With OTHER, list every difference between the two.

    Dictionaries with the same digest mean the same. Comments and the order of features make no difference.
    """
    files = [file] if other is None else [file, other]
    problems = [str(fault) for each in files for fault in dictionary_faults(each)]
    if problems:
        print_output({"passed": False, "problems": problems}, *map(printable, problems), as_json=as_json)
        raise typer.Exit(CHECK_FAILED)
    one, *others = map(read_dictionary, files)
    found = differences(one, others[0]) if others else []
    if as_json:
        typer.echo(to_json(_facts(files, [one, *others], found)))
    else:
        _print(files, [one, *others], found)
    if found:
        raise typer.Exit(CHECK_FAILED)


def _reading(config: Path, data_set: str | None) -> Reading:
    settings = read_data_settings(config)
    return settings.reading_of(settings.chosen(data_set))


def _facts(files: list[Path], read: list[Dictionary], found: list[tuple[str, str, Any, Any]]) -> dict[str, Any]:
    listed = [
        {
            "file": str(file),
            "digest": each.digest(),
            "features": len(each.features),
            "columns": list(each.columns),
            "norm_bound": each.norm_bound(),
            "remarks": remarks(each),
        }
        for file, each in zip(files, read, strict=True)
    ]
    named = [dict(zip(("feature", "key", "first", "second"), each, strict=True)) for each in found]
    return {"passed": not found, "problems": [], "dictionaries": listed, "differences": named}


def _print(files: list[Path], read: list[Dictionary], found: list[tuple[str, str, Any, Any]]) -> None:
    for file, each in zip(files, read, strict=True):
        typer.echo(printable(f"{file}: {len(each.features)} features, {len(each.columns)} columns when prepared."))
        typer.echo(f"digest {each.digest()}")
        typer.echo(f"norm bound of all features: {each.norm_bound():.6g}")
        for sentence in remarks(each):
            typer.echo(printable(sentence))
    if len(read) == 1:
        print_table(("feature", "kind", "unit", "range or levels", "centre"), _rows(read[0]))
        if len(read[0].features) > _MOST_SHOWN:
            typer.echo(f"{len(read[0].features) - _MOST_SHOWN} more features. --json lists all columns.")
    elif found:
        typer.echo(f"{counted(len(found), 'difference')}:")
        shown = [(name, key, _cell(one), _cell(two)) for name, key, one, two in found[:_MOST_SHOWN]]
        print_table(("feature", "key", str(files[0]), str(files[1])), shown)
        if len(found) > _MOST_SHOWN:
            typer.echo(f"{counted(len(found) - _MOST_SHOWN, 'more difference')}. --json lists all.")
    else:
        typer.echo("The two mean the same.")


def _rows(read: Dictionary) -> Iterator[tuple[str, ...]]:
    for each in read.features[:_MOST_SHOWN]:
        yield each.name, str(each.kind), each.unit, _allowed(each), _centre(each)


def _allowed(feature: Feature) -> str:
    if isinstance(feature, Category):
        return ", ".join(feature.levels)
    low, high = feature.range
    return f"{low:g} to {high:g}"


def _centre(feature: Feature) -> str:
    return ", ".join(f"{each:g}" for each in feature.shares) if isinstance(feature, Category) else f"{feature.centre:g}"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
