"""The command of a steward about files of rows: `dpspca data check`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.filesize import decimal

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AsJson
from dpspca.cli.render import print_table, print_text, show_rows, to_json
from dpspca.client.steward import Examined, about_absent, examine_file, examine_settings, reading_of_file
from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage import Reading, read_data_settings
from dpspca.common.text import counted, printable
from dpspca.provider.data import (
    ColumnFacts,
    DataSetFacts,
    FeatureFacts,
    PreviewedFeature,
    PreviewedRow,
    memory_cap,
    preview_row,
)

CHECK_FAILED: Final = 1
_ROUNDING: Final = 1 + 1e-9
_MOST_COLUMNS: Final = 60
"""A table with more columns shows those with something to say. JSON has all."""

_NOBODY_IN_COLUMN: Final = (
    "an empty cell, a code in missing_codes, text that is not in the encoding, and a stored number of 2^52 or more "
    "(save it as text) name nobody"
)
_BY_SETTINGS: Final = "The settings say which dictionary describes a data set, so --dictionary is for a file alone."
DictionaryFile = Annotated[
    Path | None,
    typer.Option("--dictionary", help="For a file: a dictionary whose features are its columns.", show_default=False),
]

data = typer.Typer(
    name="data", no_args_is_help=True, help="Check the rows that a provider would offer, on the machine where they are."
)


@data.callback()
def _data() -> None:
    pass


@data.command("check", epilog=CHECK_CODES)
def _check(
    rows: Annotated[
        Path | None,
        typer.Argument(help="File, folder or pattern of rows. If left out: --config names them.", show_default=False),
    ] = None,
    *,
    config: Annotated[
        Path | None, typer.Option(help="Settings file (TOML) of the provider.", show_default=False)
    ] = None,
    data_set: Annotated[
        str | None, typer.Option(help="Check only this data set of the settings.", show_default=False)
    ] = None,
    dictionary: DictionaryFile = None,
    as_json: AsJson = False,
) -> None:
    """Describe the rows that a provider would offer: columns, missing values, rows of a person, memory.

    With a dictionary, also describe each feature: values outside the public range, levels, and suspected wrong units.

    The output tells about rows. It is for the steward: nothing is sent, and it should not be passed on.
    """
    check((rows is None) != (config is None), "Give either a file of rows or --config.", "See --help.")
    check(data_set is None or config is not None, "--data-set needs --config.", "Add --config FILE.")
    check(dictionary is None or rows is not None, _BY_SETTINGS, "Leave --dictionary out.")
    with show_rows("rows read", quiet=as_json) as progress:
        if rows is not None:
            found = [examine_file(rows, dictionary, progress)]
        else:
            found = _of_settings(config or Path(), data_set, progress)
    passed = all(each.passed for each in found)
    if as_json:
        typer.echo(to_json({"passed": passed, "data_sets": [each.to_dict() for each in found]}))
    else:
        for each in found:
            _print(each)
    if not passed:
        raise typer.Exit(CHECK_FAILED)


@data.command("preview", epilog=EXIT_CODES)
def _preview(  # noqa: PLR0913  # a command's flags are its parameters
    rows: Annotated[
        Path | None,
        typer.Argument(help="File, folder or pattern of rows. If left out: --config names them.", show_default=False),
    ] = None,
    *,
    config: Annotated[
        Path | None, typer.Option(help="Settings file (TOML) of the provider.", show_default=False)
    ] = None,
    data_set: Annotated[str | None, typer.Option(help="The data set of these settings.", show_default=False)] = None,
    dictionary: DictionaryFile = None,
    row: Annotated[int, typer.Option(help="Number of the row to show. The first row is 1.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show how one row is prepared by its dictionary, and where each number came from.

    The output shows a row. It is for the steward: nothing is sent, and it must not be passed on.
    """
    place, reading, persons, memory = _place_and_reading(rows, config, data_set, dictionary)
    with show_rows("rows read", quiet=as_json) as progress:
        shown = preview_row(place, reading, row, persons, memory=memory, progress=progress)
    if as_json:
        typer.echo(to_json(asdict(shown)))
        return
    print_text(printable(f"{place}: row {shown.row} of {shown.rows}.{_use_of(shown)}"))
    if shown.fault is not None:
        print_text(printable(shown.fault))
    if shown.features:
        print_table(("feature", "column", "read", "value", "remark", "prepared"), map(_previewed, shown.features))
    longer = " Jobs with that bound shorten the row to it." if shown.length > shown.norm_bound * _ROUNDING else ""
    print_text(f"Length {shown.length:.6g}. The norm bound of these features is {shown.norm_bound:.6g}.{longer}")
    if shown.absent:
        print_text(printable(about_absent(shown.absent)))


def _use_of(shown: PreviewedRow) -> str:
    if shown.is_of_nobody:
        return " It belongs to no person, and counts as a row of zeros."
    return "" if shown.is_usable else " It cannot be used, and counts as a row of zeros."


def _place_and_reading(
    rows: Path | None, config: Path | None, data_set: str | None, dictionary: Path | None
) -> tuple[Path, Reading, Path | None, int]:
    """Return where rows are, how they are read with a dictionary, whose they are, and in how much memory."""
    check((rows is None) != (config is None), "Give either a file of rows or --config.", "See --help.")
    if rows is not None:
        check(data_set is None, "--data-set needs --config.", "Add --config FILE.")
        check(dictionary is not None, "A preview needs a dictionary.", "Add --dictionary FILE.")
        return rows, reading_of_file(rows, dictionary), None, memory_cap(None)
    check(dictionary is None, _BY_SETTINGS, "Leave --dictionary out.")
    settings = read_data_settings(config or Path())
    described = sorted(settings.dictionaries)
    check(
        bool(described),
        "A preview needs a dictionary, and no data set of these settings has one.",
        "Declare one under [dictionaries], or use `dpspca data check`, which needs none.",
    )
    name = described[0] if data_set is None and len(described) == 1 else data_set
    if name is None:
        raise InvalidParameterError(
            "No data set is named.", f"Give --data-set. Those with a dictionary: {', '.join(described)}."
        )
    settings.require_name(name)
    check(
        name in described,
        f"The data set '{name}' has no dictionary.",
        "A preview needs one: declare it under [dictionaries].",
    )
    persons, memory = settings.persons.get(name), memory_cap(settings.memory_mebibytes)
    return settings.places[name], settings.reading_of(name), persons, memory


def _previewed(feature: PreviewedFeature) -> tuple[str, ...]:
    prepared = feature.prepared.items()
    values = [f"{value:.6g}" if len(prepared) == 1 else f"{column} {value:.6g}" for column, value in prepared]
    value = _shown_value(feature.value)
    unit = f" {feature.unit}" if isinstance(feature.value, float) and feature.unit else ""
    return (
        printable(feature.name),
        printable(feature.column),
        _shown_value(feature.read),
        value + unit,
        feature.remark,
        printable(", ".join(values)),
    )


def _shown_value(value: float | str | None) -> str:
    return "(missing)" if value is None else printable(value) if isinstance(value, str) else f"{value:.6g}"


def _of_settings(config: Path, only: str | None, progress: Callable[[int], None]) -> list[Examined]:
    return list(examine_settings(read_data_settings(config), only, progress))


def _print(examined: Examined) -> None:
    heading = f"{examined.name}: {examined.place}" if examined.name else str(examined.place)
    print_text(printable(heading))
    if examined.facts is None:
        print_text(printable(f"FAILED  {examined.problem}"))
        return
    for line in (*_size(examined.facts), *_times(examined), *examined.remarks):
        print_text(printable(line))
    if examined.facts.features:
        _print_features(examined.facts.features)
        return
    shown = _shown(examined.facts.columns)
    print_table(("column", "type", "missing", "unusable", "remark"), [_cells(place, column) for place, column in shown])
    if len(shown) < len(examined.facts.columns):
        print_text(f"{len(examined.facts.columns) - len(shown)} more columns. --json shows all.")


def _print_features(features: Sequence[FeatureFacts]) -> None:
    shown = features if len(features) <= _MOST_COLUMNS else [each for each in features if _is_odd_feature(each)]
    print_table(
        ("feature", "column", "unit", "allowed", "found", "missing", "outside", "no level", "unusable"),
        map(_feature_cells, shown[:_MOST_COLUMNS]),
    )
    if len(shown[:_MOST_COLUMNS]) < len(features):
        print_text(f"{len(features) - len(shown[:_MOST_COLUMNS])} more features. --json shows all.")


def _is_odd_feature(each: FeatureFacts) -> bool:
    counts = (each.missing, each.unusable, each.unknown, each.below, each.above)
    return any(counts) or each.is_constant or each.looks_swapped or each.has_thousands or each.suspicion is not None


def _feature_cells(each: FeatureFacts) -> tuple[str, ...]:
    allowed, found = each.range, (each.least, each.most)
    return (
        printable(each.name),
        printable(each.column),
        printable(each.unit),
        "" if allowed is None else f"{allowed[0]:g} to {allowed[1]:g}",
        "" if None in found else f"{found[0]:.6g} to {found[1]:.6g}",
        str(each.missing + each.without_triplet),
        str(each.below + each.above),
        str(each.unknown),
        str(each.unusable),
    )


def _size(facts: DataSetFacts) -> Iterator[str]:
    form = ", stored sparse" if facts.is_sparse else ""
    of = counted(len(facts.features), "feature") if facts.features else counted(len(facts.columns), "column")
    count = "counts" if facts.rows_as_zeros == 1 else "count"
    yield f"{counted(facts.rows, 'row')} of {of}{form}. {counted(facts.rows_as_zeros, 'row')} {count} as zeros."
    if facts.persons is not None:
        whose = facts.persons
        yield f"{counted(whose.persons, 'person')} with at most {counted(whose.most_rows, 'row')} each."
        belong = "belongs" if whose.rows_of_nobody == 1 else "belong"
        nobody = f"{counted(whose.rows_of_nobody, 'row')} {belong} to no person"
        why = _NOBODY_IN_COLUMN if whose.of_column else "an empty line names nobody"
        yield f"{nobody}: {why}." if whose.rows_of_nobody else f"{nobody}."
    sizes = facts.memory
    yield (
        f"Memory, about: {decimal(sizes.rows)} for the rows, {decimal(sizes.start)} while they are read, "
        f"{decimal(sizes.job)} while a job runs."
    )
    if sizes.scratch:
        yield (
            f"Scratch, on disk: {decimal(sizes.scratch)} for the rows, up to {decimal(sizes.scratch_job)} while a job "
            "runs."
        )


def _times(examined: Examined) -> Iterator[str]:
    yield f"Reading the rows took {examined.reading_seconds:.2g} s here. A provider reads them when it starts."
    seconds = examined.seconds
    if seconds is not None:
        matrix = "" if seconds.matrix is None else f", {seconds.matrix:.2g} s for a square matrix of all columns"
        yield (
            f"Time on this machine, about: {seconds.check:.2g} s to recognise the rows at the start, in addition to "
            f"reading them; {seconds.product:.2g} s for each product with 5 columns{matrix}."
        )


def _shown(columns: Sequence[ColumnFacts]) -> list[tuple[int, ColumnFacts]]:
    """Return the columns with their numbers. Of many, return those with something to say."""
    numbered = list(enumerate(columns, start=1))
    if len(columns) <= _MOST_COLUMNS:
        return numbered
    return [each for each in numbered if _is_odd(each[1])][:_MOST_COLUMNS]


def _is_odd(column: ColumnFacts) -> bool:
    return bool(column.missing or column.unusable or column.is_constant or column.is_index or column.suspicion)


def _cells(place: int, column: ColumnFacts) -> tuple[str, ...]:
    remarks = {
        "constant": column.is_constant,
        "numbers the rows": column.is_index,
        f"{column.suspicion}?": column.suspicion is not None,
        f"filled with {column.filled_with}": column.filled_with is not None,
    }
    holding = ", ".join(remark for remark, holds in remarks.items() if holds)
    return column.name or str(place), column.type, str(column.missing), str(column.unusable), holding
